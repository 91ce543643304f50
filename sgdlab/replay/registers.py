"""`allocate`: assigns values to as few slots as possible, as compilers assign registers."""

import heapq

import numpy as np


def allocate(born: np.ndarray, last_use: np.ndarray) -> tuple[np.ndarray, int]:
    """Assigns to every value a slot that no other value uses from `born` to `last_use`.

    Values are taken in order of `born` (equal ones in the order given), and each gets the lowest free slot. A slot is
    free again for values born after the last use of its value. So there are as many slots as values in use at one time,
    which is the least possible number.

    Args:
      born: int[V], the time at which each value is written.
      last_use: int[V], the time at which it is last read; earlier than `born` if it never is.

    Returns:
      int32[V], the slot of each value, and the number of slots.

    Example:
      >>> allocate(np.array([0, 1, 2]), np.array([1, 4, 3]))
      (array([0, 1, 0], dtype=int32), 2)
    """
    slot, size = np.empty(born.size, np.int32), 0
    free: list[int] = []
    living: list[tuple[int, int]] = []  # (last use, slot)
    begin, end = born.tolist(), np.maximum(born, last_use).tolist()
    for value in np.argsort(born, kind="stable").tolist():
        while living and living[0][0] < begin[value]:
            heapq.heappush(free, heapq.heappop(living)[1])
        if not free:
            free.append(size)
            size += 1
        slot[value] = lowest = heapq.heappop(free)
        heapq.heappush(living, (end[value], lowest))
    return slot, size
