"""Delays of messages: the small one's mean and variance, the share of late ones, what is none at all, and errors."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from sgdlab.cluster import MessageDelays

STANDARD_ERRORS = 5
SHAPE = (200, 20, 100)


def draw(shape: tuple[int, ...] = SHAPE, *, seed: int = 0, **changed) -> np.ndarray:
    return MessageDelays(**changed).draw(shape, np.random.default_rng(seed))


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (0, 2)])
def test_shape_and_dtype(shape):
    delays = np.asarray(draw(shape))
    assert delays.shape == shape
    assert delays.dtype == np.float64


def test_generator_decides():
    np.testing.assert_array_equal(draw((50,), seed=1), draw((50,), seed=1))
    assert (draw((50,), seed=1) != draw((50,), seed=2)).all()


@pytest.mark.parametrize(("mean", "shape"), [(0.05, 2.0), (3.0, 0.5), (1.0, 40.0)])
def test_small_delay_is_gamma(mean, shape):
    delays = draw(base_seconds=mean, base_shape=shape, late_share=0)
    variance = mean**2 / shape
    # Var (t - mean)^2 = variance^2 (kurtosis - 1), and a gamma's kurtosis is 3 + 6 / shape.
    assert abs(delays.mean() - mean) < STANDARD_ERRORS * np.sqrt(variance / delays.size)
    spread = np.sqrt((2 + 6 / shape) / delays.size)
    assert abs(((delays - mean) ** 2).mean() - variance) < STANDARD_ERRORS * variance * spread
    assert stats.kstest(delays.ravel()[::40], stats.gamma(shape, scale=mean / shape).cdf).pvalue > 1e-3


@pytest.mark.parametrize("share", [0.0016, 0.1, 0.5])
def test_share_of_late_messages(share):
    delays = draw(base_seconds=0, late_share=share, late_seconds=4.0)
    assert set(np.unique(delays)) == {0.0, 4.0}
    assert abs((delays == 4.0).mean() - share) < STANDARD_ERRORS * np.sqrt(share * (1 - share) / delays.size)


def test_late_messages_come_that_much_later():
    # The small delays do not depend on which messages are late.
    without, late = draw(late_share=0.0), draw(late_share=0.3, late_seconds=7.0)
    np.testing.assert_allclose(np.unique((late - without).round(12)), [0.0, 7.0])


def test_everything_or_nothing_is_late():
    assert (draw(base_seconds=0.0, late_share=0.0) == 0).all()
    assert (draw(base_seconds=0.0, late_share=1.0, late_seconds=2.5) == 2.5).all()


def test_defaults_are_the_papers():
    model = MessageDelays()
    assert (model.late_share, model.late_seconds) == (
        0.16 / 100,
        4,
    )  # "0.16% of the responses of pulling ... 4 seconds"
    delays = draw()
    mean = model.base_seconds + model.late_share * model.late_seconds
    variance = model.base_seconds**2 / model.base_shape + model.late_seconds**2 * model.late_share * (
        1 - model.late_share
    )
    assert abs(delays.mean() - mean) < STANDARD_ERRORS * np.sqrt(variance / delays.size)


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        MessageDelays().late_share = 0.5


@pytest.mark.parametrize(
    ("argument", "value", "right"),
    [
        *[(name, value, "at least 0") for name in ("base_seconds", "late_seconds")
          for value in (-1, -1e-9, math.nan, math.inf, None, "1")],
        *[("base_shape", value, "above 0") for value in (0, -1.0, math.nan, math.inf)],
        *[("late_share", value, "at least 0 and at most 1") for value in (-0.1, 1.1, math.nan, None)],
    ],
)  # fmt: skip
def test_errors_name_the_argument_and_its_value(argument, value, right):
    with pytest.raises(ValueError, match=rf"^{argument}={value!r} must be a finite number {right}"):
        MessageDelays(**{argument: value})
