"""`simulate`, a policy on a virtual clock: every policy is a protocol."""

import heapq
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from sgdlab import arguments
from sgdlab.protocols.own_policies import returned
from sgdlab.protocols.policy import Action, Base, Begin, Close, Drop, Interrupt, Policy, Take, Wake
from sgdlab.protocols.recorder import schedule_of
from sgdlab.runtimes import NotEnoughRuntimes, checked, too_short
from sgdlab.schedule import DROPPED, PENDING, Schedule

_IN_VAIN = 1000
"""So many gradients for each worker that are given up, one after the other, and the run is taken for endless."""

_TIMER = -1
"""Stands for the worker of a timer: at one instant timers come first, then arrivals by worker number."""

_NOT_BEGUN = -3
"""Stands for the update of a gradient that was interrupted at the instant at which it began."""


def simulate(
    make_policy: Callable[..., Policy],
    runtimes: np.ndarray,
    *,
    num_gradients: int | None = None,
    num_updates: int | None = None,
    idle_at_end: bool = False,
) -> Schedule:
    """Return the schedule of a policy on given compute times: that of `protocols`, for the policies of sgdlab.

    Gradients that come at one instant come by worker number, a timer of that instant before them. A gradient that is
    interrupted at the instant at which it began was not begun, and its compute time is the worker's next.

    Each protocol has its own meaning of `num_gradients=None`: those in rounds stop after T updates (`num_updates=T`
    here), `bounded_staleness` after all T N gradients (`idle_at_end=True`), the others as here.

    Args:
      make_policy: called with `num_workers`, N; it makes a new policy.
      runtimes: float64[T, N], seconds; row t holds each worker's t-th gradient.
      num_gradients: how many gradients to use; the run ends with the update that reaches this number. None: whole
        updates, until a worker that has to begin again runs out of compute times.
      num_updates: most updates that the run may have. None: any number.
      idle_at_end: whether a worker that runs out of compute times has done its work, rather than ends the run.

    Returns:
      A `Schedule`; interrupted gradients are dropped, and those in flight at the end are pending.

    Raises:
      ValueError: where compute times are not positive and finite, a number is below 1, the policy does what cannot be
        done, such as to begin a gradient of a busy worker, or it gives up 1000 gradients for each worker in a row.
      NotEnoughRuntimes: (a ValueError) where compute times end first; it says how many rows would be enough.

    Example:
      >>> import functools
      >>> from sgdlab import policies, protocols
      >>> runtimes = np.array([[1.0, 1.5, 9.0], [1.0, 1.5, 1.0]])
      >>> policy = functools.partial(policies.timeout, at_least=1, seconds=1.0)
      >>> simulate(policy, runtimes, num_updates=2).applied[:, 0]
      array([2., 4.])
    """
    runtimes = checked(runtimes)
    for name, value in {"num_gradients": num_gradients, "num_updates": num_updates}.items():
        if value is not None:
            arguments.whole(name, value)
    rows, workers = runtimes.shape
    run = _Run(make_policy(num_workers=workers), runtimes, num_gradients, num_updates, idle_at_end)
    run.until_it_ends()
    if num_gradients is None and run.applied and run.ran_out:
        # Whole updates, and what is in flight at the last one.
        run = _Run(make_policy(num_workers=workers), runtimes, None, len(run.applied), idle_at_end)
        run.until_it_ends()
    if run.used < (num_gradients or 1):
        if not (run.ran_out or run.exhausted or len(run.applied) == num_updates):
            raise ValueError(
                f"{run.name} lets all workers wait after {run.used} gradients in {len(run.applied)} updates; one must "
                "begin"
            )
        raise NotEnoughRuntimes.after(num_gradients or workers, rows=rows, done=run.used, spare=True)
    return run.schedule()


class _Run:
    """A policy, its workers and their clock."""

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
        self.kept: Collection[int] = ()  # versions that were held when the last event was over
        self.given_up = 0  # gradients since one has come
        self.shortest = math.inf  # compute time of these
        self.ended = False
        self.ran_out = False  # a worker that has to begin has no compute time, which ends the run
        self.exhausted = False  # the same, but it idles
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
        policy, heap, current, read, worker_of = self.policy, self.heap, self.current, self.read, self.worker
        is_base = isinstance(policy, Base)
        prepare = None if getattr(type(policy), "prepare", None) is Base.prepare else policy.prepare
        arrived, begun, times, method = policy.arrived, self.begun, self.times, "arrival" if is_base else "arrived"
        self._perform("start", policy.start(list(range(len(self.times)))), 0.0)
        while heap and not self.ended:
            if prepare is not None:
                prepare()
            now, worker, ticket = heapq.heappop(heap)
            if worker == _TIMER:
                self._perform("timer", policy.timer(now), now)
            elif current.get(worker) == ticket:
                self.came, self.given_up = worker, 0
                answer = arrived(now, worker, read[ticket], times[worker][begun[worker] - 1])
                self._perform(method, answer, now)
                if self.came is not None:
                    raise ValueError(
                        f"{self.name} neither takes nor drops the gradient of worker {worker_of[ticket]} at {now:g} s"
                    )

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
        if action.at < math.inf:  # else never: no limit
            heapq.heappush(self.heap, (action.at, _TIMER, -1))

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
        ticket = self.current.pop(worker)
        if self.started[ticket] < now:
            self.shortest = self.shortest if self.given_up else math.inf
            self.shortest = min(self.shortest, self.times[worker][self.begun[worker] - 1])
            self.arrived[ticket], self.update[ticket] = now, DROPPED
            self.given_up += 1
            if self.given_up == _IN_VAIN * len(self.times):
                self._in_vain()
        else:
            self.update[ticket] = _NOT_BEGUN
            self.begun[worker] -= 1

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
        arrives = now + times[row]
        if not arrives > now:
            raise too_short(row, worker, times[row], now)
        ticket, self.begun[worker] = len(self.worker), row + 1
        self.current[worker] = ticket
        self.worker.append(worker)
        self.read.append(version)
        self.started.append(now)
        self.arrived.append(arrives)
        self.update.append(PENDING)
        heapq.heappush(self.heap, (arrives, worker, ticket))

    def schedule(self) -> Schedule:
        """Returns what has happened; gradients in flight are pending, but for those that began at the end."""
        update = np.array(self.update)
        columns = {
            "worker": np.array(self.worker),
            "read": np.array(self.read),
            "update": update,
            "started": np.array(self.started),
            "arrived": np.array(self.arrived),
        }
        if (update == _NOT_BEGUN).any():
            columns = {name: column[update != _NOT_BEGUN] for name, column in columns.items()}
        return schedule_of(columns, np.array(self.applied), len(self.times))[0]
