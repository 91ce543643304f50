"""The few functions of `scipy.special` that deadlines need, under SciPy's names: NumPy is then the only dependency."""

from __future__ import annotations

import math
import statistics

import numpy as np

_NORMAL = statistics.NormalDist()
_FAR = -30.0
"""Below it, the normal distribution's tail is its asymptotic series, whose first term left out is below 1e-11."""

_LEAST_LOG = -700.0
"""Logarithms above it are those of ordinary floats."""

_erfc = np.vectorize(math.erfc, otypes=[float])
_quantile = np.vectorize(_NORMAL.inv_cdf, otypes=[float])
_log_gamma = np.vectorize(math.lgamma, otypes=[float])


def log_ndtr(x: np.ndarray | float) -> np.ndarray:
    """Return the logarithm of the standard normal distribution function of an array."""
    x = np.asarray(x, float)
    near = np.maximum(x, _FAR)
    above = np.maximum(near, 0.0)
    found = np.where(
        near > 0, np.log1p(-_erfc(above / math.sqrt(2)) / 2), np.log(_erfc(-np.minimum(near, 0.0) / math.sqrt(2)) / 2)
    )
    far = np.minimum(x, _FAR)
    inverse = far**-2.0
    series = np.log1p(-inverse * (1 - 3 * inverse * (1 - 5 * inverse * (1 - 7 * inverse))))
    return np.where(x >= _FAR, found, -(far**2) / 2 - np.log(-far) - math.log(2 * math.pi) / 2 + series)


def ndtri(p: np.ndarray | float) -> np.ndarray:
    """Return the standard normal quantiles of an array of probabilities, above 0 and below 1."""
    return _quantile(np.asarray(p, float))


def ndtri_exp(y: np.ndarray | float) -> np.ndarray:
    """Return the standard normal quantiles of probabilities that are given as logarithms, at most 0."""
    y = np.asarray(y, float)
    high, low = y > -math.log(2), y <= _LEAST_LOG
    tiny = np.finfo(float).tiny
    found = -_quantile(np.where(high, np.maximum(-np.expm1(y), tiny), 0.5))
    found = np.where(high, found, _quantile(np.exp(np.clip(y, _LEAST_LOG, -math.log(2)))))
    deep = np.minimum(y, _LEAST_LOG)
    x = -np.sqrt(-2 * deep)
    for _ in range(5):  # Newton's method
        value = log_ndtr(x)
        x = x - (value - deep) * np.exp(value + x**2 / 2 + math.log(2 * math.pi) / 2)
    return np.where(low, x, found)


def bdtr(most: np.ndarray | int, trials: int, share: float) -> np.ndarray:
    """Return the probabilities of at most so many successes, whole numbers, in independent trials."""
    most = np.asarray(most, int)
    count = np.arange(trials + 1)
    ways = math.lgamma(trials + 1) - _log_gamma(count + 1.0) - _log_gamma(trials - count + 1.0)
    chance = np.exp(ways + count * math.log(share) + (trials - count) * math.log1p(-share))
    return np.minimum(np.cumsum(chance), 1.0)[most]


def bdtri(most: int, trials: int, chance: float) -> float:
    """Return the share of successes with which at most so many come with this chance: the other way round of `bdtr`."""
    low, high = 0.0, 1.0
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if bdtr(most, trials, middle) > chance else (low, middle)
    return middle
