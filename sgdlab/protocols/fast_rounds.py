"""The array program of rounds: updates that need not wait for every worker, for `sgdlab.protocols.rounds`."""

import numpy as np

from sgdlab.ordering import by_time
from sgdlab.runtimes import NotEnoughRuntimes, too_short
from sgdlab.schedule import DROPPED, PENDING, Schedule

_TIMER = -1
"""Stands for the worker whose gradient closes an update if the timer does, before messages of the same instant."""


def rounds(
    runtimes: np.ndarray,
    *,
    at_least: int | np.ndarray,
    seconds: float,
    interrupt: bool,
    num_gradients: int | None = None,
) -> Schedule:
    """Make the schedule of `timeout`, whose arguments these are.

    Args:
      runtimes: float64[T, N], seconds.
      at_least: c, from 1 to N, or int[T], one for each update.
      seconds: how long an update waits after its c-th gradient.
      interrupt: whether a late worker gives up its gradient.
      num_gradients: how many gradients to use; the run ends with the update that reaches this number. None: T updates.

    Returns:
      A `Schedule`. A worker begins at most one gradient per update, so T rows suffice for T updates.

    Raises:
      ValueError: where a run-time does not advance the clock.
      NotEnoughRuntimes: where T updates use fewer gradients; it says how many rows would be enough.
    """
    rows, workers = runtimes.shape
    wanted = rows * workers if num_gradients is None else num_gradients
    every = np.arange(workers)
    least = np.broadcast_to(at_least, rows)
    # Row u of these arrays: the gradient that each worker computed on version u, if it began one.
    began, ended = (np.full((rows, workers), np.nan) for _ in range(2))
    used = np.zeros((rows, workers), bool)
    applied = np.empty(rows)
    update, done = 0, 0  # numbers of updates made, and of gradients that they have used
    now, closed_by = 0.0, _TIMER
    begun = np.zeros(workers, np.int64)  # number of run-times that each worker has used
    free = np.zeros(workers)  # time when each worker can read again
    while update < rows and done < wanted:
        starts = np.maximum(free, now)
        ends = starts + runtimes[begun, every]
        if not (ends > starts).all():
            stuck = int(np.argmin(ends > starts))
            raise too_short(begun[stuck], stuck, runtimes[begun[stuck], stuck], starts[stuck])
        taken, now, closed_by = _closing(ends, int(least[update]), seconds)
        # A straggler that is still busy when the update closes begins no gradient on this version.
        in_time = (free < now) | ((free == now) & (every < closed_by))
        began[update, in_time] = starts[in_time]
        ended[update, in_time] = np.where(interrupt & ~taken, now, ends)[in_time]
        used[update], applied[update] = taken, now
        begun += in_time
        free = np.full(workers, now) if interrupt else np.where(in_time, ends, free)
        update, done = update + 1, done + np.count_nonzero(taken)
    if num_gradients is not None and done < num_gradients:
        raise NotEnoughRuntimes.after(num_gradients, rows=rows, done=done)

    began, ended, used, applied = began[:update], ended[:update], used[:update], applied[:update]
    # Worker by worker, so that a stable sort by time leaves equal times in the order of the workers.
    worker, version = np.nonzero(np.ascontiguousarray(~np.isnan(began.T)))
    started, arrived = began[version, worker], ended[version, worker]
    after = (arrived > applied[-1]) | ((arrived == applied[-1]) & (worker > closed_by) & ~np.bool_(interrupt))
    kind = np.where(used[version, worker], version, np.where(after, PENDING, DROPPED))
    order = by_time(arrived)
    late = order[kind[order] == PENDING]
    late = late[started[late] < applied[-1]]  # begun at the very end: not begun
    order = np.concatenate([order[kind[order] != PENDING], late])
    return Schedule(
        worker=worker[order],
        read=version[order, None],
        update=kind[order, None],
        started=started[order],
        arrived=arrived[order, None],
        applied=applied[:, None],
        num_workers=workers,
    )


def _closing(ends: np.ndarray, at_least: int, seconds: float) -> tuple[np.ndarray, float, int]:
    """Return bool[N], workers in time; when the update closes; and the worker that closes it, the first of ties."""
    order = by_time(ends)
    enough = ends[order[at_least - 1]]
    deadline = enough + seconds
    count, closed_by = at_least, int(order[at_least - 1])
    if deadline > enough:
        count = max(at_least, int(np.count_nonzero(ends < deadline)))
        closed_by = int(order[-1]) if count == ends.size else _TIMER
    taken = np.zeros(ends.size, bool)
    taken[order[:count]] = True
    return taken, float(deadline if closed_by == _TIMER else ends[closed_by]), closed_by
