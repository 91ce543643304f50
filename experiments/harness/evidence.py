"""Evidence for and against a statement: one test, or several of which some number must hold.

A comparison such as `above(values)` returns its two one-sided p-values, and `all_of`, `any_of` and `some_of` put them
together, so that a verdict on many comparisons is corrected for their number by itself: a statement about all of them
holds where each holds, and fails only where one of m is against it at a level of 1/m. What is not decided can be
foreseen from the same numbers: by how many more runs it would be (`needed`).
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import scipy.optimize
import scipy.stats

from experiments.harness.intervals import CONFIDENCE, Interval, interval
from experiments.harness.thresholds import Threshold, chosen
from sgdlab import arguments

LEVEL = (1 - CONFIDENCE) / 2
"""A statement holds, or fails, where the opposite has at most this p-value: the interval lies on one side."""

POWER = 0.8
"""Chance of a decision that `needed` asks for."""

_SURE = 0.001
"""The least p-value of values that are equal, or nearly so, to what they are known to: small enough for 25 at once."""

_DRAWS = 4000
"""Continuations that chances are counted in."""

Rule = Literal["some", "throughout", "given"]


@dataclasses.dataclass(frozen=True)
class Evidence:
    """The p-values of a statement and of its opposite.

    Attributes:
      p_for: chance of numbers that speak as much for the statement, or more, if it does not hold.
      p_against: the same of its opposite.
      exact: nothing in it was measured: it is arithmetic, or a number that a paper prints.
      about: what was compared, such as "2.5 ± 1.0 > 1".
      thresholds: what it was compared with, where that was chosen.
      parts: what it is made of.
      rule: how they are put together: `least` of them must hold (`some_of`); `throughout`; or `given`, the first of two
        is the condition of the second.
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
    rule: Rule = "some"
    least: int = 0

    def __post_init__(self):
        for name in ("p_for", "p_against"):
            value = arguments.real(name, getattr(self, name), least=0, most=1)
            object.__setattr__(self, name, float(value))
        if self.p_for + self.p_against < 1 - 1e-9:
            raise ValueError(
                f"p_for={self.p_for}, p_against={self.p_against} must add up to 1 at least: they are one-sided"
            )

    def __bool__(self) -> bool:
        raise TypeError("evidence is neither true nor false: .holds is True, False or None")

    @property
    def holds(self) -> bool | None:
        """Return True or False where that is decided, else None."""
        return True if self.p_for <= LEVEL else False if self.p_against <= LEVEL else None

    @property
    def p_in_part(self) -> float:
        r"""The p-value of a statement on a region, that it holds in a part of it and fails in another; 1 of others.

        .. math:: p = m \max(\min_i p_i, \min_i \bar p_i)

        An intersection-union test of Bonferroni's for both sides, with the p-values of m places and of their opposites.

        Example:
          >>> yes, no = Evidence(0.001, 0.999), Evidence(0.999, 0.001)
          >>> combined("throughout", 0, [yes, no]).p_in_part, combined("throughout", 0, [yes, yes]).p_in_part
          (0.002, 1.0)
        """
        return float(_put_together(self.rule, self.least, *_sides(self.parts))[2]) if self.parts else 1.0

    @property
    def in_part(self) -> bool:
        """Return whether it is decided that it holds in a part of its region, and fails in another."""
        return self.p_in_part <= LEVEL

    @property
    def p(self) -> float:
        """Return the p-value of all sides at once: the chance of a decision, whichever, that is no better founded.

        One of three sides is right, if there are three, so that two at most can be decided wrongly.
        """
        return min(1.0, 2 * min(self.p_for, self.p_against, self.p_in_part))

    @property
    def measured(self) -> bool:
        """Return whether there are values that say anything of it."""
        return min(self.p_for, self.p_against, self.p_in_part) < 1

    @property
    def tests(self) -> "Iterator[Evidence]":
        """Yield the single tests that it is made of."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.tests

    @property
    def opposite(self) -> "Evidence":
        """Return the evidence for the opposite statement."""
        if self.parts and self.rule != "some":
            raise ValueError(f"rule={self.rule!r} has no opposite: it fails in other cases than it does not hold in")
        parts = tuple(part.opposite for part in self.parts)
        least = len(parts) + 1 - self.least if parts else 0
        turned = {"p_for": self.p_against, "p_against": self.p_for, "parts": parts, "least": least}
        return dataclasses.replace(self, **turned, about=f"not: {self.about}" if self.about else "")

    def chances(self, times: float, level: float = LEVEL) -> tuple[float, float, float]:
        r"""Return the chances that the statement is found to hold, to fail, and to hold in part, with more runs.

        .. math:: z' = \sqrt r z + \sqrt{r - 1}\, \epsilon, \qquad \epsilon \sim N(0, 1)

        with z the quantile that belongs to a test's p-value now: the mean that r times as many runs will have, given
        that of those that there are and without a belief on the effect, is normal about the present one. Of several
        tests, all are continued as if they were independent, 4,000 times, and put together as they are now. One that
        has too few values, or values that are all equal, stays undecided.

        Args:
          times: r, the number of runs over that of now; those of now are among them.
          level: p-value that decides.

        Example:
          >>> [round(chance, 1) for chance in Evidence(0.5, 0.5).chances(4)]
          [0.1, 0.1, 0.0]
        """
        if times <= 1:
            return float(self.p_for <= level), float(self.p_against <= level), float(self.p_in_part <= level)
        if self.parts or self.exact or not self.measured:
            found = self._continued(times, np.random.default_rng(0))
            return tuple(float(np.mean(p <= level)) for p in found)
        z, limit = math.sqrt(times) * self._z, scipy.stats.norm.isf(level)
        holds, fails = (float(scipy.stats.norm.sf((limit - side * z) / math.sqrt(times - 1))) for side in (1, -1))
        return holds, fails, 0.0

    def needed(self, most: float = 1000.0, level: float = LEVEL) -> float:
        """Return the number of runs, over that of now, by which a decision has a chance of 80 %; infinite beyond most.

        Example:
          >>> 11 < Evidence(0.1, 0.9).needed() < 14, Evidence(0.5, 0.5).needed(most=20), Evidence(0.001, 0.999).needed()
          (True, inf, 1.0)
        """
        lacks = lambda logarithm: sum(self.chances(math.exp(logarithm), level)) - POWER
        if sum(self.chances(1.0, level)):
            return 1.0
        if lacks(math.log(most)) < 0:
            return math.inf
        return math.exp(scipy.optimize.brentq(lacks, 0.0, math.log(most), xtol=0.01))

    def facts(self) -> dict[str, Any]:
        """Return it as JSON (docs/claims.md)."""
        found: dict[str, Any] = {"p_for": self.p_for, "p_against": self.p_against}
        found |= {"exact": True} if self.exact else {}
        found |= {"about": self.about} if self.about else {}
        found |= {"thresholds": [each.facts() for each in self.thresholds]} if self.thresholds else {}
        found |= {"least": self.least} if self.parts and self.rule == "some" else {}
        found |= {"rule": self.rule} if self.rule != "some" else {}
        return found | ({"parts": [part.facts() for part in self.parts]} if self.parts else {})

    @property
    def _z(self) -> float:
        """The normal quantile of the side that is better founded, positive where that is the statement's."""
        quantiles = scipy.stats.norm.isf(np.clip([self.p_for, self.p_against], 1e-300, 0.5))
        return float(quantiles[0] - quantiles[1])

    def _continued(self, times: float, draws: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """float64[draws] thrice: p-values with more runs, for, against, and in part."""
        if self.parts:
            continued = [part._continued(times, draws) for part in self.parts]
            p_for, p_against, _ = map(np.stack, zip(*continued, strict=True))
            return _put_together(self.rule, self.least, p_for, p_against)
        if self.exact or not self.measured:
            return np.full(_DRAWS, self.p_for), np.full(_DRAWS, self.p_against), np.ones(_DRAWS)
        z = math.sqrt(times) * self._z + math.sqrt(times - 1) * draws.standard_normal(_DRAWS)
        return scipy.stats.norm.sf(z), scipy.stats.norm.cdf(z), np.ones(_DRAWS)


def of_facts(facts: Mapping[str, Any]) -> Evidence:
    """Return evidence of its JSON; the p-values of what has parts are those of the parts.

    Args:
      facts: as docs/claims.schema.json has it.

    Raises:
      ValueError: where p-values are impossible.

    Example:
      >>> of_facts(above([1.0, 1.2, 1.1]).facts()) == above([1.0, 1.2, 1.1])
      True
    """
    thresholds = tuple(map(Threshold.of_facts, facts.get("thresholds", ())))
    parts, about, rule = tuple(map(of_facts, facts.get("parts", ()))), facts.get("about", ""), facts.get("rule", "some")
    if parts:
        return dataclasses.replace(combined(rule, facts.get("least", 0), parts), about=about, thresholds=thresholds)
    return Evidence(facts["p_for"], facts["p_against"], facts.get("exact", False), about, thresholds)


def combined(rule: Rule, least: int, parts: Sequence[Evidence]) -> Evidence:
    """Return the evidence that is made of parts.

    Raises:
      ValueError: where there is no such rule, or not as many parts.
    """
    arguments.one_of("rule", rule, ("some", "throughout", "given"))
    if rule == "given" and len(parts) != 2:
        raise ValueError(f"parts={len(parts)} of them must be two: a condition, and what is said where it holds")
    if rule == "some":
        arguments.whole("least", least, least=1, most=len(parts))
    p_for, p_against, _ = map(float, _put_together(rule, least, *_sides(parts)))
    return Evidence(p_for, p_against, all(part.exact for part in parts), parts=tuple(parts), rule=rule, least=least)


def _sides(parts: Sequence[Evidence]) -> tuple[np.ndarray, np.ndarray]:
    """Return the p-values of parts, for and against, float64[parts] each."""
    return np.array([part.p_for for part in parts]), np.array([part.p_against for part in parts])


def _put_together(
    rule: Rule, least: int, p_for: np.ndarray, p_against: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the p-values of what is made of parts, for, against and in part, from theirs, [parts, ...]."""
    nowhere = np.ones(p_for.shape[1:])
    if rule == "given":
        return np.maximum(p_for[0], p_for[1]), np.maximum(p_for[0], p_against[1]), nowhere
    if rule == "throughout":
        in_part = len(p_for) * np.maximum(p_for.min(axis=0), p_against.min(axis=0))
        return p_for.max(axis=0), p_against.max(axis=0), np.minimum(1.0, in_part)
    fails = len(p_for) + 1 - least
    of_holding, of_failing = np.sort(p_for, axis=0)[least - 1], np.sort(p_against, axis=0)[fails - 1]
    return np.minimum(1.0, fails * of_holding), np.minimum(1.0, least * of_failing), nowhere


def known(holds: bool | np.bool_ | None) -> Evidence:
    """Return what is known without a measurement; of None, that nothing is known.

    Example:
      >>> known(True).holds, known(False).holds, known(None).holds
      (True, False, None)
    """
    holds = None if holds is None else bool(holds)
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
    about = f"{hits} of {count} > {float(share):.3g}"
    return Evidence(law.sf(hits - 1), law.cdf(hits), about=about, thresholds=chosen(share))


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
    parts = tuple(each if isinstance(each, Evidence) else known(each) for each in statements)
    return combined("some", least, parts) if parts else known(None)


def _compared(values: Interval | Iterable[float], threshold: float, resolution: float, side: int) -> Evidence:
    found = values if isinstance(values, Interval) else interval(values)
    found = found.at_least_as_wide(arguments.real("resolution", resolution, least=0))
    thresholds = chosen(threshold)
    about = f"{found} {'>' if side > 0 else '<'} {float(threshold):.4g}"
    if not found.decides or math.isnan(found.mean):
        return Evidence(1.0, 1.0, about=about, thresholds=thresholds)
    beyond = side * (found.mean - threshold)
    if found.exact:
        return Evidence(float(beyond <= 0), float(beyond >= 0), exact=True, about=about, thresholds=thresholds)
    p_for, p_against = (float(scipy.stats.t(found.count - 1).sf(way * beyond / found.error)) for way in (1, -1))
    if found.widened and abs(beyond) > found.half:  # there, such an interval says nothing of how improbable more is
        p_for, p_against = (max(p, _SURE) for p in (p_for, p_against))
    return Evidence(p_for, p_against, about=about, thresholds=thresholds)
