"""Gamma compute times: moments by formula, and the paper's shares beyond 1.25 times the mean (Barkai et al., Fig. 3).

The probabilities are formulas: survival functions of the gamma distribution, integrated over the machines' means.
"""

import dataclasses

import numpy as np
import pytest
from scipy import integrate, stats

from sgdlab.cluster import Gamma, GammaQuantiles, gamma

B = 128.0
V_TASK = V_MACH = 0.1
V_MACH_HETEROGENEOUS = 0.6
FAR = 1.25
STANDARD_ERRORS = 5


def beyond(mean: float | np.ndarray, variation: float) -> float | np.ndarray:
    """P(t > 1.25 B) where t ~ Gamma of this mean and coefficient of variation."""
    return stats.gamma.sf(FAR * B, 1 / variation**2, scale=mean * variation**2)


def beyond_mixed(between: float, within: float) -> float:
    """P(t > 1.25 B) where the mean itself is Gamma of mean B and coefficient of variation `between`."""
    density = lambda mean: stats.gamma.pdf(mean, 1 / between**2, scale=B * between**2)
    limits = stats.gamma.ppf([1e-14, 1 - 1e-14], 1 / between**2, scale=B * between**2)
    return integrate.quad(lambda mean: density(mean) * beyond(mean, within), *limits, points=[FAR * B], limit=200)[0]


@pytest.mark.parametrize("heterogeneous", [False, True])
class TestTable:
    def test_batch_size_is_a_scale(self, heterogeneous):
        draw = lambda size: gamma(num_workers=4, num_gradients=6, heterogeneous=heterogeneous, batch_size=size, seed=0)
        np.testing.assert_allclose(draw(32) / 32, draw(1), rtol=1e-12)
        np.testing.assert_array_equal(
            draw(128), gamma(num_workers=4, num_gradients=6, heterogeneous=heterogeneous, seed=0)
        )


class TestHomogeneous:
    def test_mean_over_runs(self):
        runs, size = 500, 16
        means = [gamma(num_workers=4, num_gradients=4, seed=seed).mean() for seed in range(runs)]
        # Variance of a run's mean: that of q, and E[q^2] V_mach^2 shared by its compute times.
        variance = B**2 * (V_TASK**2 + (1 + V_TASK**2) * V_MACH**2 / size)
        assert abs(np.mean(means) - B) < STANDARD_ERRORS * np.sqrt(variance / runs)

    def test_all_machines_share_one_mean(self):
        times = gamma(num_workers=50, num_gradients=2000, seed=1)
        error = V_MACH * times.mean() / np.sqrt(len(times))
        assert (abs(times.mean(axis=0) - times.mean()) < STANDARD_ERRORS * error).all()
        assert times.std() / times.mean() == pytest.approx(V_MACH, rel=STANDARD_ERRORS / np.sqrt(times.size))

    def test_share_beyond_the_runs_own_mean(self):
        exact = beyond(B, V_MACH)  # relative to q, whatever q is
        assert round(100 * exact) == 1  # "1% in the homogeneous environment" (C.3)
        times = gamma(num_workers=100, num_gradients=3000, seed=0)
        # q is estimated by the mean of the run: its error moves the share by at most this.
        slack = STANDARD_ERRORS * V_MACH / np.sqrt(times.size)
        low, high = beyond(B * (1 - slack), V_MACH), beyond(B * (1 + slack), V_MACH)
        error = STANDARD_ERRORS * np.sqrt(exact * (1 - exact) / times.size)
        assert low - error < (times > FAR * times.mean()).mean() < high + error

    def test_share_beyond_the_mean_over_runs(self):
        runs = 800
        shares = [(gamma(num_workers=5, num_gradients=40, seed=seed) > FAR * B).mean() for seed in range(runs)]
        error = np.std(shares, ddof=1) / np.sqrt(runs)
        assert abs(np.mean(shares) - beyond_mixed(V_TASK, V_MACH)) < STANDARD_ERRORS * error


class TestHeterogeneous:
    def test_mean_and_variance(self):
        times = gamma(num_workers=400_000, num_gradients=1, heterogeneous=True, seed=0)
        variance = B**2 * (V_MACH_HETEROGENEOUS**2 + (1 + V_MACH_HETEROGENEOUS**2) * V_TASK**2)
        assert abs(times.mean() - B) < STANDARD_ERRORS * np.sqrt(variance / times.size)
        squares = (times - B) ** 2
        assert abs(squares.mean() - variance) < STANDARD_ERRORS * squares.std() / np.sqrt(times.size)

    def test_each_machine_has_a_mean_of_its_own(self):
        rows, workers = 400, 4000
        times = gamma(num_workers=workers, num_gradients=rows, heterogeneous=True, seed=2)
        means = times.mean(axis=0)
        within = (times.std(axis=0, ddof=1) / means).mean()
        assert within == pytest.approx(V_TASK, rel=STANDARD_ERRORS / np.sqrt(rows * workers) + 1 / rows)
        # The means follow Gamma(1 / V_mach^2, B V_mach^2), up to the rest of their tasks' scatter.
        shape = 1 / (V_MACH_HETEROGENEOUS**2 + (1 + V_MACH_HETEROGENEOUS**2) * V_TASK**2 / rows)
        assert stats.kstest(means, stats.gamma(shape, scale=B / shape).cdf).pvalue > 1e-3

    def test_share_beyond_the_mean(self):
        exact = beyond_mixed(V_MACH_HETEROGENEOUS, V_TASK)
        assert round(100 * exact, 1) == 27.9  # "27.9% in heterogeneous environment" (C.3)
        workers = 10_000
        times = gamma(num_workers=workers, num_gradients=20, heterogeneous=True, seed=0)
        shares = (times > FAR * B).mean(axis=0)  # compute times of one machine are alike: machines are the sample
        assert abs(shares.mean() - exact) < STANDARD_ERRORS * shares.std(ddof=1) / np.sqrt(workers)


class TestParameters:
    @pytest.mark.parametrize("heterogeneous", [False, True])
    def test_defaults_are_the_papers(self, heterogeneous):
        variation = V_MACH_HETEROGENEOUS if heterogeneous else V_MACH
        spelled = Gamma(4, 7.0, heterogeneous, mean=32.0, task_variation=V_TASK, machine_variation=variation)
        np.testing.assert_array_equal(spelled.draw(6, seed=0), Gamma(4, 32.0, heterogeneous).draw(6, seed=0))

    @pytest.mark.parametrize("heterogeneous", [False, True])
    def test_variation_of_a_machine_and_between_means(self, heterogeneous):
        task, machine, rows, count = 0.3, 0.8, 300, 2000
        law = Gamma(1, mean=2.0, heterogeneous=heterogeneous, task_variation=task, machine_variation=machine)
        if heterogeneous:  # machines have means of their own, runs have not
            times = dataclasses.replace(law, num_workers=count).draw(rows, seed=0)
            between, within = machine, task
        else:
            times = np.concatenate([law.draw(rows, seed=seed) for seed in range(count)], axis=1)
            between, within = task, machine
        means = times.mean(axis=0)
        assert abs(means.mean() - 2.0) < STANDARD_ERRORS * means.std(ddof=1) / np.sqrt(count)
        # The variance of a mean over the rows: that of the machine, and E[p^2] V^2 / rows of its tasks.
        squares = (means - 2.0) ** 2
        exact = 2.0**2 * (between**2 + (1 + between**2) * within**2 / rows)
        assert abs(squares.mean() - exact) < STANDARD_ERRORS * squares.std(ddof=1) / np.sqrt(count)
        relative = (times / means) ** 2  # given its mean p: t = p g with E[g^2] = 1 + V^2
        scattered = relative.mean(axis=0)
        error = scattered.std(ddof=1) / np.sqrt(count) + 5 * within**2 / rows  # the mean was itself estimated
        assert abs(scattered.mean() - (1 + within**2)) < STANDARD_ERRORS * error

    @pytest.mark.parametrize("variation", [1e-6, 1.0, 100.0])
    def test_run_times_are_positive_whatever_the_variation(self, variation):
        law = Gamma(50, mean=2.0, heterogeneous=True, task_variation=variation, machine_variation=variation)
        times = law.draw(200, seed=0)
        assert (times > 0).all()
        assert np.isfinite(times).all()
        if variation < 1e-3:
            np.testing.assert_allclose(times, 2.0, rtol=20 * variation)

    @pytest.mark.parametrize("machine", [0.6, 1.3])
    def test_machines_at_quantiles_are_the_same_with_every_seed(self, machine):
        law = GammaQuantiles(7, mean=2.0, task_variation=0.01, machine_variation=machine)
        exact = stats.gamma(1 / machine**2, scale=2.0 * machine**2).ppf((np.arange(7) + 0.5) / 7)
        for seed in (0, 1):
            np.testing.assert_allclose(law.draw(400, seed=seed).mean(axis=0), exact, rtol=STANDARD_ERRORS * 0.01 / 20)
        scattered = dataclasses.replace(law, task_variation=0.3).draw(4000, seed=0) / exact
        np.testing.assert_allclose(scattered.std(axis=0), 0.3, rtol=0.1)
