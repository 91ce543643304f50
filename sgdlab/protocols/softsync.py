"""Softsync and asynchronous SGD: every n arrivals are an update, and nobody waits."""

import dataclasses

import numpy as np

from sgdlab.bounds import Count
from sgdlab.knobs import Knob
from sgdlab.protocols.fast_arrivals import arrivals
from sgdlab.protocols.policy import Action, Base, Take
from sgdlab.protocols.register import register
from sgdlab.schedule import PENDING, Schedule


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
        """Tell whether an update has one gradient."""
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


def _fast(policy: Softsync, runtimes: np.ndarray, num_gradients: int | None) -> Schedule:
    size = policy.size
    gradients = arrivals(runtimes, num_gradients, multiple=size)
    rows = np.arange(gradients.worker.size)
    return Schedule(
        worker=gradients.worker,
        read=gradients.seen[:, None] // size,
        update=np.where(rows < gradients.count, rows // size, PENDING)[:, None],
        started=gradients.started,
        arrived=gradients.arrived[:, None],
        applied=gradients.arrived[size - 1 : gradients.count : size, None],
        num_workers=gradients.num_workers,
    )


@register(
    title="Softsync",
    source="Zhang et al. 2015b",
    families=("Limits on staleness",),
    fast=_fast,
    tunes=Knob("gradients_per_update", 0.0625, 1.0, whole=True, per_worker=True),
)
def softsync(*, num_workers: Count, gradients_per_update: Count | None = None) -> Softsync:
    """Every n gradients that arrive are one update; their workers read the newest parameters and begin again at once.

    With n = 1 it is `asynchronous`. With N workers the mean staleness is about N / n, counted in updates. The method of
    this name divides each gradient by its delay and has no momentum, as in the paper: the rule `fedbuff` with exponent
    1. The paper divides by the staleness, and by 1 where that is 0.

    Args:
      num_workers: N.
      gradients_per_update: n, number of gradients that one update averages. None: N / 2, rounded up.

    Example:
      >>> from sgdlab import protocols
      >>> schedule = protocols.softsync(np.array([[2.0, 3.0], [2.0, 3.0], [2.0, 3.0]]), gradients_per_update=2)
      >>> schedule.update[:, 0], schedule.read[:, 0]
      (array([ 0,  0,  1,  1, -2], dtype=int32), array([0, 0, 0, 1, 1], dtype=int32))
    """
    return Softsync(size=half_of(num_workers) if gradients_per_update is None else gradients_per_update)


def half_of(num_workers: int) -> int:
    """Half of the workers, rounded up: gradients per update where nothing else is said."""
    return -(-num_workers // 2)


@register(title="Asynchronous SGD", source="Dean et al. 2012", families=(), fast=_fast, never_waits=True)
def asynchronous(*, num_workers: Count) -> Softsync:
    """Every worker sends its gradient, reads what the server then has, and begins again at once.

    Gradient g, the g-th to arrive, is update g. Its worker had begun when its own previous gradient, the h-th,
    was applied, so it read version h + 1 (0 for a first gradient), and its staleness is g - h - 1. What arrives and is
    read at one instant is ordered by worker. `layerwise` sends and reads the layers one by one.

    Args:
      num_workers: N.

    Source: Dean et al. 2012; Barkai et al. 2020, Algorithms 1 and 2.

    Example:
      >>> from sgdlab import protocols
      >>> schedule = protocols.asynchronous(np.array([[2.0, 3.0], [2.0, 3.0], [2.0, 3.0]]), num_gradients=4)
      >>> schedule.worker[:4], schedule.read[:4, 0]
      (array([0, 1, 0, 0], dtype=int32), array([0, 0, 1, 3], dtype=int32))

      The policy, event by event:

      >>> policy = asynchronous(num_workers=2)
      >>> policy.start([0, 1])
      [Begin(worker=0, version=0), Begin(worker=1, version=0)]
      >>> policy.arrived(1.5, worker=1, version=0, seconds=1.5)
      [Take(worker=1, update=0), Close(update=0), Begin(worker=1, version=1)]
    """
    return Softsync(size=1)
