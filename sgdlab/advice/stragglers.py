"""Detects stragglers: workers that are slow in most steps, workers that are slow at times, and how long it lasts."""

import dataclasses

import numpy as np

from sgdlab.cluster import Recording

SLOW = 1.2
"""A worker is slow in a step if its run-time is more than this multiple of the step's median."""

MOSTLY, AT_TIMES = 0.8, 0.1
"""Shares of slow steps from which a worker counts as persistently slow, and as slow at times."""

_PAIRS = 5
"""Smallest number of pairs of consecutive recorded steps from which the correlation is estimated."""


@dataclasses.dataclass(frozen=True, eq=False)
class Stragglers:
    """How slow each worker is, and how long slowness lasts.

    Attributes:
      ratio: float64[N], for each worker the median over the steps of its run-time divided by the step's median.
      slow: float64[N], share of the steps in which the worker is slow.
      last: float64[N], share of the steps in which the worker finishes last.
      memory: correlation between consecutive steps of a worker's relative run-time, after subtracting the worker's
        mean; None if too few recorded steps are consecutive.
      pairs: number of pairs of consecutive steps that `memory` is estimated from.
    """

    ratio: np.ndarray
    slow: np.ndarray
    last: np.ndarray
    memory: float | None
    pairs: int

    @property
    def persistent(self) -> np.ndarray:
        """Indices of the workers that are slow in most steps, the slowest first."""
        slow = np.flatnonzero(self.slow >= MOSTLY)
        return slow[np.argsort(-self.ratio[slow], kind="stable")]

    @property
    def passing(self) -> np.ndarray:
        """Indices of the workers that are slow at times, in decreasing order of how often."""
        slow = np.flatnonzero((self.slow >= AT_TIMES) & (self.slow < MOSTLY))
        return slow[np.argsort(-self.slow[slow], kind="stable")]


def find(complete: Recording) -> Stragglers:
    """Finds the slow workers in the complete steps of a recording."""
    runtimes = complete.runtimes
    relative = runtimes / np.median(runtimes, axis=1, keepdims=True)
    last = np.bincount(runtimes.argmax(axis=1), minlength=runtimes.shape[1]) / len(runtimes)
    following = np.flatnonzero(np.diff(complete.steps) == 1)
    return Stragglers(
        ratio=np.median(relative, axis=0),
        slow=(relative > SLOW).mean(axis=0),
        last=last,
        memory=_memory(relative, following) if following.size >= _PAIRS else None,
        pairs=int(following.size),
    )


def repaired(runtimes: np.ndarray, workers: np.ndarray) -> np.ndarray:
    """The run-times if some workers took as long as the median of the others.

    Args:
      runtimes: float64[T, N], seconds.
      workers: int[K], indices of the workers whose run-times are replaced.
    """
    result = np.array(runtimes)
    result[:, workers] = np.median(np.delete(runtimes, workers, axis=1), axis=1, keepdims=True)
    return result


def _memory(relative: np.ndarray, following: np.ndarray) -> float:
    deviation = relative - relative.mean(axis=0)
    covariance = (deviation[following] * deviation[following + 1]).mean()
    variance = (deviation**2).mean()
    return float(covariance / variance) if variance > 0 else 0.0
