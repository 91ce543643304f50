"""Each repair by hand; and what holds for all: no time becomes longer, and the array that was given stays as it was."""

import numpy as np
import pytest

from sgdlab.stragglers import repairs
from sgdlab.stragglers.diagnosis.pauses import Pauses
from sgdlab.stragglers.what_if import candidates
from sgdlab.stragglers.what_if.candidates import Times
from sgdlab.traces.recording import Recording

RUNTIMES = np.array([[1.0, 2.0, 6.0, 3.0], [2.0, 1.0, 0.5, 4.0], [9.0, 8.0, 8.0, 7.0]])


def test_a_step_takes_as_long_as_its_slowest_worker_and_the_transfer():
    np.testing.assert_array_equal(repairs.synchronous_seconds(RUNTIMES), [6.0, 4.0, 9.0])
    np.testing.assert_array_equal(repairs.synchronous_seconds(RUNTIMES, np.array([1.0, 0.0, 2.0])), [7.0, 4.0, 11.0])


def test_a_worker_takes_the_median_of_the_others_where_it_was_slower():
    repaired = repairs.AtMedian([2])(RUNTIMES)
    # The others of the steps are 1, 2, 3 then 2, 1, 4 then 9, 8, 7; in the second step the worker was faster.
    np.testing.assert_array_equal(repaired[:, 2], [2.0, 0.5, 8.0])
    np.testing.assert_array_equal(np.delete(repaired, 2, axis=1), np.delete(RUNTIMES, 2, axis=1))


def test_workers_are_repaired_together_by_the_median_of_those_that_are_left():
    np.testing.assert_array_equal(repairs.AtMedian([2, 3])(RUNTIMES)[0], [1.0, 2.0, 1.5, 1.5])


@pytest.mark.parametrize("rows", [slice(1, None), np.array([1, 2]), np.array([False, True, True])])
def test_a_worker_is_repaired_in_some_steps_only(rows):
    repaired = repairs.AtMedian([2], rows)(RUNTIMES)
    np.testing.assert_array_equal(repaired[:, 2], [6.0, 0.5, 8.0])


def test_somebody_must_be_left_to_take_the_median_of():
    with pytest.raises(ValueError, match=r"workers=\[0, 1, 2, 3\]"):
        repairs.AtMedian([3, 0, 1, 2])(RUNTIMES)


def paused(rows, extra, usual):
    return Pauses(np.array(rows), np.array(extra), usual, None, np.array([4] * len(rows)), 4)


def test_some_of_the_pauses_take_their_seconds_alone():
    pauses = paused([0, 2], [3.0, 6.5], 2.0)
    repaired = pauses.removed(RUNTIMES, np.array([False, True]))
    np.testing.assert_array_equal(repaired, [RUNTIMES[0], RUNTIMES[1], [2.5, 2.0, 2.0, 2.0]])


def test_a_pause_takes_its_seconds_from_all_but_makes_nobody_faster_than_usual():
    repaired = paused([2], [6.5], 2.0).removed(RUNTIMES)
    np.testing.assert_array_equal(repaired, [RUNTIMES[0], RUNTIMES[1], [2.5, 2.0, 2.0, 2.0]])


def test_a_worker_that_did_not_pause_stays_as_fast_as_it_was():
    repaired = paused([0], [6.0], 1.0).removed(np.array([[7.0, 0.5]]))
    np.testing.assert_array_equal(repaired, [[1.0, 0.5]])


def test_single_steps_of_a_worker_take_its_own_median():
    repaired = repairs.rows_at_own_median(RUNTIMES, [(0, np.array([2])), (2, np.array([0]))])
    expected = RUNTIMES.copy()
    expected[2, 0], expected[0, 2] = 1.5, 4.25  # of 1, 2; of 0.5, 8
    np.testing.assert_array_equal(repaired, expected)


def test_a_cluster_as_fast_as_before():
    ramp = repairs.faster(RUNTIMES, np.array([[1.0], [1.0], [2.0]]))
    np.testing.assert_array_equal(ramp, [RUNTIMES[0], RUNTIMES[1], RUNTIMES[2] / 2])
    with pytest.raises(ValueError, match=r"factor=0\.5"):
        repairs.faster(RUNTIMES, 0.5)


def test_nobody_takes_longer_than_the_median_of_the_step():
    np.testing.assert_array_equal(repairs.all_at_median(RUNTIMES).max(axis=1), np.median(RUNTIMES, axis=1))


def test_a_phase_takes_its_median_over_all_and_what_earlier_repairs_left_of_it():
    phase = np.array([[0.5, 1.0, 5.0, 1.0], [1.0, 0.5, 0.25, 1.0], [1.0, 3.0, 1.0, 1.0]])  # median 1
    expected = RUNTIMES.copy()
    expected[0, 2], expected[2, 1] = 2.0, 6.0
    phases = {"data": phase, "rest": RUNTIMES - phase}
    repair = candidates.of_phases(Recording(RUNTIMES, np.arange(3), tuple("abcd"), phases=phases))["data"]
    transfer = np.zeros(3)
    np.testing.assert_array_equal(repair.apply(Times(RUNTIMES, transfer)).seconds, expected)
    np.testing.assert_array_equal(repair.apply(Times(RUNTIMES / 2, transfer, 0.5)).seconds, expected / 2)


@pytest.mark.parametrize(
    "repair",
    [
        repairs.AtMedian([0, 5]),
        paused([3, 4], [0.5, 9.0], 1.0).removed,
        lambda x: repairs.rows_at_own_median(x, [(slice(None), np.array([3, 9]))]),
        lambda x: repairs.faster(x, 1.5),
        repairs.all_at_median,
    ],
)
def test_no_repair_makes_a_time_longer_or_changes_what_was_given(repair):
    given = np.random.default_rng(0).gamma(2.0, 0.5, (40, 7))
    copy = given.copy()
    repaired = repair(given)
    assert (repaired <= given).all()
    assert (repaired < given).any()
    assert (repaired >= 0).all()
    np.testing.assert_array_equal(given, copy)
