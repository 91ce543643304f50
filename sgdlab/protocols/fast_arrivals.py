"""The array program of gradients for which nobody waits: their order of arrival."""

from typing import NamedTuple

import numpy as np

from sgdlab.ordering import by_time
from sgdlab.runtimes import NotEnoughRuntimes


class Arrivals(NamedTuple):
    """Gradients in order of arrival, then those still in flight at the last one, ordered by when they would arrive."""

    worker: np.ndarray  # int32[G]
    seen: np.ndarray  # int64[G], number of gradients that had arrived when the worker began.
    started: np.ndarray  # float64[G], seconds.
    arrived: np.ndarray  # float64[G], seconds.
    count: int  # number of gradients that have arrived; the others are in flight.
    num_workers: int


def arrivals(runtimes: np.ndarray, num_gradients: int | None, *, multiple: int = 1) -> Arrivals:
    """Return the arrivals of all gradients if each worker begins its next gradient as soon as it has finished one.

    Args:
      runtimes: float64[T, N], seconds; row t holds each worker's t-th gradient.
      num_gradients: how many gradients are to arrive, rounded up to a multiple. None: until the first worker runs out
        of compute times, rounded down.
      multiple: `num_gradients` is rounded to a multiple of this number.

    Raises:
      NotEnoughRuntimes: where a worker runs out of rows first.
    """
    if num_gradients is not None:
        num_gradients = -(-num_gradients // multiple) * multiple
    rows, workers = runtimes.shape
    finished = accumulated(runtimes)  # [T, N]
    # Past the moment when the first worker has no rows left, the order of arrival is unknown.
    exhausted = int(finished[-1].argmin())
    horizon = finished[-1, exhausted]
    in_order = finished <= horizon
    # At that very moment workers up to the exhausted one count; a later one arrives behind it.
    in_order[:, exhausted + 1 :] &= finished[:, exhausted + 1 :] != horizon
    counts = np.count_nonzero(in_order, axis=0)
    known = int(counts.sum())
    if num_gradients is None:
        num_gradients = max(known // multiple, 1) * multiple
    if num_gradients > known:
        raise NotEnoughRuntimes.after(num_gradients, rows=rows, done=known, who=f"worker {exhausted}", spare=True)

    # Worker by worker, so that a stable sort by time leaves equal times in the order of the workers.
    times = finished.T[in_order.T]
    order = _first_in_order(times, num_gradients)
    worker, arrived = np.repeat(np.arange(workers, dtype=np.int32), counts)[order], times[order]
    # Each entry of `times` follows the one before it, unless it is its worker's first.
    first = (np.cumsum(counts) - counts)[counts > 0]
    seen, started = np.zeros(known, np.int64), np.zeros(known)
    seen[order] = np.arange(1, num_gradients + 1)
    seen[1:], started[1:] = seen[:-1], times[:-1]
    seen[first], started[first] = 0, 0.0
    seen, started = seen[order], started[order]

    done = np.bincount(worker, minlength=workers)
    began = np.where(done > 0, finished[done - 1, np.arange(workers)], 0.0)
    busy = np.flatnonzero(began < arrived[-1])
    busy = busy[np.argsort(finished[done[busy], busy], kind="stable")]
    last = np.zeros(workers, np.int64)
    last[worker] = np.arange(1, num_gradients + 1)
    return Arrivals(
        worker=np.concatenate([worker, busy.astype(np.int32)]),
        seen=np.concatenate([seen, last[busy]]),
        started=np.concatenate([started, began[busy]]),
        arrived=np.concatenate([arrived, finished[done[busy], busy]]),
        count=num_gradients,
        num_workers=workers,
    )


def accumulated(runtimes: np.ndarray) -> np.ndarray:
    """Return `np.cumsum(runtimes, axis=0)`, row by row: the same sums, many times faster if rows are long."""
    finished = np.empty_like(runtimes)
    finished[0] = runtimes[0]
    for before, row, after in zip(finished, runtimes[1:], finished[1:], strict=False):
        np.add(before, row, out=after)
    return finished


def _first_in_order(times: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of the `count` earliest times, in order, equal times by index."""
    if count < times.size:
        latest = np.partition(times, count - 1)[count - 1]
        candidates = np.flatnonzero(times <= latest)
        return candidates[by_time(times[candidates])][:count]
    return by_time(times)
