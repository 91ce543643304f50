"""Steps that pause all workers or many are found with their length and period, and slow workers are no pauses."""

import math

import numpy as np
import pytest
from toy_traces import noise, recording_of

from experiments.benchmarks.planted import trials
from sgdlab.stragglers.diagnosis import pauses, periods


def test_checkpoints_every_hundredth_step():
    times = noise(600, 16)
    times[300:, 5] *= 1.6
    times[100::100] += 6.0
    found = pauses.find_pauses(recording_of(times))
    assert found.rows.tolist() == [100, 200, 300, 400, 500]
    assert found.period == (100, 0)
    assert found.workers.tolist() == [16] * 5
    np.testing.assert_allclose(found.extra, 6.0, atol=0.1)
    assert found.usual == pytest.approx(1.0, abs=0.01)
    assert found.among(600).sum() == 5


def test_period_counts_recorded_steps_by_their_numbers():
    steps = np.arange(1000)[np.random.default_rng(2).random(1000) < 0.5]
    times = noise(steps.size, 8)
    times[steps % 50 == 7] += 2.0
    found = pauses.find_pauses(recording_of(times, steps))
    assert found.period == (50, 7)
    assert np.array_equal(steps[found.rows], steps[steps % 50 == 7])


def test_pauses_without_a_period():
    times = noise(300, 8)
    rows = [3, 50, 51, 200]
    times[rows] += 1.5
    found = pauses.find_pauses(recording_of(times))
    assert found.rows.tolist() == rows
    assert found.period is None


def test_pauses_of_a_part_of_the_workers():
    times = noise(400, 16)
    generator = np.random.default_rng(3)
    for row in (40, 120, 300):
        times[row, generator.choice(16, 6, replace=False)] += 3.0
    found = pauses.find_pauses(recording_of(times))
    assert found.rows.tolist() == [40, 120, 300]
    assert found.workers.tolist() == [6, 6, 6]
    np.testing.assert_allclose(found.extra, 3.0, atol=0.2)


@pytest.mark.parametrize("case", ["clean", "same few workers", "half slow", "long", "tail", "drift", "coarse clock"])
def test_what_is_not_a_pause(case):
    times = noise(400, 16)
    if case == "same few workers":  # a slow node, not a pause
        times[20::40, 4:8] *= 2.5
    elif case == "half slow":
        times[200:, ::2] *= 1.7
    elif case == "long":
        times[100:130] *= 3.0
    elif case == "tail":
        times[np.random.default_rng(4).random(times.shape) < 0.03] *= 3.0
    elif case == "drift":
        times *= np.linspace(1.0, 4.0, 400)[:, None]
    elif case == "coarse clock":
        times = np.maximum(np.round(times, 1), 0.1)
    assert pauses.find_pauses(recording_of(times)).rows.size == 0


@pytest.mark.parametrize("draw", [6, 8, 59])
def test_a_slow_half_of_the_workers_does_not_pause(draw):
    # The usual of a step is the median, between both halves: the slow one is about 1.5 times as slow as that.
    plant = trials.planted(trials.Trial("half of the workers since a step", draw, seed=3))
    assert pauses.find_pauses(recording_of(plant.fleet.runtimes)).rows.size == 0


def test_unlikely_is_the_first_count_that_chance_hardly_reaches():
    for workers, rate, level in [(4, 0.05, 1e-5), (16, 0.2, 1e-4), (64, 0.02, 1e-6), (3, 0.9, 1e-3)]:
        tails = [
            sum(math.comb(workers, k) * rate**k * (1 - rate) ** (workers - k) for k in range(count, workers + 1))
            for count in range(workers + 2)
        ]
        expected = next(count for count in range(workers + 2) if tails[count] <= level)
        assert pauses._unlikely(workers, rate, level) == expected


def test_the_usual_of_a_row_is_the_median_of_the_window():
    series = np.random.default_rng(5).random(120)
    result = periods.around(series)
    for i in range(120):
        first = min(max(i - 25, 0), 120 - 51)
        assert result[i] == np.median(series[first : first + 51])


@pytest.mark.parametrize(
    ("every", "factor"), [(2, 1.3), (3, 1.5), (4, 1.3), (5, 1.5), (10, 1.45), (20, 1.5), (100, 1.35)]
)
def test_mild_pauses_are_all_found_with_their_period(every, factor):
    times = noise(600, 16) * np.exp(0.03 * np.random.default_rng(7).standard_normal((600, 16)))
    times[every - 1 :: every] *= factor
    found = pauses.find_pauses(recording_of(times))
    assert found.rows.tolist() == list(range(every - 1, 600, every))
    assert found.period == (every, every - 1)
    assert np.median(found.workers) >= 15
    assert np.median(found.extra) == pytest.approx(factor - 1, abs=0.03)


def test_a_pause_that_is_once_left_out_is_not_claimed():
    times = noise(600, 16)
    rows = [row for row in range(9, 600, 20) if row != 209]
    times[rows] *= 1.3
    found = pauses.find_pauses(recording_of(times))
    assert found.rows.tolist() == rows
    assert found.period.every == 20


def normal(steps, columns, seed=0, spread=0.05):
    return np.random.default_rng(seed).normal(1.0, spread, (steps, columns))


@pytest.mark.parametrize(("every", "offset"), [(5, 1), (7, 0), (25, 13), (100, 99)])
def test_a_planted_period_is_found_in_its_column_alone(every, offset):
    times = normal(600, 4)
    times[offset::every, 2] += 0.4
    found = periods.of_workers(times, np.arange(600))
    assert [period is None for period in found] == [True, True, False, True]
    assert (found[2].every, found[2].offset) == (every, offset)
    np.testing.assert_array_equal(found[2].rows(np.arange(600)), np.arange(offset, 600, every))


def test_steps_with_gaps_are_counted_by_their_numbers():
    rng = np.random.default_rng(1)
    steps = np.sort(rng.choice(3000, 900, replace=False))
    times = normal(900, 1, seed=2)
    times[steps % 40 == 11] += 0.5
    (period,) = periods.of_workers(times, steps)
    assert (period.every, period.offset) == (40, 11)


def test_slow_from_a_step_on_is_no_period():
    times = normal(400, 3, seed=3)
    times[200:, 1] *= 1.6
    assert periods.of_workers(times, np.arange(400)) == [None] * 3


def test_noise_and_heavy_tails_have_no_period():
    rng = np.random.default_rng(4)
    found = 0
    for draw in range(40):
        times = rng.gamma(50.0, 0.02, (200, 8)) * np.where(rng.random((200, 8)) < 0.05 * (draw % 2), 3.0, 1.0)
        found += sum(period is not None for period in periods.of_workers(times, np.arange(200)))
    assert found == 0  # of 320 columns; each draw may find one with a probability of 1 %


def test_times_that_never_change_and_short_traces_have_no_period():
    assert periods.of_workers(np.ones((50, 2)), np.arange(50)) == [None, None]
    assert periods.of_workers(normal(7, 2), np.arange(7)) == [None, None]
