"""Predictors that are fitted again follow a change, use the past alone, and are left out where it takes too long."""

import types

import numpy as np
import pytest

from sgdlab.predictors import run_online
from sgdlab.stragglers.comparison import measured, refit, tuning

STEPS, WORKERS = 60, 6


def changing(seed=0):
    """Worker 0 becomes four times slower at the beginning of the evaluation steps."""
    runtimes = np.random.default_rng(seed).gamma(100.0, 0.01, (2 * STEPS, WORKERS))
    runtimes[STEPS:, 0] *= 4.0
    return runtimes[:STEPS], runtimes[STEPS:]


def mean(train):
    return tuning.Tuned(tuning.predictors.RunningMean(5), "window 5", 5)


@pytest.mark.parametrize("tuned", [mean, tuning.kalman, tuning.fixed])
@pytest.mark.parametrize("changed", [13, 29, 30, 31, 59])
def test_earlier_cutoffs_do_not_depend_on_later_run_times(tuned, changed):
    train, test = changing()
    other = np.array(test)
    other[changed:] *= np.random.default_rng(1).uniform(0.2, 9.0, other[changed:].shape)
    found, again = (refit.cutoffs(train, runtimes, 15, tuned, seed=0) for runtimes in (test, other))
    np.testing.assert_array_equal(found[: changed + 1], again[: changed + 1])


def test_each_fit_is_of_the_steps_before_it():
    train, test = changing()
    seen = []

    def noting(before):
        seen.append(before)
        return mean(before)

    found = refit.cutoffs(train, test, 25, noting, seed=3)
    whole = np.concatenate([train, test])
    assert len(seen) == 3
    for first, before in zip((0, 25, 50), seen, strict=True):
        np.testing.assert_array_equal(before, whole[first : first + STEPS])
        expected = run_online(test[first : first + 25], mean(before).predictor, history=before[-20:], seed=3).cutoff
        np.testing.assert_array_equal(found[first : first + 25], expected)


def test_pauses_are_not_fitted():
    train, test = changing()
    test = np.array(test)
    test[10] += 50.0
    seen = []
    refit.cutoffs(train, test, 30, lambda before: seen.append(before) or mean(before), seed=0)
    assert [len(before) for before in seen] == [STEPS, STEPS - 1]


def test_the_fixed_number_follows_a_change():
    train, test = changing()
    found = refit.cutoffs(train, test, 10, tuning.fixed, seed=0)
    assert found[0] == WORKERS
    assert found[-1] == WORKERS - 1
    once = measured.interrupted(test, tuning.static(train)).gradients_per_second
    assert measured.interrupted(test, found).gradients_per_second > 1.5 * once


@pytest.mark.parametrize(("steps", "workers", "every", "left_out"), [(300, 16, 50, False), (5000, 1000, 50, True)])
def test_too_many_fits_are_left_out_with_a_number_that_works(steps, workers, every, left_out):
    part = np.broadcast_to(1.0, (steps, workers))
    parts = types.SimpleNamespace(train=part, test=part)
    why = refit.why_not(parts, every)
    assert bool(why) == left_out
    if left_out:
        least = int(why.split("--refit=")[1].split()[0])
        assert not refit.why_not(parts, least)
        assert refit.why_not(parts, least - every)
