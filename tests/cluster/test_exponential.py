"""Exponential run-times: mean, variance and distribution by formula, seeds and prefixes, and errors."""

import math

import numpy as np
import pytest
from scipy import stats

from sgdlab.cluster import exponential

STANDARD_ERRORS = 5


def test_shape_and_dtype():
    times = exponential(num_workers=3, num_gradients=5, seed=0)
    assert times.shape == (5, 3)
    assert times.dtype == np.float64
    assert (times > 0).all()


@pytest.mark.parametrize("workers", [1, 7])
def test_more_rows_do_not_change_earlier_ones(workers):
    draw = lambda rows: exponential(num_workers=workers, num_gradients=rows, mean=2.0, seed=3)
    np.testing.assert_array_equal(draw(5), draw(50)[:5])
    np.testing.assert_array_equal(draw(1), draw(50)[:1])


def test_seed_decides():
    draw = lambda seed: exponential(num_workers=4, num_gradients=6, seed=seed)
    np.testing.assert_array_equal(draw(0), draw(0))
    assert (draw(0) != draw(1)).all()


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


@pytest.mark.parametrize(
    ("argument", "value", "right"),
    [
        *[(name, value, "a whole number of at least 1") for name in ("num_workers", "num_gradients")
          for value in (0, -1, 2.5, None)],
        *[("mean", value, "a finite number above 0") for value in (0, -1.0, math.nan, math.inf, None)],
        *[("seed", value, "a whole number of at least 0") for value in (-1, 0.5, None)],
    ],
)  # fmt: skip
def test_errors_name_the_argument_and_its_value(argument, value, right):
    with pytest.raises(ValueError, match=rf"^{argument}={value!r} must be {right}"):
        exponential(**{"num_workers": 2, "num_gradients": 2, "seed": 0, argument: value})
