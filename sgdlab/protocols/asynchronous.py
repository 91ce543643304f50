"""Nobody waits: every gradient is an update of its own (Barkai et al. 2020, Algorithms 1 and 2; Dean et al. 2012)."""

import math
import numbers

import numpy as np

from sgdlab.protocols.runtimes import NotEnoughRuntimes, checked
from sgdlab.schedule import PENDING, Schedule


def asynchronous(runtimes: np.ndarray, *, num_gradients: int | None = None) -> Schedule:
    """Every worker sends its gradient, reads what the server then has, and begins again at once.

    Gradient g, the g-th to arrive, is update g. Its worker had begun when its own previous gradient, the h-th,
    was applied, so it read version h + 1 (0 for a first gradient), and its staleness is g - h - 1.

    Args:
      runtimes: float64[T, N], seconds; row t holds each worker's t-th gradient.
      num_gradients: how many gradients to apply. None: as many as the run-times decide, that is until the first
        worker has used up its rows.

    Returns:
      A `Schedule` with `num_gradients` used gradients, then the pending ones: those that other workers had begun.

    Raises:
      ValueError: where run-times are not positive and finite, or `num_gradients` is below 1.
      NotEnoughRuntimes: (a ValueError) where a worker runs out of rows first; it says how many would be enough.

    Example:
      >>> import numpy as np
      >>> schedule = asynchronous(np.array([[2.0, 3.0], [2.0, 3.0], [2.0, 3.0]]), num_gradients=4)
      >>> schedule.worker[:4], schedule.read[:4, 0]
      (array([0, 1, 0, 0], dtype=int32), array([0, 0, 1, 3], dtype=int32))
    """
    runtimes = checked(runtimes)
    if num_gradients is not None and (not isinstance(num_gradients, numbers.Integral) or num_gradients < 1):
        raise ValueError(f"num_gradients={num_gradients!r} must be a whole number of at least 1")
    rows, workers = runtimes.shape
    finished = _accumulated(runtimes)  # [T, N]
    # Past the moment when the first worker has no rows left, the order of arrival is unknown.
    exhausted = int(finished[-1].argmin())
    horizon = finished[-1, exhausted]
    in_order = finished <= horizon
    # At that very moment workers up to the exhausted one count; a later one arrives behind it.
    in_order[:, exhausted + 1 :] &= finished[:, exhausted + 1 :] != horizon
    chosen = np.flatnonzero(in_order)
    known = chosen.size
    if num_gradients is None:
        num_gradients = known
    elif num_gradients > known:
        needed = max(rows + 1, math.ceil(1.1 * rows * num_gradients / known))
        raise NotEnoughRuntimes(
            f"num_gradients={num_gradients} needs more than the {rows} rows of runtimes: worker {exhausted} runs out "
            f"after {known} gradients have arrived; about {needed} rows would be enough",
            needed,
        )

    # Worker by worker, so that a stable sort by time leaves equal times in the order of the workers.
    chosen = chosen[np.argsort((chosen % workers).astype(_smallest_integer(workers)), kind="stable")]
    times, owner = finished.ravel()[chosen], (chosen % workers).astype(np.int32)
    order = _first_in_order(times, num_gradients)
    worker, arrived = owner[order], times[order]
    # Entry j of `times` follows entry j - 1 of the same worker; `place` says where each came in the order of arrival.
    place = np.full(known + 1, -1, np.int64)
    place[order] = np.arange(num_gradients)
    fresh = np.diff(owner, prepend=-1)[order] != 0
    read = np.where(fresh, 0, place[order - 1] + 1)
    started = np.where(fresh, 0.0, times[order - 1])

    done = np.bincount(worker, minlength=workers)
    end = arrived[-1]
    began = np.where(done > 0, finished[done - 1, np.arange(workers)], 0.0)
    busy = np.flatnonzero(began < end)
    busy = busy[np.argsort(finished[done[busy], busy], kind="stable")]
    last = np.zeros(workers, np.int64)
    last[worker] = np.arange(1, num_gradients + 1)

    return Schedule(
        worker=np.concatenate([worker, busy]),
        read=np.concatenate([read, last[busy]])[:, None],
        update=np.concatenate([np.arange(num_gradients), np.full(busy.size, PENDING)])[:, None],
        started=np.concatenate([started, began[busy]]),
        arrived=np.concatenate([arrived, finished[done[busy], busy]])[:, None],
        applied=arrived[:, None],
        num_workers=workers,
    )


def _accumulated(runtimes: np.ndarray) -> np.ndarray:
    """`np.cumsum(runtimes, axis=0)`, row by row: the same sums, many times faster where rows are long."""
    finished = np.empty_like(runtimes)
    finished[0] = runtimes[0]
    for before, row, after in zip(finished, runtimes[1:], finished[1:], strict=False):
        np.add(before, row, out=after)
    return finished


def _first_in_order(times: np.ndarray, count: int) -> np.ndarray:
    """Indices of the `count` earliest times, in order, equal times by index."""
    if count < times.size:
        latest = np.partition(times, count - 1)[count - 1]
        candidates = np.flatnonzero(times <= latest)
        return candidates[np.argsort(times[candidates], kind="stable")][:count]
    return np.argsort(times, kind="stable")


def _smallest_integer(count: int) -> type[np.signedinteger]:
    """NumPy sorts whole numbers of 16 bits by radix, several times faster than longer ones."""
    return np.int16 if count <= np.iinfo(np.int16).max else np.int64
