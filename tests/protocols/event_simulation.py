"""Protocols told as events in a heap: slow, obvious, and written without a look at the vectorised code.

Events are (time, worker): equal times are processed by worker number. Each simulation returns the fields of the
schedule it expects, as plain lists.
"""

import dataclasses
import heapq

import numpy as np

DROPPED, PENDING = -1, -2


@dataclasses.dataclass
class Work:
    """One gradient: whose it is, what it was computed on, and what became of it."""

    worker: int
    read: int
    started: float
    arrived: float
    update: int = PENDING


class RanOut(Exception):
    """A worker has no row of run-times left, and the simulation is not over."""


class _Clock:
    """Workers that begin gradients and the queue of their arrivals."""

    def __init__(self, runtimes: np.ndarray):
        self.rows = [column.tolist() for column in runtimes.T]
        self.begun = [0] * len(self.rows)
        self.queue: list[tuple[float, int]] = []
        self.busy: dict[int, Work] = {}

    def begin(self, worker: int, version: int, now: float) -> None:
        if self.begun[worker] == len(self.rows[worker]):
            raise RanOut
        arrived = now + self.rows[worker][self.begun[worker]]
        self.begun[worker] += 1
        self.busy[worker] = Work(worker, version, now, arrived)
        heapq.heappush(self.queue, (arrived, worker))

    def next(self) -> Work:
        _, worker = heapq.heappop(self.queue)
        return self.busy.pop(worker)

    def pending(self) -> list[Work]:
        return sorted(self.busy.values(), key=lambda work: (work.arrived, work.worker))


def simulate_asynchronous(runtimes: np.ndarray, num_gradients: int | None) -> dict[str, list]:
    """Every arrival is an update, and its worker begins again at once."""
    clock, done = _Clock(runtimes), []
    for worker in range(runtimes.shape[1]):
        clock.begin(worker, 0, 0.0)
    while True:
        work = clock.next()
        work.update = len(done)
        done.append(work)
        exhausted = clock.begun[work.worker] == len(runtimes)
        if len(done) == num_gradients or (num_gradients is None and exhausted):
            break
        clock.begin(work.worker, len(done), work.arrived)
    end = done[-1].arrived
    return fields_of(done + [work for work in clock.pending() if work.started < end], [work.arrived for work in done])


def simulate_backup_workers(runtimes: np.ndarray, backups: int) -> dict[str, list]:
    """The first N gradients on the newest version make the update; a late one is dropped, then its worker reads."""
    workers = runtimes.shape[1]
    clock, done, applied, waiting, came = _Clock(runtimes), [], [], [], 0
    for worker in range(workers):
        clock.begin(worker, 0, 0.0)
    while True:
        work = clock.next()
        done.append(work)
        if work.read < len(applied):
            work.update = DROPPED
            clock.begin(work.worker, len(applied), work.arrived)
            continue
        work.update = len(applied)
        waiting.append(work.worker)
        came += 1
        if came == workers - backups:
            applied.append(work.arrived)
            if len(applied) == len(runtimes):
                break
            for worker in waiting:
                clock.begin(worker, len(applied), work.arrived)
            waiting, came = [], 0
    return fields_of(done + [work for work in clock.pending() if work.started < applied[-1]], applied)


def fields_of(works: list[Work], applied: list[float]) -> dict[str, list]:
    return {
        "worker": [work.worker for work in works],
        "read": [[work.read] for work in works],
        "update": [[work.update] for work in works],
        "started": [work.started for work in works],
        "arrived": [[work.arrived] for work in works],
        "applied": [[time] for time in applied],
    }
