"""Alarms that are not over say what is so now, and who is to blame where many are slow or silent."""

import numpy as np
import pytest
from planted_traces import brief, noise, watched

from sgdlab.watch.alarms import ALL_SLOWER, CLEARED, NAMED, PAUSES, RAISED, SILENT, SLOW_NODE, SLOW_WORKER, WORSE
from sgdlab.watch.monitor import Monitor


@pytest.mark.parametrize("since", [0, 400])
def test_half_of_the_workers_are_slower_than_the_other_half_and_not_all(since):
    runtimes = noise(900, 8, 0)
    runtimes[since:, 4:] *= 1.6
    monitor, found = watched(runtimes, nodes=[f"n{worker // 4}" for worker in range(8)])
    assert brief(found) == [(RAISED, SLOW_NODE, "n1")]
    assert abs(found[0].since - since) <= 5
    assert found[0].factor == pytest.approx(1.6, rel=0.08)
    scores = monitor.scores().against_fleet
    np.testing.assert_allclose(scores, np.repeat([1.0, 1.6], 4), rtol=0.08)


def test_a_cluster_of_which_most_are_slower_is_slower():
    runtimes = noise(900, 8, 1)
    runtimes[400:, 1:] *= 1.6
    assert brief(watched(runtimes)[1])[0] == (RAISED, ALL_SLOWER, ())


@pytest.mark.parametrize("of_all", [False, True])
def test_what_becomes_slower_still_is_said_again_and_stands_as_it_is_now(of_all):
    runtimes = noise(1200, 16, 2)
    who = slice(None) if of_all else 5
    runtimes[300:, who] *= 1.3
    runtimes[700:, who] *= 2.0
    monitor, found = watched(runtimes)
    kind = (ALL_SLOWER, ()) if of_all else (SLOW_WORKER, ("5",))
    assert brief(found)[0] == (RAISED, *kind)
    assert {event for event, *_ in brief(found)[1:]} == {WORSE}
    assert 700 <= found[1].step <= 820
    assert found[1].since > 600
    assert len({alarm.identity for alarm in found}) == len(found)  # each has a line of its own in the file
    (standing,) = monitor.standing()
    assert (standing.event, standing.step) == (RAISED, 1199)
    assert abs(standing.since - 300) <= 5
    assert standing.factor == pytest.approx(2.6, rel=0.08)


def test_what_drifts_is_said_at_each_tenth():
    runtimes = noise(1500, 16, 3)
    runtimes[300:, 5] *= np.linspace(1.0, 2.5, 1200)
    monitor, found = watched(runtimes)
    assert [alarm.event for alarm in found] == [RAISED] + [WORSE] * (len(found) - 1)
    factors = [alarm.factor for alarm in found]
    assert len(factors) >= 4
    assert (np.diff(np.log(factors)) >= np.log(1.1)).all()
    assert monitor.standing()[0].factor > 2.2


def test_what_is_as_slow_as_before_is_said_once():
    for seed in range(5):
        runtimes = noise(4000, 16, seed, shape=4.0)
        runtimes[300:, 5] *= 1.5
        assert brief(watched(runtimes)[1]) == [(RAISED, SLOW_WORKER, ("5",))]


def test_most_workers_silent_is_one_alarm():
    runtimes = noise(1200, 8, 4)
    runtimes[300:800, 3:] = np.nan
    monitor, found = watched(runtimes)
    assert brief(found) == [(RAISED, SILENT, tuple("34567")), (CLEARED, SILENT, tuple("34567"))]
    assert [alarm.since for alarm in found] == [300, 800]
    assert found[0].sentence().startswith("step 399: 5 workers (3, 4, 5, 6, ...) have been silent since step 300")
    assert not monitor.open


def test_of_most_workers_silent_those_that_do_not_return_are_named():
    runtimes = noise(1200, 8, 5)
    runtimes[300:800, 3:] = np.nan
    runtimes[800:, 7] = np.nan
    monitor, found = watched(runtimes)
    assert brief(found)[1:] == [(CLEARED, SILENT, tuple("34567")), (RAISED, SILENT, ("7",))]
    assert [alarm.workers for alarm in monitor.standing()] == [("7",)]


def test_a_worker_that_has_not_come_yet_is_not_silent():
    runtimes = noise(900, 12, 6)
    runtimes[:300, 8:] = np.nan
    assert watched(runtimes)[1] == []
    runtimes[600:, 9] = np.nan
    assert brief(watched(runtimes)[1]) == [(RAISED, SILENT, ("9",))]


def test_pauses_of_several_steps_are_counted_and_named():
    runtimes = noise(1500, 16, 7)
    for begin in range(99, 1450, 100):
        runtimes[begin : begin + 5] *= 4
    monitor, found = watched(runtimes)
    assert brief(found) == [(RAISED, PAUSES, ()), (NAMED, PAUSES, ())]
    assert (monitor.pauses.count, monitor.pauses.period) == (14, 100)


def test_workers_may_grow_while_some_are_silent():
    runtimes = noise(600, 10, 8)
    runtimes[200:, 2] = np.nan
    monitor = Monitor([str(worker) for worker in range(8)])
    found = monitor.observe(np.arange(300), runtimes[:300, :8])
    monitor.grow([str(worker) for worker in range(10)])
    found += monitor.observe(np.arange(300, 600), runtimes[300:])
    assert brief(found) == [(RAISED, SILENT, ("2",))]
