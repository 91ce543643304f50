"""Stale Synchronous Parallel: no worker runs further ahead of the slowest than a bound (Ho et al. 2013)."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from sgdlab.bounds import Count, Whole
from sgdlab.knobs import Knob
from sgdlab.ordering import by_time
from sgdlab.protocols.policy import Action, Base, Take
from sgdlab.protocols.register import register
from sgdlab.runtimes import NotEnoughRuntimes
from sgdlab.schedule import PENDING, Schedule


@dataclasses.dataclass
class BoundedStaleness(Base):
    """Every gradient is an update; a worker waits while it is more than `bound` gradients ahead of the slowest.

    Where the slowest is lost, those that waited for it go on. Who joins counts as having done as many as the slowest,
    for all would wait for it otherwise. An event looks at other workers only where
    the slowest has moved.

    Attributes:
      bound: most gradients that a worker may be ahead of the slowest one when it begins another.
      done: worker -> its number of gradients, of workers that are there.
      least: the number of the slowest.
      at: number of gradients -> how many workers have done so many.
      waiting: workers that have done `least + bound + 1`.
    """

    bound: int = 0
    done: dict[int, int] = dataclasses.field(default_factory=dict, init=False)
    least: int = dataclasses.field(default=0, init=False)
    at: dict[int, int] = dataclasses.field(default_factory=dict, init=False)
    waiting: set[int] = dataclasses.field(default_factory=set, init=False)

    @property
    def single(self) -> bool:
        """Every gradient is an update."""
        return True

    def wanted(self) -> int:
        """One gradient."""
        return 1

    def start(self, workers: Sequence[int]) -> list[Action]:
        """All workers begin."""
        self.done = dict.fromkeys(workers, 0)
        self.at = {0: len(workers)}
        return super().start(workers)

    def arrival(self, now: float, worker: int, version: int, seconds: float) -> list[Action]:
        """Takes the gradient; its worker begins again or waits, and those whom it held up begin."""
        done = self.done[worker] + 1
        self._leave(worker)
        self.done[worker] = done
        self.at[done] = self.at.get(done, 0) + 1
        taken: list[Action] = [Take(worker, self.version), self.close()]
        return taken + self._release(worker)

    def lost(self, now: float, worker: int) -> list[Action]:
        """Releases the workers that only the lost one held up."""
        if worker in self.done:
            self._leave(worker)
            del self.done[worker]
            self.waiting.discard(worker)
        return super().lost(now, worker)

    def after_loss(self, now: float) -> list[Action]:
        """Whoever need not wait any more begins."""
        return self._release()

    def joined(self, now: float, worker: int) -> list[Action]:
        """The worker begins, as far as the slowest."""
        self.done[worker] = self.least
        self.at[self.least] = self.at.get(self.least, 0) + 1
        return super().joined(now, worker)

    def _leave(self, worker: int) -> None:
        """Takes a worker from its level."""
        level = self.done[worker]
        self.at[level] -= 1
        if not self.at[level]:
            del self.at[level]

    def _release(self, idle: int | None = None) -> list[Action]:
        """Moves `least` to the slowest there is; whoever may begins, the worker `idle` among them, or waits."""
        free = [] if idle is None else [idle]
        if self.at and self.least not in self.at:
            while self.least not in self.at:
                self.least += 1
            free += self.waiting
            self.waiting = set()
        self.waiting.update(worker for worker in free if self.done[worker] - self.least > self.bound)
        return self.begin(sorted(worker for worker in free if worker not in self.waiting))


def _fast(policy: BoundedStaleness, runtimes: np.ndarray, num_gradients: int | None) -> Schedule:
    """Makes the schedule in arrays; without a number of gradients it has all T N."""
    bound = policy.bound
    rows, workers = runtimes.shape
    limited = num_gradients is not None
    if limited and num_gradients > rows * workers:
        raise NotEnoughRuntimes.after(num_gradients, rows=rows, done=rows * workers, spare=True)
    num_gradients = num_gradients or rows * workers
    started, finished = np.empty_like(runtimes), np.empty_like(runtimes)
    released_by = np.empty(runtimes.shape, np.int64)  # row-major index of the gradient whose end begins this one
    every, slowest = np.arange(workers), np.zeros(rows, np.int64)
    for k in range(rows):
        own = (k - 1) * workers + every
        started[k], released_by[k] = (finished[k - 1], own) if k else (0.0, -1)
        if k > bound:
            # Of several slowest workers, the one with the highest number releases the others.
            row = k - bound - 1
            slowest[row] = workers - 1 - np.argmax(finished[row, ::-1])
            latest = finished[row, slowest[row]]
            waits = (latest > started[k]) | ((latest == started[k]) & (slowest[row] > every))
            started[k, waits], released_by[k, waits] = latest, row * workers + slowest[row]
        finished[k] = started[k] + runtimes[k]

    # Worker by worker, so that a stable sort by time leaves equal times in the order of the workers.
    order = np.arange(finished.size).reshape(rows, workers).T.ravel()[by_time(finished.T.ravel())]
    rank = np.empty(order.size + 1, np.int64)  # index in the order of arrival
    rank[order], rank[-1] = np.arange(order.size), -1
    # The arrival after which each worker would begin a gradient without a compute time: its own last, or the slowest's.
    again = rank[(rows - 1) * workers + every]
    if rows > bound:
        row = rows - bound - 1
        again = np.maximum(again, rank[row * workers + workers - 1 - int(np.argmax(finished[row, ::-1]))])
    known = int(again.min()) + 1
    if limited and num_gradients > known:
        raise NotEnoughRuntimes.after(num_gradients, rows=rows, done=known, spare=True)
    end = finished.ravel()[order[num_gradients - 1]]
    used = order[:num_gradients]
    rest = order[num_gradients:]
    pending = rest[(rank[released_by.ravel()[rest]] < num_gradients) & (started.ravel()[rest] < end)]
    rows_of = np.concatenate([used, pending])
    return Schedule(
        worker=rows_of % workers,
        read=rank[released_by.ravel()[rows_of]][:, None] + 1,
        update=np.concatenate([np.arange(num_gradients), np.full(pending.size, PENDING)])[:, None],
        started=started.ravel()[rows_of],
        arrived=finished.ravel()[rows_of][:, None],
        applied=finished.ravel()[used][:, None],
        num_workers=workers,
    )


@register(
    title="Bounded staleness",
    source="Ho et al. 2013",
    families=("Limits on staleness",),
    rule="asgd",
    fast=_fast,
    ends="all",
    waste="bound",
    tunes=Knob("bound", 1, 16, whole=True),
)
def bounded_staleness(*, num_workers: Count, bound: Whole = 2) -> BoundedStaleness:
    r"""Every gradient is an update of its own, but a worker waits while it is more than `bound` steps ahead.

    A worker that has done k gradients begins its next one once every worker has done at least k - bound:

    .. math:: s_{k,i} = \max(f_{k-1,i},\; \max_j f_{k-bound-1,j})

    with s and f the beginning and the end of a worker's k-th gradient. With a bound of 0 every gradient reads all
    gradients of the round before, as in `synchronous`; with a large one it is `asynchronous`. Without a number of
    gradients the schedule has all T N of its compute times. The method of this name is plain SGD, as in the paper.

    Args:
      num_workers: N.
      bound: most gradients that a worker may be ahead of the slowest one when it begins another.

    Example:
      >>> from sgdlab import protocols
      >>> schedule = protocols.bounded_staleness(np.array([[1.0, 3.0], [1.0, 3.0]]), bound=0)
      >>> schedule.started, schedule.read[:, 0]
      (array([0., 0., 3., 3.]), array([0, 0, 2, 2], dtype=int32))
    """
    return BoundedStaleness(bound=bound)
