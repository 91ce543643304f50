"""Measurements of one protocol equal those of its schedule, and bounds are bounds."""

import numpy as np
import pytest
from toy_traces import STEPS, WORKERS, toy

from sgdlab.advice.comparison import measured, sweeps
from sgdlab.protocols import fast_rounds


def test_interrupted_work_is_that_of_the_schedule():
    runtimes, generator = toy(), np.random.default_rng(0)
    chosen = generator.integers(1, WORKERS + 1, STEPS)
    found = measured.interrupted(runtimes, chosen)
    schedule = fast_rounds.rounds(runtimes, at_least=chosen, seconds=0.0, interrupt=True)
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
