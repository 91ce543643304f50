"""Predictors as parts of a configuration: each runs as it stands in the registry, and is what its class is."""

import numpy as np
import pytest

from sgdlab import predictors, protocols
from sgdlab.errors import UsageError
from sgdlab.predictors import kalman, run_online
from sgdlab.registry import PREDICTORS

RUNTIMES = np.random.default_rng(0).gamma(4.0, 0.5, (40, 6))
WINDOW = 12


@pytest.mark.parametrize(
    ("name", "entries", "same"),
    [
        ("running_mean", {}, predictors.RunningMean(window=5)),
        ("running_mean", {"window": 3}, predictors.RunningMean(window=3)),
        ("elfving", {"window": 7}, predictors.Elfving(window=7)),
        ("deadline", {"deviations": 1.0}, predictors.Deadline(deviations=1.0, window=5)),
        ("static", {"cutoff": 4}, predictors.Static(4)),
        ("oracle", {}, predictors.Oracle(RUNTIMES[WINDOW:])),
        ("kalman", {"samples": 32}, predictors.Kalman(kalman.fit(RUNTIMES[:WINDOW]), samples=32)),
    ],
)
@pytest.mark.parametrize("objective", predictors.OBJECTIVES)
def test_predicts_as_its_class_does(name, entries, same, objective):
    part = PREDICTORS.make(name, PREDICTORS[name].entries(**entries), runtimes=RUNTIMES)
    found, expected = (run_online(RUNTIMES, p, window=WINDOW, objective=objective, seed=2) for p in (part, same))
    np.testing.assert_array_equal(found.cutoff, expected.cutoff)
    np.testing.assert_array_equal(found.mean, expected.mean)


def test_what_there_is():
    assert list(PREDICTORS) == ["running_mean", "elfving", "deadline", "static", "kalman", "deep_markov", "oracle"]


@pytest.mark.parametrize(
    ("name", "entries", "message"),
    [
        ("static", {}, "cutoff=None must be a whole number from 1 to 6"),
        ("static", {"cutoff": 7}, "cutoff=7 must be a whole number from 1 to 6"),
        ("running_mean", {"window": 0}, "window=0 must be"),
        ("kalman", {"samples": 0}, "samples=0 must be"),
    ],
)
def test_impossible_entries_are_refused_by_flag_and_value(name, entries, message):
    with pytest.raises(UsageError, match=f"^--config.predictor.{name}.{message}"):
        PREDICTORS.make(name, entries, runtimes=RUNTIMES)


@pytest.mark.parametrize("window", [1, 5, 39, 60])
def test_the_oracle_of_a_whole_run_skips_the_window_by_itself(window):
    oracle = predictors.Oracle(RUNTIMES, whole=True)
    schedule, record = protocols.cutoff_with_record(RUNTIMES, predictor=oracle, window=window)
    best = [predictors.best_cutoff(np.sort(row)) for row in RUNTIMES]
    np.testing.assert_array_equal(record.cutoff, [6] * min(window, 40) + best[window:])
    np.testing.assert_array_equal(np.bincount(schedule.update[schedule.used()]), record.cutoff)
