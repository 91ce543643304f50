"""Periods that were planted are found, whatever the steps, and none where there is none."""

import numpy as np
import pytest

from sgdlab.advice.what_if import periods


def noise(steps, columns, seed=0, spread=0.05):
    return np.random.default_rng(seed).normal(1.0, spread, (steps, columns))


@pytest.mark.parametrize(("every", "offset"), [(5, 1), (7, 0), (25, 13), (100, 99)])
def test_a_planted_period_is_found_in_its_column_alone(every, offset):
    times = noise(600, 4)
    times[offset::every, 2] += 0.4
    found = periods.find_periods(times, np.arange(600))
    assert [period is None for period in found] == [True, True, False, True]
    assert (found[2].every, found[2].offset) == (every, offset)
    np.testing.assert_array_equal(found[2].rows, np.arange(offset, 600, every))


def test_steps_with_gaps_are_counted_by_their_numbers():
    rng = np.random.default_rng(1)
    steps = np.sort(rng.choice(3000, 900, replace=False))
    times = noise(900, 1, seed=2)
    times[steps % 40 == 11] += 0.5
    (period,) = periods.find_periods(times, steps)
    assert (period.every, period.offset) == (40, 11)


def test_slow_from_a_step_on_is_no_period():
    times = noise(400, 3, seed=3)
    times[200:, 1] *= 1.6
    assert periods.find_periods(times, np.arange(400)) == [None] * 3


def test_noise_and_heavy_tails_have_no_period():
    rng = np.random.default_rng(4)
    found = 0
    for draw in range(40):
        times = rng.gamma(50.0, 0.02, (200, 8)) * np.where(rng.random((200, 8)) < 0.05 * (draw % 2), 3.0, 1.0)
        found += sum(period is not None for period in periods.find_periods(times, np.arange(200)))
    assert found == 0  # of 320 columns; each draw may find one with a probability of 1 %


def test_times_that_never_change_and_short_traces_have_no_period():
    assert periods.find_periods(np.ones((50, 2)), np.arange(50)) == [None, None]
    assert periods.find_periods(noise(7, 2), np.arange(7)) == [None, None]
