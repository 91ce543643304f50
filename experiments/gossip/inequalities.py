r"""The bounds of Jin et al. 2016 for pull gossip on a strongly convex objective, and one of this project.

Also the smallest ratio of a bound and a measured value.
"""

from typing import NamedTuple

import numpy as np

from experiments.gossip.quadratic import BETA, Quadratic

ERRORS = 4.0
"""A bound fails where the measured mean is above it by more than this number of standard errors."""


def contraction(num_nodes: int, *, printed: bool) -> float:
    r"""The bounds' lambda: the expected factor by which averaging alone reduces the nodes' disagreement in one tick.

    .. math:: \lambda = 1 - \frac{2 \beta (1 - \beta)}{p} - \frac{2 \beta^2}{p^2}

    This is the form that the appendix derives. The theorem, in the paper and where the appendix repeats it, has
    :math:`2 \beta^2 / p` as its last term.

    Args:
      num_nodes: p.
      printed: whether to return the form that the theorem prints.

    Example:
      >>> contraction(4, printed=False), contraction(4, printed=True)
      (0.84375, 0.75)
    """
    power = 1 if printed else 2
    return 1.0 - 2.0 * BETA * (1.0 - BETA) / num_nodes - 2.0 * BETA**2 / num_nodes**power


def distance_bound(
    problem: Quadratic,
    *,
    step: np.ndarray,
    first: float,
    alpha: float,
    num_nodes: int,
    synchronous: bool = False,
    corrected: bool = False,
) -> np.ndarray:
    r"""Return the theorem's bound on the sum over nodes of the squared distance from the minimum.

    .. math:: \left(1 - \frac{2 \alpha r}{p} \frac{m L}{m + L}\right)^t D_0 +
        \frac{s}{r} p \alpha \sigma^2 \frac{m + L}{2 m L}

    As printed r = s = 1, and in rounds the p of the first term is 1.

    The appendix bounds :math:`E |D (\theta - \alpha g)|^2` by :math:`E |\theta - \alpha g|^2`, as if the averaging
    D and the gradient g were independent. But both belong to the node that ticks, and averaging undoes the share beta
    of its step. For a fixed node with another node as its partner, convexity gives

    .. math:: E |(1 - \beta)(\theta_i - \alpha g_i) + \beta \theta_j|^2 \le
        (1 - \beta) \left(1 - 2 \alpha \frac{m L}{m + L}\right) |\theta_i|^2 + \beta |\theta_j|^2
        + (1 - \beta)^2 \alpha^2 \sigma^2

    and for a node that is its own partner the step is the usual one. The mean over all pairs is the bound above with

    .. math:: r = 1 - \beta + \frac{\beta}{p}, \quad s = (1 - \beta)^2 \left(1 - \frac1p\right) + \frac1p

    Args:
      problem: objective and its noise.
      step: int64[K], t.
      first: D_0, the value at t = 0.
      alpha: step size.
      num_nodes: p.
      synchronous: whether the nodes step in rounds.
      corrected: whether r and s are those of nodes that step, then average.

    Returns:
      float64[K].
    """
    p, slower, noisier = num_nodes, 1.0, 1.0
    if corrected:
        slower, noisier = 1.0 - BETA + BETA / p, (1.0 - BETA) ** 2 * (1.0 - 1.0 / p) + 1.0 / p
    rate = 1.0 - 2.0 * alpha * slower / (1 if synchronous else p) * problem.harmonic
    return rate**step * first + noisier / slower * p * alpha * problem.variance / (2.0 * problem.harmonic)


def consensus_bound(
    problem: Quadratic,
    *,
    step: np.ndarray,
    first: float,
    alpha: float,
    num_nodes: int,
    gradient: float,
    printed: bool = False,
) -> np.ndarray:
    r"""Return the theorem's bound on the sum over nodes of the squared distance from their average, in ticks.

    .. math:: \left(\lambda \left(1 - \frac{\alpha m}{p}\right)\right)^t C_0 +
        \frac{\lambda \alpha^2 (c^2 + \sigma^2)}{1 - \lambda (1 - \alpha m / p)}

    Args:
      problem: objective and its noise.
      step: int64[K], t.
      first: C_0, the value at t = 0.
      alpha: step size.
      num_nodes: p.
      gradient: c^2.
      printed: whether to use the lambda that the theorem prints instead of the appendix's.

    Returns:
      float64[K].
    """
    factor = contraction(num_nodes, printed=printed)
    rate = factor * (1.0 - alpha * problem.m / num_nodes)
    return rate**step * first + factor * alpha**2 * (gradient + problem.variance) / (1.0 - rate)


class Margin(NamedTuple):
    """The smallest ratio of a bound and the measured value in a run.

    Attributes:
      value: the ratio.
      step: tick or round at which it is smallest.
      error: standard error of the ratio.
      fails: whether the measured mean is above the bound by more than sampling explains.
    """

    value: float
    step: int
    error: float
    fails: bool


def smallest(step: np.ndarray, bound: np.ndarray, measured: np.ndarray, error: np.ndarray | float = 0.0) -> Margin:
    """Return the smallest ratio of bound and measured value; steps at which the measured value is 0 are ignored.

    Args:
      step: int64[K], ticks or rounds.
      bound: float64[K].
      measured: float64[K], means over runs.
      error: float64[K], their standard errors; 0 for exact values.
    """
    ratio = np.divide(bound, measured, out=np.full(bound.shape, np.inf), where=measured > 0)
    at = int(ratio.argmin())
    rounding = 1e-9 * measured[at]
    spread = np.broadcast_to(error, measured.shape)[at]
    spread = float(spread) if spread > rounding else 0.0  # all runs begin with the same parameters
    fails = bool(measured[at] - bound[at] > ERRORS * spread + rounding)
    return Margin(float(ratio[at]), int(step[at]), float(ratio[at]) * spread / float(measured[at]), fails)
