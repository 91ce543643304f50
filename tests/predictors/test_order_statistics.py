"""Order statistics: by another integration, by closed forms and by recurrence; cutoffs by brute force.

Further: Dinkelbach's iteration finds the cutoffs of the best run, and the paper's figure for 158 workers.
"""

import functools
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.tiers import examples
from scipy import integrate, special

from sgdlab import predictors

check = settings(derandomize=True, deadline=None, max_examples=examples(200), database=None)


class TestNormal:
    @pytest.mark.parametrize("n", [1, 2, 4, 9, 25])
    def test_is_the_integral(self, n):
        def integrand(z, j):
            ways = math.factorial(n) / (math.factorial(j - 1) * math.factorial(n - j))
            density = math.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
            return ways * z * special.ndtr(z) ** (j - 1) * special.ndtr(-z) ** (n - j) * density

        expected = [integrate.quad(integrand, -12, 12, args=(j,), limit=200)[0] for j in range(1, n + 1)]
        np.testing.assert_allclose(predictors.normal(n), expected, rtol=0, atol=1e-9)

    def test_closed_forms(self):
        np.testing.assert_array_equal(predictors.normal(1), [0])
        np.testing.assert_allclose(predictors.normal(2)[-1], 1 / math.sqrt(math.pi), rtol=1e-12)
        np.testing.assert_allclose(predictors.normal(3)[-1], 3 / (2 * math.sqrt(math.pi)), rtol=1e-12)
        angle, root = math.asin(1 / 3) / math.pi, math.sqrt(math.pi)
        np.testing.assert_allclose(predictors.normal(4)[-1], 3 / root * (1 / 2 + angle), rtol=1e-12)
        np.testing.assert_allclose(predictors.normal(5)[-1], 5 / (4 * root) * (1 + 6 * angle), rtol=1e-12)

    @pytest.mark.parametrize("n", [2, 7, 158, 700])
    def test_rises_symmetrically_about_the_mean(self, n):
        expected = predictors.normal(n, mean=3.0, std=0.5)
        assert (np.diff(expected) > 0).all()
        np.testing.assert_allclose(expected + expected[::-1], 2 * 3.0, rtol=1e-13)
        np.testing.assert_allclose(expected, 3.0 + 0.5 * predictors.normal(n), rtol=1e-14)

    @pytest.mark.parametrize("n", [2, 3, 158, 2175])
    def test_recurrence_of_any_distribution(self, n):
        # One of n taken away at random: (n - j) E[x_(j)] + j E[x_(j+1)] of n is n E[x_(j)] of n - 1.
        j, fewer, more = np.arange(1, n), predictors.normal(n - 1), predictors.normal(n)
        np.testing.assert_allclose(((n - j) * more[:-1] + j * more[1:]) / n, fewer, rtol=0, atol=1e-10)

    def test_without_deviation_all_come_at_the_mean(self):
        for of in (predictors.normal, predictors.elfving):
            np.testing.assert_array_equal(of(5, mean=2.0, std=0.0), np.full(5, 2.0))


class TestElfving:
    def test_maximum_of_the_papers_cluster(self):
        largest = predictors.elfving(158, mean=1.057, std=0.393)[-1]
        assert round(float(largest), 3) == 2.105
        assert abs(largest - 2.1063) < 2e-3  # as printed
        fraction = (158 - math.pi / 8) / (158 - math.pi / 4 + 1)
        assert largest == pytest.approx(1.057 + 0.393 * math.sqrt(2) * special.erfinv(2 * fraction - 1), rel=1e-10)

    @pytest.mark.parametrize(("n", "distance"), [(1, 1e-15), (2, 0.04), (10, 0.03), (158, 0.02), (2175, 0.02)])
    def test_is_close_to_the_exact(self, n, distance):
        approximate = predictors.elfving(n)
        np.testing.assert_allclose(approximate, -approximate[::-1], atol=1e-12)
        assert np.abs(approximate - predictors.normal(n)).max() < distance


class TestMonteCarlo:
    def test_by_hand(self):
        mean, std = predictors.monte_carlo([[3, 1, 2], [5, 4, 9]])
        np.testing.assert_array_equal(mean, [2.5, 3.5, 6])
        np.testing.assert_array_equal(std, [1.5, 1.5, 3])

    def test_samples_stay_as_they_are(self):
        samples = np.array([[3.0, 1.0]])
        predictors.monte_carlo(samples)
        np.testing.assert_array_equal(samples, [[3.0, 1.0]])


# Whole numbers for ties, which floats then show exactly.
EXPECTED = st.lists(st.one_of(st.integers(1, 6).map(float), st.floats(0.01, 9)), min_size=1, max_size=9).map(sorted)


class TestBestCutoff:
    @check
    @given(EXPECTED)
    def test_gradients_per_second_of_one_iteration(self, expected):
        ratios = [(j + 1) / seconds for j, seconds in enumerate(expected)]
        assert predictors.best_cutoff(np.array(expected)) == 1 + ratios.index(max(ratios))

    @check
    @given(EXPECTED, st.sampled_from([0.0, 0.5, 1.0, 3.7]))
    def test_gradients_less_the_worth_of_the_time(self, expected, rate):
        values = [j + 1 - rate * seconds for j, seconds in enumerate(expected)]
        assert predictors.best_cutoff(np.array(expected), rate=rate) == 1 + values.index(max(values))

    def test_of_equals_the_smallest(self):
        assert predictors.best_cutoff([1.0, 2.0, 3.0]) == 1
        assert predictors.best_cutoff([2.0, 2.0, 3.0, 4.0]) == 2
        assert predictors.best_cutoff([1.0, 2.0, 3.0], rate=1.0) == 1
        assert predictors.best_cutoff([1.0, 1.0, 1.0]) == 3

    def test_dinkelbach_finds_the_best_run(self):
        differs = 0
        for seed in range(20):
            runtimes = np.sort(np.random.default_rng(seed).exponential(1.0, (5, 3)) ** 2, axis=1)
            best = max(itertools.product([1, 2, 3], repeat=5), key=functools.partial(per_second, runtimes))
            rate = 0.0
            for _ in range(10):
                counts = tuple(predictors.best_cutoff(row, rate=rate) for row in runtimes)
                rate = per_second(runtimes, counts)
            assert counts == best
            differs += best != tuple(predictors.best_cutoff(row) for row in runtimes)
        assert differs > 10  # the paper's objective is another


def per_second(ordered: np.ndarray, counts: tuple[int, ...]) -> float:
    """Gradients per second of a run that waits for so many."""
    return sum(counts) / sum(row[count - 1] for row, count in zip(ordered, counts, strict=True))


@pytest.mark.parametrize("of", [predictors.normal, predictors.elfving])
@pytest.mark.parametrize(
    ("argument", "value", "right"),
    [
        *[("num_workers", value, "a whole number of at least 1") for value in (0, -1, 2.5, None)],
        *[("mean", value, "a finite number") for value in (math.nan, math.inf, None)],
        *[("std", value, "a finite number at least 0") for value in (-0.1, math.nan, math.inf)],
    ],
)
def test_errors_name_the_argument_and_its_value(of, argument, value, right):
    with pytest.raises(ValueError, match=rf"^{argument}={value!r} must be {right}"):
        of(**{"num_workers": 3, "mean": 1.0, "std": 1.0} | {argument: value})


@pytest.mark.parametrize("shape", [(), (0,), (2, 2)])
def test_errors_of_expected(shape):
    with pytest.raises(ValueError, match=r"^expected of shape \(.*\) must have shape \[N\]"):
        predictors.best_cutoff(np.ones(shape))


@pytest.mark.parametrize("shape", [(), (3,), (0, 3), (3, 0), (2, 2, 2)])
def test_errors_of_samples(shape):
    with pytest.raises(ValueError, match=r"^samples of shape \(.*\) must have shape \[K, N\]"):
        predictors.monte_carlo(np.ones(shape))


@pytest.mark.parametrize("expected", [[-1.0, 0.1, 2.0], [0.0, 1.0], [math.nan, 1.0], [1.0, math.inf]])
def test_a_time_that_is_none_has_no_best_cutoff(expected):
    with pytest.raises(ValueError, match="expected"):
        predictors.best_cutoff(expected)
