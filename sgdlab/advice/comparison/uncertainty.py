"""Confidence intervals of the ratio of two protocols, by a block bootstrap over the iterations that both share."""

import math
import weakref
from collections.abc import Iterable

import numpy as np

from sgdlab.advice.comparison.measured import Measured

LEVEL = 0.9
"""Confidence level of the intervals."""

_AT_ONCE = 256
"""Columns that are resampled at once."""


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
        self._rates: weakref.WeakKeyDictionary[Measured, np.ndarray] = weakref.WeakKeyDictionary()

    def rates(self, measured: Measured) -> np.ndarray:
        """Gradients per second of a protocol in each resample, float64[count]; computed once."""
        found = self._rates.get(measured)
        if found is None:
            self._rates[measured] = found = (self._gradients(measured) / (self.weights @ measured.seconds)).sum(axis=1)
        return found

    def prepare(self, results: Iterable[Measured]) -> None:
        """Computes the rates of many protocols at once, many times faster than one by one.

        Args:
          results: measurements; those of asynchronous protocols are left for later.
        """
        single = [one for one in dict.fromkeys(results) if one.seconds.shape[1] == 1 and one not in self._rates]
        for first in range(0, len(single), _AT_ONCE):
            some = single[first : first + _AT_ONCE]
            seconds = self.weights @ np.concatenate([one.seconds for one in some], axis=1)
            for one, column in zip(some, seconds.T, strict=True):
                self._rates[one] = self._gradients(one)[:, 0] / column

    def interval(self, measured: Measured, base: Measured) -> tuple[float, float]:
        """The ends of the interval of the gradients per second of `measured` divided by those of `base`."""
        ratios = self.rates(measured) / self.rates(base)
        low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return float(low), float(high)

    def _gradients(self, measured: Measured) -> np.ndarray:
        """float64[count, M], gradients in each resample, or [1, M] where every iteration has the same number."""
        values = measured.gradients
        if values.strides[0] == 0:  # one row, repeated
            return len(values) * values[:1]
        return self.weights @ values
