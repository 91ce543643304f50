"""Run-times relative to their step: what slows all workers of a step together cancels, a slow worker stands out."""

import numpy as np


def relative(runtimes: np.ndarray) -> np.ndarray:
    r"""Run-time over the median of its step.

    .. math:: r_{ti} = x_{ti} / \mathrm{median}_j x_{tj}

    Args:
      runtimes: float64[T, N], seconds.

    Returns:
      float64[T, N].

    Example:
      >>> relative(np.array([[1.0, 2.0, 3.0], [4.0, 4.0, 8.0]]))
      array([[0.5, 1. , 1.5],
             [1. , 1. , 2. ]])
    """
    return runtimes / np.median(runtimes, axis=1, keepdims=True)


def reference(runtimes: np.ndarray, slow: np.ndarray) -> np.ndarray:
    """Median of each step over the workers that are not slow in it; over all workers, if all are slow.

    The plain median of a step is itself raised by its slow workers: with 4 workers a little, with half of them slow by
    half of the slowness.

    Args:
      runtimes: float64[T, N], seconds.
      slow: bool[T, N], the run-times to leave out.

    Returns:
      float64[T], seconds.

    Example:
      >>> times = np.array([[1.0, 1.0, 3.0, 3.0], [1.0, 2.0, 3.0, 9.0]])
      >>> reference(times, times >= 3.0).tolist(), np.median(times, axis=1).tolist()
      ([1.0, 1.5], [2.0, 2.5])
    """
    result = np.median(runtimes, axis=1)
    rows = np.flatnonzero(slow.any(axis=1) & ~slow.all(axis=1))
    ordered = np.sort(np.where(slow[rows], np.inf, runtimes[rows]), axis=1)
    count = np.count_nonzero(~slow[rows], axis=1)
    row = np.arange(rows.size)
    result[rows] = (ordered[row, (count - 1) // 2] + ordered[row, count // 2]) / 2
    return result
