"""Softsync and asynchronous SGD, gradient by gradient: every n arrivals are an update, and nobody waits."""

import dataclasses

from sgdlab import arguments
from sgdlab.policies.base import Base
from sgdlab.policies.family import POLICIES
from sgdlab.policies.policy import Action, Take


@dataclasses.dataclass
class Softsync(Base):
    """Every `size` gradients that arrive, whatever their age, are an update; their workers begin again at once.

    Who is lost or joins changes nothing for the others.

    Attributes:
      size: number of gradients per update.
      count: how many the open update has.
    """

    size: int = 1
    count: int = dataclasses.field(default=0, init=False)

    @property
    def single(self) -> bool:
        """Whether an update has one gradient."""
        return self.size == 1

    def wanted(self) -> int:
        """Number of gradients per update."""
        return self.size

    def arrival(self, now: float, worker: int, version: int, seconds: float) -> list[Action]:
        """Takes every gradient."""
        actions: list[Action] = [Take(worker, self.version)]
        self.count += 1
        if self.count == self.size:
            self.count = 0
            actions.append(self.close())
        return actions + self.begin([worker])


@POLICIES.register(title="Asynchronous SGD", source="Dean et al. 2012")
def asynchronous(*, num_workers: int) -> Softsync:
    """Every gradient is an update of its own; see `protocols.asynchronous`.

    Args:
      num_workers: N.

    Example:
      >>> policy = asynchronous(num_workers=2)
      >>> policy.start([0, 1])
      [Begin(worker=0, version=0), Begin(worker=1, version=0)]
      >>> policy.arrived(1.5, worker=1, version=0, seconds=1.5)
      [Take(worker=1, update=0), Close(update=0), Begin(worker=1, version=1)]
    """
    arguments.whole("num_workers", num_workers)
    return Softsync(size=1)


@POLICIES.register(title="Softsync", source="Zhang et al. 2015b")
def softsync(*, num_workers: int, gradients_per_update: int = 4) -> Softsync:
    """Every n gradients are an update; see `protocols.softsync`.

    Args:
      num_workers: N.
      gradients_per_update: n, number of gradients that one update averages.

    Raises:
      ValueError: where a number is below 1.
    """
    arguments.whole("num_workers", num_workers)
    return Softsync(size=arguments.whole("gradients_per_update", gradients_per_update))
