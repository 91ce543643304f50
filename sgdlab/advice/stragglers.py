"""Who the stragglers are: the same workers all the time, some for a while, or another one every step."""

import dataclasses

import numpy as np

from sgdlab.cluster import Recording

SLOW = 1.2
"""A worker is slow in a step where it takes so many times the step's median."""

MOSTLY, AT_TIMES = 0.8, 0.1
"""Shares of the steps: slower workers are slow persistently, or at times."""

_PAIRS = 5
"""Of consecutive recorded steps: with fewer, nothing is said of memory."""


@dataclasses.dataclass(frozen=True, eq=False)
class Stragglers:
    """Who is slow.

    Attributes:
      ratio: float64[N], each worker's median of run-time / the step's median.
      slow: float64[N], share of the steps that it is slow in.
      last: float64[N], share of the steps that it is the last in.
      memory: mean correlation of a worker's lateness in one step with that in the next, its own mean taken off; None
        where too few recorded steps follow each other.
      pairs: steps that follow each other, which it is from.
    """

    ratio: np.ndarray
    slow: np.ndarray
    last: np.ndarray
    memory: float | None
    pairs: int

    @property
    def persistent(self) -> np.ndarray:
        """Numbers of the workers that are slow in most steps, the slowest first."""
        found = np.flatnonzero(self.slow >= MOSTLY)
        return found[np.argsort(-self.ratio[found], kind="stable")]

    @property
    def passing(self) -> np.ndarray:
        """Numbers of the workers that are slow at times, those that are so most often first."""
        found = np.flatnonzero((self.slow >= AT_TIMES) & (self.slow < MOSTLY))
        return found[np.argsort(-self.slow[found], kind="stable")]


def find(complete: Recording) -> Stragglers:
    """Who is slow in the complete steps of a recording."""
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
    """The run-times, if some workers took as long as the median of the others."""
    result = np.array(runtimes)
    result[:, workers] = np.median(np.delete(runtimes, workers, axis=1), axis=1, keepdims=True)
    return result


def _memory(relative: np.ndarray, following: np.ndarray) -> float:
    deviation = relative - relative.mean(axis=0)
    covariance = (deviation[following] * deviation[following + 1]).mean()
    variance = (deviation**2).mean()
    return float(covariance / variance) if variance > 0 else 0.0
