"""Ringmaster ASGD and Rennala SGD, gradient by gradient: nobody waits, and gradients that are too old are dropped."""

import dataclasses

from sgdlab import arguments
from sgdlab.policies.family import POLICIES
from sgdlab.policies.policy import Action, Drop, Interrupt, Take
from sgdlab.policies.softsync import Softsync


@dataclasses.dataclass
class Collect(Softsync):
    """Softsync of gradients with a delay (staleness + 1) of at most `max_delay`; others are dropped.

    Who is lost or joins changes nothing for the others.

    Attributes:
      size: number of gradients per update.
      max_delay: largest delay of a gradient that is used, in updates.
      interrupt: whether a worker gives up its gradient as soon as it is too old, rather than when it has come.
      count: how many gradients the open update has.
    """

    max_delay: int = 1
    interrupt: bool = False

    def limit(self, update: int) -> int:
        """The largest delay of a gradient that enters this update."""
        return self.max_delay

    def arrival(self, now: float, worker: int, version: int, seconds: float) -> list[Action]:
        """Takes a gradient that is young enough; workers that its update makes too late are interrupted before it."""
        if self.version - version >= self.limit(self.version):
            return [Drop(worker), *self.begin([worker])]
        actions: list[Action] = [Take(worker, self.version)]
        late: list[int] = []
        self.count += 1
        if self.count == self.size:
            self.count = 0
            if self.interrupt:
                after = self.version + 1
                late = sorted(w for w, read in self.busy.items() if after - read >= self.limit(after))
            actions += [*map(Interrupt, late), self.close()]
        return actions + self.begin(sorted([worker, *late]))


@POLICIES.register(title="Rennala SGD", source="Tyurin and Richtarik 2023")
def rennala(*, num_workers: int, gradients_per_update: int = 4) -> Collect:
    """Every update averages the first n gradients on the newest version, of any workers; see `protocols.rennala`.

    Args:
      num_workers: N.
      gradients_per_update: n, number of gradients that one update averages.

    Raises:
      ValueError: where a number is below 1.
    """
    arguments.whole("num_workers", num_workers)
    return Collect(size=arguments.whole("gradients_per_update", gradients_per_update), max_delay=1)


@POLICIES.register(title="Ringmaster ASGD", source="Maranjyan et al. 2025")
def ringmaster(*, num_workers: int, max_delay: int | None = None, interrupt: bool = False) -> Collect:
    """Every gradient is an update, unless its delay is more than R; see `protocols.ringmaster`.

    Args:
      num_workers: N.
      max_delay: R, the largest delay of a gradient that is used: the paper's condition is staleness < R. None: N.
      interrupt: whether a worker restarts as soon as its gradient is too old, rather than when it has finished it.

    Raises:
      ValueError: where a number is below 1.

    Example:
      >>> policy = ringmaster(num_workers=2, max_delay=1)
      >>> _ = policy.start([0, 1]), policy.arrived(1.0, worker=0, version=0, seconds=1.0)
      >>> policy.arrived(2.5, worker=1, version=0, seconds=2.5)
      [Drop(worker=1), Begin(worker=1, version=1)]
    """
    workers = arguments.whole("num_workers", num_workers)
    limit = workers if max_delay is None else arguments.whole("max_delay", max_delay)
    return Collect(size=1, max_delay=limit, interrupt=bool(interrupt))
