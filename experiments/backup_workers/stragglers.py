"""The wait for the k-th of 100 gradients: drawn from a model of the paper's cluster, and binomially."""

import dataclasses
import math

import numpy as np
import scipy.stats

from sgdlab import cluster

MACHINES = 100
"""N + b in Figures 3, 4 and 6 of Chen et al. 2016."""
LAW = cluster.LongTailed(MACHINES)
"""The model of the paper's machines."""
LIMIT = 2.0
"""Seconds below which the paper gives the share of gradients."""


def collected(iterations: int, seed: int, spread: float = LAW.spread) -> np.ndarray:
    """Draws the time to collect each number of gradients when all machines start at the same time.

    Args:
      iterations: number of them.
      seed: of the compute times.
      spread: standard deviation of the logarithm of compute times that are not in the tail.

    Returns:
      float64[iterations, MACHINES], seconds; column k - 1 is the time until the k-th gradient arrives.

    Example:
      >>> bool((np.diff(collected(3, seed=0), axis=1) >= 0).all())
      True
    """
    return np.sort(dataclasses.replace(LAW, spread=spread).draw(iterations, seed=seed), axis=1)


def in_parts(seconds: np.ndarray) -> np.ndarray:
    """Return the means of at most 20 equal parts of the rows, which are independent and less skewed than the rows.

    Example:
      >>> in_parts(np.ones((50, 3))).shape
      (20, 3)
    """
    return np.array([part.mean(axis=0) for part in np.array_split(seconds, min(20, len(seconds)))])


def under(k: int, late: float) -> float:
    r"""Probability that the k-th gradient takes less than `LIMIT` if machines are late with probability p.

    .. math:: P(X \le n - k), \qquad X \sim \mathrm{Binomial}(n, p)

    Example:
      >>> round(under(100, 0.01), 3), round(0.99**100, 3)
      (0.366, 0.366)
    """
    return float(scipy.stats.binom.cdf(MACHINES - k, MACHINES, late))


def lateness(k: int, share: float) -> float:
    """Return the probability p for which `under(k, p)` is `share`.

    Example:
      >>> round(lateness(98, under(98, 0.0135)), 4)
      0.0135
    """
    return float(scipy.stats.beta.ppf(1 - share, MACHINES - k + 1, k))


def iterations_until(seconds: float) -> float:
    """Return number of iterations whose longest gradient takes `seconds`, a time in the tail, in the median.

    Example:
      >>> round(iterations_until(310))
      1641
    """
    return math.log(2) / (MACHINES * LAW.tail_share * (LAW.tail_start / seconds) ** LAW.tail_index)
