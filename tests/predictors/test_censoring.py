"""Compute times drawn above a bound: against scipy, far tails included, of mixtures and of whole windows."""

import numpy as np
import pytest
from scipy import special, stats

from sgdlab import predictors
from sgdlab.predictors import censoring

DRAWS = 4000
BOUNDS = [-40.0, -5.0, -1.0, 0.0, 0.5, 3.0, 8.0, 20.0, 40.0]  # standard deviations above the mean
MEAN, STD = 2.0, 0.3


def normals(bound: float, *, mean=MEAN, std=STD, seed=0) -> np.ndarray:
    below = mean + bound * std
    return predictors.truncated_normal(np.random.default_rng(seed), np.full(DRAWS, mean), np.full(DRAWS, std), below)


class TestTruncatedNormal:
    @pytest.mark.parametrize("bound", [40.0, 1e3, 1e4])
    def test_very_far_out_is_an_exponential_law(self, bound):
        # phi(a + y / a) / phi(a) = exp(-y - (y / a)^2 / 2); beyond a = 40 the second term is nothing to 4000 draws.
        beyond = (normals(bound, mean=0.0, std=1.0) - bound) * bound
        assert (beyond > 0).all()
        assert stats.kstest(beyond, "expon").pvalue > 1e-3
        assert np.unique(beyond).size > 0.99 * DRAWS  # no digits were lost

    @pytest.mark.parametrize("bound", BOUNDS)
    def test_is_the_quantile_of_a_uniform_number(self, bound):
        log_uniform = -np.random.default_rng(0).standard_exponential(DRAWS)
        draws = (normals(bound) - MEAN) / STD
        assert (normals(bound) >= MEAN + bound * STD).all()
        share = stats.norm.logsf(draws) - stats.norm.logsf(bound)  # of what is above the bound, what is above the draw
        np.testing.assert_allclose(share, log_uniform, rtol=1e-9, atol=1e-9 * max(1.0, bound**2))

    def test_each_has_its_own_law_and_bound(self):
        mean, std, below = np.array([[0.0], [5.0]]), np.array([1.0, 2.0, 3.0]), np.array([0.0, 9.0, -50.0])
        draws = np.stack(
            [predictors.truncated_normal(np.random.default_rng(seed), mean, std, below) for seed in range(500)]
        )
        assert draws.shape == (500, 2, 3)
        for i, j in np.ndindex(2, 3):
            law = stats.truncnorm((below[j] - mean[i, 0]) / std[j], np.inf, mean[i, 0], std[j])
            assert stats.kstest(draws[:, i, j], law.cdf).pvalue > 1e-3
        assert np.abs(np.corrcoef(draws.reshape(500, 6).T) - np.eye(6)).max() < 5 / np.sqrt(500)


# Three components of very different tails, for two workers.
MEANS = np.array([[1.0, 1.0], [2.0, 0.0], [0.0, 4.0]])
STDS = np.array([[0.5, 0.1], [0.25, 2.0], [2.0, 0.5]])


class TestTruncatedMixture:
    def draws(self, below: np.ndarray) -> np.ndarray:
        wide = lambda array: np.repeat(array, DRAWS, axis=1)
        drawn = predictors.truncated_mixture(np.random.default_rng(0), wide(MEANS), wide(STDS), np.repeat(below, DRAWS))
        return drawn.reshape(2, DRAWS)

    @pytest.mark.parametrize("bound", [-9.0, 0.0, 2.2, 5.0, 30.0])
    def test_has_the_mixtures_distribution(self, bound):
        below = np.array([bound, bound + 1])
        for worker, drawn in enumerate(self.draws(below)):
            tail = lambda x, i=worker: special.logsumexp(stats.norm.logsf(x, MEANS[:, [i]], STDS[:, [i]]), axis=0)
            assert np.isfinite(drawn).all()
            assert (drawn >= below[worker]).all()
            cdf = lambda x, tail=tail, i=worker: -np.expm1(tail(x) - tail(below[i]))
            assert stats.kstest(drawn, cdf).pvalue > 1e-3


class TestFromWindow:
    WINDOW = np.random.default_rng(2).gamma(20.0, 0.05, (20, 4)) * [1, 1, 2, 3]
    RUNTIMES = np.array([0.9, 1.4, np.nan, np.nan])

    def filled(self, seed: int, **changed) -> np.ndarray:
        arguments = {"window": self.WINDOW, "runtimes": self.RUNTIMES, "cut_at": 1.4} | changed
        return censoring.from_window(np.random.default_rng(seed), **arguments)

    def test_those_that_came_are_left_alone(self):
        window, runtimes = self.WINDOW.copy(), self.RUNTIMES.copy()
        filled = self.filled(0)
        np.testing.assert_array_equal(filled[:2], self.RUNTIMES[:2])
        assert np.isfinite(filled).all()
        np.testing.assert_array_equal(self.WINDOW, window)
        np.testing.assert_array_equal(self.RUNTIMES, runtimes)

    def test_all_came(self):
        runtimes = np.array([0.9, 1.4, 1.0, 1.1])
        np.testing.assert_array_equal(self.filled(0, runtimes=runtimes), runtimes)

    def test_the_others_are_drawn_from_their_own_window(self):
        filled = np.array([self.filled(seed) for seed in range(1000)])
        for worker in (2, 3):
            mean, std = self.WINDOW[:, worker].mean(), self.WINDOW[:, worker].std()
            law = stats.truncnorm((1.4 - mean) / std, np.inf, mean, std)
            assert stats.kstest(filled[:, worker], law.cdf).pvalue > 1e-3

    def test_a_worker_that_never_varied_still_may(self):
        filled = np.array([self.filled(seed, window=np.full((20, 4), 1.4)) for seed in range(1000)])[:, 2]
        assert stats.kstest(filled, stats.truncnorm(0, np.inf, 1.4, 0.01 * 1.4).cdf).pvalue > 1e-3

    @pytest.mark.parametrize("cut_at", [1e-3, 1e3])
    def test_bounds_that_the_window_never_came_near(self, cut_at):
        filled = self.filled(0, cut_at=cut_at)
        assert np.isfinite(filled).all()
        assert (filled[2:] >= cut_at).all()
        assert (filled[2:] < max(1.001 * cut_at, 2 * self.WINDOW.max())).all()
