"""A guarded predictor does not learn from pauses, but from what lasts."""

import dataclasses

import numpy as np
import pytest

from sgdlab import predictors
from sgdlab.predictors import Guarded, RunningMean, guarded, run_online


@dataclasses.dataclass
class Diary:
    """A predictor that notes what it observes; it waits for a fixed number of workers."""

    cutoff: int
    title: str = "diary"

    def start(self, window, *, seed):
        del seed
        return tuple(map(tuple, window))

    def predict(self, state, *, rate=None):
        del state, rate
        return predictors.Prediction(self.cutoff, np.full(4, np.nan), np.full(4, np.nan))

    def observe(self, state, runtimes, cut_at):
        return (*state, (*runtimes[~np.isnan(runtimes)], cut_at))


def steps(count, seed=0):
    return 1 + 0.1 * np.random.default_rng(seed).random((count, 4))


def learned(rows, predictor):
    state = predictor.start(steps(20), seed=0)
    for row in rows:
        cut_at = np.sort(row)[predictor.predict(state).cutoff - 1]
        state = predictor.observe(state, np.where(row <= cut_at, row, np.nan), cut_at)
    return state


@pytest.mark.parametrize("cutoff", [1, 3, 4])
def test_all_but_pauses_is_learned(cutoff):
    rows = steps(9, seed=1)
    rows[[2, 5, 6]] += 6.0
    plain = learned(np.delete(rows, [2, 5, 6], axis=0), Diary(cutoff))
    assert learned(rows, Guarded(Diary(cutoff))).inner == plain


@pytest.mark.parametrize("cutoff", [1, 4])
@pytest.mark.parametrize("lasting", [1, 3])
def test_what_lasts_is_learned_from_its_beginning(cutoff, lasting):
    rows = steps(12, seed=1)
    rows[4:] *= 5.0
    assert learned(rows, Guarded(Diary(cutoff), lasting=lasting)).inner == learned(rows, Diary(cutoff))
    # One step earlier nothing of it has been learned.
    some = learned(rows[: 4 + lasting], Guarded(Diary(cutoff), lasting=lasting)).inner
    assert some == learned(rows[:4], Diary(cutoff))


def test_one_fast_worker_means_that_a_step_is_no_pause():
    rows = steps(5, seed=1)
    rows[2, 1:] += 6.0
    assert learned(rows, Guarded(Diary(4))).inner == learned(rows, Diary(4))
    rows[3] *= np.where(np.arange(4) == 2, 1.99, 9.0)
    assert learned(rows, Guarded(Diary(4))).inner == learned(rows, Diary(4))


def test_a_pause_in_the_first_window_counts_as_the_step_before_it():
    window = steps(20)
    paused = np.array(window)
    paused[[0, 7, 8]] += 6.0
    expected = window[[1, *range(1, 7), 6, 6, *range(9, 20)]]
    assert Guarded(Diary(4)).start(paused, seed=0).inner == tuple(map(tuple, expected))


def test_slow_drift_is_no_pause():
    """Ten times slower in the end, by 2 % a step: the usual compute times follow."""
    rows = steps(120) * 1.02 ** np.arange(120)[:, None]
    assert learned(rows, Guarded(Diary(4))).inner == learned(rows, Diary(4))


def test_without_pauses_a_guarded_predictor_is_the_predictor():
    runtimes = np.random.default_rng(0).gamma(8.0, 0.1, (200, 6))
    found, expected = (run_online(runtimes, p, seed=3) for p in (Guarded(RunningMean(5)), RunningMean(5)))
    np.testing.assert_array_equal(found.cutoff, expected.cutoff)
    np.testing.assert_array_equal(found.mean, expected.mean)


@pytest.mark.parametrize(("pauses", "calm"), [([3], 9), ([3, 4, 5], 7), ([3, 4, 5, 6], 10), ([0, 9], 8)])
def test_calm_steps_are_those_without_short_pauses(pauses, calm):
    rows = steps(10)
    rows[pauses] += 6.0
    found = guarded.calm(rows)
    assert found.sum() == calm
    assert calm == 10 or not found[pauses].any()


@pytest.mark.parametrize(("entry", "value"), [("factor", 1.0), ("lasting", 0)])
def test_impossible_settings_are_refused(entry, value):
    with pytest.raises(ValueError, match=f"^{entry}={value}"):
        Guarded(RunningMean(), **{entry: value})
