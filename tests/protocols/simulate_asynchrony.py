"""Nobody waits for all: softsync, bounded staleness, Ringmaster and Rennala as events in a heap.

Events are (time, worker): equal times are processed by worker number. Written from the docstrings of the protocols.
"""

import heapq

import numpy as np
from event_simulation import DROPPED, RanOut, Work, fields_of


def simulate_softsync(runtimes: np.ndarray, size: int, num_gradients: int | None) -> dict[str, list]:
    """Every `size` arrivals are an update; the worker reads what the server then has, and begins again at once."""
    if num_gradients is None:
        server = _Server(runtimes, size, age=None, interrupt=False)
        arrived = server.run(None, until_rows_are_used=True)
        return simulate_softsync(runtimes, size, max(arrived // size, 1) * size)
    server = _Server(runtimes, size, age=None, interrupt=False)
    server.run(-(-num_gradients // size) * size)
    return server.fields()


def simulate_collecting(
    runtimes: np.ndarray, size: int, max_delay: int, interrupt: bool, num_gradients: int | None
) -> dict[str, list]:
    """Updates of `size` gradients that are at most `max_delay` - 1 updates old; older ones are dropped."""
    if num_gradients is None:
        server = _Server(runtimes, size, max_delay, interrupt)
        used = server.run(None)
        return simulate_collecting(runtimes, size, max_delay, interrupt, max(used // size, 1) * size)
    server = _Server(runtimes, size, max_delay, interrupt)
    server.run(-(-num_gradients // size) * size)
    return server.fields()


class _Server:
    """Takes gradients that are younger than `age` (None: all), `size` to an update."""

    def __init__(self, runtimes: np.ndarray, size: int, age: int | None, interrupt: bool):
        self.runtimes, self.size, self.age, self.interrupt = runtimes, size, age, interrupt
        self.begun = [0] * runtimes.shape[1]
        self.heap: list[tuple[float, int]] = []
        self.busy: dict[int, Work] = {}
        self.done: list[Work] = []
        self.applied: list[float] = []

    def run(self, num_gradients: int | None, *, until_rows_are_used: bool = False) -> int:
        """Until so many gradients are used, or (None) a worker has no row; returns how many are used."""
        used = 0
        for worker in range(self.runtimes.shape[1]):
            self.begin(worker, 0.0)
        while True:
            now, worker = heapq.heappop(self.heap)
            if worker not in self.busy or self.busy[worker].arrived != now:
                continue  # of work that was interrupted
            work = self.busy.pop(worker)
            self.done.append(work)
            restart = [worker]
            if self.too_old(work):
                work.update = DROPPED
            else:
                work.update = len(self.applied)
                used += 1
                if used % self.size == 0:
                    self.applied.append(now)
                    if used == num_gradients:
                        return used
                    restart += self.give_up(now)
            if until_rows_are_used and self.begun[worker] == len(self.runtimes):
                return used
            try:
                for idle in sorted(restart):
                    self.begin(idle, now)
            except RanOut:
                if num_gradients is None:
                    return used
                raise

    def too_old(self, work: Work) -> bool:
        return self.age is not None and len(self.applied) - work.read >= self.age

    def begin(self, worker: int, now: float) -> None:
        if self.begun[worker] == len(self.runtimes):
            raise RanOut
        arrived = now + float(self.runtimes[self.begun[worker], worker])
        self.begun[worker] += 1
        self.busy[worker] = Work(worker, len(self.applied), now, arrived)
        heapq.heappush(self.heap, (arrived, worker))

    def give_up(self, now: float) -> list[int]:
        """Whose work is bound to be dropped; what was begun at this very instant counts as never begun."""
        late = [worker for worker, work in self.busy.items() if self.interrupt and self.too_old(work)]
        for worker in late:
            work = self.busy.pop(worker)
            if work.started == now:
                self.begun[worker] -= 1
            else:
                work.arrived, work.update = now, DROPPED
                self.done.append(work)
        return late

    def fields(self) -> dict[str, list]:
        end = self.applied[-1]
        self.done.sort(key=lambda work: (work.arrived, work.worker))
        return fields_of(self.done + _pending(self.busy, end), self.applied)


def simulate_bounded_staleness(runtimes: np.ndarray, bound: int, num_gradients: int | None) -> dict[str, list]:
    """Every arrival is an update; a worker begins its next gradient while it is at most `bound` ahead of the slowest.

    Without `num_gradients`, a worker that has done all its rows of run-times has done its work; else it would go on.
    """
    rows, workers = runtimes.shape
    heap: list[tuple[float, int]] = []
    busy: dict[int, Work] = {}
    finished = [0] * workers
    done: list[Work] = []

    def begin_who_can(now: float) -> None:
        for worker in range(workers):
            ahead = finished[worker] - min(finished)
            if worker in busy or ahead > bound:
                continue
            if finished[worker] == rows:
                if num_gradients is not None:
                    raise RanOut
                continue
            arrived = now + float(runtimes[finished[worker], worker])
            busy[worker] = Work(worker, len(done), now, arrived)
            heapq.heappush(heap, (arrived, worker))

    begin_who_can(0.0)
    while True:
        now, worker = heapq.heappop(heap)
        work = busy.pop(worker)
        work.update = len(done)
        done.append(work)
        finished[worker] += 1
        if len(done) == (num_gradients or runtimes.size):
            break
        begin_who_can(now)
    return fields_of(done + _pending(busy, now), [work.arrived for work in done])


def _pending(busy: dict[int, Work], end: float) -> list[Work]:
    works = sorted(busy.values(), key=lambda work: (work.arrived, work.worker))
    return [work for work in works if work.started < end]
