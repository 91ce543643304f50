"""Orders of long arrays, equal entries as they stand: `by_time` and `by_number`, several times faster than NumPy's."""

import numpy as np


def by_time(times: np.ndarray) -> np.ndarray:
    """Indices that sort times; equal ones stay in order.

    The same as a stable `np.argsort`. NumPy's order without that promise is several times faster, and times are rarely
    equal: only the equal ones are put in order afterwards.

    Args:
      times: float64[K], seconds, none of them NaN.

    Returns:
      int64[K].

    Example:
      >>> by_time(np.array([3.0, 1.0, 3.0, 2.0]))
      array([1, 3, 0, 2])
    """
    order = np.argsort(times)
    rising = times[order]
    later = rising[1:] != rising[:-1]
    if later.all():
        return order
    group = np.zeros(times.size, np.int64)
    np.cumsum(later, out=group[1:])
    return _low_bits(np.sort(_joined(group, order)), times.size)


def by_number(numbers: np.ndarray, count: int) -> np.ndarray:
    """Indices that sort whole numbers; equal ones stay in order.

    Args:
      numbers: int[K], from 0 to `count` - 1, such as the worker of each gradient.
      count: how many different numbers there can be.

    Returns:
      int64[K].

    Example:
      >>> by_number(np.array([2, 0, 2, 1]), 3)
      array([1, 3, 0, 2])
    """
    if count <= np.iinfo(np.int16).max:
        return np.argsort(numbers.astype(np.int16), kind="stable")  # a radix sort, for 16 bits alone
    return _low_bits(np.sort(_joined(numbers.astype(np.int64), np.arange(numbers.size))), numbers.size)


def _joined(high: np.ndarray, index: np.ndarray) -> np.ndarray:
    """int64[K]: one number for each pair, whose order is that of `high`, then of `index`, 0 to K - 1."""
    return (high << index.size.bit_length()) | index


def _low_bits(pairs: np.ndarray, size: int) -> np.ndarray:
    return pairs & ((1 << size.bit_length()) - 1)
