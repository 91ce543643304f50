"""Stale Synchronous Parallel, gradient by gradient: no worker runs further ahead of the slowest than a bound."""

import dataclasses
from collections.abc import Sequence

from sgdlab import arguments
from sgdlab.policies.base import Base
from sgdlab.policies.family import POLICIES
from sgdlab.policies.policy import Action, Take


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


@POLICIES.register(title="Bounded staleness", source="Ho et al. 2013")
def bounded_staleness(*, num_workers: int, bound: int = 2) -> BoundedStaleness:
    """A worker waits while it is more than `bound` gradients ahead of the slowest; see `protocols.bounded_staleness`.

    Args:
      num_workers: N.
      bound: most gradients that a worker may be ahead of the slowest one when it begins another.

    Raises:
      ValueError: where `bound` is below 0.

    Example:
      >>> policy = bounded_staleness(num_workers=2, bound=0)
      >>> _ = policy.start([0, 1])
      >>> policy.arrived(1.0, worker=0, version=0, seconds=1.0)
      [Take(worker=0, update=0), Close(update=0)]
      >>> policy.arrived(3.0, worker=1, version=0, seconds=3.0)
      [Take(worker=1, update=1), Close(update=1), Begin(worker=0, version=2), Begin(worker=1, version=2)]
    """
    arguments.whole("num_workers", num_workers)
    return BoundedStaleness(bound=arguments.whole("bound", bound, least=0))
