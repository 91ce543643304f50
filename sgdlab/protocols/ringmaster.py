"""Asynchrony with a limit on age: Ringmaster ASGD (Maranjyan et al. 2025) and Rennala SGD (Tyurin and Richtarik 2023).

Nobody waits in either, but a gradient that is too old is ignored: more than `max_delay` updates after its version in
Ringmaster, any update after it in Rennala.
"""

import heapq
from typing import NamedTuple

import numpy as np

from sgdlab import arguments
from sgdlab.runtimes import NotEnoughRuntimes, checked
from sgdlab.schedule import DROPPED, PENDING, Schedule


def ringmaster(
    runtimes: np.ndarray, *, max_delay: int, interrupt: bool = False, num_gradients: int | None = None
) -> Schedule:
    """Every gradient is an update of its own, unless its delay (staleness + 1) is more than `max_delay`.

    A worker whose gradient was ignored begins again on the newest version. With `max_delay` of the number of gradients
    or more it is `asynchronous`; with 1 it takes the first gradient on every version.

    Args:
      runtimes: float64[T, N], seconds; row t holds each worker's t-th gradient.
      max_delay: R, the largest delay of a gradient that is used: the paper's condition is staleness < R.
      interrupt: a worker is restarted as soon as its gradient is bound to be ignored (the paper's Algorithm 5, with
        calculation stops), rather than when it has finished it (Algorithm 4).
      num_gradients: how many gradients to apply. None: as many as the run-times decide, that is until a worker that
        has to begin again has used up its rows.

    Returns:
      A `Schedule`; ignored and interrupted work is dropped.

    Raises:
      ValueError: where run-times are not positive and finite, or `max_delay` is below 1.
      NotEnoughRuntimes: (a ValueError) where a worker runs out of rows first; it says how many would be enough.

    Source: Maranjyan, Tyurin and Richtarik 2025, Algorithms 4 and 5.

    Example:
      >>> import numpy as np
      >>> schedule = ringmaster(np.array([[1.0, 2.5], [1.0, 2.5], [1.0, 2.5], [1.0, 2.5]]), max_delay=2)
      >>> schedule.worker, schedule.update[:, 0]
      (array([0, 0, 1, 0, 0, 1], dtype=int32), array([ 0,  1, -1,  2,  3, -2], dtype=int32))
    """
    limit = arguments.whole("max_delay", max_delay)
    return collected(runtimes, size=1, max_delay=limit, interrupt=bool(interrupt), num_gradients=num_gradients)


def rennala(runtimes: np.ndarray, *, batch: int, num_gradients: int | None = None) -> Schedule:
    """Every update averages the first `batch` gradients on the newest version, whoever sends them.

    A worker that has sent one begins another on the same version, so fast workers may fill a batch by themselves; a
    gradient on an older version is ignored, and its worker begins again on the newest.

    Args:
      runtimes: float64[T, N], seconds; row t holds each worker's t-th gradient.
      batch: gradients per update.
      num_gradients: how many gradients to use, rounded up to whole updates. None: whole updates, until a worker that
        has to begin again has used up its rows.

    Returns:
      A `Schedule` of updates with `batch` fresh gradients each.

    Raises:
      ValueError: where run-times are not positive and finite, or `batch` is below 1.
      NotEnoughRuntimes: (a ValueError) where a worker runs out of rows first; it says how many would be enough.

    Source: Tyurin and Richtarik 2023, Rennala SGD.

    Example:
      >>> import numpy as np
      >>> schedule = rennala(np.array([[1.0, 2.5], [1.0, 2.5], [1.0, 2.5], [1.0, 2.5]]), batch=2)
      >>> schedule.worker, schedule.update[:, 0]
      (array([0, 0, 1, 0, 0, 1], dtype=int32), array([ 0,  0, -1,  1,  1, -2], dtype=int32))
    """
    size = arguments.whole("batch", batch)
    return collected(runtimes, size=size, max_delay=1, interrupt=False, num_gradients=num_gradients)


def collected(
    runtimes: np.ndarray, *, size: int, max_delay: int, interrupt: bool, num_gradients: int | None
) -> Schedule:
    """Updates of `size` gradients, each at most `max_delay` old; nobody waits. Event by event, in order of time.

    Gradients that arrive at one instant are taken by worker number.
    """
    runtimes = checked(runtimes)
    if num_gradients is not None:
        num_gradients = -(-arguments.whole("num_gradients", num_gradients) // size) * size
    run = _Collector(runtimes, size, max_delay, interrupt)
    if not run.collect(num_gradients):
        whole = run.used // size * size
        if num_gradients is not None or whole == 0:
            rows, wanted = runtimes.shape[0], num_gradients or size
            needed = max(rows + 1, -(-11 * rows * wanted // (10 * max(run.used, 1))))
            raise NotEnoughRuntimes(
                f"num_gradients={wanted} needs more than the {rows} rows of runtimes: a worker runs out after "
                f"{run.used} gradients have been used; about {needed} rows would be enough",
                needed,
            )
        run = _Collector(runtimes, size, max_delay, interrupt)
        run.collect(whole)
    return run.schedule()


class _Work(NamedTuple):
    """A gradient: what it is computed on, and from when to when."""

    version: int
    started: float
    arrives: float


class _Collector:
    """The server and its workers, from event to event."""

    def __init__(self, runtimes: np.ndarray, size: int, max_delay: int, interrupt: bool):
        self.columns = [column.tolist() for column in runtimes.T]
        self.size, self.max_delay, self.interrupt = size, max_delay, interrupt
        self.begun = [0] * len(self.columns)
        self.current: dict[int, _Work] = {}  # what each worker computes
        self.on_version: dict[int, set[int]] = {}  # who computes on a version that could become too old
        self.queue: list[tuple[float, int]] = []
        self.rows: list[tuple[int, int, int, float, float]] = []  # worker, read, update, started, arrived
        self.applied: list[float] = []
        self.used = 0

    def collect(self, num_gradients: int | None) -> bool:
        """Goes on until so many gradients are used; False where a worker that has to begin has no row left."""
        if not all(self._begin(worker, 0.0) for worker in range(len(self.columns))):
            return False
        while True:
            now, worker = heapq.heappop(self.queue)
            work = self.current[worker]
            if work.arrives != now:
                continue  # of work that was interrupted
            self._end(worker, now, used=len(self.applied) - work.version < self.max_delay)
            restart = [worker]
            if self.rows[-1][2] != DROPPED:
                self.used += 1
                if self.used % self.size == 0:
                    self.applied.append(now)
                    if self.used == num_gradients:
                        return True
                    restart += self._interrupted(now)
            for idle in sorted(restart):
                if not self._begin(idle, now):
                    return False

    def _begin(self, worker: int, now: float) -> bool:
        row, times = self.begun[worker], self.columns[worker]
        if row == len(times):
            return False
        work = _Work(len(self.applied), now, now + times[row])
        if not work.arrives > now:
            raise ValueError(
                f"runtimes[{row}, {worker}]={times[row]} does not advance the clock at {now:g} s; run-times must be "
                "long enough to move the clock"
            )
        self.begun[worker] += 1
        self.current[worker] = work
        if self.interrupt:
            self.on_version.setdefault(work.version, set()).add(worker)
        heapq.heappush(self.queue, (work.arrives, worker))
        return True

    def _end(self, worker: int, now: float, *, used: bool) -> None:
        work = self.current.pop(worker)
        if self.interrupt:
            self.on_version[work.version].discard(worker)
        self.rows.append((worker, work.version, len(self.applied) if used else DROPPED, work.started, now))

    def _interrupted(self, now: float) -> list[int]:
        """Ends the work that the newest update has made too old; returns whose it was."""
        late = sorted(self.on_version.get(len(self.applied) - self.max_delay, ()))
        for worker in late:
            if self.current[worker].started < now:
                self._end(worker, now, used=False)
            else:  # begun at this very instant: not begun, and its run-time not used
                self.on_version[self.current.pop(worker).version].discard(worker)
                self.begun[worker] -= 1
        return late

    def schedule(self) -> Schedule:
        """What has happened; what is under way is pending."""
        end = self.applied[-1]
        busy = [(w, work.version, PENDING, work.started, work.arrives) for w, work in self.current.items()]
        by_arrival = lambda row: (row[4], row[0])
        rows = sorted(self.rows, key=by_arrival) + sorted((row for row in busy if row[3] < end), key=by_arrival)
        worker, read, update, started, arrived = (np.array(column) for column in zip(*rows, strict=True))
        return Schedule(
            worker=worker,
            read=read[:, None],
            update=update[:, None],
            started=started,
            arrived=arrived[:, None],
            applied=np.array(self.applied)[:, None],
            num_workers=len(self.columns),
        )
