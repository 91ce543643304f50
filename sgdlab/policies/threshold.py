"""DropCompute and Anytime Minibatch, gradient by gradient: rounds that end by the clock."""

import dataclasses
import math

import numpy as np

from sgdlab import arguments
from sgdlab.policies.family import POLICIES
from sgdlab.policies.policy import Action, Wake
from sgdlab.policies.quotas import Quotas
from sgdlab.protocols.anytime import limits_of as limits_of_anytime
from sgdlab.protocols.dropcompute import limits_of as limits_of_dropcompute
from sgdlab.protocols.threshold import Limits


@dataclasses.dataclass
class Threshold(Quotas):
    """Rounds whose workers compute gradients, one after the other, until a threshold after the round's beginning.

    The threshold is given, or it is chosen from the times of the first rounds, which have none. Of these rounds only
    workers teach something that made all their gradients.

    Attributes:
      rounds: when workers stop.
      num_workers: N.
      learned: of each of the first rounds, the seconds of each worker's gradients.
      seen: worker -> the seconds of its gradients of the open round, while that teaches something.
      threshold: seconds from the beginning of a round; infinity while it is learned.
    """

    rounds: Limits = dataclasses.field(kw_only=True)
    num_workers: int = dataclasses.field(kw_only=True)
    learned: list[list[list[float]]] = dataclasses.field(default_factory=list, init=False)
    seen: dict[int, list[float]] = dataclasses.field(default_factory=dict, init=False)
    threshold: float = dataclasses.field(default=math.inf, init=False)

    def __post_init__(self) -> None:
        self.communication = self.rounds.communication
        self.threshold = self.rounds.seconds

    @property
    def single(self) -> bool:
        """Whether there is one worker, with one gradient in each round."""
        return self.num_workers == 1 and max(self.rounds.patient, self.rounds.most) == 1

    @property
    def _learning(self) -> bool:
        return len(self.learned) < self.rounds.window

    def quota(self, worker: int) -> float:
        """The largest number of gradients of a worker in a round."""
        return self.rounds.patient if self._learning else self.rounds.most

    def limit_entry(self) -> str:
        """The threshold, as an error names it."""
        return f"seconds={self.threshold:g}"

    def goes_on(self, now: float) -> bool:
        """Whether the threshold is not over."""
        deadline = self.opened + self.threshold
        return now < deadline if self.rounds.interrupt else now <= deadline

    def open(self, now: float) -> list[Action]:
        """The actions with which a round begins, and a timer for its end."""
        actions = super().open(now)
        if actions and self.rounds.interrupt and self.threshold < math.inf:
            actions.append(Wake(now + self.threshold))
        return actions

    def timer(self, now: float) -> list[Action]:
        """Gives up what is computed at the threshold; applies a complete round."""
        if self.closes is None and self.busy and self.rounds.interrupt and not self.goes_on(now):
            return self.give_up(now, sorted(self.busy))
        return super().timer(now)

    def learn(self, worker: int, seconds: float, *, came: bool = True) -> None:
        """Remembers the times of the first rounds."""
        if self._learning and came:
            self.seen.setdefault(worker, []).append(seconds)

    def lost(self, now: float, worker: int) -> list[Action]:
        """The worker is forgotten, with what it computed; its times of this round teach nothing."""
        self.seen.pop(worker, None)
        return super().lost(now, worker)

    def end(self, now: float) -> None:
        """Chooses the threshold after the last of the first rounds."""
        if not self._learning:
            return
        whole = [times for _, times in sorted(self.seen.items()) if len(times) == self.rounds.patient]
        self.seen = {}
        if whole:
            self.learned.append(whole)
            if not self._learning:
                self.threshold = self.rounds.choose([np.array(times) for times in self.learned])


@POLICIES.register(title="DropCompute", source="Giladi et al. 2023")
def dropcompute(
    *,
    num_workers: int,
    micro_batches: int = 4,
    seconds: float | None = None,
    window: int = 20,
    interrupt: bool = False,
    communication: float = 0.0,
) -> Threshold:
    """Every worker computes M micro-batches on the newest version, or fewer if time is up; see `protocols.dropcompute`.

    Args:
      num_workers: N.
      micro_batches: M, gradients of a worker for one update.
      seconds: tau, the compute threshold, from the beginning of a round; infinity: none. None: chosen from the first
        rounds.
      window: number of rounds without a threshold from which it is chosen.
      interrupt: whether a micro-batch is given up at the threshold; else one that was begun by then is kept.
      communication: T_c, seconds from the end of a round's last micro-batch to its update.

    Raises:
      ValueError: where an argument is out of its range.

    Example:
      >>> policy = dropcompute(num_workers=2, micro_batches=2, seconds=1.5)
      >>> _ = policy.start([0, 1]), policy.arrived(1.0, worker=0, version=0, seconds=1.0)
      >>> policy.arrived(1.8, worker=1, version=0, seconds=1.8)
      [Take(worker=1, update=0)]
      >>> policy.arrived(2.0, worker=0, version=0, seconds=1.0)
      [Take(worker=0, update=0), Close(update=0), Begin(worker=0, version=1), Begin(worker=1, version=1)]
    """
    workers = arguments.whole("num_workers", num_workers)
    rounds = limits_of_dropcompute(
        micro_batches=micro_batches, seconds=seconds, window=window, interrupt=interrupt, communication=communication
    )
    return Threshold(rounds=rounds, num_workers=workers)


@POLICIES.register(title="Anytime Minibatch", source="Ferdinand et al. 2019")
def anytime(
    *,
    num_workers: int,
    seconds: float | None = None,
    gradients: int = 2,
    window: int = 1,
    interrupt: bool = True,
    communication: float = 0.0,
) -> Threshold:
    """Every worker computes as many gradients on the newest version as a fixed time allows; see `protocols.anytime`.

    Args:
      num_workers: N.
      seconds: T, how long every round computes. None: (g + 1) times the mean time of a gradient in the first rounds.
      gradients: g, of a worker in each of these rounds; later ones have about as many on average.
      window: number of these rounds.
      interrupt: whether a gradient is given up when the time is over; else one that was begun by then is used.
      communication: seconds from the end of a round's computing to its update.

    Raises:
      ValueError: where an argument is out of its range.
    """
    workers = arguments.whole("num_workers", num_workers)
    rounds = limits_of_anytime(
        seconds=seconds, gradients=gradients, window=window, interrupt=interrupt, communication=communication
    )
    return Threshold(rounds=rounds, num_workers=workers)
