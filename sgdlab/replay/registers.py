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
    order, end = np.argsort(born, kind="stable"), np.maximum(born, last_use)
    begin = born[order]
    if (end[order[:-1]] < begin[1:]).all():  # no two values are in use at one time
        return np.zeros(born.size, np.int32), min(born.size, 1)
    by_end = np.argsort(end, kind="stable")
    # Before the i-th value is written, the first ended[i] values of `by_end` have been read for the last time.
    ended = np.searchsorted(end[by_end], begin).tolist()
    slot, free, size, done = [0] * born.size, [], 0, 0
    by_end = by_end.tolist()
    for value, until in zip(order.tolist(), ended, strict=True):
        if until > done:
            for gone in by_end[done + 1 : until]:
                heapq.heappush(free, slot[gone])
            slot[value] = heapq.heappushpop(free, slot[by_end[done]])
            done = until
        elif free:
            slot[value] = heapq.heappop(free)
        else:
            slot[value] = size
            size += 1
    return np.array(slot, np.int32), size
