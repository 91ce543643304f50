"""Repairs of a recorded trace: compute times as they would have been without one cause of waiting.

A repair only shortens times: whoever was faster than the median stays as fast. So no repair can make full synchrony
slower, and repairs can be made one after the other, in any order. Each returns a copy of the compute times, float64[T,
N]; those of whole steps take operations of pipelines too, float64[O, T, N].

Source: Lin et al. 2025, "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI), replays a
trace with the times of some operations replaced by ideal ones. That a time is replaced only where the ideal one is
shorter, and that the ideal of a worker is the median of the other workers in the same step, are this package's own.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from sgdlab import arrays

Repair = Callable[[np.ndarray], np.ndarray]
"""From compute times, float64[..., T, N], to those without a cause."""


def synchronous_seconds(runtimes: np.ndarray, transfer: np.ndarray | float = 0.0) -> np.ndarray:
    r"""Return how long steps take under full synchrony, float64[T]: they wait for the slowest worker, then transfer.

    .. math:: \tau_t = \max_i x_{ti} + c_t

    Args:
      runtimes: x, float64[T, N], seconds of each worker's own work.
      transfer: c, float64[T], seconds of communication; a number is that of every step.

    Example:
      >>> synchronous_seconds(np.array([[1.0, 3.0], [2.0, 1.0]]), 0.5)
      array([3.5, 2.5])
    """
    return runtimes.max(axis=1) + transfer


@dataclasses.dataclass(frozen=True, eq=False)
class AtMedian:
    """Lets some workers take at most as long as the median of the others in the same step.

    Attributes:
      workers: indices of the workers, not all of the N.
      rows: steps in which they are repaired, as a slice, indices or bool[T].

    Example:
      >>> AtMedian([1])(np.array([[1.0, 9.0, 3.0], [4.0, 1.0, 2.0]]))
      array([[1., 2., 3.],
             [4., 1., 2.]])
    """

    workers: Sequence[int]
    rows: slice | np.ndarray = dataclasses.field(default_factory=lambda: slice(None))

    def __call__(self, runtimes: np.ndarray) -> np.ndarray:
        """Return the compute times, float64[T, N], with the repair made.

        Raises:
          ValueError: where no worker is left to take the median of.
        """
        chosen, total = np.unique(np.asarray(self.workers, int)), runtimes.shape[1]
        if chosen.size >= total:
            raise ValueError(f"workers={chosen.tolist()} must leave out at least one of the {total} workers")
        within = np.arange(len(runtimes))[self.rows]
        repaired = runtimes.copy()
        if within.size and chosen.size:
            median = arrays.median(np.delete(runtimes[within], chosen, axis=1), axis=1, keepdims=True)
            repaired[np.ix_(within, chosen)] = np.minimum(runtimes[np.ix_(within, chosen)], median)
        return repaired


def in_turn(times: Any, made: Iterable[Callable[[Any], Any]]) -> Any:
    """Make repairs one after the other."""
    return functools.reduce(lambda before, repair: repair(before), made, times)


def rows_at_own_median(runtimes: np.ndarray, rows: Sequence[tuple[int | slice, np.ndarray]]) -> np.ndarray:
    """Let some steps of some workers take at most as long as the median of the same worker's other steps.

    Args:
      runtimes: float64[..., T, N], seconds.
      rows: pairs of a worker, or a slice of them, and of those of its steps that are repaired; not all.

    Example:
      >>> rows_at_own_median(np.array([[1.0, 2.0], [5.0, 2.0], [3.0, 2.0]]), [(0, np.array([1]))])
      array([[1., 2.],
             [2., 2.],
             [3., 2.]])
    """
    repaired = runtimes.copy()
    for workers, mended in rows:
        own = np.moveaxis(repaired[..., workers], runtimes.ndim - 2, 0)  # a view
        own[mended] = np.minimum(own[mended], np.median(np.delete(own, mended, axis=0), axis=0))
    return repaired


def faster(runtimes: np.ndarray, factor: float | np.ndarray) -> np.ndarray:
    """Make all workers faster by a factor: the whole cluster as it was before it became slower.

    Args:
      runtimes: float64[..., T, N], seconds.
      factor: what the compute times are divided by, at least 1; float64[T, 1] has one for each step.

    Raises:
      ValueError: where the factor is below 1.
    """
    if not np.all(np.asarray(factor) >= 1):
        raise ValueError(f"factor={factor!r} must be at least 1: a repair does not make steps longer")
    return runtimes / factor


def all_at_median(runtimes: np.ndarray) -> np.ndarray:
    """Let every worker take at most as long as the median of its step, [..., T, N]: nobody straggles.

    Example:
      >>> all_at_median(np.array([[1.0, 9.0, 3.0]]))
      array([[1., 3., 3.]])
    """
    return np.minimum(runtimes, arrays.median(runtimes, axis=-1, keepdims=True))
