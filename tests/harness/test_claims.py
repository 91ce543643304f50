"""Verdicts: intervals, the p-values of comparisons and of several of them, and claims that rest on these."""

import itertools
import json
import math
import pickle

import numpy as np
import pytest
import scipy.stats

from experiments.harness import (
    Claim,
    Evidence,
    Interval,
    Premise,
    Threshold,
    above,
    all_of,
    any_of,
    below,
    between,
    enough,
    for_only,
    given,
    interval,
    known,
    more_often,
    share_above,
    some_of,
    throughout,
)
from experiments.harness import claims as claims_module
from experiments.harness.evidence import LEVEL, of_facts

EQUAL = {
    "two": [0.001, 0.001],
    "of both signs of zero": [0.0, -0.0, 0.0],
    "five": [-3.0] * 5,
    "many": [2.0] * 200,
    "but for rounding": np.array([0.95, 0.96, 0.97]) - np.array([0.94, 0.95, 0.96]),
}
RUNS = 20
"""Values of each draw of the planted effects."""
EFFECTS = range(-4, 5)
"""True means, in standard errors."""


class TestIntervals:
    """Tells intervals that decide from those that do not."""

    @pytest.mark.parametrize("values", EQUAL.values(), ids=EQUAL)
    def test_equal_values_decide_nothing(self, values):
        for threshold in (-10.0, 0.0, 10.0):
            for compared, found in itertools.product((above, below), (values, interval(values))):
                assert compared(found, threshold).holds is None
            assert between(values, threshold - 20, threshold + 20).holds is None
        assert all_of([True, above(values, -10.0)]).holds is None
        assert interval(values).half == 0.0
        assert "±" not in str(interval(values))  # as if nothing else could come out

    @pytest.mark.parametrize("values", [[0.001, 0.0011], [5.0, 6.0], [5.0], [5.0, 5.0]], ids=str)
    def test_fewer_than_three_values_decide_nothing(self, values):
        for resolution in (0.0, 1e-6):
            for found in (above(values, -1e6, resolution=resolution), below(values, 1e6, resolution=resolution)):
                assert (found.holds, found.p) == (None, 1.0)

    def test_three_of_which_one_differs_decide(self):
        assert below([-3.0] * 2 + [-3.1]).holds is True
        assert above([1.0, 1.0, 1.0 + 1e-9]).holds is True

    def test_a_resolution_is_the_least_half_width(self):
        """Three runs that all have 350 of 360 test examples right: another may have one more or less."""
        example, values = 100 / 360, [100 * 350 / 360] * 3
        found = interval(values, resolution=example)
        assert found.half == example
        assert str(found) == "97.22 ± 0.28"
        wide = {"resolution": example}
        for either, options in ((values, wide), (interval(values), wide), (found, {})):
            assert above(either, values[0] - 1.01 * example, **options).holds is True
            assert above(either, values[0] - 0.99 * example, **options).holds is None
            assert below(either, values[0] + 1.01 * example, **options).holds is True
            assert above(either, values[0] + 1.01 * example, **options).holds is False
        # An interval that is wider keeps its width.
        spread = [96.0, 97.0, 98.0]
        assert interval(spread, resolution=example) == interval(spread)
        with pytest.raises(ValueError, match="resolution=-1"):
            interval(values, resolution=-1.0)
        with pytest.raises(ValueError, match="resolution=nan"):
            above(values, resolution=float("nan"))

    def test_exact_numbers_decide(self):
        printed = Interval(2.0, 0.0, 1)
        assert [above(printed, than).holds for than in (1.0, 2.0, 3.0)] == [True, None, False]
        assert above(printed, 1.9, resolution=0.5).holds is True  # the resolution is one of what was measured
        assert above(printed, 1.0).exact
        assert above([2.0]).holds is None  # a single one that was measured

    def test_what_is_not_a_number_decides_nothing(self):
        for values in ([], [1.0, np.nan], [1.0, 2.0, np.inf]):
            assert above(values).holds is below(values).holds is None
        assert above([1.0, 1.0, np.nan], resolution=0.1).holds is None

    def test_what_is_known_to_a_resolution_is_no_better_founded(self):
        """Three equal accuracies, far from the threshold: certain, but not as a small spread of many would be."""
        for beyond in (1.01, 10.0, 1000.0):
            found = above([97.2] * 3, 97.2 - beyond * 0.28, resolution=0.28)
            assert 0.001 <= found.p_for <= LEVEL
            assert found.holds is True

    def test_differences_that_are_rounding_decide_nothing(self):
        assert above([1.1e-16] * 3 + [2.2e-16]).holds is None

    def test_digits_are_those_that_the_width_allows(self):
        shown = [str(Interval(mean, half, 5)) for mean, half in ((0.0968, 0.089), (94.2149, 0.1492), (1234.5, 61.0))]
        assert shown == ["0.10 ± 0.09", "94.21 ± 0.15", "1230 ± 60"]
        assert [str(Interval(5.0, half, 5)) for half in (0.0, math.inf)] == ["5", "5 (one value)"]
        assert str(interval([])) == "none"


@pytest.fixture(name="tested", scope="module")
def verdicts_by_statistic():
    """Statistic of a t-test -> `above` of values that have it, to a hundredth: it is called once for each of these."""
    made = {}

    def of(statistic):
        place = round(float(statistic), 2)
        if place not in made:
            half = scipy.stats.t.ppf(0.975, RUNS - 1)  # the standard error is 1
            made[place] = above(Interval(place, half, RUNS))
        return made[place]

    return of


def statistics(effect, draws, seed):
    """float64[draws]: t-statistics of values whose true mean is so many standard errors above the threshold."""
    generator = np.random.default_rng((seed, effect + 10))
    return (effect + generator.standard_normal(draws)) / np.sqrt(generator.chisquare(RUNS - 1, draws) / (RUNS - 1))


def shares(found):
    """Shares of evidence that holds, fails and is inconclusive."""
    verdicts = [each.holds for each in found]
    return [verdicts.count(holds) / len(verdicts) for holds in (True, False, None)]


class TestPlanted:
    """Known effects are found as often as theory says."""

    @pytest.mark.sample(3)
    @pytest.mark.parametrize("effect", EFFECTS)
    def test_one_comparison(self, tested, effect):
        """The noncentral t-distribution; of no effect 2.5 % hold and 2.5 % fail."""
        holds, fails, inconclusive = shares(map(tested, statistics(effect, 40_000, seed=0)))
        limit, law = scipy.stats.t.ppf(1 - LEVEL, RUNS - 1), scipy.stats.nct(RUNS - 1, effect)
        expected = [law.sf(limit), law.cdf(-limit)]
        assert [holds, fails, inconclusive] == pytest.approx([*expected, 1 - sum(expected)], abs=0.01)
        if effect >= 0:
            assert fails <= LEVEL + 3 * math.sqrt(LEVEL / 40_000)
        if effect <= 0:
            assert holds <= LEVEL + 3 * math.sqrt(LEVEL / 40_000)

    def test_by_values(self):
        """The statistics that are looked up are those of values."""
        values = np.random.default_rng(5).normal(0.4, 2.0, (50, RUNS))
        for own in values:
            expected = scipy.stats.ttest_1samp(own, 0.1, alternative="greater").pvalue
            assert above(own, 0.1).p_for == pytest.approx(expected)
            assert above(own, 0.1).p_against == pytest.approx(1 - expected)
            assert below(own, 0.1).p_for == pytest.approx(1 - expected)

    @pytest.mark.parametrize("effect", [0, 2, 4])
    def test_all_of_three(self, tested, effect):
        """Three independent parts: all must hold at 2.5 %, and one must fail at a third of it."""
        draws = 10_000
        parts = [list(map(tested, statistics(effect, draws, seed=1 + part))) for part in range(3)]
        holds, fails, _ = shares(map(all_of, zip(*parts, strict=True)))
        law = scipy.stats.nct(RUNS - 1, effect)
        alone, against = (scipy.stats.t.ppf(1 - level, RUNS - 1) for level in (LEVEL, LEVEL / 3))
        assert holds == pytest.approx(law.sf(alone) ** 3, abs=0.01)
        assert fails == pytest.approx(1 - law.sf(-against) ** 3, abs=0.01)
        assert fails <= LEVEL + 3 * math.sqrt(LEVEL / draws)

    @pytest.mark.parametrize("effects", [(0, 0, 0), (8, 0, 0), (8, 8, 0)], ids=str)
    def test_two_of_three(self, tested, effects):
        """Says by mistake in 2.5 % at most that two of three have an effect, and as seldom that they have none."""
        draws = 4_000
        parts = [list(map(tested, statistics(effect, draws, seed=9 + part))) for part, effect in enumerate(effects)]
        holds, fails, _ = shares(some_of(2, each) for each in zip(*parts, strict=True))
        wrong = fails if effects.count(8) >= 2 else holds
        assert wrong <= LEVEL + 3 * math.sqrt(LEVEL / draws)
        assert holds > 0.9 or effects.count(8) < 2


class TestCombined:
    """Several statements at once."""

    @pytest.mark.parametrize("count", [1, 2, 3, 4])
    def test_what_is_known_as_by_counting(self, count):
        for parts in itertools.product((True, False, None), repeat=count):
            for least in range(1, count + 1):
                surely, possibly = parts.count(True), count - parts.count(False)
                expected = True if surely >= least else False if possibly < least else None
                assert some_of(least, parts).holds is expected
            assert all_of(parts).holds is some_of(count, parts).holds
            assert any_of(parts).holds is some_of(1, parts).holds

    @pytest.mark.parametrize("count", [2, 3, 5])
    def test_p_values_as_by_brute_force(self, count):
        """Fewer than u hold if, of some m - u + 1, none holds: the worst of these sets, each by Bonferroni."""
        p = np.random.default_rng(count).uniform(size=(2, count))
        p[1] = np.maximum(p[1], 1 - p[0])  # both sides are never improbable
        parts = [Evidence(*pair) for pair in p.T]
        for least in range(1, count + 1):
            found = some_of(least, parts)
            for own, values, size in ((found.p_for, p[0], count + 1 - least), (found.p_against, p[1], least)):
                sets = itertools.combinations(values, size)
                assert own == pytest.approx(min(1.0, max(size * min(each) for each in sets)))

    def test_the_opposite_of_all_is_that_one_is_not_so(self):
        parts = [above([1.0, 1.3, 1.1]), below([0.2, 0.5, 0.1], 0.4), share_above(3, 9, 0.5)]
        for one, other in (
            (all_of(parts).opposite, any_of(part.opposite for part in parts)),
            (some_of(2, parts).opposite, some_of(2, [part.opposite for part in parts])),
        ):
            assert (one.p_for, one.p_against, one.least) == (other.p_for, other.p_against, other.least)
            assert [part.facts() for part in one.parts] == [part.facts() for part in other.parts]

    def test_nothing_is_known_of_no_statements(self):
        assert all_of([]).holds is any_of([]).holds is None
        assert all_of([np.bool_(True)]).holds is True

    def test_evidence_is_neither_true_nor_false(self):
        with pytest.raises(TypeError, match="neither true nor false"):
            bool(above([1.0, 1.1, 0.9]))
        with pytest.raises(TypeError, match="neither true nor false"):
            above([1.0, 1.1, 0.9]) or None

    def test_between_is_two_tests(self):
        values = [1.0, 1.1, 0.9]
        found, low, high = between(values, 0.5, 1.05), above(values, 0.5), below(values, 1.05)
        assert found.p_for == max(low.p_for, high.p_for)
        assert found.p_against == min(1.0, 2 * min(low.p_against, high.p_against))
        assert between(values, 5.0, 6.0).holds is False

    def test_impossible_numbers_are_named(self):
        with pytest.raises(ValueError, match=r"least=3 must be"):
            some_of(3, [True, False])
        with pytest.raises(ValueError, match=r"p_for=1\.5"):
            Evidence(1.5, 0.5)
        with pytest.raises(ValueError, match=r"p_for=0\.001, p_against=0\.001 must add up to 1"):
            Evidence(0.001, 0.001)


class TestShares:
    """Counts of runs, by hand."""

    @pytest.mark.parametrize(("hits", "count"), [(8, 8), (5, 8), (0, 8), (0, 0)])
    def test_binomial(self, hits, count):
        at_least = sum(math.comb(count, k) * 0.3**k * 0.7 ** (count - k) for k in range(hits, count + 1))
        at_most = sum(math.comb(count, k) * 0.3**k * 0.7 ** (count - k) for k in range(hits + 1))
        found = share_above(hits, count, 0.3)
        assert (found.p_for, found.p_against) == pytest.approx((at_least, at_most))

    @pytest.mark.parametrize(
        ("hits", "others"), [((3, 4), (1, 5)), ((8, 8), (1, 8)), ((0, 5), (0, 5)), ((2, 9), (5, 6))]
    )
    def test_hypergeometric(self, hits, others):
        """Of all hits, at least so many are of the first, if all runs were alike."""
        (own, first), (theirs, second) = hits, others
        total = own + theirs
        ways = {k: math.comb(first, k) * math.comb(second, total - k) for k in range(max(0, total - second), first + 1)
                if k <= total}  # fmt: skip
        found = more_often(hits, others)
        every = math.comb(first + second, total)
        assert found.p_for == pytest.approx(sum(way for k, way in ways.items() if k >= own) / every)
        assert found.p_against == pytest.approx(sum(way for k, way in ways.items() if k <= own) / every)


def of(z):
    """The evidence of a test with a normal quantile."""
    return Evidence(scipy.stats.norm.sf(z), scipy.stats.norm.cdf(z))


class TestRegions:
    """Judges what depends on a number of ours, or on a condition."""

    @pytest.mark.parametrize(
        "z", [(2.5, 3.0), (-2.5, -3.0), (2.5, -3.0), (2.5, 0.5), (-1.0, -3.0), (0.2, 0.1)], ids=str
    )
    def test_throughout(self, z):
        found, every, none = throughout(map(of, z)), all_of(map(of, z)), all_of(of(-each) for each in z)
        assert (found.p_for, found.p_against) == pytest.approx((every.p_for, none.p_for))
        assert found.holds is (True if min(z) > 1.96 else False if max(z) < -1.96 else None)

    @pytest.mark.parametrize(
        ("z", "in_part"),
        [((5, -5), True), ((2.3, -2.3), True), ((2.2, -3.0), False), ((2.3, 1.0, -5.0), False), ((5.0, 0.0), False)],
        ids=str,
    )
    def test_it_holds_in_part_where_both_sides_are_sure_among_all_places(self, z, in_part):
        """A quantile of 2.24 is that of a level of 0.0125, for one of two places, and 2.39 for one of three."""
        found = throughout(map(of, z))
        assert (found.holds, found.in_part) == (None, in_part)
        assert found.p_in_part == pytest.approx(len(z) * max(of(max(z)).p_for, of(min(z)).p_against), rel=1e-9)
        claim = Claim(**CLAIM | {"holds": found})
        assert claim.verdict == ("holds in part" if in_part else "inconclusive")
        assert claims_module.of_facts(claim.facts()).verdict == claim.verdict
        assert not all_of(map(of, z)).in_part

    @pytest.mark.parametrize("effects", [(0.0, 4.0, 4.0), (0.0, 0.0, 0.0), (0.0, -4.0, 0.0)], ids=str)
    def test_a_part_is_seldom_found_where_there_is_none(self, effects):
        """With effects of one side only, or none, that it holds in part is as improbable as the level says."""
        z = np.random.default_rng(0).standard_normal((100_000, 3)) + effects
        in_part = 3 * np.maximum(scipy.stats.norm.sf(z).min(axis=1), scipy.stats.norm.cdf(z).min(axis=1)) <= LEVEL
        assert in_part.mean() <= LEVEL
        assert [throughout(map(of, each)).in_part for each in z[:200]] == in_part[:200].tolist()

    def test_more_runs_decide_what_holds_in_part(self):
        holds, fails, part = throughout([of(1.9), of(-1.9)]).chances(100.0)
        assert max(holds, fails) < 0.1
        assert part > 0.85
        assert throughout([of(5.0), of(-5.0)]).needed() == 1.0

    @pytest.mark.parametrize("condition", [-3.0, 0.5, 3.0])
    @pytest.mark.parametrize("statement", [-3.0, 0.5, 3.0])
    def test_given(self, condition, statement):
        found = given(of(condition), of(statement))
        expected = {3.0: True, -3.0: False}.get(statement) if condition == 3.0 else None
        assert found.holds is expected
        assert found.p_for == max(of(condition).p_for, of(statement).p_for)
        assert found.p_against == max(of(condition).p_for, of(statement).p_against)

    def test_for_only(self):
        assert for_only(of(3.0)).holds is True
        assert for_only(of(-3.0)).holds is None

    def test_thresholds_stay(self):
        near = Threshold(1.0, "one", "2026-11-26")
        claim = Claim(**CLAIM | {"holds": throughout([above([2.0, 2.1, 2.3], near), above([2.0, 2.1, 2.4], near)])})
        assert claim.thresholds == (near,)
        assert claims_module.of_facts(claim.facts()).facts() == claim.facts()


class TestMoreRuns:
    """Compares the chances of a decision by more runs with a simulation of them."""

    DRAWS = 200_000

    def simulated(self, z, times, level=LEVEL, seed=0):
        """Shares that hold and fail with more runs; before those that there are, every effect was as likely."""
        generator = np.random.default_rng(seed)
        effect = z + generator.standard_normal(self.DRAWS)  # in standard errors of now
        new = effect + generator.standard_normal(self.DRAWS) / math.sqrt(times - 1)
        then = math.sqrt(times) * (z + (times - 1) * new) / times
        limit = scipy.stats.norm.isf(level)
        return np.mean(then >= limit), np.mean(then <= -limit)

    @pytest.mark.parametrize("z", [-1.5, 0.0, 0.6, 1.9])
    @pytest.mark.parametrize("times", [1.5, 4.0, 30.0])
    def test_chances(self, z, times):
        found = of(z)
        assert found.chances(times) == pytest.approx((*self.simulated(z, times), 0.0), abs=0.005)

    def test_chances_of_several(self):
        """Of two, one is sure: all hold as soon as the other does, and fail where it does at half the level."""
        found = all_of([Evidence(1e-30, 1.0), of(1.2)])
        assert found.chances(5.0)[0] == pytest.approx(self.simulated(1.2, 5.0)[0], abs=0.02)
        assert found.chances(5.0)[1] == pytest.approx(self.simulated(1.2, 5.0, LEVEL / 2)[1], abs=0.02)

    def test_chances_of_several_that_are_open(self):
        """All of five have to come out, so that five times the runs decide seldom what they decide of one."""
        each = [self.simulated(1.5, 5.0, level, seed=1) for level in (LEVEL, LEVEL / 5)]
        holds, fails, _ = all_of([of(1.5)] * 5).chances(5.0)
        assert holds == pytest.approx(each[0][0] ** 5, abs=0.03)
        assert fails == pytest.approx(1 - (1 - each[1][1]) ** 5, abs=0.03)
        assert all_of([of(1.5)] * 5).needed() > 3 * of(1.5).needed()

    @pytest.mark.parametrize("z", [0.3, 1.3, 1.8])
    def test_needed(self, z):
        found = of(z)
        assert sum(self.simulated(z, found.needed())) == pytest.approx(0.8, abs=0.005)

    def test_what_is_decided_needs_no_more_and_what_is_equal_no_number(self):
        assert above([1.0, 1.1, 0.9]).needed() == 1.0
        assert known(None).needed() == math.inf
        assert above([1.0] * 3).needed() == math.inf
        assert sum(known(True).chances(5.0)) == 1.0


HOLDS = above([1.0, 1.1, 0.9])
CLAIM = {"says": "it is above 0", "where": "section 2", "ours": "1.0 ± 0.3", "holds": HOLDS}


class TestClaims:
    """Checks the grounds of claims, and their verdicts."""

    def test_verdicts(self):
        unmet = Premise("a message takes time", "it takes none", met=False)
        made = [
            Claim(**CLAIM),
            Claim(**CLAIM | {"holds": HOLDS.opposite}),
            Claim(**CLAIM | {"holds": None}),
            Claim(**CLAIM, premises=[enough("updates a worker", 18, 3518)]),
            Claim(**CLAIM, premises=[enough("updates a worker", 1800, 3518), unmet]),
            Claim(**CLAIM | {"holds": True}, identity=True, premises=[unmet]),
        ]
        outside = "not in our regime"
        assert [claim.verdict for claim in made] == ["holds", "fails", "inconclusive", outside, outside, "holds"]

    @pytest.mark.parametrize(
        "holds",
        [True, False, np.bool_(True), above(Interval(2.0, 0.0, 1)), all_of([False, HOLDS]), any_of([True, HOLDS])],
    )
    def test_without_a_measurement_nothing_is_found(self, holds):
        with pytest.raises(ValueError, match="must all be measured"):
            Claim(**CLAIM | {"holds": holds})
        assert Claim(**CLAIM | {"holds": holds}, identity=True).verdict in ("holds", "fails")

    def test_facts_come_back(self):
        nested = all_of(
            [HOLDS, any_of([share_above(3, 4, 0.5), above([2.0, 2.1, 2.3], Threshold(1, "one", "2026-11-26"))])]
        )
        claim = Claim(**CLAIM | {"holds": nested}, paper="2", on_paper=True, because="so", cause="easy",
                      premises=[enough("examples", 3, 4)])  # fmt: skip
        facts = json.loads(json.dumps(claim.facts()))
        assert claims_module.of_facts(facts).facts() == facts
        assert of_facts(nested.facts()) == nested


class TestThresholds:
    """Numbers of our own."""

    CLOSE = Threshold(0.05, "a twentieth", "2026-11-26", seen=True)

    def test_comparisons_carry_them(self):
        for found in (
            above([1.0, 1.1, 0.9], self.CLOSE),
            below([1.0, 1.1, 0.9], -self.CLOSE),
            share_above(3, 4, self.CLOSE),
        ):
            (threshold,) = found.thresholds
            assert (threshold.because, threshold.since, threshold.seen) == ("a twentieth", "2026-11-26", True)
        assert between([0.0, 0.01, -0.01], -self.CLOSE, self.CLOSE).parts[0].thresholds == (-self.CLOSE,)
        assert above([1.0, 1.1, 0.9], 0.05).thresholds == ()

    def test_are_numbers_and_come_back(self):
        assert 2 * self.CLOSE == 0.1
        in_per_cent = 100 * self.CLOSE
        assert (in_per_cent, in_per_cent.origin) == (5.0, 0.05)
        assert in_per_cent.facts() == (-self.CLOSE).facts() == self.CLOSE.facts()
        for again in (Threshold.of_facts(self.CLOSE.facts()), pickle.loads(pickle.dumps(self.CLOSE))):
            assert again.facts() == self.CLOSE.facts()
        with pytest.raises(ValueError, match="isoformat"):
            Threshold(1, "one", "yesterday")
