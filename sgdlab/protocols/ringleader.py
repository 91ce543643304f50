"""Ringleader ASGD: rounds in which every worker's arrival makes one update (Maranjyan and Richtarik 2025)."""

import dataclasses

from sgdlab import arguments
from sgdlab.bounds import Count
from sgdlab.protocols.policy import Action, Base, Begin, Take
from sgdlab.protocols.register import register

POINTS = ("own", "newest")
"""On which version a worker goes on between its updates: its own, or the newest."""


@dataclasses.dataclass
class Ringleader(Base):
    """Gradients are collected until every worker has one; then the arrival of each worker makes an update.

    All gradients are taken. A worker that is lost is waited for no more, in either phase; what it has sent stays in
    this round. Should all have come by its loss, the next arrival closes the update. One that joins while gradients are
    collected is waited for as the others are; otherwise the round goes on without it.

    Attributes:
      points: one of `POINTS`.
      there: workers that have a gradient in the table that is collected: this round's, or the next round's.
      waiting: workers whose arrival is to make an update of this round; none while gradients are collected.
    """

    points: str = "own"
    there: set[int] = dataclasses.field(default_factory=set, init=False)
    waiting: set[int] = dataclasses.field(default_factory=set, init=False)

    def held(self) -> set[int]:
        """The versions that workers compute on, and may go on with."""
        return set(self.busy.values()) if self.points == "own" else set()

    def arrival(self, now: float, worker: int, version: int, seconds: float) -> list[Action]:
        """Takes every gradient; the worker has the new version if it has made an update."""
        taken = Take(worker, self.version)
        if self.waiting:
            closes = worker in self.waiting
            self.waiting.discard(worker)
        else:
            closes = len(self.there) + (worker not in self.there) == len(self.alive)
            if closes:
                self.there, self.waiting = set(), self.alive - {worker}
        if closes:
            return [taken, self.close(), *self.begin([worker])]
        self.there.add(worker)
        if self.points == "newest":
            return [taken, *self.begin([worker])]
        self.busy[worker] = version
        return [taken, Begin(worker, version)]

    def lost(self, now: float, worker: int) -> list[Action]:
        """Nobody waits for the worker any more."""
        self.there.discard(worker)
        self.waiting.discard(worker)
        return super().lost(now, worker)


@register(
    "ringleader",
    title="Ringleader ASGD",
    source="Maranjyan and Richtarik 2025",
    families=("Heterogeneous data",),
    rule="ringleader",
)
def ringleader(*, num_workers: Count, points: str = "own") -> Ringleader:
    """Rounds of n updates, one for each worker's arrival, after every worker has sent a gradient.

    First gradients are collected until each of the n workers has sent at least one; the last of these closes the first
    update of the round. Then the arrival of each other worker closes one. A worker begins on the new version when its
    arrival has closed an update, and goes on with its own version otherwise, so that nobody waits and no gradient is
    dropped; what comes from workers that have had their update is kept for the next round (by the rule `ringleader`).
    A gradient is at most 2 n - 2 updates old when it enters one.

    With one worker it is plain SGD. If all workers are equally fast, the n updates of the first round are made of
    gradients on the initial parameters.

    Args:
      num_workers: n.
      points: which version a worker goes on with after a gradient that has closed no update: its "own", as in the
        paper, or the "newest", as in the authors' code; that is fresher, and mixes versions in a worker's mean.

    Raises:
      ValueError: where `points` is another.

    Source: Maranjyan and Richtarik 2025 (arXiv 2509.22860): the two phases and the bound on the delay as a review of
    the paper describes them, the events as in the authors' code.

    Example:
      >>> policy = ringleader(num_workers=2)
      >>> _ = policy.start([0, 1])
      >>> policy.arrived(1.0, worker=0, version=0, seconds=1.0)
      [Take(worker=0, update=0), Begin(worker=0, version=0)]
      >>> policy.arrived(1.5, worker=1, version=0, seconds=1.5)
      [Take(worker=1, update=0), Close(update=0), Begin(worker=1, version=1)]
      >>> policy.arrived(2.0, worker=0, version=0, seconds=1.0)
      [Take(worker=0, update=1), Close(update=1), Begin(worker=0, version=2)]
    """
    return Ringleader(points=arguments.one_of("points", points, POINTS))
