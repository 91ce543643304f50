"""Run-times of many steps and workers in few cells, in which one slow worker of a thousand can still be seen."""

import itertools
import warnings
from typing import NamedTuple

import numpy as np

LIMIT = 3.0
"""Ratios above are drawn as this one."""


class RatioGrid(NamedTuple):
    """Ratios of run-times to the median of their step, one for each cell.

    Attributes:
      ratios: float64[t, n]; NaN where all run-times of the cell are missing.
      steps: int64[t + 1], the rows at which cells begin, and the number of rows.
      workers: int64[n + 1], the workers at which cells begin, and the number of workers.
    """

    ratios: np.ndarray
    steps: np.ndarray
    workers: np.ndarray


def reduced(runtimes: np.ndarray, *, most_steps: int = 600, most_workers: int = 250) -> RatioGrid:
    """Divides each run-time by its step's median; a cell has the largest of its workers' means over its steps.

    A mean over the steps keeps the size of a lasting slowdown and evens out chance; the largest over the workers keeps
    a single slow worker among fast ones.

    Args:
      runtimes: float64[T, N], seconds; NaN where one is missing.
      most_steps: most cells along the steps.
      most_workers: most cells along the workers.

    Returns:
      The cells; ratios above `LIMIT` count as `LIMIT`.

    Example:
      >>> runtimes = np.ones((4, 5))
      >>> runtimes[2:, 1] = 2.0
      >>> reduced(runtimes, most_steps=2, most_workers=2).ratios
      array([[1., 1.],
             [2., 1.]])
    """
    steps, workers = (_edges(size, most) for size, most in zip(runtimes.shape, (most_steps, most_workers), strict=True))
    ratios = np.empty((steps.size - 1, workers.size - 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a cell, or a step, without any run-time
        # Cell by cell, so that a long recording needs no second copy.
        for cell, (first, last) in enumerate(itertools.pairwise(steps)):
            block = runtimes[first:last]
            median = np.nanmedian(block, axis=1, keepdims=True)
            means = np.nanmean(np.minimum(block / median, LIMIT), axis=0)
            ratios[cell] = np.fmax.reduceat(means, workers[:-1])
    return RatioGrid(ratios, steps, workers)


def _edges(size: int, most: int) -> np.ndarray:
    return np.linspace(0, size, min(size, most) + 1).astype(int)
