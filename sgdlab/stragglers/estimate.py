"""Estimates with intervals or bounds, and how sentences write them."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from sgdlab.report.words import figure

LEVEL = 0.95
"""Confidence level of the intervals of the network and of failures."""


class Estimate(NamedTuple):
    """Holds an estimate and the ends of its interval; the value is NaN where nothing but bounds is known."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, draws: np.ndarray) -> "Estimate":
        """Return the estimate of draws, float64[1 + B]: the value itself, and B of a bootstrap."""
        low, high = np.quantile(draws[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="inverted_cdf")
        return cls(float(draws[0]), float(low), float(high))

    def worded(self, text: Callable[[float], str]) -> str:
        """Write the estimate and its interval, or the bound that is known, with what writes a number.

        Example:
          >>> known = Estimate(2, 1, 3), Estimate(2, 1, math.inf), Estimate(math.nan, 0, 3), Estimate(math.nan, 1, 3)
          >>> [each.worded(str) for each in known]
          ['2 (1 to 3)', 'at least 1', 'at most 3', 'between 1 and 3']
        """
        low, high = text(self.low), text(self.high) if math.isfinite(self.high) else ""
        if not high:
            return f"at least {low}"
        if math.isnan(self.value):
            return f"between {low} and {high}" if self.low > 0 else f"at most {high}"
        return text(self.value) if low == high else f"{text(self.value)} ({low} to {high})"


def duration(seconds: float) -> str:
    """Write seconds in the unit that suits them.

    Example:
      >>> duration(0.0000123), duration(0.25), duration(90.0), duration(7000.0)
      ('12.3 us', '250 ms', '90.0 s', '117 minutes')
    """
    units = ((1 / 86400, 2, "days"), (1 / 3600, 2, "hours"), (1 / 60, 2, "minutes"), (1, 1, "s"), (1e3, 1, "ms"))
    found = next(((scale, unit) for scale, least, unit in units if seconds * scale >= least), (1e6, "us"))
    return f"{figure(seconds * found[0], 3)} {found[1]}"
