"""Where steps begin in a sequence of operations that repeats itself with every step."""

from collections.abc import Sequence

import numpy as np

_LONGEST = 4096


def period(kinds: np.ndarray) -> tuple[int, int, int] | None:
    """The period of the longest stretch that repeats itself.

    With the longest run of i to j - 1 in which every operation is followed by its like p later, the stretch is
    i to j - 1 + p; of several p with a stretch of that length the shortest is taken. It must hold two periods.

    Args:
      kinds: int64[K], the kind of each operation, in order.

    Returns:
      The period, and the stretch's begin and end; None if nothing repeats itself.

    Example:
      >>> period(np.array([9, 0, 0, 1, 0, 0, 1, 0, 0, 1, 8]))
      (3, 1, 10)
    """
    best, found = 0, None
    for length in range(1, min(kinds.size // 2, _LONGEST) + 1):
        same = np.concatenate([[0], kinds[length:] == kinds[:-length], [0]]).astype(np.int8)
        edges = np.flatnonzero(np.diff(same))
        begins, ends = edges[::2], edges[1::2]
        if begins.size == 0:
            continue
        longest = int(np.argmax(ends - begins))
        stretch = int(ends[longest] - begins[longest]) + length
        if stretch >= 2 * length and stretch > best:
            best, found = stretch, (length, int(begins[longest]), int(begins[longest]) + stretch)
    return found


def begins(kinds: np.ndarray, gaps: np.ndarray) -> np.ndarray | None:
    """The operations with which steps begin.

    A step begins behind the longest gap, the forward pass. Where an operation comes once a period, steps begin with
    the one of these that has the longest gap before it, wherever it comes; else steps are counted off in the stretch
    that repeats itself.

    Args:
      kinds: int64[K], the kind of each operation, in order.
      gaps: float64[K], seconds between the operation before it and this one; NaN where unknown.

    Returns:
      int64[S], indices among the K; None if nothing repeats itself.

    Example:
      >>> kinds = np.array([9, 0, 1, 0, 1, 7, 0, 1])
      >>> begins(kinds, np.array([np.nan, 5.0, 1.0, 5.0, 1.0, 9.0, 5.0, 1.0]))
      array([1, 3, 6])
    """
    if (found := period(kinds)) is None:
        return None
    length, first, last = found
    phase = (np.arange(first, last) - first) % length
    waited = [_median(gaps[first:last][phase == place]) for place in range(length)]
    once = [place for place in range(length) if (kinds[first : first + length] == kinds[first + place]).sum() == 1]
    place = max(once or range(length), key=lambda place: waited[place])
    if once:
        return np.flatnonzero(kinds == kinds[first + place])
    return np.arange(first + place, last, length)


def numbered(names: Sequence[object]) -> np.ndarray:
    """int64[K]: equal numbers for equal names.

    Example:
      >>> numbered(["b", "a", "b"])
      array([0, 1, 0])
    """
    known: dict[object, int] = {}
    return np.array([known.setdefault(name, len(known)) for name in names], np.int64)


def _median(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if known.size else -np.inf
