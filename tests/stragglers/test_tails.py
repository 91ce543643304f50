"""Single slow compute times have an owner, or none."""

import numpy as np
import pytest

from experiments.benchmarks.planted import trials
from sgdlab.stragglers.diagnosis import blame


def relative(seed: int = 0, steps: int = 500, workers: int = 12) -> np.ndarray:
    return 1 + 0.05 * np.random.default_rng(seed).standard_normal((steps, workers))


def test_limit_is_five_deviations_of_normal_noise():
    found = blame.find_outliers(relative(steps=5000), np.zeros((5000, 12), bool))
    np.testing.assert_allclose(found.limit, 1 + 5 * 0.05, atol=0.03)
    assert found.outlier.sum() == 0


def test_one_worker_owns_the_slow_steps():
    times = relative(1)
    hit = np.random.default_rng(1).random(500) < 0.03
    times[hit, 4] *= 2.5
    found = blame.find_outliers(times, np.zeros(times.shape, bool))
    assert found.owners.tolist() == [4]
    np.testing.assert_array_equal(np.flatnonzero(found.outlier.any(axis=1)), np.flatnonzero(hit))


@pytest.mark.parametrize(("count", "owners"), [(6, []), (7, [4])])
def test_an_owner_has_more_slow_steps_than_a_poisson_law_explains(count, owners):
    """With one expected, 6 or more have a probability of 6e-4, 7 or more of 8e-5; 0.002 / 12 is between."""
    times = relative(3)
    times[50 : 50 + 60 * count : 60, 4] = 2.5
    assert blame.find_outliers(times, np.zeros(times.shape, bool)).owners.tolist() == owners


def test_slow_steps_of_all_have_no_owner():
    named = 0
    for seed in range(60):
        generator, times = np.random.default_rng(seed), relative(seed)
        times[generator.random(times.shape) < generator.uniform(0.002, 0.05)] *= 2.5
        named += bool(blame.find_outliers(times, np.zeros(times.shape, bool)).owners.size)
    assert named == 0


def test_slow_stretches_are_left_out():
    times = relative(2)
    times[100:200, 3] *= 3.0
    slow = np.zeros(times.shape, bool)
    slow[100:200, 3] = True
    assert not blame.find_outliers(times, slow).outlier.any()


@pytest.mark.parametrize("draw", [0, 38, 85, 111, 118])
def test_a_worker_with_more_of_a_skewed_noise_owns_no_slow_steps(draw):
    trial = trials.Trial(trials.NOTHING, draw, seed=0, law="shifted exponential")
    times = trials.planted(trial).fleet.runtimes
    ratio = times / np.median(times, axis=1, keepdims=True)
    assert blame.find_outliers(ratio, np.zeros(times.shape, bool)).owners.size == 0
