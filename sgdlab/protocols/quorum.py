"""A quorum and a grace window, with late messages used: the server of Decoupled DiLoCo (2026)."""

import dataclasses

from sgdlab import arguments
from sgdlab.bounds import Count, NotNegative
from sgdlab.protocols.policy import Action, Base, Take
from sgdlab.protocols.register import register
from sgdlab.protocols.rounds import Rounds


@dataclasses.dataclass
class Quorum(Rounds):
    """Rounds that take a message whatever its age, and whose grace window is a share of the time until the quorum.

    Attributes:
      grace: that share.
      waits: whether a worker waits for the update that its message is in; else it begins again at once, and an update
        can have several messages of it.
      opened: when the open update began, seconds.
    """

    grace: float = 0.0
    waits: bool = False
    opened: float = dataclasses.field(default=0.0, init=False)

    @property
    def single(self) -> bool:
        """Tell whether an update closes with its first message."""
        return self.at_least == 1 and self.grace == 0

    def arrival(self, now: float, worker: int, version: int, seconds: float) -> list[Action]:
        """Takes every message; the one that completes the quorum sets the grace window."""
        self.waiting.add(worker)
        if self.deadline is None:
            self.seconds = self.grace * (now - self.opened)
        actions = [Take(worker, self.version), *self._close_if_complete(now)]
        return actions if self.waits or worker in self.busy else actions + self.begin([worker])

    def joined(self, now: float, worker: int) -> list[Action]:
        """The worker begins, unless it waits: the open update has a message of its earlier life."""
        return super().joined(now, worker) if self.waits else Base.joined(self, now, worker)

    def _close_if_complete(self, now: float) -> list[Action]:
        everybody = bool(self.waiting) and self.alive <= self.waiting
        return self._close(now) if everybody else super()._close_if_complete(now)

    def _close(self, now: float) -> list[Action]:
        self.opened = now
        return super()._close(now)


@register(title="Quorum", source="Decoupled DiLoCo 2026", families=("Synchronous rounds",), rule=None)
def quorum(
    *, num_workers: Count, at_least: int | float = 0.5, grace: NotNegative = 0.25, waits: bool = False
) -> Quorum:
    r"""Every update waits for messages of K workers, of any age, then for a grace window, or until all have come.

    .. math:: a_k = \min\left(q_k + g\,(q_k - a_{k-1}),\; \text{when all have come}\right)

    a is when an update is applied, and q when the K-th worker's message comes. Nobody is interrupted and nothing is
    dropped: what is late is in a later update. A worker begins again at once on the newest version, or waits for the
    update that its message is in. A worker that is lost is not waited for. With K = 1 and no grace it is
    `asynchronous`; with K = N, and workers that wait, `synchronous`. `timeout` drops what is late.

    Args:
      num_workers: N.
      at_least: K, messages of a quorum: a whole number from 1 to N, or a share of N above 0.0 and at most 1.0. Where
        fewer workers are there, all of them are one.
      grace: g, the grace window as a share of the time until the quorum was there.
      waits: whether workers wait.

    Source: Decoupled DiLoCo for Resilient Distributed Pre-training (arXiv 2604.21428), of which an abstract and
    summaries were read: a reconstruction. The paper calls its window adaptive; that it is a share of the quorum's time
    is ours. There, learners go on with their own parameters, which the server's are merged into, and send fragments.

    Example:
      The slow worker's message, the third, is in the second update.

      >>> import numpy as np
      >>> from sgdlab import protocols
      >>> runtimes = np.array([[2.0, 2.4, 3.0]] * 3)
      >>> schedule = protocols.quorum(runtimes, at_least=2, grace=0.0, waits=True, num_gradients=4)
      >>> schedule.worker, schedule.update[:, 0], schedule.applied[:, 0]
      (array([0, 1, 2, 0, 1], dtype=int32), array([ 0,  0,  1,  1, -2], dtype=int32), array([2.4, 4.4]))
    """
    least = arguments.share("at_least", at_least, num_workers, "workers")
    return Quorum(at_least=least, grace=grace, waits=bool(waits))
