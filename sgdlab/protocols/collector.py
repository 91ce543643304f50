"""Event simulation of Rennala SGD and Ringmaster ASGD: nobody waits, and gradients that are too old are dropped."""

import heapq
from typing import NamedTuple

import numpy as np

from sgdlab import arguments
from sgdlab.runtimes import NotEnoughRuntimes, checked
from sgdlab.schedule import DROPPED, PENDING, Schedule


def collected(
    runtimes: np.ndarray, *, size: int, max_delay: int, interrupt: bool, num_gradients: int | None
) -> Schedule:
    """Updates of `size` gradients, each with a delay of at most `max_delay`; nobody waits.

    Gradients that arrive at one instant are taken by worker number.

    Args:
      runtimes: float64[T, N], seconds; row t holds each worker's t-th gradient.
      size: number of gradients per update.
      max_delay: largest delay (staleness + 1, in updates) of a gradient that is used; others are dropped.
      interrupt: whether a worker restarts as soon as its gradient is too old, rather than when it has finished it.
      num_gradients: how many gradients to use, rounded up to whole updates. None: whole updates, until a worker that
        has to begin again runs out of run-times.

    Returns:
      The `Schedule`.

    Raises:
      ValueError: where run-times are not positive and finite, or `num_gradients` is below 1.
      NotEnoughRuntimes: where a worker runs out of rows first.
    """
    runtimes = checked(runtimes)
    if num_gradients is not None:
        num_gradients = -(-arguments.whole("num_gradients", num_gradients) // size) * size
    run = _Collector(runtimes, size, max_delay, interrupt)
    if not run.collect(num_gradients):
        whole = run.used // size * size
        if num_gradients is not None or whole == 0:
            raise NotEnoughRuntimes.after(num_gradients or size, rows=runtimes.shape[0], done=run.used, spare=True)
        run = _Collector(runtimes, size, max_delay, interrupt)
        run.collect(whole)
    return run.schedule()


class _Work(NamedTuple):
    """A gradient in flight."""

    version: int  # that it is computed on.
    started: float  # seconds.
    arrives: float  # seconds.


class _Collector:
    """The server and its workers, simulated event by event."""

    def __init__(self, runtimes: np.ndarray, size: int, max_delay: int, interrupt: bool):
        self.columns = [column.tolist() for column in runtimes.T]
        self.size, self.max_delay, self.interrupt = size, max_delay, interrupt
        self.begun = [0] * len(self.columns)
        self.current: dict[int, _Work] = {}  # the gradient in flight of each worker
        self.on_version: dict[int, set[int]] = {}  # workers that compute on each version, if `interrupt`
        self.queue: list[tuple[float, int]] = []
        self.rows: list[tuple[int, int, int, float, float]] = []  # worker, read, update, started, arrived
        self.applied: list[float] = []
        self.used = 0

    def collect(self, num_gradients: int | None) -> bool:
        """Simulates until `num_gradients` are used; False if a worker that has to begin runs out of run-times."""
        if not all(self._begin(worker, 0.0) for worker in range(len(self.columns))):
            return False
        while True:
            now, worker = heapq.heappop(self.queue)
            work = self.current[worker]
            if work.arrives != now:
                continue  # this work was interrupted
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
        """Drops gradients in flight that the newest update has made too old; returns their workers."""
        late = sorted(self.on_version.get(len(self.applied) - self.max_delay, ()))
        for worker in late:
            if self.current[worker].started < now:
                self._end(worker, now, used=False)
            else:  # begun at this very instant: undone, so that its run-time is not used up
                self.on_version[self.current.pop(worker).version].discard(worker)
                self.begun[worker] -= 1
        return late

    def schedule(self) -> Schedule:
        """The schedule so far; gradients in flight are pending."""
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
