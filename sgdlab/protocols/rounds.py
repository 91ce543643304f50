"""Rounds of fresh gradients: synchronous SGD, backup workers and time-outs (Chen et al. 2016, Algorithms 3 and 4)."""

import dataclasses
import functools

import numpy as np

from sgdlab import arguments
from sgdlab.bounds import Count, NotNegative
from sgdlab.knobs import Knob
from sgdlab.ordering import by_time
from sgdlab.protocols.policy import Action, Base, Drop, Interrupt, Take, Wake
from sgdlab.protocols.register import register
from sgdlab.runtimes import NotEnoughRuntimes, too_short
from sgdlab.schedule import DROPPED, PENDING, Schedule

_TIMER = -1
"""Stands for the worker whose gradient closes an update if the timer does, before messages of the same instant."""


@dataclasses.dataclass
class Rounds(Base):
    """Every update waits for `at_least` gradients on the newest version, then `seconds` more, or until all have come.

    A round from which workers were lost closes once nobody is left who could still come. Who joins begins at once, on
    the newest version; if a gradient of its earlier life is in the open update, it waits for the next round.

    Attributes:
      at_least: gradients that an update waits for.
      seconds: seconds that an update waits after these; a gradient that comes exactly then is late.
      interrupt: whether a late worker gives up its gradient at the update; else it finishes, and it is dropped.
      waiting: workers whose gradients the open update has.
      deadline: when the open update closes at the latest, seconds; None before it has enough gradients.
    """

    at_least: int = 1
    seconds: float = 0.0
    interrupt: bool = False
    waiting: set[int] = dataclasses.field(default_factory=set, init=False)
    deadline: float | None = dataclasses.field(default=None, init=False)

    @property
    def single(self) -> bool:
        """Tell whether an update closes with its first gradient."""
        return self.at_least == 1 and self.seconds == 0

    def wanted(self) -> int:
        """Gradients that the open update waits for, before its seconds begin."""
        return self.at_least

    def arrival(self, now: float, worker: int, version: int, seconds: float) -> list[Action]:
        """Takes a gradient on the newest version, and drops any other."""
        if version < self.version:
            return [Drop(worker), *self.begin([worker])]
        self.waiting.add(worker)
        return [Take(worker, self.version), *self._close_if_complete(now)]

    def timer(self, now: float) -> list[Action]:
        """Closes the open update if its seconds are over."""
        return self._close(now) if self.deadline is not None and now >= self.deadline else []

    def after_loss(self, now: float) -> list[Action]:
        """Closes the open update if nobody is left to wait for."""
        return self._close_if_complete(now)

    def joined(self, now: float, worker: int) -> list[Action]:
        """The worker begins, unless the open update has a gradient of it already."""
        self.alive.add(worker)
        return [] if worker in self.waiting else self.begin([worker])

    def _close_if_complete(self, now: float) -> list[Action]:
        if not self.waiting:
            return []
        if not self.busy:
            return self._close(now)
        if self.deadline is None and len(self.waiting) >= self.wanted():
            self.deadline = now + self.seconds
            return [Wake(self.deadline)] if self.deadline > now else self._close(now)
        return []

    def _close(self, now: float) -> list[Action]:
        # Stragglers are told before the server is busy with the update.
        late = sorted(self.busy) if self.interrupt else []
        for worker in late:
            del self.busy[worker]
        self.waiting, self.deadline = set(), None
        return [*map(Interrupt, late), self.close(), *self.begin(sorted(self.alive - self.busy.keys()))]


def rounds_in_arrays(
    runtimes: np.ndarray,
    *,
    at_least: int | np.ndarray,
    seconds: float,
    interrupt: bool,
    num_gradients: int | None = None,
) -> Schedule:
    """Make the schedule of `timeout`, whose arguments these are.

    Args:
      runtimes: float64[T, N], seconds.
      at_least: c, from 1 to N, or int[T], one for each update.
      seconds: how long an update waits after its c-th gradient.
      interrupt: whether a late worker gives up its gradient.
      num_gradients: how many gradients to use; the run ends with the update that reaches this number. None: T updates.

    Returns:
      A `Schedule`. A worker begins at most one gradient per update, so T rows suffice for T updates.

    Raises:
      ValueError: where a compute time does not advance the clock.
      NotEnoughRuntimes: where T updates use fewer gradients; it says how many rows would be enough.
    """
    rows, workers = runtimes.shape
    wanted = rows * workers if num_gradients is None else num_gradients
    every = np.arange(workers)
    least = np.broadcast_to(at_least, rows)
    # Row u of these arrays: the gradient that each worker computed on version u, if it began one.
    began, ended = (np.full((rows, workers), np.nan) for _ in range(2))
    used = np.zeros((rows, workers), bool)
    applied = np.empty(rows)
    update, done = 0, 0  # numbers of updates made, and of gradients that they have used
    now, closed_by = 0.0, _TIMER
    begun = np.zeros(workers, np.int64)  # number of compute times that each worker has used
    free = np.zeros(workers)  # time when each worker can read again
    while update < rows and done < wanted:
        starts = np.maximum(free, now)
        ends = starts + runtimes[begun, every]
        if not (ends > starts).all():
            stuck = int(np.argmin(ends > starts))
            raise too_short(begun[stuck], stuck, runtimes[begun[stuck], stuck], starts[stuck])
        taken, now, closed_by = _closing(ends, int(least[update]), seconds)
        # A straggler that is still busy when the update closes begins no gradient on this version.
        in_time = (free < now) | ((free == now) & (every < closed_by))
        began[update, in_time] = starts[in_time]
        ended[update, in_time] = np.where(interrupt & ~taken, now, ends)[in_time]
        used[update], applied[update] = taken, now
        begun += in_time
        free = np.full(workers, now) if interrupt else np.where(in_time, ends, free)
        update, done = update + 1, done + np.count_nonzero(taken)
    if num_gradients is not None and done < num_gradients:
        raise NotEnoughRuntimes.after(num_gradients, rows=rows, done=done)

    began, ended, used, applied = began[:update], ended[:update], used[:update], applied[:update]
    # Worker by worker, so that a stable sort by time leaves equal times in the order of the workers.
    worker, version = np.nonzero(np.ascontiguousarray(~np.isnan(began.T)))
    started, arrived = began[version, worker], ended[version, worker]
    after = (arrived > applied[-1]) | ((arrived == applied[-1]) & (worker > closed_by) & ~np.bool_(interrupt))
    kind = np.where(used[version, worker], version, np.where(after, PENDING, DROPPED))
    order = by_time(arrived)
    late = order[kind[order] == PENDING]
    late = late[started[late] < applied[-1]]  # begun at the very end: not begun
    order = np.concatenate([order[kind[order] != PENDING], late])
    return Schedule(
        worker=worker[order],
        read=version[order, None],
        update=kind[order, None],
        started=started[order],
        arrived=arrived[order, None],
        applied=applied[:, None],
        num_workers=workers,
    )


def _closing(ends: np.ndarray, at_least: int, seconds: float) -> tuple[np.ndarray, float, int]:
    """Return bool[N], workers in time; when the update closes; and the worker that closes it, the first of ties."""
    order = by_time(ends)
    enough = ends[order[at_least - 1]]
    deadline = enough + seconds
    count, closed_by = at_least, int(order[at_least - 1])
    if deadline > enough:
        count = max(at_least, int(np.count_nonzero(ends < deadline)))
        closed_by = int(order[-1]) if count == ends.size else _TIMER
    taken = np.zeros(ends.size, bool)
    taken[order[:count]] = True
    return taken, float(deadline if closed_by == _TIMER else ends[closed_by]), closed_by


def _fast(policy: Rounds, runtimes: np.ndarray, num_gradients: int | None) -> Schedule:
    return rounds_in_arrays(
        runtimes,
        at_least=policy.at_least,
        seconds=policy.seconds,
        interrupt=policy.interrupt,
        num_gradients=num_gradients,
    )


_rounds = functools.partial(register, families=("Synchronous rounds",), fast=_fast, ends="rows")


@_rounds(title="Synchronous SGD", source="Chen et al. 2016", rule="nag_asgd")
def synchronous(*, num_workers: Count) -> Rounds:
    """Every update waits for one gradient of every worker, all of them computed on the newest version.

    Without a number of gradients the schedule has all T N of its compute times.

    Args:
      num_workers: N.

    Example:
      >>> from sgdlab import protocols
      >>> protocols.synchronous(np.array([[1.0, 3.0], [2.0, 1.0]])).applied[:, 0]
      array([3., 5.])
    """
    return Rounds(at_least=num_workers)


@_rounds(
    title="Backup workers",
    source="Chen et al. 2016, Alg. 3-4",
    rule="nag_asgd",
    waste="backups",
    tunes=Knob("backups", 0.03, 0.5, whole=True, per_worker=True),
)
def backup_workers(*, num_workers: Count, backups: int = 1) -> Rounds:
    """Every update takes the first N of N + b gradients on the newest version; later ones are dropped.

    A late worker is not interrupted: it finishes its stale gradient, the server drops it, and the worker reads the
    newest version and begins again. It can miss several updates. A worker begins at most one gradient per update, so
    that compute times of T rows are enough for T updates.

    Args:
      num_workers: N + b, all workers.
      backups: b, how many workers an update does not wait for.

    Raises:
      ValueError: where `backups` is not from 0 to N + b - 1.

    Example:
      >>> from sgdlab import protocols
      >>> runtimes = np.array([[1.0, 1.0, 2.5], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
      >>> schedule = protocols.backup_workers(runtimes, backups=1)
      >>> schedule.worker, schedule.update[:, 0]
      (array([0, 1, 0, 1, 2, 0, 1, 2], dtype=int32), array([ 0,  0,  1,  1, -1,  2,  2, -2], dtype=int32))
    """
    why = f"there are {num_workers} workers, and an update needs at least one"
    return Rounds(at_least=num_workers - arguments.whole("backups", backups, least=0, most=num_workers - 1, why=why))


@_rounds(
    title="Time-out",
    source="Chen et al. 2016, section 6",
    rule="linear_scaling",
    waste="at_least",
    tunes=Knob("at_least", 0.25, 1.0, log=False),
)
def timeout(
    *, num_workers: Count, at_least: int | float = 0.75, seconds: NotNegative = 4.0, interrupt: bool = False
) -> Rounds:
    """Every update waits for c gradients on the newest version, then `seconds` more, or until all have arrived.

    With 0 seconds it takes the first c, as `backup_workers` does; with very many it is `synchronous`. An update has d
    gradients, c <= d <= N: `rules.scale_by_num_gradients` makes the step grow with d. Interrupted work ends, dropped,
    at the update.

    Args:
      num_workers: N.
      at_least: c, gradients that an update waits for: a whole number from 1 to N, or a share of N above 0.0 and at most
        1.0.
      seconds: seconds that an update waits after its c-th gradient; one that arrives exactly at the deadline is late.
      interrupt: whether a late worker gives up its gradient at the update and begins a new one; else it finishes, its
        gradient is dropped, and it reads the newest version (it can miss several updates).

    Source: Chen et al. 2016, section 6; Algorithm 1 of the weak-synchronization paper, with one server.

    Example:
      >>> from sgdlab import protocols
      >>> schedule = protocols.timeout(np.array([[1.0, 1.5, 9.0], [1.0, 1.5, 1.0]]), at_least=1, seconds=1.0)
      >>> schedule.applied[:, 0], schedule.update[:, 0]
      (array([2., 4.]), array([ 0,  0,  1,  1, -2], dtype=int32))
    """
    return Rounds(
        at_least=arguments.share("at_least", at_least, num_workers, "workers"),
        seconds=seconds,
        interrupt=bool(interrupt),
    )
