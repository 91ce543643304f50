"""Sentences of a paper with verdicts that are computed, and the confidence intervals that these rest on."""

import dataclasses
import math
import statistics
from collections.abc import Iterable

import scipy.stats

from sgdlab import arguments

HOLDS, FAILS, OPEN = "holds", "fails", "cannot be said at this size"
CONFIDENCE = 0.95
FEWEST = 3
"""With fewer values nothing is decided: the spread of two says next to nothing of that of others."""


@dataclasses.dataclass(frozen=True)
class Claim:
    """A sentence of a paper, checked.

    Attributes:
      says: the sentence, or what it comes to.
      where: in the paper, such as "section 3.1".
      ours: what was measured here, in a few words with numbers.
      holds: whether it holds for what was measured; None: it cannot be said at this size.
      paper: what the paper measured, in a few words with numbers; "" where it gives none.
      on_paper: whether it holds for the paper's own printed numbers; None where these do not say.
      because: why it fails, or why it cannot be said.

    Example:
      >>> Claim("48 workers are faster", "section 2", ours="1.9 times", holds=1.9 > 1, paper="2 times").verdict
      'holds'
    """

    says: str
    where: str
    ours: str
    holds: bool | None
    paper: str = ""
    on_paper: bool | None = None
    because: str = ""

    def __post_init__(self):
        for name in ("holds", "on_paper"):  # NumPy's booleans are no JSON
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else bool(value))

    @property
    def verdict(self) -> str:
        """In words."""
        return verdict(self.holds)


def verdict(holds: bool | None) -> str:
    """Return a verdict in words.

    Example:
      >>> verdict(True), verdict(False), verdict(None)
      ('holds', 'fails', 'cannot be said at this size')
    """
    return OPEN if holds is None else HOLDS if holds else FAILS


@dataclasses.dataclass(frozen=True)
class Interval:
    """The mean of independent values with its 95 % confidence interval.

    Attributes:
      mean: NaN where there is no value.
      half: half the width of the interval; infinite for a single value, which says nothing of the spread; 0 for values
        that are all equal, and with a count of 1 for an exact number, which is not measured but, say, printed in a
        paper.
      count: number of values that the width rests on.
    """

    mean: float
    half: float
    count: int

    @property
    def low(self) -> float:
        """Return the lower end."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Return the upper end."""
        return self.mean + self.half

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
        return self if self.exact else dataclasses.replace(self, half=max(self.half, resolution))

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return "none"
        return f"{self.mean:.3g} ± {self.half:.2g}" if 0 < self.half < math.inf else f"{self.mean:.3g}"


def interval(values: Iterable[float], *, comparisons: int = 1, resolution: float = 0.0) -> Interval:
    r"""Return the confidence interval of a mean.

    .. math:: \bar x \pm \max(t_{1 - 0.025 / m, n - 1} s / \sqrt n,\, r)

    Args:
      values: independent and finite, such as one for each seed.
      comparisons: m, the number of means whose intervals are to hold all at once, in 95 % of all cases; 1: each alone.
      resolution: r, what a value is known to, such as one test example over their number; the least half width. With 0,
        values that are all equal have an interval of no width, which decides nothing.

    Source: Student's t; Bonferroni's inequality.

    Example:
      >>> str(interval([1.0, 2.0, 3.0])), str(interval([87.5, 87.5, 87.5])), str(interval([87.5] * 3, resolution=12.5))
      ('2 ± 2.5', '87.5', '87.5 ± 12')
    """
    numbers = [float(value) for value in values]
    arguments.real("resolution", resolution, least=0)
    count = len(numbers)
    if not count or not all(map(math.isfinite, numbers)):
        return Interval(math.nan, math.inf, count)
    if count == 1:
        return Interval(numbers[0], math.inf, 1)
    quantile = float(scipy.stats.t.ppf(1 - (1 - CONFIDENCE) / (2 * comparisons), count - 1))
    alike = math.isclose(min(numbers), max(numbers), rel_tol=1e-12)  # but for rounding
    deviation = 0.0 if alike else statistics.stdev(numbers)
    half = max(quantile * deviation / math.sqrt(count), resolution)
    return Interval(statistics.fmean(numbers), half, count)


def above(values: Interval | Iterable[float], threshold: float = 0.0, *, resolution: float = 0.0) -> bool | None:
    """Return whether a mean is above a threshold: True or False where the whole interval is on one side, else None.

    Nothing is decided by fewer than three values nor, without a resolution, by values that are all equal
    (`Interval.decides`).

    Args:
      values: an interval, or the values themselves.
      threshold: what it is compared with.
      resolution: the least half width of the interval, as for `interval`.

    Example:
      >>> above([1.0, 1.1, 0.9]), above([-1.0, -1.1, -0.9]), above([1.0, -1.0, 0.5])
      (True, False, None)
      >>> above([5.0, 6.0]), above([5.0] * 3)
      (None, None)
      >>> above([5.0] * 3, resolution=0.1), above([5.0] * 3, 4.95, resolution=0.1)
      (True, None)
    """
    found = values if isinstance(values, Interval) else interval(values)
    found = found.at_least_as_wide(arguments.real("resolution", resolution, least=0))
    if not found.decides:
        return None
    if found.low > threshold:
        return True
    return False if found.high < threshold else None


def below(values: Interval | Iterable[float], threshold: float = 0.0, *, resolution: float = 0.0) -> bool | None:
    """Return whether a mean is below a threshold; the opposite of `above`.

    Example:
      >>> below([1.0, 1.1, 0.9], 2.0)
      True
    """
    opposite = above(values, threshold, resolution=resolution)
    return None if opposite is None else not opposite


def all_of(verdicts: Iterable[bool | None]) -> bool | None:
    """Return whether all of several statements hold: False where one fails, None where none does but one is open.

    Example:
      >>> all_of([True, True]), all_of([True, None]), all_of([None, False]), all_of([])
      (True, None, False, None)
    """
    found = list(verdicts)
    if False in found:
        return False
    return None if None in found or not found else True
