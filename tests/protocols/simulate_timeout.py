"""Rounds that close c gradients and some seconds later, as events in a heap.

At one instant: first the server's timer, then arrivals by worker number. Written from the docstring of
`protocols.timeout`.
"""

import heapq

import numpy as np
from event_simulation import DROPPED, Work, fields_of

TIMER, ARRIVAL = 0, 1


def simulate_timeout(runtimes: np.ndarray, at_least: int, seconds: float, interrupt: bool) -> dict[str, list]:
    """The newest version's first `at_least` gradients, and those of `seconds` more, make an update."""
    updates, workers = runtimes.shape
    heap: list[tuple[float, int, int]] = []
    busy: dict[int, Work] = {}
    begun = [0] * workers
    done: list[Work] = []
    applied: list[float] = []
    waiting: list[Work] = []

    def begin(worker: int, now: float) -> None:
        arrived = now + float(runtimes[begun[worker], worker])
        begun[worker] += 1
        busy[worker] = Work(worker, len(applied), now, arrived)
        heapq.heappush(heap, (arrived, ARRIVAL, worker))

    def close(now: float) -> None:
        nonlocal waiting
        for work in waiting:
            work.update = len(applied)
        applied.append(now)
        restart = [work.worker for work in waiting]
        waiting = []
        if interrupt:
            for worker in sorted(busy):
                work = busy.pop(worker)
                work.arrived, work.update = now, DROPPED
                done.append(work)
                restart.append(worker)
        if len(applied) < updates:
            for worker in restart:
                begin(worker, now)

    for worker in range(workers):
        begin(worker, 0.0)
    while len(applied) < updates:
        now, kind, number = heapq.heappop(heap)
        if kind == TIMER:
            if number == len(applied):  # else the update has not waited for its timer
                close(now)
            continue
        if number not in busy or busy[number].arrived != now:
            continue  # of work that was interrupted
        work = busy.pop(number)
        done.append(work)
        if work.read < len(applied):
            work.update = DROPPED
            begin(number, now)
            continue
        waiting.append(work)
        if len(waiting) == workers or (len(waiting) == at_least and seconds == 0):
            close(now)
        elif len(waiting) == at_least:
            heapq.heappush(heap, (now + seconds, TIMER, len(applied)))

    done.sort(key=lambda work: (work.arrived, work.worker))
    pending = sorted(busy.values(), key=lambda work: (work.arrived, work.worker))
    return fields_of(done + [work for work in pending if work.started < applied[-1]], applied)
