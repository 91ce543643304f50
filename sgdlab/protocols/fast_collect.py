"""The array program of Rennala SGD and Ringmaster ASGD whose workers finish what they begin, for `collect`."""

import numpy as np

from sgdlab.protocols.fast_arrivals import Arrivals, arrivals
from sgdlab.runtimes import NotEnoughRuntimes, too_short
from sgdlab.schedule import DROPPED, PENDING, Schedule


def collected(size: int, max_delay: int, runtimes: np.ndarray, num_gradients: int | None) -> Schedule:
    """Returns the schedule of updates of `size` gradients, each with a delay of at most `max_delay`.

    Workers finish what they have begun: gradients arrive as they do in `arrivals`, whatever becomes of them.

    Args:
      size: number of gradients per update.
      max_delay: largest delay (staleness + 1, in updates) of a gradient that is used; others are dropped.
      runtimes: float64[T, N], seconds; row t holds each worker's t-th gradient.
      num_gradients: how many gradients to use, rounded up to whole updates. None: whole updates, until a worker that
        has to begin again runs out of run-times.

    Raises:
      ValueError: where a run-time does not advance the clock.
      NotEnoughRuntimes: where a worker runs out of rows first.
    """
    if num_gradients is not None:
        num_gradients = -(-num_gradients // size) * size
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
    row = np.count_nonzero(gradients.worker[:first] == worker)
    raise too_short(row, worker, runtimes[row, worker], started[first])
