"""Exponential compute times: mean, variance and distribution by formula."""

import numpy as np
import pytest
from scipy import stats

from sgdlab.cluster import exponential

STANDARD_ERRORS = 5


def test_mean_is_a_scale():
    draw = lambda mean: exponential(num_workers=4, num_gradients=6, mean=mean, seed=0)
    np.testing.assert_allclose(draw(3) / 3, draw(1), rtol=1e-14)
    np.testing.assert_array_equal(draw(1), exponential(num_workers=4, num_gradients=6, seed=0))


@pytest.mark.parametrize("mean", [0.25, 1.0, 128])
def test_mean_and_variance(mean):
    times = exponential(num_workers=50, num_gradients=4000, mean=mean, seed=1)
    # Var t = mean^2; Var (t - mean)^2 = (9 - 1) mean^4.
    assert abs(times.mean() - mean) < STANDARD_ERRORS * mean / np.sqrt(times.size)
    squares = (times - mean) ** 2
    assert abs(squares.mean() - mean**2) < STANDARD_ERRORS * np.sqrt(8) * mean**2 / np.sqrt(times.size)
    assert stats.kstest(times.ravel(), stats.expon(scale=mean).cdf).pvalue > 1e-3


def test_workers_and_rows_are_independent():
    times = exponential(num_workers=3, num_gradients=20_000, seed=2)
    for left, right in ((times[:, 0], times[:, 1]), (times[:, 1], times[:, 2]), (times[1:, 0], times[:-1, 0])):
        assert abs(np.corrcoef(left, right)[0, 1]) < STANDARD_ERRORS / np.sqrt(left.size)
