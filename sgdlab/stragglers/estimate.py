"""Estimates with intervals, of draws of a bootstrap or by an exact law."""

from typing import NamedTuple

import numpy as np

LEVEL = 0.95
"""Confidence level of the intervals of the network and of failures."""


class Estimate(NamedTuple):
    """Holds an estimate and the ends of its interval, which may be infinite; with one end alone, the value is that."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, draws: np.ndarray) -> "Estimate":
        """Return the estimate of draws, float64[1 + B]: the value itself, and B of a bootstrap.

        Example:
          >>> Estimate.of(np.array([2.0, 2.0, 2.0]))
          Estimate(value=2.0, low=2.0, high=2.0)
        """
        low, high = np.quantile(draws[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="inverted_cdf")
        return cls(float(draws[0]), float(low), float(high))
