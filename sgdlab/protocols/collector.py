"""Nobody waits, but a gradient that is too old is ignored: what Ringmaster ASGD and Rennala SGD have in common."""

import heapq
from typing import NamedTuple

import numpy as np

from sgdlab import arguments
from sgdlab.runtimes import NotEnoughRuntimes, checked
from sgdlab.schedule import DROPPED, PENDING, Schedule


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
            raise NotEnoughRuntimes.after(num_gradients or size, rows=runtimes.shape[0], done=run.used, spare=True)
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
