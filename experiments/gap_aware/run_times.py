"""Gamma-distributed compute times (Barkai et al. 2020, C.3): closed forms, and speeds of simulated clusters."""

import functools
import math

import numpy as np
from scipy import special, stats

from sgdlab import cluster

_NEGLIGIBLE = 1e-14
"""Probability beyond either end of the grids of the integrals."""


def survival(times: np.ndarray, *, between: float, within: float) -> np.ndarray:
    r"""Probability that an iteration takes longer, in units of the mean.

    The time is the product of two gamma variables of mean 1, the mean p of the machine and the task's part s:

    .. math:: P(p s > t) = E_p\left[ Q(a, a t / p) \right], \qquad a = 1 / V_{within}^2

    with Q the regularised upper incomplete gamma function.

    Args:
      times: float64[...], t, in units of the mean.
      between: coefficient of variation of p (0: all means are 1).
      within: coefficient of variation of s.

    Returns:
      float64[...].

    Source: Barkai et al. 2020, Algorithms 12 and 13.

    Example:
      >>> survival(np.array([1.25]), between=0.0, within=0.1), survival(np.array([1.25]), between=0.6, within=0.1)
      (array([0.00937913]), array([0.27876004]))
    """
    shape = 1 / within**2
    means, weights = _means(between)
    return special.gammaincc(shape, shape * np.asarray(times)[..., None] / means) @ weights


def density(times: np.ndarray, *, between: float, within: float) -> np.ndarray:
    """Density of the time of an iteration, in units of the mean; arguments as in `survival`, times above 0.

    Example:
      >>> times = np.linspace(1e-3, 10, 1001)
      >>> round(float(np.trapezoid(times * density(times, between=0.6, within=0.1), times)), 6)  # the mean
      1.0
    """
    shape = 1 / within**2
    means, weights = _means(between)
    return stats.gamma.pdf(np.asarray(times)[..., None], shape, scale=means / shape) @ weights


def expected_maximum(num_workers: np.ndarray, *, between: float, within: float) -> np.ndarray:
    r"""Expected time of the slowest of N iterations, in units of the mean.

    .. math:: E\left[\max_j p_j s_j\right] = \int_0^\infty 1 - (1 - P(p s > t))^N \, dt

    Args:
      num_workers: int[...], N.
      between: coefficient of variation of the means p, which differ between workers (0: they do not).
      within: coefficient of variation of the tasks' parts s.

    Returns:
      float64[...].

    Example:
      >>> expected_maximum(np.array([1, 32, 1000]), between=0.0, within=0.1).round(3)
      array([1.   , 1.219, 1.357])
    """
    times, beyond = _tail(between, within)
    slowest = -np.expm1(np.asarray(num_workers)[..., None] * np.log1p(-beyond))
    return np.trapezoid(slowest, times)


def expected_rate(variation: float) -> float:
    r"""Expected speed of one worker, whose mean time p is itself a gamma variable of mean 1.

    .. math:: E[1 / p] = 1 / (1 - V^2)

    Args:
      variation: V, the coefficient of variation of p.

    Raises:
      ValueError: where it is infinite.

    Example:
      >>> round(expected_rate(0.6), 4)
      1.5625
    """
    if not 0 <= variation < 1:
        raise ValueError(f"variation={variation} must be at least 0 and below 1: E[1/p] is infinite from there on")
    return 1 / (1 - variation**2)


def asynchronous_rate(law: cluster.Gamma, *, num_gradients: int, seed: int) -> float:
    """Gradients per second of workers who never wait: `num_gradients` over the time at which the last of them arrives.

    Args:
      law: the compute times.
      num_gradients: how many gradients all workers make together.
      seed: of the compute times.

    Example:
      >>> law = cluster.Gamma(num_workers=8, mean=1.0, task_variation=1e-6)
      >>> round(asynchronous_rate(law, num_gradients=8000, seed=0), 1)
      8.0
    """
    means = law.draw(10, seed=seed).mean(axis=0)
    rows = math.ceil(1.1 * num_gradients / (means.min() * np.sum(1 / means))) + 10
    while True:
        arrived = law.draw(rows, seed=seed).cumsum(axis=0)
        if arrived.size >= num_gradients:
            end = np.partition(arrived, num_gradients - 1, axis=None)[num_gradients - 1]
            if end <= arrived[-1].min():  # no gradient beyond the last row can have arrived before
                return float(num_gradients / end)
        rows *= 2


def synchronous_rate(law: cluster.Gamma, *, num_gradients: int, seed: int) -> float:
    """Return gradients per second of workers who wait for the slowest in every iteration.

    Arguments as in `asynchronous_rate`. There are as many iterations as `num_gradients` fill, and at least one.

    Example:
      >>> law = cluster.Gamma(num_workers=8, mean=1.0, task_variation=1e-6)
      >>> slowest = expected_maximum(np.array(8), between=0.0, within=0.1)
      >>> round(float(synchronous_rate(law, num_gradients=80_000, seed=0) * slowest), 1)
      8.0
    """
    runtimes = law.draw(max(num_gradients // law.num_workers, 1), seed=seed)
    return float(runtimes.size / runtimes.max(axis=1).sum())


@functools.cache
def _tail(between: float, within: float) -> tuple[np.ndarray, np.ndarray]:
    """Times from 0 to beyond all iterations, and the probability of longer ones, just below 1 where it is 1."""
    longest = math.prod(_quantiles(variation)[1] for variation in (between, within))
    times = np.linspace(0.0, longest, 2001)
    return times, np.minimum(survival(times, between=between, within=within), 1 - np.finfo(float).eps)


def _quantiles(variation: float) -> tuple[float, float]:
    if variation == 0:
        return 1.0, 1.0
    law = stats.gamma(1 / variation**2, scale=variation**2)
    return max(law.ppf(_NEGLIGIBLE), np.finfo(float).tiny), law.isf(_NEGLIGIBLE)


def _means(variation: float) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights of the trapezoidal rule over log p, for expectations over a gamma variable of mean 1."""
    if variation == 0:
        return np.ones(1), np.ones(1)
    shape = 1 / variation**2
    logs = np.linspace(*np.log(_quantiles(variation)), 401)
    weights = np.exp(shape * (logs - np.exp(logs) + 1))
    return np.exp(logs), weights / weights.sum()
