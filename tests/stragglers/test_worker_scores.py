"""The scores of the workers against a naive implementation that leaves out and repairs each worker in turn."""

import numpy as np
import pytest

from sgdlab.stragglers import repairs
from sgdlab.stragglers.what_if import scores

TIMES = np.random.default_rng(0).gamma(4.0, 0.25, (120, 6)) * np.array([1.0, 1.0, 1.5, 1.0, 0.8, 1.0])
TRANSFER = np.random.default_rng(1).gamma(2.0, 0.1, 120)


def naive_seconds(times):
    return sum(max(row) + transfer for row, transfer in zip(times.tolist(), TRANSFER, strict=True))


def test_repairing_and_leaving_out_against_the_replayed_trace():
    found = scores.score_workers(TIMES, TRANSFER)
    recorded = naive_seconds(TIMES)
    for worker in range(6):
        repaired = naive_seconds(repairs.AtMedian([worker])(TIMES))
        without = naive_seconds(np.delete(TIMES, worker, axis=1))
        assert found.waited[worker] == pytest.approx(recorded - repaired)
        assert found.repaired[worker] == pytest.approx(recorded / repaired)
        assert found.left_out[worker] == pytest.approx((5 / without) / (6 / recorded))


def test_slowdown_of_a_worker_is_that_of_a_trace_in_which_only_it_is_slow():
    found = scores.score_workers(TIMES, TRANSFER)
    ideal = naive_seconds(repairs.all_at_median(TIMES))
    for worker in range(6):
        others = np.minimum(TIMES, np.median(TIMES, axis=1, keepdims=True))
        others[:, worker] = TIMES[:, worker]
        assert found.slowdown[worker] == pytest.approx(naive_seconds(others) / ideal)


def test_against_the_fleet_and_last():
    times = np.array([[1.0, 2.0, 4.0], [1.0, 5.0, 4.0], [1.0, 2.0, 4.0], [1.0, 2.0, 8.0]])
    found = scores.score_workers(times)
    np.testing.assert_array_equal(found.against_fleet, [0.5, 1.0, 2.0])
    np.testing.assert_array_equal(found.last, [0.0, 0.25, 0.75])
    np.testing.assert_array_equal(found.order, [2, 1, 0])


def test_against_itself_is_its_last_window_over_its_best():
    times = np.ones((200, 3))  # windows of ten steps
    times[:, 1] = 2.0
    times[190:, 2] = 1.6
    np.testing.assert_allclose(scores.score_workers(times).against_itself, [1.0, 1.0, 1.6])


def test_a_worker_that_was_slow_and_is_so_no_longer_is_as_fast_as_its_best():
    times = np.ones((200, 2))
    times[:100, 0] = 3.0
    np.testing.assert_allclose(scores.score_workers(times).against_itself, 1.0)


def test_nobody_is_left_out_of_equal_workers():
    assert scores.drained(np.random.default_rng(3).gamma(400.0, 1 / 400, (100, 10))) == []
    assert scores.drained(np.ones((5, 2))) == []


@pytest.mark.parametrize(("workers", "slow", "factor"), [(64, 10, 1.8), (24, 11, 3.0), (4, 2, 3.0), (2, 1, 3.0)])
def test_as_many_are_left_out_as_are_slow(workers, slow, factor):
    times = np.random.default_rng(4).gamma(400.0, 1 / 400, (100, workers))
    chosen = np.random.default_rng(5).permutation(workers)[:slow]
    times[:, chosen] *= factor
    found = scores.drained(times)
    assert {worker for worker, _ in found} == set(chosen)
    rest = np.delete(times, chosen, axis=1).max(axis=1).sum()
    assert found[-1][1] == pytest.approx((workers - slow) / workers * times.max(axis=1).sum() / rest)


def test_who_gives_less_than_one_percent_more_is_not_left_out():
    times = np.ones((10, 100))
    times[:, 7], times[:, 8] = 2.0, 1.015  # without both 1.96 times, without the first alone 0.99 * 2 / 1.015
    assert scores.drained(times) == [(7, pytest.approx(0.99 * 2 / 1.015))]
