"""Single slow run-times: whether they have an owner, or strike any worker by chance."""

import dataclasses

import numpy as np
from scipy import special

from sgdlab.advice.diagnosis import change_points

_DEVIATIONS = 5.0
"""Deviations above the median (from the upper quartile) from which a run-time is an outlier."""

_LEAST = 1.2
"""Smallest multiple of the usual from which a run-time is an outlier."""

_CERTAIN = 0.002
"""Probability that in a fleet whose outliers strike by chance any worker is called their owner."""

_TIMES = 4.0
"""How many times as many outliers as the median worker an owner has at least."""

_FEWEST = 4

_BEYOND = 1.5
"""Least distance of an owner's median outlier from the usual, in units of the limit's: skewed noise ends sooner."""


@dataclasses.dataclass(frozen=True, eq=False)
class Tails:
    """Single slow run-times.

    Attributes:
      outlier: bool[T, N].
      owners: indices of the workers that have many more of them than the others.
      limit: float64[N], multiple of the step's usual run-time from which a run-time is an outlier.
    """

    outlier: np.ndarray
    owners: np.ndarray
    limit: np.ndarray


def find_outliers(relative: np.ndarray, slow: np.ndarray) -> Tails:
    r"""Finds single slow run-times.

    A run-time is an outlier if, relative to the usual of its step, it exceeds :math:`1 + 5 \sigma_i`, where
    :math:`\sigma_i` is the distance of the worker's upper quartile from 1 over that of the standard normal law, or the
    median of the workers' distances, or that of their upper tenths, whichever is largest. Workers are owners if a
    Poisson law with twice the typical number of the workers' outliers does not explain theirs,
    and half of theirs are 1.5 times as far from the usual as the limit.

    Args:
      relative: float64[T, N], run-times over the usual of their step.
      slow: bool[T, N], stretches in which workers are slow; they are not searched.

    Source: own definition.
    """
    quarter, tenth = np.quantile(relative[change_points.sampled(len(relative))], [0.75, 0.9], axis=0) - 1.0
    typical = max(float(np.median(quarter)) / 0.6745, float(np.median(tenth)) / 1.2816)
    limit = np.maximum(1.0 + _DEVIATIONS * np.maximum(quarter / 0.6745, typical), _LEAST)
    outlier = (relative > limit) & ~slow
    count = outlier.sum(axis=0)
    usual = (np.median(count) + np.mean(np.sort(count)[: max(count.size - 1, 1)])) / 2 + 0.5
    level = _CERTAIN / count.size
    owners = [
        worker
        for worker in np.flatnonzero(count >= max(_FEWEST, _TIMES * usual))
        if special.pdtrc(count[worker] - 1, 2 * usual) < level
        and np.median(relative[outlier[:, worker], worker]) - 1 >= _BEYOND * (limit[worker] - 1)
    ]
    return Tails(outlier, np.array(owners, int), limit)
