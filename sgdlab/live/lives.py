"""`Lives`, which of a worker's processes computes a gradient, and from which of its messages that process goes on."""

import numpy as np

from sgdlab.live.by_ticket import ByTicket

ANEW = -1
"""In the place of a ticket: the process has sent nothing that was used, and begins with nothing of its own."""


class Lives:
    """Counts the processes of each worker, and says after which message the present one goes on.

    What a worker keeps from one message to its next, such as the state of its optimizer, is what it had after the last
    of its messages that was used: one that was dropped, interrupted, refused or lost leaves no trace, as in a
    simulation. A process that joins has nothing, and begins anew, whether it is a worker's first, takes the place of
    one that died, or follows a server that was started again. A worker that was silent, and whose process lives, goes
    on.

    Example:
      >>> lives = Lives()
      >>> lives.joined(3)
      >>> lives.begun(ticket=0, worker=3), lives.used(0, worker=3), lives.begun(ticket=1, worker=3)
      (-1, None, 0)
      >>> lives.joined(3)
      >>> lives.begun(ticket=2, worker=3), lives.of(np.array([1, 2]))
      (-1, array([0, 1]))
    """

    def __init__(self) -> None:
        self._count: dict[int, int] = {}
        self._after: dict[int, int] = {}
        self._lives = ByTicket()

    def joined(self, worker: int) -> None:
        """A new process of a worker is ready, or one that serves a new run."""
        self._count[worker] = self._count.get(worker, -1) + 1
        self._after[worker] = ANEW

    def begun(self, ticket: int, worker: int) -> int:
        """A worker begins a gradient; one that has never joined will do so with its first process.

        Returns:
          The ticket after which it goes on, or `ANEW`.
        """
        self._lives[ticket] = self._count.get(worker, 0)
        return self._after.get(worker, ANEW)

    def used(self, ticket: int, worker: int) -> None:
        """A worker's message has entered an update."""
        self._after[worker] = ticket

    def of(self, tickets: np.ndarray) -> np.ndarray:
        """int64[G]: which of its worker's processes, counted from 0, computed the gradients of these tickets."""
        return self._lives.of(tickets).astype(np.int64)


def begins_anew(worker: np.ndarray, life: np.ndarray, read: np.ndarray, update: np.ndarray | None = None) -> np.ndarray:
    """int32[R]: the version from which the worker of each message begins anew; -1 where it goes on.

    Args:
      worker: int[R], of the messages that are used, those of each worker in their order.
      life: int[R], which of the worker's processes, as `Lives.of`.
      read: int[R], the version that each has read.
      update: int[R], the update that each entered, where a worker also begins anew that has missed an update: it has
        read another version than that which its last message has made. None: it does not.

    Example:
      >>> begins_anew(np.array([0, 1, 0, 0]), np.array([0, 0, 0, 1]), np.array([0, 0, 1, 2]))
      array([ 0,  0, -1,  2], dtype=int32)
      >>> begins_anew(np.zeros(3, int), np.zeros(3, int), np.array([0, 1, 3]), np.array([0, 1, 3]))
      array([ 0, -1,  3], dtype=int32)
    """
    order = np.argsort(worker, kind="stable")
    first = np.ones(worker.size, bool)
    first[order[1:]] = (np.diff(worker[order]) != 0) | (np.diff(life[order]) != 0)
    if update is not None:
        first[order[1:]] |= read[order[1:]] != update[order[:-1]] + 1
    return np.where(first, read, ANEW).astype(np.int32)
