"""Rounds in which a worker computes several gradients, one after the other, on the same version: `Quotas`."""

import dataclasses
import heapq
import math
from collections.abc import Iterable, Sequence
from typing import Any

from sgdlab.protocols.policy import Action, Base, Interrupt, Take, Wake


@dataclasses.dataclass
class Quotas(Base):
    """Rounds in which worker i makes up to m_i trials, one after the other, on the newest version.

    A trial is a gradient that was begun. One that takes longer than the worker's `limit` is given up; it counts as a
    trial, and enters no update. The round is complete when nobody computes any more: what has come is an update,
    `communication` seconds later. A round to which no trial gave a gradient makes no update (the step is zero), and the
    next one is on the same version.

    A worker that is lost is waited for no longer. One that joins makes the trials of the open round that it has left;
    while a complete round is on its way, it waits for the next.

    Subclasses say how many trials a worker has (`quota`), how long one may take (`limit`), and what they learn.

    Attributes:
      communication: seconds from the end of a round's last trial to its update.
      opened: when the round began, seconds.
      made: worker -> number of its trials of the round that have ended.
      taken: number of gradients of the open update.
      closes: when a complete round is applied, seconds; None while one is computed.
      begun: worker -> when its trial was begun, seconds.
      deadlines: worker -> when its trial is given up, seconds; of those that have a limit.
      queue: the same as a heap, with those that are outlived.
    """

    communication: float = 0.0
    opened: float = dataclasses.field(default=0.0, init=False)
    made: dict[int, int] = dataclasses.field(default_factory=dict, init=False)
    taken: int = dataclasses.field(default=0, init=False)
    closes: float | None = dataclasses.field(default=None, init=False)
    begun: dict[int, float] = dataclasses.field(default_factory=dict, init=False)
    deadlines: dict[int, float] = dataclasses.field(default_factory=dict, init=False)
    queue: list[tuple[float, int]] = dataclasses.field(default_factory=list, init=False)

    def quota(self, worker: int) -> float:
        """Return how many trials the worker makes in the round, at least 1; infinity where only time ends it."""
        raise NotImplementedError

    def limit(self, worker: int) -> float:
        """Seconds that the worker's trial may take, which it begins now or has begun; infinity where it has no limit.

        Where that can change while the trial runs, the subclass calls `limit_running` when there is a first limit; one
        that has grown by the time at which the trial was to be given up is looked at by itself.
        """
        return math.inf

    def goes_on(self, now: float) -> bool:
        """Tell whether a worker that has trials left may begin one now."""
        return True

    def choose(self) -> None:
        """Settles the quotas of the round that begins."""

    def learn(self, worker: int, seconds: float, *, came: bool = True) -> None:
        """A trial took so many seconds, or was given up after them and has not come."""

    def end(self, now: float) -> None:
        """The round's last trial has ended."""

    def start(self, workers: Sequence[int]) -> list[Action]:
        """All workers begin on the initial parameters."""
        self.alive = set(workers)
        return self.open(0.0)

    def open(self, now: float) -> list[Action]:
        """The actions with which a round begins."""
        self.opened, self.taken, self.made = now, 0, {}
        self.choose()
        return self.begin_at(now, sorted(worker for worker in self.alive if self.quota(worker) > 0))

    def begin_at(self, now: float, workers: Iterable[int]) -> list[Action]:
        """The actions with which workers begin trials, and timers for those that have a limit."""
        actions: list[Action] = []
        begins: Any = self.begin(workers)
        for begin in begins:
            self.begun[begin.worker] = now
            actions += [begin, *self._limited(now, begin.worker)]
        return actions

    def limit_running(self, now: float) -> list[Action]:
        """The timers of trials that were begun without a limit, of workers that have one now."""
        return [
            wake for worker in sorted(self.busy.keys() - self.deadlines.keys()) for wake in self._limited(now, worker)
        ]

    def _limited(self, now: float, worker: int) -> list[Action]:
        seconds = self.limit(worker)
        if seconds == math.inf:
            return []
        deadline = self.deadlines[worker] = max(self.begun[worker] + seconds, now)
        heapq.heappush(self.queue, (deadline, worker))
        return [Wake(math.nextafter(deadline, math.inf))]  # what comes at its deadline is in time

    def arrival(self, now: float, worker: int, version: int, seconds: float) -> list[Action]:
        """Takes every gradient; its worker begins the next, if it has trials left."""
        self.deadlines.pop(worker, None)
        self.learn(worker, seconds)
        self.made[worker] = self.made.get(worker, 0) + 1
        self.taken += 1
        return [Take(worker, self.version), *self._after(now, [worker])]

    def timer(self, now: float) -> list[Action]:
        """Gives up trials whose time is over; applies a complete round."""
        if self.closes is not None:
            return self._apply(now) if now >= self.closes else []
        late, longer = [], []
        while self.queue and self.queue[0][0] < now:
            deadline, worker = heapq.heappop(self.queue)
            if self.deadlines.get(worker) == deadline:
                del self.deadlines[worker]  # there may be two of a worker that was lost and came back at once
                (longer if self.begun[worker] + self.limit(worker) >= now else late).append(worker)
        wakes = [wake for worker in longer for wake in self._limited(now, worker)]
        return wakes + self.give_up(now, sorted(late)) if late else wakes

    def give_up(self, now: float, workers: Sequence[int]) -> list[Action]:
        """The actions with which workers give up what they compute; it counts as a trial."""
        for worker in workers:
            del self.busy[worker]
            self.deadlines.pop(worker, None)
            self.learn(worker, now - self.begun[worker], came=False)
            self.made[worker] = self.made.get(worker, 0) + 1
        return [*map(Interrupt, workers), *self._after(now, workers)]

    def lost(self, now: float, worker: int) -> list[Action]:
        """The worker is forgotten, with what it computed."""
        self.deadlines.pop(worker, None)
        return super().lost(now, worker)

    def after_loss(self, now: float) -> list[Action]:
        """The round is complete if nobody else computes."""
        return [] if self.busy or self.closes is not None else self._complete(now)

    def joined(self, now: float, worker: int) -> list[Action]:
        """The worker makes the trials that it has left in the open round."""
        self.alive.add(worker)
        if self.closes is not None:
            return []
        return self._after(now, [worker]) if self.busy else self.open(now)

    def _after(self, now: float, workers: Sequence[int]) -> list[Action]:
        more = [w for w in workers if self.made.get(w, 0) < self.quota(w)] if self.goes_on(now) else []
        actions = self.begin_at(now, more)
        return actions if self.busy else actions + self._complete(now)

    def _complete(self, now: float) -> list[Action]:
        self.end(now)
        at = now + self.communication
        if at > now:
            self.closes = at
            return [Wake(at)]
        return self._apply(now)

    def _apply(self, now: float) -> list[Action]:
        self.closes = None
        closing = [self.close()] if self.taken else []
        return [*closing, *self.open(now)]
