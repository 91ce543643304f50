"""A policy's run on a virtual clock: who computes what until when, and what the policy answers to it."""

import heapq
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from sgdlab.protocols.own_policies import returned
from sgdlab.protocols.policy import Action, Base, Begin, Close, Drop, Interrupt, Policy, Take, Wake
from sgdlab.protocols.recorder import schedule_of
from sgdlab.runtimes import too_short
from sgdlab.schedule import DROPPED, PENDING, Schedule
from sgdlab.traffic import Traffic

IN_VAIN = 1000
"""Gradients given up, or failures, for each worker, one after the other, after which a run is taken for endless."""

_AT_LEAST = 100
"""Workers that the bound on timers in vain counts at least: few workers may wait for a clock that ticks."""

_TIMER = -1
"""Stands for the worker of a timer: at one instant timers come first, then arrivals by worker number."""

NOT_BEGUN = -3
"""Stands for the update of a gradient that was interrupted at the instant at which it began, or before."""


class PolicyRun:
    """A policy, its workers and their clock; messages take no time.

    Subclasses say when what is begun starts and arrives (`send`), and in which order things happen.

    Args:
      policy: of the run.
      runtimes: float64[T, N], seconds.
      num_gradients: as for `simulate`, like those that follow.
      num_updates: most updates that the run may have.
      idle_at_end: whether a worker without compute times idles.
    """

    def __init__(
        self,
        policy: Policy,
        runtimes: np.ndarray,
        num_gradients: int | None,
        num_updates: int | None,
        idle_at_end: bool,
    ):
        self.policy, self.name = policy, f"policy={type(policy).__name__}"
        self.times = [column.tolist() for column in runtimes.T]
        self.num_gradients, self.num_updates, self.idle_at_end = num_gradients, num_updates, idle_at_end
        self.begun = [0] * len(self.times)
        self.current: dict[int, int] = {}  # worker -> ticket
        # Of each gradient, by its ticket, the number in the order in which gradients begin.
        self.worker: list[int] = []
        self.read: list[int] = []
        self.started: list[float] = []
        self.arrived: list[float] = []  # when it comes; where it is given up, when that is
        self.update: list[int] = []
        self.applied: list[float] = []
        self.heap: list[tuple[float, int, int]] = []  # when, worker, ticket; a timer stands before worker 0
        self.used = 0  # gradients of the updates that are closed
        self.came: int | None = None  # whose gradient has come, and is neither taken nor dropped
        self.open = 0  # gradients of the open update
        self.held: Callable[[], Collection[int]] | None = getattr(policy, "held", None)
        self.prepare = None if getattr(type(policy), "prepare", None) is Base.prepare else policy.prepare
        self.arrival = "arrival" if isinstance(policy, Base) else "arrived"  # what its author has written
        self.kept: Collection[int] = ()  # versions that were held when the last event was over
        self.given_up = 0  # gradients since one has come
        self.shortest = math.inf  # compute time of these
        self.woken = 0  # timers since one has come that were asked for in vain
        self.ended = False
        self.ran_out = False  # a worker that has to begin has no compute time, which ends the run
        self.exhausted = False  # the same, but it idles
        self.traffic: Traffic | None = None
        self.acts: dict[type, Callable[[Any, float], None]] = {
            Begin: self._begin,
            Take: self._take,
            Close: self._close,
            Drop: self._drop,
            Interrupt: self._interrupt,
            Wake: self._wake,
        }

    def until_it_ends(self) -> None:
        """Until enough gradients are used or updates made, or a worker that has to begin runs out of compute times."""
        policy, heap, current, begun, times = self.policy, self.heap, self.current, self.begun, self.times
        self._perform("start", policy.start(list(range(len(times)))), 0.0)
        while heap and not self.ended:
            if self.prepare is not None:
                self.prepare()
            now, worker, ticket = heapq.heappop(heap)
            if worker == _TIMER:
                self._perform("timer", policy.timer(now), now)
            elif current.get(worker) == ticket:
                self._come(now, worker, ticket, times[worker][begun[worker] - 1])

    def _come(self, now: float, worker: int, ticket: int, seconds: float) -> None:
        """A gradient has come, which took so many seconds: the policy says what becomes of it."""
        self.came, self.given_up, self.woken = worker, 0, 0
        self._perform(self.arrival, self.policy.arrived(now, worker, self.read[ticket], seconds), now)
        if self.came is not None:
            raise ValueError(f"{self.name} neither takes nor drops the gradient of worker {worker} at {now:g} s")

    def _perform(self, method: str, actions: Sequence[Action], now: float) -> None:
        for action in returned(self.policy, method, actions):
            act = self.acts.get(type(action))
            if act is None:
                raise ValueError(f"{self.name} answers {action!r}; it must be one of the actions")
            act(action, now)
            if self.ended:
                self.came = None
                return
        # One that makes its actions by hand may leave `version` alone.
        if method != "arrived" and isinstance(self.policy, Base) and self.policy.version > len(self.applied):
            raise ValueError(
                f"{self.name} is at version {self.policy.version} at {now:g} s, when {len(self.applied)} updates are "
                f"made: what `self.close()` returns must be among the actions that `{method}` returns"
            )
        if self.held is not None:
            self._keep(self.held(), now)

    def _keep(self, kept: Collection[int], now: float) -> None:
        """Checks that the policy holds the newest version, or versions that it has held before, and notes them."""
        newest = len(self.applied)
        if lost := [version for version in kept if version != newest and version not in self.kept]:
            raise ValueError(
                f"{self.name} holds version {lost[0]} at {now:g} s, when {newest} is the newest and it has held "
                f"{sorted(self.kept)}; it must hold a version from when that is the newest on"
            )
        self.kept = kept

    def _take(self, action: Take, now: float) -> None:
        worker, update = action
        if worker != self.came or update != len(self.applied):
            raise self._impossible(action, now)
        self.came = None
        self.update[self.current.pop(worker)] = update
        self.open += 1

    def _drop(self, action: Drop, now: float) -> None:
        if action.worker != self.came:
            raise self._impossible(action, now)
        self.came = None
        self.update[self.current.pop(action.worker)] = DROPPED

    def _wake(self, action: Wake, now: float) -> None:
        if not now <= action.at:
            what = "lies in the past" if action.at < now else "never comes"
            raise ValueError(
                f"{self.name} answers {action} at {now:g} s, which {what}: `at` is an instant, seconds since the start "
                "of the run, and not a duration"
            )
        if action.at == now or not self.current:
            self.woken += 1
            if self.woken > IN_VAIN * max(len(self.times), _AT_LEAST):
                what = "does not advance the clock" if action.at == now else "lets all workers wait"
                raise ValueError(
                    f"{self.name} answers {action} at {now:g} s, which {what}: {self.woken} such timers since a "
                    "gradient has come"
                )
        if action.at < math.inf:  # else never: no limit
            self._wake_at(action.at)

    def _wake_at(self, when: float) -> None:
        heapq.heappush(self.heap, (when, _TIMER, -1))

    def _impossible(self, action: Action, now: float) -> ValueError:
        """Returns the error for an action that cannot be done."""
        busy = sorted(self.current)
        return ValueError(
            f"{self.name} answers {action} at {now:g} s, when workers {busy} are computing and {len(self.applied)} "
            f"updates are made{f', and the gradient of worker {self.came} has come' * (self.came is not None)}; "
            "that cannot be done"
        )

    def _interrupt(self, action: Interrupt, now: float) -> None:
        worker = action.worker
        if worker not in self.current or worker == self.came:
            raise self._impossible(action, now)
        if self._give_up(worker, now):
            self.shortest = self.shortest if self.given_up else math.inf
            self.shortest = min(self.shortest, self.times[worker][self.begun[worker] - 1])
            self.given_up += 1
            if self.given_up == IN_VAIN * len(self.times):
                self._in_vain()

    def _give_up(self, worker: int, now: float) -> bool:
        """Drop what a worker computes; if it has not begun, it never did, and its compute time is the worker's next."""
        ticket = self.current.pop(worker)
        if self.started[ticket] < now:
            self.arrived[ticket], self.update[ticket] = now, DROPPED
            return True
        self.update[ticket] = NOT_BEGUN
        self.begun[worker] -= 1
        return False

    def _in_vain(self) -> None:
        limit = getattr(self.policy, "limit_entry", lambda: self.name)()
        raise ValueError(
            f"{limit} must be longer than a gradient takes: {self.given_up} gradients in a row were given up, of which "
            f"the shortest takes {self.shortest:g} s"
        )

    def _close(self, action: Close, now: float) -> None:
        if action.update != len(self.applied) or not self.open:
            raise self._impossible(action, now)
        self.applied.append(now)
        self.used, self.open = self.used + self.open, 0
        self.ended = len(self.applied) == self.num_updates or (
            self.num_gradients is not None and self.used >= self.num_gradients
        )

    def _begin(self, action: Begin, now: float) -> None:
        worker, version = action
        known = 0 <= worker < len(self.times) and worker not in self.current
        if not (known and (version == len(self.applied) or version in self.kept)):
            raise self._impossible(action, now)
        row, times = self.begun[worker], self.times[worker]
        if row == len(times):
            self.exhausted = True
            self.ended = self.ran_out = not self.idle_at_end
            return
        ticket, self.begun[worker] = len(self.worker), row + 1
        self.current[worker] = ticket
        self.worker.append(worker)
        self.read.append(version)
        self.update.append(PENDING)
        self._send(worker, ticket, row, now)

    def _send(self, worker: int, ticket: int, row: int, now: float) -> None:
        """The worker is told to begin: note when it starts, and when its gradient arrives."""
        seconds = self.times[worker][row]
        arrives = now + seconds
        if not arrives > now:
            raise too_short(row, worker, seconds, now)
        self.started.append(now)
        self.arrived.append(arrives)
        heapq.heappush(self.heap, (arrives, worker, ticket))

    def schedule(self) -> Schedule:
        """Returns what has happened; gradients in flight are pending, but for those that began at the end."""
        more = self._columns()
        columns = {
            "worker": np.array(self.worker),
            "read": np.array(self.read),
            "update": (update := np.array(self.update)),
            "started": np.array(self.started),
            "arrived": np.array(self.arrived),
            **more,
        }
        if (update == NOT_BEGUN).any():
            columns = {name: column[update != NOT_BEGUN] for name, column in columns.items()}
        return schedule_of(columns, np.array(self.applied), len(self.times), self.traffic)[0]

    def _columns(self) -> dict[str, np.ndarray]:
        """Return what else is known of each gradient."""
        return {}
