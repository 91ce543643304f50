"""Gains agree with a loop over numbers of workers and over causes."""

import numpy as np
import pytest

from sgdlab.watch import gains


def test_they_are_rates_over_that_of_full_synchrony():
    runtimes = np.random.default_rng(0).gamma(4.0, 0.25, (80, 6))
    runtimes[:, 4] *= 3
    rates = [k / sum(sorted(row)[k - 1] for row in runtimes) for k in range(1, 7)]
    rest = np.delete(runtimes, 4, axis=1)
    both = np.delete(runtimes, [1, 4], axis=1)
    expected = {
        "": max(rates) / rates[-1],
        "worker 4": 5 / rest.max(axis=1).sum() / rates[-1],
        "worker 1": 5 / np.delete(runtimes, 1, axis=1).max(axis=1).sum() / rates[-1],
        "all that are slow": 4 / both.max(axis=1).sum() / rates[-1],
    }
    found = gains.find_gains(runtimes, {"worker 4": [4], "worker 1": [1]})
    assert {gain.without: gain.factor for gain in found} == pytest.approx(expected)
    assert [gain.factor for gain in found] == sorted((gain.factor for gain in found), reverse=True)
    backup = next(gain for gain in found if not gain.without)
    assert (backup.waits_for, backup.of, backup.steps) == (int(np.argmax(rates)) + 1, 6, 80)


def test_workers_that_are_gone_do_not_count():
    runtimes = np.ones((50, 4))
    runtimes[:, 3] = 2.0
    runtimes[:, 0] = np.nan
    runtimes[7, 1] = np.nan
    (backup,) = gains.find_gains(runtimes, {})
    assert (backup.waits_for, backup.of, backup.factor, backup.steps) == (2, 3, pytest.approx(2 / 1 / (3 / 2)), 49)


def test_too_few_steps_say_nothing():
    assert gains.find_gains(np.ones((gains.LEAST_STEPS - 1, 4)), {}) == []
    assert gains.find_gains(np.ones((100, 1)), {}) == []


def test_only_the_best_causes_are_named():
    runtimes = np.tile(np.arange(1.0, 21.0), (50, 1))
    found = gains.find_gains(runtimes, {f"worker {worker}": [worker] for worker in range(10, 20)})
    assert sum(gain.without.startswith("worker") for gain in found) == gains.MOST_CAUSES
    assert "worker 19" in {gain.without for gain in found}
