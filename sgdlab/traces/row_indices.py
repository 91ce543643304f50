"""Names and steps of rows as indices."""

import re

import numpy as np

from sgdlab.traces.cells import Names


def ordered(names: Names) -> tuple[tuple[str, ...], np.ndarray]:
    """The sorted names, digits in them by value, and each row's index among them.

    Example:
      >>> ordered(Names(("w10", "w9"), np.array([0, 1, 1])))
      (('w9', 'w10'), array([1, 0, 0]))
    """
    # Every second part is digits, which are ordered by value: w2 before w10.
    parts = {name: re.split(r"([0-9]+)", name) for name in names.values}
    size = {
        name: [(len(part.lstrip("0")) if position % 2 else 0, part) for position, part in enumerate(split)]
        for name, split in parts.items()
    }
    in_order = sorted(size, key=size.__getitem__)
    place = {name: index for index, name in enumerate(in_order)}
    # Rows without a name, of code -1, are given any index.
    return tuple(in_order), np.array([*(place[name] for name in names.values), 0], np.int64)[names.codes]


def indexed(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct whole numbers, rising, and each row's index among them: as `np.unique`, without sorting.

    Args:
      values: float64[R], whole numbers.

    Example:
      >>> indexed(np.array([7.0, 5.0, 7.0]))
      (array([5, 7]), array([1, 0, 1]))
    """
    whole = values.astype(np.int64)
    if whole.size == 0:
        return whole, whole
    least, most = int(whole.min()), int(whole.max())
    if most - least > 4 * whole.size + 1_000:
        distinct, index = np.unique(whole, return_inverse=True)
        return distinct, index
    whole -= least
    seen = np.zeros(most - least + 1, bool)
    seen[whole] = True
    place = np.cumsum(seen) - 1
    return np.flatnonzero(seen) + least, place[whole]
