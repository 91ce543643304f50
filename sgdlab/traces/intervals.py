"""Sets of times as intervals: how much of a step is covered by any of many events that may overlap."""

import numpy as np


def union(begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return disjoint intervals, in order, that cover the same times.

    Args:
      begin: float64[K].
      end: float64[K], not before the begin.

    Returns:
      Begins and ends, float64[M] each, with M <= K.

    Example:
      >>> union(np.array([4.0, 0.0, 1.0]), np.array([5.0, 2.0, 3.0]))
      (array([0., 4.]), array([3., 5.]))
    """
    if begin.size == 0:
        return begin.astype(np.float64), end.astype(np.float64)
    order = np.argsort(begin, kind="stable")
    begin, latest = begin[order], np.maximum.accumulate(end[order])
    first = np.concatenate([[True], begin[1:] > latest[:-1]])
    return begin[first], latest[np.concatenate([first[1:], [True]])]


def covered(begin: np.ndarray, end: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the time of each window that lies in at least one of the intervals.

    Args:
      begin: float64[K] of the intervals, which may overlap.
      end: float64[K].
      left: float64[S] of the windows.
      right: float64[S].

    Returns:
      float64[S], from 0 to right - left.

    Example:
      >>> covered(np.array([0.0, 1.0]), np.array([2.0, 3.0]), np.array([0.5, 2.5]), np.array([1.5, 9.0]))
      array([1. , 0.5])
    """
    begin, end = union(begin, end)
    if begin.size == 0:
        return np.zeros(np.shape(left))
    total = np.concatenate([[0.0], np.cumsum(end - begin)])

    def until(time: np.ndarray) -> np.ndarray:
        index = np.searchsorted(begin, time, side="right")  # so many intervals have begun
        return total[index] - np.where(index > 0, np.maximum(end[index - 1] - time, 0.0), 0.0)

    return until(right) - until(left)


def difference(
    first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return disjoint intervals that cover the times of the first set which the second does not cover.

    Example:
      >>> difference((np.array([0.0]), np.array([5.0])), (np.array([1.0]), np.array([2.0])))
      (array([0., 2.]), array([1., 5.]))
    """
    points = np.unique(np.concatenate([*first, *second]))
    left, right = points[:-1], points[1:]
    kept = (covered(*first, left, right) > 0) & (covered(*second, left, right) == 0)
    return union(left[kept], right[kept])


def exposed(
    parts: dict[str, tuple[np.ndarray, np.ndarray]],
    hidden_by: tuple[np.ndarray, np.ndarray],
    left: np.ndarray,
    right: np.ndarray,
) -> dict[str, np.ndarray]:
    """Return the time of each window in which a part is under way, and nothing of what hides it.

    Where two parts overlap, the time belongs to the one that comes first among `parts`, so that they add up.

    Args:
      parts: name -> begins and ends, float64[K] each.
      hidden_by: begins and ends of what hides all parts.
      left: float64[S] of the windows.
      right: float64[S].

    Returns:
      Name -> float64[S].

    Example:
      >>> transfer = {"all_reduce": (np.array([2.0]), np.array([6.0]))}
      >>> exposed(transfer, (np.array([0.0]), np.array([3.0])), np.array([0.0]), np.array([10.0]))
      {'all_reduce': array([3.])}
    """
    begin, end = union(*hidden_by)
    before, times = covered(begin, end, left, right), {}
    for name, (part_begin, part_end) in parts.items():
        begin, end = union(np.concatenate([begin, part_begin]), np.concatenate([end, part_end]))
        now = covered(begin, end, left, right)
        times[name] = np.maximum(now - before, 0.0)
        before = now
    return times
