"""Versions of the parameters in as few slots as can be, given out like registers."""

import heapq

import numpy as np


def assign(
    versions: np.ndarray, last: np.ndarray, reads: np.ndarray, when: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Gives slots to versions. A version lives from the use that completes it to the last one that reads it.

    A server uses its gradients in order; a use first reads the version that its gradient was computed on, then, if it
    completes an update, stores the new version. Gradients are computed, from versions as well, between uses.

    Args:
      versions: int[K], the version that the gradient of each use was computed on.
      last: bool[K], whether a use completes an update.
      reads: int[R], the version that each computation reads.
      when: int[R], the number of uses that precede each computation.

    Returns:
      int32[R], the slot that a computation reads; int32[K], the slot that a use reads; int32[K], the slot that it
      stores to, 0 where it completes no update; and the number of slots.

    Example:
      >>> read = np.array([0, 0, 1])
      >>> loads, reloads, stores, size = assign(read, np.ones(3, bool), read, np.arange(3))
      >>> reloads, stores, size
      (array([0, 0, 1], dtype=int32), array([1, 0, 0], dtype=int32), 2)
    """
    count = versions.size
    numbers = np.concatenate([[-1], np.flatnonzero(last)])  # the use that makes each version
    until = numbers.copy()
    np.maximum.at(until, versions, np.arange(count))
    np.maximum.at(until, reads, when)

    slot = np.full(numbers.size, -1, np.int64)
    slot[0], size, free = 0, 1, []
    expiring: dict[int, list[int]] = {}
    for version, at in enumerate(until.tolist()):
        expiring.setdefault(at, []).append(version)
    stores, made = np.zeros(count, np.int32), 0
    for use, complete in enumerate(last.tolist()):
        for version in expiring.pop(use, ()):
            if version <= made:
                heapq.heappush(free, int(slot[version]))
        if complete:
            made += 1
            if not free:
                free.append(size)
                size += 1
            slot[made] = stores[use] = heapq.heappop(free)
            if until[made] == use:  # nobody reads it
                heapq.heappush(free, int(slot[made]))
    return slot[reads].astype(np.int32), slot[versions].astype(np.int32), stores, size
