"""Confidence intervals of the ratio of two protocols, by a block bootstrap over the iterations that both share."""

import math

import numpy as np

from sgdlab.advice.measured import Measured

LEVEL = 0.9
"""Confidence level of the intervals."""


class Resamples:
    """A circular block bootstrap: T iterations drawn out of T with replacement, many times.

    Iterations are drawn in blocks of about the cube root of T, so that part of the dependence between consecutive
    iterations is preserved. The intervals do not cover behaviour of the cluster that these T iterations do not show.

    Args:
      num_steps: T, the number of iterations.
      seed: of the draws.
      count: number of resamples.

    Source: Politis and Romano 1992.

    Example:
      >>> Resamples(8, seed=0, count=5).weights.sum(axis=1)
      array([8., 8., 8., 8., 8.])
    """

    def __init__(self, num_steps: int, *, seed: int, count: int = 1000):
        block = math.ceil(num_steps ** (1 / 3))
        starts = np.random.default_rng(seed).integers(num_steps, size=(count, -(-num_steps // block)))
        steps = (starts[:, :, None] + np.arange(block)) % num_steps
        steps = steps.reshape(count, -1)[:, :num_steps]
        self.weights = np.zeros((count, num_steps))  # how often each step was drawn
        np.add.at(self.weights, (np.arange(count)[:, None], steps), 1.0)

    def rates(self, measured: Measured) -> np.ndarray:
        """Gradients per second of a protocol in each resample, float64[count]."""
        return ((self.weights @ measured.gradients) / (self.weights @ measured.seconds)).sum(axis=1)

    def interval(self, measured: Measured, base: Measured) -> tuple[float, float]:
        """The ends of the interval of the gradients per second of `measured` divided by those of `base`."""
        ratios = self.rates(measured) / self.rates(base)
        low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return float(low), float(high)
