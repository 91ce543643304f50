"""Scores agree with numpy's, and gains with rates that are computed one by one."""

import numpy as np
import pytest

from sgdlab import arrays
from sgdlab.stragglers.follow import follower
from sgdlab.stragglers.follow.recent import BLOCK, STEPS, WINDOW, Recent


def filled(runtimes, paused=()):
    recent = Recent(runtimes.shape[1])
    slow = np.isin(np.arange(len(runtimes)), paused)
    for begin in range(0, len(runtimes), BLOCK):
        part = runtimes[begin : begin + BLOCK].astype(np.float32)
        recent.add(np.arange(begin, begin + BLOCK), part, arrays.known_medians(part), slow[begin : begin + BLOCK])
    return recent


def test_scores_are_ratios_of_medians():
    runtimes = np.random.default_rng(0).gamma(20.0, 0.05, (1230, 5))
    runtimes[1000:, 2] *= 2
    scores = filled(runtimes).scores()
    recent = np.median(runtimes[-WINDOW:], axis=0)
    np.testing.assert_allclose(scores.seconds, recent, rtol=1e-5)
    np.testing.assert_allclose(scores.against_fleet, recent / np.median(recent), rtol=1e-5)
    windows = [runtimes[:WINDOW], runtimes[400:500], runtimes[900:1000]]
    best = np.min([recent, *(np.median(window, axis=0) for window in windows)], axis=0)
    np.testing.assert_allclose(scores.against_itself, recent / best, rtol=1e-5)


def test_steps_that_were_slow_for_all_do_not_count():
    runtimes = np.ones((200, 3))
    runtimes[150:152] = 9.0
    recent = filled(runtimes, paused=[150, 151])
    numbers, _, medians = recent.rows()
    assert {150, 151}.isdisjoint(numbers.tolist())
    assert medians.max() == 1.0
    assert recent.rows(pauses=True)[0].tolist() == list(range(200))


def test_the_chance_that_workers_are_slow_together_is_poissons():
    runtimes = np.ones((100, 3))
    runtimes[:, 2] = np.nan  # a worker that is not there
    runtimes[[3, 14, 15, 92], 0] = runtimes[[65, 35, 14, 89], 1] = 5.0  # together in step 14
    mean = 100 * (9 / 202) ** 2
    expected = 1 - np.exp(-mean) * (1 + mean)
    assert filled(runtimes).chance(4.0, 2) == pytest.approx(expected)
    assert filled(runtimes, paused=[14]).chance(4.0, 2) == pytest.approx(1 - np.exp(-99 * (7 / 200) ** 2))


def test_only_the_last_steps_are_kept():
    recent = filled(np.arange(1.0, 1231.0)[:, None])
    numbers, runtimes, _ = recent.rows()
    assert numbers.tolist() == list(range(1230 - STEPS, 1230))
    assert runtimes[:, 0].tolist() == (numbers + 1).tolist()


def test_a_worker_without_run_times_has_no_score():
    runtimes = np.ones((300, 3))
    runtimes[:, 1] = np.nan
    scores = filled(runtimes).scores()
    assert np.isnan(scores.against_fleet[1])
    assert np.isnan(scores.against_itself[1])
    assert scores.against_fleet[0] == 1.0


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
    found = follower.find_gains(runtimes, {"worker 4": [4], "worker 1": [1]})
    assert {gain.without: gain.factor for gain in found} == pytest.approx(expected)
    assert [gain.factor for gain in found] == sorted((gain.factor for gain in found), reverse=True)
    backup = next(gain for gain in found if not gain.without)
    assert (backup.waits_for, backup.of, backup.steps) == (int(np.argmax(rates)) + 1, 6, 80)


def test_workers_that_are_gone_do_not_count():
    runtimes = np.ones((50, 4))
    runtimes[:, 3] = 2.0
    runtimes[:, 0] = np.nan
    runtimes[7, 1] = np.nan
    (backup,) = follower.find_gains(runtimes, {})
    assert (backup.waits_for, backup.of, backup.factor, backup.steps) == (2, 3, pytest.approx(2 / 1 / (3 / 2)), 49)


def test_too_few_steps_say_nothing():
    assert follower.find_gains(np.ones((follower.LEAST_STEPS - 1, 4)), {}) == []
    assert follower.find_gains(np.ones((100, 1)), {}) == []


def test_only_the_best_causes_are_named():
    runtimes = np.tile(np.arange(1.0, 21.0), (50, 1))
    found = follower.find_gains(runtimes, {f"worker {worker}": [worker] for worker in range(10, 20)})
    assert sum(gain.without.startswith("worker") for gain in found) == follower.MOST_CAUSES
    assert "worker 19" in {gain.without for gain in found}
