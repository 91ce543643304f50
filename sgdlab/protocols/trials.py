"""How many trials MindFlayer SGD gives each worker, from its time limits and how often a trial succeeds."""

import numpy as np

from sgdlab import arguments

_ROUNDING = 1e-9
"""How far, relatively, a quotient may be from a whole number and still count as that."""


def optimal_trials(seconds: np.ndarray, probabilities: np.ndarray, *, noise: float) -> np.ndarray:
    r"""Trials of each worker in a round: all that fit into the time in which the round's gradient is precise enough.

    .. math:: t(m) = \Big(\sum_{j=1}^m \frac{p_j}{t_j}\Big)^{-1} \Big(S + \sum_{j=1}^m p_j\Big), \qquad
        B_i = \max\Big(\Big\lceil \frac{\min_m t(m)}{t_i} \Big\rceil - 1, 0\Big)

    Workers are numbered by their limits t, the shortest first. Those whose limit is longer than the round have no
    trial. The expected number of gradients, the sum of p_i B_i, is at least S.

    Args:
      seconds: t, float[N], the limits of a trial.
      probabilities: p, float[N], of a trial to end within its limit; at least one above 0.
      noise: S = max(1, sigma^2 / epsilon), the gradients that make an update precise enough.

    Returns:
      int64[N], B.

    Raises:
      ValueError: where a limit is not positive and finite, no probability is above 0, or `noise` is below 1.

    Source: Maranjyan, Omar and Richtarik 2025 (MindFlayer SGD), read in the authors' code (`MindFlayerBatchSize`),
    where the probabilities of the first sum are left unsorted; here they are sorted as their limits are.

    Example:
      >>> optimal_trials(np.array([1.0, 1.0, 50.0]), np.array([0.5, 0.5, 0.5]), noise=8.0)
      array([8, 8, 0])
    """
    noise = arguments.real("noise", noise, least=1)
    seconds, probabilities = np.asarray(seconds, np.float64), np.asarray(probabilities, np.float64)
    if not (seconds.size and np.isfinite(seconds).all() and (seconds > 0).all()):
        raise ValueError(f"seconds={seconds.tolist()} must be positive and finite, at least one")
    inside = probabilities.shape == seconds.shape and ((probabilities >= 0) & (probabilities <= 1)).all()
    if not inside or not probabilities.any():
        raise ValueError(
            f"probabilities={probabilities.tolist()} must be {seconds.size} numbers from 0 to 1, one of them above 0"
        )
    order = np.argsort(seconds, kind="stable")
    chance, limit = probabilities[order], seconds[order]
    with np.errstate(divide="ignore"):
        whole = (noise + np.cumsum(chance)) / np.cumsum(chance / limit)
    best = whole.min()
    ratio = best / seconds
    nearest = np.round(ratio)
    ratio = np.where(np.abs(ratio - nearest) <= _ROUNDING * nearest, nearest, ratio)  # else 3 may be 3 + 1e-16
    return np.maximum(np.ceil(ratio).astype(np.int64) - 1, 0)
