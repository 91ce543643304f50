"""Evidence for and against a statement: one test, or several of which some number must hold.

A comparison such as `above(values)` returns its two one-sided p-values, and `all_of`, `any_of` and `some_of` put them
together, so that a verdict on many comparisons is corrected for their number by itself: a statement about all of them
holds where each holds, and fails only where one of m is against it at a level of 1/m. What is not decided can be
foreseen from the same numbers: by how many more runs it would be (`needed`).
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.optimize
import scipy.stats

from experiments.harness.intervals import CONFIDENCE, Interval, interval
from experiments.harness.thresholds import Threshold
from sgdlab import arguments

LEVEL = (1 - CONFIDENCE) / 2
"""A statement holds, or fails, where the opposite has at most this p-value: the interval lies on one side."""

POWER = 0.8
"""Chance of a decision that `needed` asks for."""


@dataclasses.dataclass(frozen=True)
class Evidence:
    """The p-values of a statement and of its opposite.

    Attributes:
      p_for: chance of numbers that speak as much for the statement, or more, if it does not hold.
      p_against: the same of its opposite.
      exact: nothing in it was measured: it is arithmetic, or a number that a paper prints.
      about: what was compared, such as "2.5 ± 1.0 > 1".
      thresholds: what it was compared with, where that was chosen.
      parts: what it is made of; `least` of them must hold.
      least: 0 where it is a single test.

    Example:
      >>> Evidence(0.001, 0.999).holds, Evidence(0.999, 0.001).holds, Evidence(0.3, 0.7).holds
      (True, False, None)
    """

    p_for: float
    p_against: float
    exact: bool = False
    about: str = ""
    thresholds: tuple[Threshold, ...] = ()
    parts: "tuple[Evidence, ...]" = ()
    least: int = 0

    def __post_init__(self):
        for name in ("p_for", "p_against"):
            object.__setattr__(self, name, arguments.real(name, float(getattr(self, name)), least=0, most=1))

    def __bool__(self) -> bool:
        raise TypeError("evidence is neither true nor false: .holds is True, False or None")

    @property
    def holds(self) -> bool | None:
        """Return True or False where that is decided, else None."""
        return True if self.p_for <= LEVEL else False if self.p_against <= LEVEL else None

    @property
    def p(self) -> float:
        """Return the p-value of both sides at once: the chance of a decision, either way, that is no better founded."""
        return min(1.0, 2 * min(self.p_for, self.p_against))

    @property
    def opposite(self) -> "Evidence":
        """Return the evidence for the opposite statement."""
        parts = tuple(part.opposite for part in self.parts)
        least = len(parts) + 1 - self.least if parts else 0
        turned = {"p_for": self.p_against, "p_against": self.p_for, "parts": parts, "least": least}
        return dataclasses.replace(self, **turned, about=f"not: {self.about}" if self.about else "")

    def chances(self, times: float, level: float = LEVEL) -> tuple[float, float]:
        r"""Return the chances that the statement is found to hold, and to fail, with more runs.

        .. math:: P = \Phi\Bigl(\frac{\pm z - z_{1 - \alpha} / \sqrt r}{\sqrt{1 - 1 / r}}\Bigr)

        with z the quantile that belongs to the p-value now: the mean that r times as many runs will have, given that of
        those that there are and no opinion on the effect, is normal about the present one. Of several parts, those
        that decide now are looked at.

        Args:
          times: r, the number of runs over that of now; those of now are among them.
          level: alpha.

        Example:
          >>> [round(chance, 3) for chance in Evidence(0.5, 0.5).chances(4)]
          [0.129, 0.129]
        """
        if self.parts:
            count = len(self.parts)
            last = sorted(self.parts, key=lambda part: part.p_for)[self.least - 1]
            first = sorted(self.parts, key=lambda part: part.p_against)[count - self.least]
            return last.chances(times, level / (count + 1 - self.least))[0], first.chances(times, level / self.least)[1]
        if self.exact or times <= 1:
            return float(self.p_for <= level), float(self.p_against <= level)
        if self.p_for == self.p_against == 1:  # too few values, or all of them equal
            return 0.25, 0.25
        z = _z(self)
        needed, spread = scipy.stats.norm.isf(level) / math.sqrt(times), math.sqrt(1 - 1 / times)
        return tuple(float(scipy.stats.norm.cdf((side - needed) / spread)) for side in (z, -z))

    def needed(self, most: float = 1000.0) -> float:
        """Return the number of runs, over that of now, by which a decision has a chance of 80 %; infinite beyond most.

        Example:
          >>> round(Evidence(0.1, 0.9).needed()), Evidence(0.5, 0.5).needed(most=20), Evidence(0.001, 0.999).needed()
          (12, inf, 1.0)
        """
        if self.holds is not None:
            return 1.0
        lacks = lambda times: sum(self.chances(times)) - POWER
        if lacks(most) < 0:
            return math.inf
        return float(scipy.optimize.brentq(lacks, 1.0, most)) if lacks(1.0) < 0 else 1.0

    def facts(self) -> dict[str, Any]:
        """Return it as JSON (docs/claims.md)."""
        found: dict[str, Any] = {"p_for": self.p_for, "p_against": self.p_against}
        found |= {"exact": True} if self.exact else {}
        found |= {"about": self.about} if self.about else {}
        found |= {"thresholds": [each.facts() for each in self.thresholds]} if self.thresholds else {}
        return found | ({"least": self.least, "parts": [part.facts() for part in self.parts]} if self.parts else {})


def of_facts(facts: Mapping[str, Any]) -> Evidence:
    """Return evidence of its JSON.

    Raises:
      ValueError: where an entry is missing or impossible.

    Example:
      >>> of_facts(above([1.0, 1.2, 1.1]).facts()) == above([1.0, 1.2, 1.1])
      True
    """
    for name in ("p_for", "p_against"):
        if not isinstance(facts.get(name), (int, float)):
            raise ValueError(f"evidence.{name}={facts.get(name)!r} must be a number from 0 to 1")
    thresholds = tuple(map(Threshold.of_facts, facts.get("thresholds", ())))
    parts, about = tuple(map(of_facts, facts.get("parts", ()))), facts.get("about", "")
    exact, least = bool(facts.get("exact", False)), int(facts.get("least", 0))
    if parts and not 1 <= least <= len(parts):
        raise ValueError(f"evidence.least={least} must be from 1 to the number of parts, {len(parts)}")
    return Evidence(facts["p_for"], facts["p_against"], exact, about, thresholds, parts, least)


def known(holds: bool | None) -> Evidence:
    """Return what is known without a measurement; of None, that nothing is known.

    Example:
      >>> known(True).holds, known(False).holds, known(None).holds
      (True, False, None)
    """
    return Evidence(float(not holds), float(holds is not False), exact=holds is not None)


def above(values: Interval | Iterable[float], threshold: float = 0.0, *, resolution: float = 0.0) -> Evidence:
    r"""Return the evidence that a mean is above a threshold: it is decided where the whole interval is on one side.

    .. math:: p = P\bigl(t_{n - 1} \ge (\bar x - c) / (s / \sqrt n)\bigr)

    Nothing is decided by fewer than three values nor, without a resolution, by values that are all equal
    (`Interval.decides`).

    Args:
      values: an interval, or the values themselves.
      threshold: c, what it is compared with; one that was chosen is a `Threshold`.
      resolution: the least half width of the interval, as for `interval`.

    Source: Student's t-test.

    Example:
      >>> above([1.0, 1.1, 0.9]).holds, above([-1.0, -1.1, -0.9]).holds, above([1.0, -1.0, 0.5]).holds
      (True, False, None)
      >>> above([5.0, 6.0]).holds, above([5.0] * 3).holds
      (None, None)
      >>> above([5.0] * 3, resolution=0.1).holds, above([5.0] * 3, 4.95, resolution=0.1).holds
      (True, None)
    """
    return _compared(values, threshold, resolution, 1)


def below(values: Interval | Iterable[float], threshold: float = 0.0, *, resolution: float = 0.0) -> Evidence:
    """Return the evidence that a mean is below a threshold; the opposite of `above`.

    Example:
      >>> below([1.0, 1.1, 0.9], 2.0).holds
      True
    """
    return _compared(values, threshold, resolution, -1)


def between(values: Interval | Iterable[float], low: float, high: float, *, resolution: float = 0.0) -> Evidence:
    """Return the evidence that a mean is between two thresholds: two one-sided tests.

    Example:
      >>> between([1.0, 1.1, 0.9], 0.5, 2.0).holds, between([1.0, 1.1, 0.9], 1.05, 2.0).holds
      (True, None)
    """
    found = values if isinstance(values, Interval) else interval(values)
    return all_of([above(found, low, resolution=resolution), below(found, high, resolution=resolution)])


def share_above(hits: int, count: int, share: float) -> Evidence:
    """Return the evidence that something happens in more than a share of all cases, by Clopper and Pearson.

    Example:
      >>> share_above(8, 8, 0.5).holds, share_above(3, 3, 0.5).holds, share_above(0, 8, 0.5).holds
      (True, None, False)
    """
    law = scipy.stats.binom(count, share)
    chosen = (share,) if isinstance(share, Threshold) else ()
    about = f"{hits} of {count} > {float(share):.3g}"
    return Evidence(law.sf(hits - 1), law.cdf(hits), about=about, thresholds=chosen)


def more_often(hits: tuple[int, int], others: tuple[int, int]) -> Evidence:
    """Return the evidence that something happens more often in one setting than in another, by Fisher's exact test.

    Args:
      hits: in how many of how many runs it happened.
      others: the same of the other setting.

    Example:
      >>> more_often((8, 8), (1, 8)).holds, more_often((2, 8), (1, 8)).holds
      (True, None)
    """
    table = [[happened, count - happened] for happened, count in (hits, others)]
    found = [float(scipy.stats.fisher_exact(table, alternative=side)[1]) for side in ("greater", "less")]
    about = " against ".join(f"{happened} of {count}" for happened, count in (hits, others))
    return Evidence(*(min(1.0, p) for p in found), about=about)


def of_draws(share: float, draws: int) -> Evidence:
    """Return the evidence for a statement that holds in a share of bootstrap samples.

    Example:
      >>> of_draws(1.0, 1000).holds, of_draws(0.9, 1000).holds
      (True, None)
    """
    least = 1 / draws
    return Evidence(max(1 - share, least), max(share, least), about=f"in {100 * share:.3g} % of {draws} samples")


def all_of(statements: Iterable[Evidence | bool | None]) -> Evidence:
    """Return the evidence that all of several statements hold; nothing is known of no statements.

    Example:
      >>> all_of([True, True]).holds, all_of([True, None]).holds, all_of([None, False]).holds, all_of([]).holds
      (True, None, False, None)
    """
    found = list(statements)
    return some_of(len(found), found)


def any_of(statements: Iterable[Evidence | bool | None]) -> Evidence:
    """Return the evidence that one of several statements holds at least.

    Example:
      >>> any_of([False, True]).holds, any_of([False, None]).holds, any_of([False, False]).holds
      (True, None, False)
    """
    return some_of(1, statements)


def some_of(least: int, statements: Iterable[Evidence | bool | None]) -> Evidence:
    r"""Return the evidence that at least some number of several statements hold.

    .. math:: p = (m - u + 1)\, p_{(u)}, \qquad \bar p = u\, \bar p_{(m - u + 1)}

    with the p-values of m statements in ascending order, u of which must hold, and those of their opposites. With u = m
    it is the largest p-value against m times the smallest of the opposites: an intersection-union test, and
    Bonferroni's inequality.

    Args:
      least: u.
      statements: their evidence; True, False and None are known.

    Source: Benjamini and Heller 2008, "Screening for partial conjunction hypotheses", equation 5.

    Example:
      >>> some_of(2, [True, True, None]).holds, some_of(2, [True, False, False]).holds
      (True, False)
    """
    parts = tuple(each if isinstance(each, Evidence) else known(each) for each in _python(statements))
    if not parts:
        return known(None)
    count = arguments.whole("least", least, least=1, most=len(parts)) and len(parts)
    fails = count + 1 - least
    p_for = min(1.0, fails * sorted(part.p_for for part in parts)[least - 1])
    p_against = min(1.0, least * sorted(part.p_against for part in parts)[fails - 1])
    return Evidence(p_for, p_against, all(part.exact for part in parts), parts=parts, least=least)


def wherever(statements: Iterable[Evidence | bool | None]) -> Evidence:
    """Return the evidence for a statement that was looked at with several values of a number that the paper leaves out.

    It holds where it does with each of them, and fails only where it does with none: no run decides between the values.

    Example:
      >>> wherever([True, True]).holds, wherever([True, False]).holds, wherever([False, False]).holds
      (True, None, False)
      >>> wherever([False, None]).holds
      >>> all_of([False, None]).holds
      False
    """
    whole = all_of(statements)
    if len(whole.parts) == 1:
        return whole.parts[0]
    p_for, p_against = whole.p_for, all_of(part.opposite for part in whole.parts).p_for
    if any(part.holds for part in whole.parts) and any(part.holds is False for part in whole.parts):
        p_for = p_against = 1.0
    chosen = tuple(dict.fromkeys(threshold for part in whole.parts for threshold in _thresholds(part)))
    about = f"with each of {len(whole.parts)} values"
    return Evidence(p_for, p_against, whole.exact and p_for != p_against, about, chosen)


def _thresholds(evidence: Evidence) -> tuple[Threshold, ...]:
    """Return the thresholds of a test, or of all its parts."""
    return evidence.thresholds + tuple(found for part in evidence.parts for found in _thresholds(part))


def _compared(values: Interval | Iterable[float], threshold: float, resolution: float, side: int) -> Evidence:
    found = values if isinstance(values, Interval) else interval(values)
    found = found.at_least_as_wide(arguments.real("resolution", resolution, least=0))
    chosen = (threshold,) if isinstance(threshold, Threshold) else ()
    about = f"{found} {'>' if side > 0 else '<'} {float(threshold):.4g}"
    if not found.decides or math.isnan(found.mean):
        return Evidence(1.0, 1.0, about=about, thresholds=chosen)
    beyond = side * (found.mean - threshold)
    if found.exact:
        return Evidence(float(beyond <= 0), float(beyond >= 0), exact=True, about=about, thresholds=chosen)
    law = scipy.stats.t(found.count - 1)
    p_for, p_against = (min(1.0, found.comparisons * law.sf(way * beyond / found.error)) for way in (1, -1))
    return Evidence(p_for, p_against, about=about, thresholds=chosen)


def _z(evidence: Evidence) -> float:
    """Return the normal quantile of the side that is better founded, positive where that is the statement's."""
    quantiles = scipy.stats.norm.isf(np.clip([evidence.p_for, evidence.p_against], 1e-300, 0.5))
    return float(quantiles[0] - quantiles[1])


def _python(statements: Iterable[Evidence | bool | None]) -> Sequence[Evidence | bool | None]:
    """Return statements without NumPy's booleans."""
    return [bool(each) if isinstance(each, np.bool_) else each for each in statements]
