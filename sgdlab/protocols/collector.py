"""Rennala SGD and Ringmaster ASGD: nobody waits, and gradients that are too old are dropped."""

import heapq
from collections.abc import Iterable

import numpy as np

from sgdlab import arguments
from sgdlab.ordering import by_number, by_time
from sgdlab.protocols.arrivals import Arrivals, arrivals
from sgdlab.runtimes import NotEnoughRuntimes, checked
from sgdlab.schedule import DROPPED, PENDING, Schedule

_NEVER = -1.0


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
    collect = _interrupted if interrupt else _finished
    return collect(runtimes, size, max_delay, num_gradients)


def _finished(runtimes: np.ndarray, size: int, max_delay: int, num_gradients: int | None) -> Schedule:
    """Workers finish what they have begun: gradients arrive as they do in `arrivals`, whatever becomes of them."""
    workers = runtimes.shape[1]
    count = None if num_gradients is None else num_gradients + workers
    while True:
        try:
            gradients = arrivals(runtimes, count)
        except NotEnoughRuntimes:
            count, gradients = None, arrivals(runtimes, None)
        update = _updates(gradients, size, max_delay, num_gradients)
        used = np.count_nonzero(update >= 0)
        if count is None or used == num_gradients:
            break
        count *= 2
    _check_advance(runtimes, gradients, update.size)
    wanted = used // size * size if num_gradients is None else num_gradients
    if used < wanted or wanted == 0:
        raise NotEnoughRuntimes.after(num_gradients or size, rows=runtimes.shape[0], done=used, spare=True)
    last = np.flatnonzero(update >= 0)[wanted - 1]
    end, update = last + 1, update[: last + 1]
    # In flight at the end are the later gradients that were begun after at most so many arrivals.
    rest = end + np.flatnonzero(gradients.seen[end:] <= end)
    rest = rest[gradients.started[rest] < gradients.arrived[last]]
    rows = np.concatenate([np.arange(end), rest])
    made = np.append(0, np.cumsum(update >= 0)) // size  # updates after so many arrivals
    applied = gradients.arrived[:end][np.diff(made) > 0]
    return Schedule(
        worker=gradients.worker[rows],
        read=made[gradients.seen[rows], None],
        update=np.append(update, np.full(rest.size, PENDING))[:, None],
        started=gradients.started[rows],
        arrived=gradients.arrived[rows, None],
        applied=applied[:, None],
        num_workers=workers,
    )


def _updates(gradients: Arrivals, size: int, max_delay: int, num_gradients: int | None) -> np.ndarray:
    """int64[.]: the update that each gradient enters, in order of arrival, until `num_gradients` have been used."""
    made, update, used, updates = [0], [], 0, 0  # made[k]: the number of updates after k arrivals
    for seen in gradients.seen[: gradients.count].tolist():
        if updates - made[seen] < max_delay:
            update.append(updates)
            used += 1
            updates = used // size
        else:
            update.append(DROPPED)
        if used == num_gradients:
            break
        made.append(updates)
    return np.array(update)


def _check_advance(runtimes: np.ndarray, gradients: Arrivals, count: int) -> None:
    """Raises a `ValueError` if one of the first `count` gradients took no time."""
    started, arrived = gradients.started[:count], gradients.arrived[:count]
    if (arrived > started).all():
        return
    stuck = np.flatnonzero(~(arrived > started))
    first = stuck[np.lexsort((gradients.worker[stuck], gradients.seen[stuck]))[0]]
    worker = gradients.worker[first]
    raise _no_advance(runtimes, np.count_nonzero(gradients.worker[:first] == worker), worker, started[first])


def _no_advance(runtimes: np.ndarray, row: int | np.integer, worker: int, now: float) -> ValueError:
    return ValueError(
        f"runtimes[{row}, {worker}]={runtimes[row, worker]} does not advance the clock at {now:g} s; run-times must be "
        "long enough to move the clock"
    )


def _interrupted(runtimes: np.ndarray, size: int, max_delay: int, num_gradients: int | None) -> Schedule:
    """A worker whose gradient becomes too old begins again at once, simulated event by event."""
    run = _Interrupting(runtimes, size, max_delay)
    if not run.collect(num_gradients):
        whole = run.used // size * size
        if num_gradients is not None or whole == 0:
            raise NotEnoughRuntimes.after(num_gradients or size, rows=runtimes.shape[0], done=run.used, spare=True)
        run = _Interrupting(runtimes, size, max_delay)
        run.collect(whole)
    return run.schedule()


class _Interrupting:
    """The server and its workers. No gradient that arrives is too old: its worker would have begun another."""

    def __init__(self, runtimes: np.ndarray, size: int, max_delay: int):
        self.runtimes, self.size, self.max_delay = runtimes, size, max_delay
        workers = runtimes.shape[1]
        self.columns = [column.tolist() for column in runtimes.T]
        self.begun = [0] * workers
        # The gradient in flight of each worker: the version it is computed on, and when it begins and arrives, seconds.
        self.version, self.started, self.arrives = [0] * workers, [0.0] * workers, [_NEVER] * workers
        self.on_version: dict[int, set[int]] = {}  # workers that compute on each version
        self.queue: list[tuple[float, int]] = []
        self.rows: tuple[list, ...] = [], [], [], [], []  # worker, read, update, started, arrived
        self.applied: list[float] = []
        self.used = 0

    def collect(self, num_gradients: int | None) -> bool:
        """Simulates until `num_gradients` are used; False if a worker that has to begin runs out of run-times."""
        if not self._begin(range(len(self.columns)), 0.0):
            return False
        arrives, queue, version = self.arrives, self.queue, self.version
        while True:
            now, worker = heapq.heappop(queue)
            if arrives[worker] != now:
                continue  # this gradient was interrupted
            self._end(worker, len(self.applied), now)
            self.on_version[version[worker]].discard(worker)
            self.used += 1
            restart = [worker]
            if self.used % self.size == 0:
                self.applied.append(now)
                restart = sorted(restart + self._drop(now))
                if self.used == num_gradients:
                    return True
            if not self._begin(restart, now):
                return False

    def _begin(self, workers: Iterable[int], now: float) -> bool:
        version = len(self.applied)
        for worker in workers:
            row, times = self.begun[worker], self.columns[worker]
            if row == len(times):
                return False
            arrives = now + times[row]
            if not arrives > now:
                raise _no_advance(self.runtimes, row, worker, now)
            self.begun[worker] = row + 1
            self.version[worker], self.started[worker], self.arrives[worker] = version, now, arrives
            self.on_version.setdefault(version, set()).add(worker)
            heapq.heappush(self.queue, (arrives, worker))
        return True

    def _drop(self, now: float) -> list[int]:
        """Drops gradients in flight that the newest update has made too old; returns their workers."""
        read = len(self.applied) - self.max_delay
        late = sorted(self.on_version.pop(read, ()))
        for worker in late:
            if self.started[worker] < now:
                self._end(worker, DROPPED, now)
            else:  # begun at this very instant: undone, so that its run-time is not used up
                self.begun[worker] -= 1
                self.arrives[worker] = _NEVER
        return late

    def _end(self, worker: int, update: int, now: float) -> None:
        self.arrives[worker] = _NEVER
        workers, reads, updates, started, arrived = self.rows
        workers.append(worker)
        reads.append(self.version[worker])
        updates.append(update)
        started.append(self.started[worker])
        arrived.append(now)

    def schedule(self) -> Schedule:
        """The schedule so far; gradients in flight are pending."""
        columns = [np.array(column) for column in self.rows]
        arrives, started = np.array(self.arrives), np.array(self.started)
        busy = np.flatnonzero((arrives != _NEVER) & (started < self.applied[-1]))
        pending = np.full(busy.size, PENDING)
        in_flight = [busy, np.array(self.version)[busy], pending, started[busy], arrives[busy]]
        worker, read, update, started, arrived = (
            np.concatenate([ended, busy]) for ended, busy in zip(columns, in_flight, strict=True)
        )
        # Worker by worker, so that a stable sort by time leaves equal times in the order of the workers.
        order = by_number(worker, len(self.columns))
        order = order[by_time(arrived[order])]
        return Schedule(
            worker=worker[order],
            read=read[order, None],
            update=update[order, None],
            started=started[order],
            arrived=arrived[order, None],
            applied=np.array(self.applied)[:, None],
            num_workers=len(self.columns),
        )
