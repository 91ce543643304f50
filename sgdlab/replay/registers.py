"""Values in as few places as can be, given out like registers."""

import heapq

import numpy as np


def allocate(born: np.ndarray, last_use: np.ndarray) -> tuple[np.ndarray, int]:
    """Gives every value a place that is its own from `born` to `last_use`.

    Values are served in order of birth, equal ones in the order given, and each takes the lowest free place. A place is
    free again for values born after the last use of the one before; so there are as many places as values that live at
    one time, and fewer are not enough.

    Args:
      born: int[V], the time at which each value is written.
      last_use: int[V], the time at which it is last read; earlier than `born` where it never is.

    Returns:
      int32[V], the place of each value, and the number of places.

    Example:
      >>> allocate(np.array([0, 1, 2]), np.array([1, 4, 3]))
      (array([0, 1, 0], dtype=int32), 2)
    """
    place, size = np.empty(born.size, np.int32), 0
    free: list[int] = []
    living: list[tuple[int, int]] = []  # (last use, place)
    begin, end = born.tolist(), np.maximum(born, last_use).tolist()
    for value in np.argsort(born, kind="stable").tolist():
        while living and living[0][0] < begin[value]:
            heapq.heappush(free, heapq.heappop(living)[1])
        if not free:
            free.append(size)
            size += 1
        place[value] = mine = heapq.heappop(free)
        heapq.heappush(living, (end[value], mine))
    return place, size
