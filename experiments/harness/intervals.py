"""Confidence intervals of means, and numbers with the digits that these allow."""

import dataclasses
import math
import statistics
from collections.abc import Iterable

import scipy.stats

from sgdlab import arguments

CONFIDENCE = 0.95
FEWEST = 3
"""With fewer values nothing is decided: the spread of two says next to nothing of that of others."""


@dataclasses.dataclass(frozen=True)
class Interval:
    """The mean of independent values with its 95 % confidence interval.

    Attributes:
      mean: NaN where there is no value.
      half: half the width of the interval; infinite for a single value, which says nothing of the spread; 0 for values
        that are all equal, and with a count of 1 for an exact number, which is not measured but, say, printed in a
        paper.
      count: number of values that the width rests on.
      widened: the width is what values are known to, and not that of their spread, which is less.
    """

    mean: float
    half: float
    count: int
    widened: bool = False

    @classmethod
    def of_error(cls, mean: float, error: float, count: int) -> "Interval":
        """Return the interval of a mean of some values, of which the standard error is known."""
        return cls(mean, error * _quantile(count), count)

    @property
    def low(self) -> float:
        """Return the lower end."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Return the upper end."""
        return self.mean + self.half

    @property
    def error(self) -> float:
        """Return the standard error of the mean, of which the half width is a quantile of Student's t."""
        return self.half if self.count < 2 else self.half / _quantile(self.count)

    @property
    def exact(self) -> bool:
        """Return whether the mean is a number that was not measured."""
        return self.half == 0 and self.count == 1

    @property
    def decides(self) -> bool:
        """Return whether a verdict may rest on the interval: on an exact number, or on `FEWEST` values and some width.

        An interval of no width is of values that are all equal, and yet others may differ.
        """
        return self.exact or (self.half > 0 and self.count >= FEWEST)

    def at_least_as_wide(self, resolution: float) -> "Interval":
        """Return the interval, widened to half a width of the resolution at least; an exact number as it is."""
        if self.exact or self.half >= resolution:
            return self
        return dataclasses.replace(self, half=resolution, widened=True)

    def __neg__(self) -> "Interval":
        return dataclasses.replace(self, mean=-self.mean)

    def __str__(self) -> str:
        return digits(self.mean, self.half)


def interval(values: Iterable[float], *, resolution: float = 0.0) -> Interval:
    r"""Return the confidence interval of a mean.

    .. math:: \bar x \pm \max(t_{0.975, n - 1} s / \sqrt n,\, r)

    Args:
      values: independent and finite, such as one for each seed.
      resolution: r, what a value is known to, such as one test example over their number; the least half width. With 0,
        values that are all equal, but for rounding at 1e-12, have an interval of no width, which decides nothing.

    Source: Student's t.

    Example:
      >>> str(interval([1.0, 2.0, 3.0])), str(interval([87.5, 87.5, 87.5])), str(interval([87.5] * 3, resolution=12.5))
      ('2.0 ± 2.5', '87.5', '88 ± 12')
    """
    numbers = [float(value) for value in values]
    arguments.real("resolution", resolution, least=0)
    count = len(numbers)
    if not count or not all(map(math.isfinite, numbers)):
        return Interval(math.nan, math.inf, count)
    if count == 1:
        return Interval(numbers[0], math.inf, 1)
    alike = math.isclose(min(numbers), max(numbers), rel_tol=1e-12, abs_tol=1e-12)
    deviation = 0.0 if alike else statistics.stdev(numbers)
    found = Interval(statistics.fmean(numbers), _quantile(count) * deviation / math.sqrt(count), count)
    return found.at_least_as_wide(resolution)


def digits(mean: float, half: float) -> str:
    """Return a mean and its half width with the digits that the width allows: two of it up to 2.9, else one.

    Example:
      >>> digits(0.0968, 0.089), digits(94.21, 0.1492), digits(1234.5, 61.0), digits(3.1416, 0.0), digits(5.0, math.inf)
      ('0.10 ± 0.09', '94.21 ± 0.15', '1230 ± 60', '3.14', '5 (one value)')
    """
    if math.isnan(mean):
        return "none"
    if not 0 < half < math.inf:
        return f"{mean:.3g}{' (one value)' * (half > 0)}"
    place = math.floor(math.log10(half))
    place -= round(half / 10**place, 1) < 3
    rounded = [round(value, -place) for value in (mean, half)]
    return " ± ".join(f"{value + 0.0:.{max(-place, 0)}f}" for value in rounded)


def _quantile(count: int) -> float:
    """Return the quantile of Student's t for an interval of some values."""
    return float(scipy.stats.t.ppf((1 + CONFIDENCE) / 2, count - 1))
