"""Everybody waits for the first N of N + b workers (Chen et al. 2016, Algorithms 3 and 4); for all, where b is 0."""

import numbers

import numpy as np

from sgdlab.protocols.runtimes import checked
from sgdlab.schedule import DROPPED, PENDING, Schedule


def synchronous(runtimes: np.ndarray) -> Schedule:
    """Every update waits for one gradient of every worker, all of them computed on the newest version.

    Args:
      runtimes: float64[T, N], seconds; row t holds each worker's gradient for update t.

    Returns:
      A `Schedule` of T updates and T N gradients, none of them dropped or pending.

    Raises:
      ValueError: where run-times are not positive and finite.

    Example:
      >>> import numpy as np
      >>> synchronous(np.array([[1.0, 3.0], [2.0, 1.0]])).applied[:, 0]
      array([3., 5.])
    """
    return backup_workers(runtimes, backups=0)


def backup_workers(runtimes: np.ndarray, *, backups: int) -> Schedule:
    """Every update takes the first N of N + b gradients on the newest version; those that come later are dropped.

    A late worker is not interrupted: it finishes its stale gradient, the server drops it, and the worker reads the
    newest version and begins again. It can miss several updates.

    Args:
      runtimes: float64[T, N + b], seconds; row t holds each worker's t-th gradient.
      backups: b, how many workers an update does not wait for.

    Returns:
      A `Schedule` of T updates with N gradients each. A worker begins at most one gradient per update, so T rows
      always suffice.

    Raises:
      ValueError: where run-times are not positive and finite, or `backups` is not from 0 to N + b - 1.

    Example:
      >>> import numpy as np
      >>> schedule = backup_workers(np.array([[1.0, 1.0, 2.5], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]), backups=1)
      >>> schedule.worker, schedule.update[:, 0]
      (array([0, 1, 0, 1, 2, 0, 1, 2], dtype=int32), array([ 0,  0,  1,  1, -1,  2,  2, -2], dtype=int32))
    """
    runtimes = checked(runtimes)
    updates, workers = runtimes.shape
    if not isinstance(backups, numbers.Integral) or not 0 <= backups < workers:
        raise ValueError(
            f"backups={backups!r} must be a whole number from 0 to {workers - 1}: runtimes has {workers} workers, "
            "and an update needs at least one"
        )
    needed, every = workers - int(backups), np.arange(workers)

    # One line of [U, N] arrays per update: the gradient that each worker computed on that version, if it began one.
    began = np.full((updates, workers), np.nan)
    ended = np.full((updates, workers), np.nan)
    applied = np.empty(updates)
    closed_by = np.empty(updates, np.int64)  # the worker whose gradient completed the update
    now = 0.0
    begun = np.zeros(workers, np.int64)  # rows of run-times that each worker has used
    free = np.zeros(workers)  # when each worker can read again
    for update in range(updates):
        starts = np.maximum(free, now)
        ends = starts + runtimes[begun, every]
        if not (ends > starts).all():
            stuck = int(np.argmin(ends > starts))
            raise ValueError(
                f"runtimes[{begun[stuck]}, {stuck}]={runtimes[begun[stuck], stuck]} does not advance the clock at "
                f"{starts[stuck]:g} s; run-times must be long enough to move the clock"
            )
        order = np.argsort(ends, kind="stable")
        last = order[needed - 1]
        # A straggler still busy when the update closes never gets to begin a gradient on this version.
        in_time = (free < ends[last]) | ((free == ends[last]) & (every < last))
        began[update, in_time], ended[update, in_time] = starts[in_time], ends[in_time]
        begun += in_time
        free[in_time] = ends[in_time]
        applied[update], closed_by[update] = ends[last], last
        now = ends[last]

    version, worker = np.nonzero(~np.isnan(began))
    started, arrived = began[version, worker], ended[version, worker]
    end, close = applied[version], closed_by[version]
    used = (arrived < end) | ((arrived == end) & (worker <= close))
    after = (arrived > applied[-1]) | ((arrived == applied[-1]) & (worker > closed_by[-1]))
    kind = np.where(used, version, np.where(after, PENDING, DROPPED))
    order = np.lexsort((worker, arrived, kind == PENDING))
    order = order[(kind[order] != PENDING) | (started[order] < applied[-1])]  # begun at the very end: not begun
    return Schedule(
        worker=worker[order],
        read=version[order, None],
        update=kind[order, None],
        started=started[order],
        arrived=arrived[order, None],
        applied=applied[:, None],
        num_workers=workers,
    )
