"""Stale Synchronous Parallel: no worker runs further ahead of the slowest than a bound (Ho et al. 2013)."""

import numpy as np

from sgdlab import arguments
from sgdlab.ordering import by_time
from sgdlab.protocols.family import PROTOCOLS
from sgdlab.runtimes import NotEnoughRuntimes, checked
from sgdlab.schedule import PENDING, Schedule


@PROTOCOLS.register(
    title="Bounded staleness", source="Ho et al. 2013", families=("Staleness, limited or not",), rule="nag_asgd"
)
def bounded_staleness(runtimes: np.ndarray, *, bound: int = 2, num_gradients: int | None = None) -> Schedule:
    r"""Every gradient is an update of its own, but a worker waits while it is more than `bound` steps ahead.

    A worker that has done k gradients begins its next one once every worker has done at least k - bound:

    .. math:: s_{k,i} = \max(f_{k-1,i},\; \max_j f_{k-bound-1,j})

    with s and f the beginning and the end of a worker's k-th gradient. With a bound of 0 every gradient reads all
    gradients of the round before, as in `synchronous`; with a large one it is `asynchronous`.

    Args:
      runtimes: float64[T, N], seconds; row t holds each worker's t-th gradient.
      bound: most gradients that a worker may be ahead of the slowest one when it begins another.
      num_gradients: how many gradients to apply. None: all T N, each worker's T.

    Returns:
      A `Schedule`, one gradient an update, in order of arrival, then the pending ones.

    Raises:
      ValueError: where run-times are not positive and finite, or `bound` is below 0.
      NotEnoughRuntimes: (a ValueError) where run-times end first; it says how many rows would be enough.

    Example:
      >>> import numpy as np
      >>> schedule = bounded_staleness(np.array([[1.0, 3.0], [1.0, 3.0]]), bound=0)
      >>> schedule.started, schedule.read[:, 0]
      (array([0., 0., 3., 3.]), array([0, 0, 2, 2], dtype=int32))
    """
    runtimes = checked(runtimes)
    bound = arguments.whole("bound", bound, least=0)
    rows, workers = runtimes.shape
    limited = num_gradients is not None
    if limited and arguments.whole("num_gradients", num_gradients) > rows * workers:
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
