"""Asynchrony layer by layer: every read and every push of every layer is an event in a heap.

Events are (time, worker): equal times are processed by worker number; of one worker, its pushes come before its reads.
Times are computed in the type of the compute times: with `fractions.Fraction` they are exact.
"""

import dataclasses
import heapq

PENDING = -2
PUSH, READ = 0, 1


@dataclasses.dataclass
class LayerWork:
    worker: int
    started: float
    arrived: list
    read: list[int]
    update: list[int]


class RanOut(Exception):
    """A worker has no row of compute times left, and the simulation is not over."""


def simulate_layers(runtimes, num_gradients, num_blocks, *, forward, backward, share) -> dict[str, list]:
    """`runtimes` is a list of rows; `forward` and `backward` say whether layers are read and pushed one by one."""
    rows, workers = len(runtimes), len(runtimes[0])
    heap, begun, works = [], [0] * workers, []
    applied = [[] for _ in range(num_blocks)]

    def begin(worker, now):
        if begun[worker] == rows:
            raise RanOut
        seconds = runtimes[begun[worker]][worker]
        begun[worker] += 1
        arrived = []
        for layer in range(num_blocks):
            reads = now + (1 - share) * seconds * layer / num_blocks if forward else now
            pushes = now + seconds - (share * seconds * layer / num_blocks if backward else 0)
            arrived.append(pushes)
            # The bottom layer last: with it the gradient is whole, and its worker begins again.
            heapq.heappush(heap, (pushes, worker, PUSH, -layer, len(works)))
            heapq.heappush(heap, (reads, worker, READ, layer, len(works)))
        works.append(LayerWork(worker, now, arrived, [None] * num_blocks, [PENDING] * num_blocks))

    for worker in range(workers):
        begin(worker, 0 * runtimes[0][0])
    whole = 0
    while True:
        now, worker, kind, layer, number = heapq.heappop(heap)
        work, layer = works[number], abs(layer)
        if kind == READ:
            work.read[layer] = len(applied[layer])
            continue
        work.update[layer] = len(applied[layer])
        applied[layer].append(now)
        if layer == 0:
            whole += 1
            if whole == num_gradients or (num_gradients is None and begun[worker] == rows):
                break
            begin(worker, now)

    works = [work for work in works if work.started < now]
    works.sort(key=lambda work: (min(work.arrived), work.worker))
    for work in works:  # what has not been read when the run ends is what the servers have
        work.read = [len(applied[layer]) if v is None else v for layer, v in enumerate(work.read)]
    nan = float("nan")
    return {
        "worker": [work.worker for work in works],
        "read": [work.read for work in works],
        "update": [work.update for work in works],
        "started": [float(work.started) for work in works],
        "arrived": [[float(time) for time in work.arrived] for work in works],
        "applied": [
            [float(column[update]) if update < len(column) else nan for column in applied]
            for update in range(max(map(len, applied)))
        ],
    }
