"""Staleness without a cluster: the mean that was asked for, an even ramp, and the first worker's clock."""

import math

import numpy as np
import pytest
from comparison import RUNTIMES, check
from hypothesis import given
from hypothesis import strategies as st

from sgdlab import Schedule, protocols


def simulated(count: int, *, ramp_epochs: float = 0.0, **options) -> Schedule:
    """Of a worker that takes a second for each gradient."""
    return protocols.simulated_staleness(np.ones((count, 1)), ramp_epochs=ramp_epochs, **options)


AVERAGES = st.one_of(st.integers(0, 40), st.fractions(0, 20, max_denominator=8).map(float), st.floats(0, 30))


@check
@given(count=st.integers(1, 300), average=AVERAGES)
def test_mean_over_every_stretch_is_the_average(count, average):
    staleness = simulated(count, average=average).staleness()[:, 0].data
    after = staleness[math.ceil(average) :]  # the first gradients cannot be staler than there are updates
    for length in (1, 7, after.size):
        sums = np.convolve(after, np.ones(length), "valid") if after.size >= length > 0 else np.zeros(0)
        assert (abs(sums - length * average) < 1 + 1e-6).all()


@pytest.mark.parametrize(("average", "period"), [(0, 1), (3, 1), (2.5, 2), (0.25, 4), (1.75, 4), (0.1, 10), (7 / 3, 3)])
def test_mean_is_exact_over_whole_periods(average, period):
    staleness = simulated(1000 * period + 10, average=average).staleness()[:, 0].data[10:]
    np.testing.assert_array_equal(staleness.reshape(1000, period).sum(axis=1), np.full(1000, round(average * period)))


@check
@given(count=st.integers(1, 300), average=AVERAGES, ramp=st.sampled_from([0.5, 1.0, 2.0]), epoch=st.integers(4, 60))
def test_ramp_rises_evenly(count, average, ramp, epoch):
    schedule = simulated(count, average=average, ramp_epochs=ramp, gradients_per_epoch=epoch)
    staleness, step = schedule.staleness()[:, 0].data, np.arange(count)
    wanted = average * np.minimum(1, step / (ramp * epoch))
    low, high = np.floor(wanted - 1e-6), np.ceil(wanted + 1e-6)
    assert (staleness >= np.minimum(low, step)).all()
    assert (staleness <= np.minimum(high, step)).all()
    if (wanted <= step).all():  # nothing was cut off: the sum is kept at every step
        assert (abs(np.cumsum(staleness) - np.cumsum(wanted)) < 1 + 1e-6).all()
    assert (np.maximum.accumulate(staleness) - staleness <= 1).all()


def test_whole_ramp_by_hand():
    # a = 4 over 8 gradients: wanted 0, 1/2, 1, 3/2, 2, 5/2, 3, 7/2, 4; sums 0, .5, 1.5, 3, 5, 7.5, 10.5, 14, 18.
    schedule = simulated(10, average=4, ramp_epochs=2, gradients_per_epoch=4)
    np.testing.assert_array_equal(schedule.staleness()[:, 0], [0, 0, 1, 2, 2, 2, 3, 4, 4, 4])


@check
@given(count=st.integers(1, 100), average=AVERAGES)
def test_one_worker_one_second_one_update(count, average):
    schedule = simulated(count, average=average)
    step = np.arange(count)
    assert schedule.num_workers == 1
    np.testing.assert_array_equal(schedule.update[:, 0], step)
    np.testing.assert_array_equal(schedule.started, step)
    np.testing.assert_array_equal(schedule.arrived[:, 0], step + 1)
    np.testing.assert_array_equal(schedule.applied[:, 0], step + 1)
    assert schedule.wall_clock() == count


@check
@given(RUNTIMES, st.data())
def test_the_clock_is_the_first_workers(runtimes, data):
    count = data.draw(st.none() | st.integers(1, len(runtimes)))
    schedule = protocols.simulated_staleness(runtimes, num_gradients=count, ramp_epochs=0)
    alone = protocols.synchronous(runtimes[:count, :1])
    for name in ("worker", "update", "started", "arrived", "applied"):
        np.testing.assert_array_equal(getattr(schedule, name), getattr(alone, name))
    # By default as late as the gradients of that many equal workers.
    expected = protocols.asynchronous(np.ones((len(schedule.worker), runtimes.shape[1])))
    rows = slice(runtimes.shape[1], len(schedule.worker))
    np.testing.assert_array_equal(schedule.staleness()[rows], expected.staleness()[rows])
