"""The array program of bounded staleness, for `sgdlab.protocols.bounded_staleness`."""

import numpy as np

from sgdlab.ordering import by_time
from sgdlab.runtimes import NotEnoughRuntimes
from sgdlab.schedule import PENDING, Schedule


def ahead_by(bound: int, runtimes: np.ndarray, num_gradients: int | None) -> Schedule:
    """Returns the schedule in which no worker is more than `bound` gradients ahead of the slowest when it begins one.

    Args:
      bound: most gradients that a worker may be ahead.
      runtimes: float64[T, N], seconds; row t holds each worker's t-th gradient.
      num_gradients: how many gradients to apply. None: all T N, each worker's T.

    Raises:
      NotEnoughRuntimes: where run-times end first; it says how many rows would be enough.
    """
    rows, workers = runtimes.shape
    limited = num_gradients is not None
    if limited and num_gradients > rows * workers:
        raise NotEnoughRuntimes.after(num_gradients, rows=rows, done=rows * workers, spare=True)
    num_gradients = num_gradients or rows * workers
    started, finished = np.empty_like(runtimes), np.empty_like(runtimes)
    released_by = np.empty(runtimes.shape, np.int64)  # row-major index of the gradient whose end begins this one
    every, slowest = np.arange(workers), np.zeros(rows, np.int64)
    for k in range(rows):
        own = (k - 1) * workers + every
        started[k], released_by[k] = (finished[k - 1], own) if k else (0.0, -1)
        if k > bound:
            # Of several slowest workers, the one with the highest number releases the others.
            row = k - bound - 1
            slowest[row] = workers - 1 - np.argmax(finished[row, ::-1])
            latest = finished[row, slowest[row]]
            waits = (latest > started[k]) | ((latest == started[k]) & (slowest[row] > every))
            started[k, waits], released_by[k, waits] = latest, row * workers + slowest[row]
        finished[k] = started[k] + runtimes[k]

    # Worker by worker, so that a stable sort by time leaves equal times in the order of the workers.
    order = np.arange(finished.size).reshape(rows, workers).T.ravel()[by_time(finished.T.ravel())]
    rank = np.empty(order.size + 1, np.int64)  # index in the order of arrival
    rank[order], rank[-1] = np.arange(order.size), -1
    # The arrival after which each worker would begin a gradient that has no run-time: its own last, or the slowest's.
    again = rank[(rows - 1) * workers + every]
    if rows > bound:
        row = rows - bound - 1
        again = np.maximum(again, rank[row * workers + workers - 1 - int(np.argmax(finished[row, ::-1]))])
    known = int(again.min()) + 1
    if limited and num_gradients > known:
        raise NotEnoughRuntimes.after(num_gradients, rows=rows, done=known, spare=True)
    end = finished.ravel()[order[num_gradients - 1]]
    used = order[:num_gradients]
    rest = order[num_gradients:]
    pending = rest[(rank[released_by.ravel()[rest]] < num_gradients) & (started.ravel()[rest] < end)]
    rows_of = np.concatenate([used, pending])
    return Schedule(
        worker=rows_of % workers,
        read=rank[released_by.ravel()[rows_of]][:, None] + 1,
        update=np.concatenate([np.arange(num_gradients), np.full(pending.size, PENDING)])[:, None],
        started=started.ravel()[rows_of],
        arrived=finished.ravel()[rows_of][:, None],
        applied=finished.ravel()[used][:, None],
        num_workers=workers,
    )
