"""Planted causes are found, named once, and their end too; where there is nothing, nothing is found."""

import pickle

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from planted_traces import brief, names, noise, watched

from sgdlab.stragglers.diagnosis.causes import ALL_SLOWER, PAUSES, SILENT, SLOW_NODE, SLOW_WORKER
from sgdlab.stragglers.follow.alarms import CLEARED, NAMED, RAISED, WORSE
from sgdlab.stragglers.follow.monitor import Monitor
from sgdlab.stragglers.follow.recent import BLOCK


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("factor", [1.2, 1.6, 3.0])
def test_a_worker_that_becomes_slow_is_named_with_since_and_factor(seed, factor):
    runtimes = noise(1000, 16, seed)
    runtimes[407:, 5] *= factor
    _, found = watched(runtimes)
    assert brief(found) == [(RAISED, SLOW_WORKER, ("5",))]
    assert abs(found[0].since - 407) <= (20 if factor < 1.5 else 3)
    # Delay: the chart adds (log f - allowance) / sigma a block, and sigma of ten steps is sqrt(1/50/10).
    sigma = np.sqrt(1 / 50 / 10)
    blocks = 16 / min((np.log(factor) - max(np.log(1.1), sigma / 2)) / sigma, 8)
    assert found[0].step - 407 <= BLOCK * (2 * blocks + 2)
    assert found[0].factor == pytest.approx(factor, rel=0.12)
    assert found[0].against_fleet == pytest.approx(factor, rel=0.12)
    assert found[0].against_itself == pytest.approx(factor, rel=0.15)


@pytest.mark.parametrize("workers", [2, 3, 4, 8])
def test_of_few_workers_one_that_is_far_slower_is_named_before_the_noise_is_well_known(workers):
    for seed in range(3):
        runtimes = 0.25 * np.exp(0.05 * np.random.default_rng(seed).standard_normal((140, workers)))
        assert watched(runtimes)[1] == []
        runtimes[20:, 1] *= 2.5
        monitor, found = watched(runtimes)
        assert brief(found) == [(RAISED, SLOW_WORKER, ("1",))]
        assert found[0].since == 20
        assert found[0].step <= 90 < monitor.needed or workers == 8


def test_it_is_over_once():
    runtimes = noise(1500, 16, 0)
    runtimes[403:811, 5] *= 1.5
    monitor, found = watched(runtimes)
    assert brief(found) == [(RAISED, SLOW_WORKER, ("5",)), (CLEARED, SLOW_WORKER, ("5",))]
    assert abs(found[1].since - 811) <= 3
    assert not monitor.naming.open


def test_a_worker_that_is_slow_from_the_beginning_is_slow_against_the_fleet():
    runtimes = noise(600, 16, 1)
    runtimes[:, 3] *= 1.3
    _, found = watched(runtimes, first=70)
    assert brief(found) == [(RAISED, SLOW_WORKER, ("3",))]
    assert found[0].since == 70
    assert found[0].against_itself in (None, pytest.approx(1.0, abs=0.1))  # None: its own best is not known so soon


def test_a_fast_worker_that_becomes_average_is_slow_against_itself():
    runtimes = noise(1500, 16, 2)
    runtimes[:700, 3] *= 0.7
    _, found = watched(runtimes)
    assert brief(found) == [(RAISED, SLOW_WORKER, ("3",))]
    assert abs(found[0].since - 700) <= 10
    assert found[0].against_fleet == pytest.approx(1.0, abs=0.1)
    assert found[0].against_itself == pytest.approx(1 / 0.7, rel=0.15)


def test_workers_of_a_slow_node_are_one_cause():
    runtimes = noise(1500, 32, 3)
    runtimes[500:900, 8:12] *= 1.4
    _, found = watched(runtimes, nodes=[f"n{worker // 4}" for worker in range(32)])
    assert brief(found) == [(RAISED, SLOW_NODE, "n2"), (CLEARED, SLOW_NODE, "n2")]
    assert found[0].workers == ("8", "9", "10", "11")
    assert abs(found[0].since - 500) <= 5
    assert abs(found[1].since - 900) <= 5


def test_one_slow_worker_of_a_node_is_itself_the_cause():
    runtimes = noise(800, 32, 4)
    runtimes[500:, 9] *= 1.5
    _, found = watched(runtimes, nodes=[f"n{worker // 4}" for worker in range(32)])
    assert brief(found) == [(RAISED, SLOW_WORKER, "n2")]
    assert found[0].workers == ("9",)


def test_a_slower_cluster_is_no_workers_fault():
    runtimes = noise(1500, 16, 5)
    runtimes[600:1000] *= 1.3
    _, found = watched(runtimes)
    assert brief(found) == [(RAISED, ALL_SLOWER, ()), (CLEARED, ALL_SLOWER, ())]
    assert abs(found[0].since - 600) <= 3
    assert abs(found[1].since - 1000) <= 3
    assert found[0].factor == pytest.approx(1.3, rel=0.05)


def test_pauses_are_counted_and_their_period_is_named_once():
    runtimes = noise(2000, 16, 6)
    runtimes[100::100] += 6.0
    monitor, found = watched(runtimes)
    assert brief(found) == [(RAISED, PAUSES, ()), (NAMED, PAUSES, ())]
    assert (found[0].since, found[1].period) == (100, 100)
    assert (monitor.pauses.count, monitor.pauses.period) == (19, 100)


def test_some_slow_workers_are_no_pause_of_all():
    runtimes = noise(2000, 5, 12)
    runtimes[100::100, :3] += 6.0  # the median is slow
    monitor, found = watched(runtimes)
    assert brief(found) == []
    assert monitor.pauses.count == 0


@pytest.mark.parametrize("factor", [2.5, 10.0])
@pytest.mark.parametrize("workers", [2, 3])
def test_few_workers_that_are_slow_together_by_chance_are_no_pause(workers, factor):
    for seed in range(3):
        generator = np.random.default_rng(seed)
        runtimes = generator.gamma(400, 1 / 400, (1000, workers))
        runtimes *= np.where(generator.random(runtimes.shape) < 0.05, factor, 1.0)
        monitor, _ = watched(runtimes)
        assert monitor.pauses.count == 0
        if workers > 2:  # two are slow together in every 400th step by chance
            _, found = watched(runtimes + 4.0 * (np.arange(1000) % 100 == 99)[:, None])
            assert 100 in [alarm.period for alarm in found]


def test_a_silent_worker_is_named_and_returns():
    runtimes = noise(1000, 8, 7)
    runtimes[333:600, 2] = np.nan
    _, found = watched(runtimes)
    assert brief(found) == [(RAISED, SILENT, ("2",)), (CLEARED, SILENT, ("2",))]
    assert [alarm.since for alarm in found] == [333, 600]


def test_a_slow_worker_that_is_silent_is_slow_no_more_and_found_anew_when_it_comes_again():
    runtimes = noise(1000, 8, 7)
    runtimes[100:, 2] *= 1.6
    runtimes[300:600, 2] = np.nan
    monitor, found = watched(runtimes[:600])
    assert brief(found) == [(RAISED, SLOW_WORKER, ("2",)), (CLEARED, SLOW_WORKER, ("2",)), (RAISED, SILENT, ("2",))]
    assert found[1].sentence() == "step 329: worker 2 is slow no more since step 300 (nothing was recorded since)"
    assert [alarm.kind for alarm in monitor.standing()] == [SILENT]
    _, again = watched(runtimes)
    assert brief(again)[3:] == [(CLEARED, SILENT, ("2",)), (RAISED, SLOW_WORKER, ("2",))]
    assert abs(again[4].since - 600) <= 3


def test_a_slow_node_that_is_silent_is_slow_no_more():
    runtimes = noise(900, 16, 3)
    runtimes[100:, 4:8] *= 1.6
    runtimes[400:, 4:8] = np.nan
    monitor, found = watched(runtimes, nodes=[f"n{worker // 4}" for worker in range(16)])
    ended = [alarm for alarm in found if alarm.event == CLEARED]
    assert brief(ended) == [(CLEARED, SLOW_NODE, "n1")]
    assert "slow no more since step 400" in ended[0].sentence()
    assert {alarm.kind for alarm in monitor.standing()} == {SILENT}


def test_who_is_still_slow_on_a_node_that_is_mostly_silent_is_named_itself():
    runtimes = noise(900, 16, 3)
    runtimes[100:, 4:8] *= 1.6
    runtimes[400:, 5:8] = np.nan
    monitor, found = watched(runtimes, nodes=[f"n{worker // 4}" for worker in range(16)])
    (ended,) = (alarm for alarm in found if alarm.event == CLEARED)
    assert (ended.kind, ended.node) == (SLOW_NODE, "n1")
    assert 400 <= ended.since <= 450
    assert [alarm.workers for alarm in monitor.standing() if alarm.kind == SLOW_WORKER] == [("4",)]


def test_when_all_are_silent_nobody_is():
    runtimes = noise(400, 8, 8)
    runtimes[200:] = np.nan
    assert watched(runtimes)[1] == []


@pytest.mark.parametrize("law", ["gamma", "heavy tail", "spikes", "unequal"])
def test_where_there_is_nothing_nothing_is_found(law):
    for seed in range(4):
        generator = np.random.default_rng([seed, 5])
        runtimes = {
            "gamma": lambda g=generator: g.gamma(4.0, 0.25, (4000, 64)),
            "heavy tail": lambda g=generator: 0.7 + 0.3 * g.pareto(1.5, (4000, 64)),
            "spikes": lambda g=generator: (
                g.gamma(400, 1 / 400, (4000, 64)) * np.where(g.random((4000, 64)) < 0.05, 10, 1)
            ),
            "unequal": lambda g=generator: g.gamma(50, 0.02, (4000, 64)) * g.uniform(0.97, 1.03, 64),
        }[law]()
        assert watched(runtimes)[1] == []


@hypothesis.given(st.lists(st.integers(0, 900), max_size=12), st.integers(0, 3))
@hypothesis.settings(max_examples=25, deadline=None)
def test_alarms_do_not_depend_on_how_the_trace_is_cut(cuts, seed):
    runtimes = noise(900, 12, seed)
    runtimes[300:700, 5] *= 1.6
    runtimes[100::100] += 6.0
    runtimes[500:560, 1] = np.nan
    whole, found = watched(runtimes)
    cut, again = watched(runtimes, cuts=sorted(cuts))
    assert again == found
    assert np.array_equal(cut.charts.sums, whole.charts.sums)
    assert (cut.missing, cut.blocks, cut.steps) == (whole.missing, whole.blocks, whole.steps)


def test_alarms_do_not_depend_on_the_order_of_the_workers():
    runtimes = noise(900, 12, 9)
    runtimes[300:700, 5] *= 1.6
    order = np.random.default_rng(0).permutation(12)
    monitor = Monitor([str(worker) for worker in order])
    again = monitor.observe(np.arange(900), runtimes[:, order])
    one, other = watched(runtimes)[1], again
    assert brief(one) == brief(other)
    assert [alarm.since for alarm in one] == [alarm.since for alarm in other]


def test_workers_that_come_later_are_as_if_they_had_been_missing():
    runtimes = noise(900, 12, 10)
    runtimes[:405, 10:] = np.nan
    runtimes[600:, 11] *= 1.6
    monitor = Monitor(names(10))
    found = monitor.observe(np.arange(405), runtimes[:405, :10])
    monitor.grow(names(12))
    found += monitor.observe(np.arange(405, 900), runtimes[405:])
    assert brief(found) == [(RAISED, SLOW_WORKER, ("11",))]
    assert abs(found[0].since - 600) <= 3


def test_alarms_end_where_a_worker_comes_whose_node_is_unknown():
    runtimes = noise(1500, 17, 0)
    runtimes[400:900, [4, 5, 6, 7, 14]] *= 1.6
    monitor = Monitor(names(16), [f"n{worker // 4}" for worker in range(16)])
    found = monitor.observe(np.arange(600), runtimes[:600, :16])
    monitor.grow(names(17))
    found += monitor.observe(np.arange(600, 1500), runtimes[600:])
    causes = {(SLOW_NODE, ("4", "5", "6", "7")), (SLOW_WORKER, ("14",))}
    for event in (RAISED, CLEARED):
        assert {(alarm.kind, alarm.workers) for alarm in found if alarm.event == event} == causes
    assert not monitor.naming.open


def test_its_memory_does_not_grow():
    runtimes = noise(1000, 20, 11)
    runtimes[100::100] += 6.0
    monitor = Monitor(names(20))
    sizes = []
    for turn in range(6):
        monitor.observe(np.arange(1000) + 1000 * turn, runtimes)
        sizes.append(len(pickle.dumps({name: value for name, value in vars(monitor).items() if name != "naming"})))
    assert max(sizes[1:]) - min(sizes[1:]) < 200  # numbers of more digits
    assert len(monitor.naming.open) <= 1


def test_impossible_arguments_are_named():
    with pytest.raises(ValueError, match=r"^workers=\['a', 'a'\] must have different names"):
        Monitor(["a", "a"])
    with pytest.raises(ValueError, match=r"^nodes=\['n'\] must be one for each of the 2 workers"):
        Monitor(["a", "b"], ["n"])
    with pytest.raises(ValueError, match=r"^runtimes of shape \(3, 2\) must be \[3 steps, 1 workers\]"):
        Monitor(["a"]).observe(np.arange(3), np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"^workers=\['b', 'c'\] must begin with those that are there: \['a'\]"):
        Monitor(["a"]).grow(["b", "c"])


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


@pytest.mark.parametrize("seconds", [0.2, 5.0])
@pytest.mark.parametrize("slow", [10, 12])
def test_half_of_the_workers_or_more_that_become_a_fifth_slower_are_named(slow, seconds):
    runtimes = seconds * noise(900, 20, 0, shape=200.0)
    runtimes[400:, :slow] *= 1.2
    _, found = watched(runtimes)
    assert sorted(brief(found)) == sorted((RAISED, SLOW_WORKER, (str(worker),)) for worker in range(slow))
    assert [alarm.factor for alarm in found] == pytest.approx([1.2] * slow, rel=0.06)


@pytest.mark.parametrize("seconds", [0.2, 5.0])
@pytest.mark.parametrize("fast", [6, 9])
def test_where_some_become_faster_the_others_are_not_blamed(fast, seconds):
    runtimes = seconds * noise(900, 20, 0, shape=200.0)
    runtimes[400:, :fast] *= 0.7
    assert watched(runtimes)[1] == []


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
    assert not monitor.naming.open


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


def test_a_drift_of_the_whole_cluster_is_said_when_its_usual_is_a_tenth_behind():
    steps = np.arange(2000)
    drift = 1 + 2e-4 * steps
    runtimes = noise(2000, 16, 0, shape=400.0) * drift[:, None]
    found = watched(runtimes)[1]
    assert brief(found)[0] == (RAISED, ALL_SLOWER, ())
    usual = np.cumsum(np.log(drift)) / (steps + 1)  # each block counts alike, for the first 2,000 steps
    behind = int(np.argmax(np.log(drift) - usual >= np.log(1.1)))
    # Then the chart adds up, from nothing to 16 deviations.
    assert behind < found[0].step < 1.3 * behind
