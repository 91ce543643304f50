"""How sure a ratio of two protocols is: the iterations are drawn again, in short blocks, for both of them alike."""

import math

import numpy as np

from sgdlab.advice.measured import Measured

LEVEL = 0.9
"""Of the intervals."""


class Resamples:
    """Draws of T iterations out of T, with replacement: a circular block bootstrap.

    Blocks of about the cube root of T iterations keep some of what one iteration has to do with the next. What a
    cluster does that did not happen in these T iterations is in no interval.

    Args:
      num_steps: T.
      seed: of the draws.
      count: how many.

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
        """Gradients per second of every draw."""
        return ((self.weights @ measured.gradients) / (self.weights @ measured.seconds)).sum(axis=1)

    def interval(self, measured: Measured, base: Measured) -> tuple[float, float]:
        """Of the ratio of their gradients per second."""
        ratios = self.rates(measured) / self.rates(base)
        low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return float(low), float(high)
