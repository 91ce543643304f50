"""Measurements of one protocol equal those of its schedule, and bounds are bounds."""

import types

import numpy as np
import pytest
from toy_traces import STEPS, WORKERS, toy

from sgdlab import protocols
from sgdlab.protocols.rounds import rounds_in_arrays
from sgdlab.stragglers.comparison import measured, sweeps


def test_interrupted_work_is_that_of_the_schedule():
    runtimes, generator = toy(), np.random.default_rng(0)
    chosen = generator.integers(1, WORKERS + 1, STEPS)
    found = measured.interrupted(runtimes, chosen)
    schedule = rounds_in_arrays(runtimes, at_least=chosen, seconds=0.0, interrupt=True)
    assert found.gradients_per_second == pytest.approx(schedule.gradients_per_second())
    assert found.idle == pytest.approx(schedule.idle_share().mean())
    assert found.lost == pytest.approx(schedule.wasted_share().sum() / schedule.busy_share().sum())
    assert found.waited_for == pytest.approx(chosen.mean())
    assert found.iteration_seconds == pytest.approx(schedule.wall_clock() / STEPS)


def test_the_best_rate_is_never_below_the_papers():
    for seed in range(20):
        runtimes = np.random.default_rng(seed).lognormal(sigma=0.7, size=(15, 6))
        paper, rate = (
            measured.interrupted(runtimes, sweeps.oracle_cutoffs(runtimes, o)) for o in ("throughput", "rate")
        )
        assert rate.gradients_per_second >= paper.gradients_per_second


def test_intervals_cover_the_true_ratio_as_often_as_their_level_says():
    """Nearly nine times of ten: blocks of few iterations cover a little less."""
    covered = []
    for seed in range(200):
        runtimes = np.random.default_rng(seed).exponential(size=(60, 2)) + 0.5
        both, first = measured.interrupted(runtimes, 2), measured.interrupted(runtimes, 1)
        low, high = measured.Resamples(60, seed=seed, count=300).interval(first, both)
        covered.append(low <= (1 / 1.0) / (2 / 2.0) <= high)  # E[min] = 0.5 + 1/2, E[max] = 0.5 + 3/2
    assert 0.8 <= np.mean(covered) <= 0.95


def draws(seed):
    """Few compute times; those of odd seeds are whole numbers, so that many gradients arrive at one instant."""
    generator = np.random.default_rng(seed)
    runtimes = generator.exponential(size=(generator.integers(1, 25), generator.integers(1, 8))) + 0.1
    return np.ceil(2 * runtimes) if seed % 2 else runtimes


@pytest.mark.parametrize("seed", [*range(60), "wide"])
def test_finishing_is_the_schedule_of_backup_workers(seed):
    # NumPy sorts short rows wholly, and so well enough, where it is asked for less.
    wide = seed == "wide"
    runtimes = np.random.default_rng(0).exponential(size=(8, 300)) + 0.1 if wide else draws(seed)
    numbers = (0, 7, 150, 299) if wide else range(runtimes.shape[1])
    for backups, found in measured.finishing(runtimes, numbers).items():
        schedule = protocols.backup_workers(runtimes, backups=backups)
        np.testing.assert_allclose(np.cumsum(found.seconds), schedule.applied[:, 0])
        assert found.gradients_per_second == pytest.approx(schedule.gradients_per_second())
        assert found.updates_per_second == pytest.approx(schedule.updates_per_second())
        assert found.idle == pytest.approx(schedule.idle_share().mean(), abs=1e-12)
        lost = schedule.wasted_share().sum() / schedule.busy_share().sum()
        assert found.lost == pytest.approx(lost, abs=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_one_sort_measures_every_cutoff(seed):
    runtimes = draws(seed)
    for cutoff, found in measured.every_cutoff(runtimes).items():
        expected = measured.interrupted(runtimes, cutoff)
        np.testing.assert_array_equal(found.seconds, expected.seconds)
        np.testing.assert_array_equal(found.gradients, expected.gradients)
        for name in ("lost", "idle", "updates_per_second", "gradients_per_second"):
            assert getattr(found, name) == pytest.approx(getattr(expected, name), abs=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_asynchrony_is_as_stale_as_its_schedule(seed):
    runtimes = draws(seed)
    found, schedule = measured.asynchronous(runtimes), protocols.asynchronous(runtimes)
    assert found.staleness == schedule.staleness().mean()
    assert found.largest_staleness == schedule.staleness().max()
    assert found.lost == schedule.wasted_share().sum() == 0


def test_of_many_workers_few_numbers_find_the_best(monkeypatch):
    runtimes = np.random.default_rng(0).lognormal(sigma=0.3, size=(60, 90))
    runtimes[30:, 60:] *= 4.0
    parts = types.SimpleNamespace(train=runtimes[:30], test=runtimes[30:])
    whole = sweeps.finishing(parts)
    assert sorted(whole.test) == list(range(90))
    monkeypatch.setattr(sweeps, "MOST_SIMULATED", 89)
    few = sweeps.finishing(parts)
    assert len(few.test) < 50
    assert {0, 1, 2, 89} < set(few.test)
    assert few.test.keys() == few.train.keys()
    for part, best in (("train", whole.tuned), ("test", whole.best)):
        found, every = getattr(few, part), getattr(whole, part)
        for b, result in found.items():
            np.testing.assert_array_equal(result.seconds, every[b].seconds)
        most = max(result.gradients_per_second for result in found.values())
        assert most >= 0.998 * every[best].gradients_per_second


def test_rates_of_many_at_once_are_those_of_each():
    runtimes = np.random.default_rng(0).exponential(size=(40, 7)) + 0.5
    results = [*measured.every_cutoff(runtimes).values(), measured.asynchronous(runtimes)]
    results.append(measured.interrupted(runtimes, np.arange(40) % 7 + 1))
    together, alone = (measured.Resamples(40, seed=1, count=50) for _ in range(2))
    together.prepare(results)
    for one in results:
        gradients, seconds = (alone.weights @ np.array(values) for values in (one.gradients, one.seconds))
        expected = (gradients / seconds).sum(axis=1)
        np.testing.assert_allclose(together.rates(one), expected, rtol=1e-12)
        np.testing.assert_allclose(alone.rates(one), expected, rtol=1e-12)
        assert together.rates(one) is together.rates(one)
