"""Test what mending a planted cause gains: it is the first row, the rows add up, and seconds are those of a replay."""

import pathlib

import numpy as np
import pytest

from sgdlab.stragglers import diagnosis, repairs, what_if
from sgdlab.stragglers.diagnosis import causes, pauses
from sgdlab.stragglers.what_if import candidates, table
from sgdlab.stragglers.what_if.what_if import RepairRow, WhatIf
from sgdlab.traces.recording import Recording

TRACES = pathlib.Path(__file__).parents[3] / "shared/traces"
NODES = tuple(f"n{i // 4}" for i in range(16))


def fleet(steps=300, workers=16, seed=0):
    return np.random.default_rng(seed).gamma(400.0, 1 / 400, (steps, workers))


def recording(runtimes, **given):
    names = tuple(f"w{i}" for i in range(runtimes.shape[1]))
    return Recording(runtimes, np.arange(1, len(runtimes) + 1), names, **given)


def found(of, diagnosed=True):
    paused = pauses.find_pauses(of)
    return what_if.try_repairs(of, paused, diagnosis.find_causes(of, paused) if diagnosed else None)


def synchronous(runtimes, transfer=0.0):
    return repairs.synchronous_seconds(runtimes, transfer).sum()


def slow_worker():
    runtimes = fleet()
    runtimes[100:, 5] *= 1.5
    return recording(runtimes), candidates.WORKER, (5,)


def slow_node():
    runtimes = fleet()
    runtimes[:, 4:8] *= 1.4
    return recording(runtimes, nodes=NODES), candidates.NODE, (4, 5, 6, 7)


def slow_worker_of_a_node():
    runtimes = fleet()
    runtimes[:, 9] *= 1.4
    return recording(runtimes, nodes=NODES), candidates.WORKER, (9,)


def two_slow_workers():
    runtimes = fleet()
    runtimes[:, [3, 11]] *= 1.6
    return recording(runtimes), candidates.WORKERS, (3, 11)


def checkpoints():
    runtimes = fleet()
    runtimes[49::50] += 6.0
    return recording(runtimes), candidates.PERIOD, ()


def single_slow_steps():
    runtimes = fleet()
    runtimes[[40, 41, 97, 200]] += 4.0
    return recording(runtimes), candidates.STEPS, ()


def garbage_collection():
    runtimes = fleet(600)
    for worker in range(16):
        runtimes[worker::30, worker] += 0.7
    return recording(runtimes), candidates.PERIOD, tuple(range(16))


def jitter_of_communication():
    runtimes = fleet()
    transfer = np.random.default_rng(1).gamma(1.0, 0.4, 300)
    inside = transfer[:, None] + runtimes.max(axis=1, keepdims=True) - runtimes
    return recording(runtimes, communication={"all_reduce": inside}), candidates.COMMUNICATION, ()


def slow_data_loading():
    forward, backward = 0.3 * fleet(), 0.6 * fleet(seed=1)
    data = np.random.default_rng(2).gamma(0.5, 0.15, (300, 16))
    phases = {"forward": forward, "backward": backward, "data": data}
    return recording(forward + backward + data, phases=phases), candidates.PHASE, ()


def slower_cluster():
    runtimes = fleet()
    runtimes[200:] *= 1.5
    return recording(runtimes), causes.ALL_SLOWER, ()


PLANTED = [
    slow_worker, slow_node, slow_worker_of_a_node, two_slow_workers, checkpoints, single_slow_steps,
    garbage_collection, jitter_of_communication, slow_data_loading, slower_cluster,
]  # fmt: skip


@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_cause_is_mended_first_and_the_rows_add_up(plant):
    given, kind, workers = plant()
    result = found(given)
    assert (result.first.kind, result.first.workers) == (kind, workers)
    assert result.recorded == pytest.approx(synchronous(given.runtimes, given.transfer()))
    assert sum(line.in_turn for line in result.lines) + result.left == pytest.approx(result.recorded, rel=1e-12)
    assert min(line.in_turn for line in result.lines) >= -1e-9
    for line in result.lines:
        assert line.alone_interval[0] <= line.alone <= line.alone_interval[1]
        assert line.times_interval[0] <= line.times <= line.times_interval[1]


@pytest.mark.parametrize("plant", [slow_worker, slow_node, slow_worker_of_a_node, two_slow_workers])
def test_slow_machines_stand_out_without_a_diagnosis_too(plant):
    given, kind, workers = plant()
    result = found(given, diagnosed=False)
    assert (result.first.kind, result.first.workers) == (kind, workers)


def test_the_seconds_of_a_worker_are_those_of_a_replay_since_it_is_slow():
    given, _, _ = slow_worker()
    line = found(given).first
    assert line.since is not None
    assert abs(line.since - 101) <= 2  # step 101 is the row 100 in which it begins
    since = slice(line.since - 1, None)
    repaired = synchronous(repairs.AtMedian([5], since)(given.runtimes))
    recorded = synchronous(given.runtimes)
    assert line.alone == line.in_turn == pytest.approx(recorded - repaired)
    assert line.times == pytest.approx(recorded / repaired)
    both = [synchronous(times[since]) for times in (given.runtimes, repairs.AtMedian([5])(given.runtimes))]
    assert line.times_since == pytest.approx(both[0] / both[1])


def test_what_is_left_of_a_trace_without_causes_is_its_medians():
    given = recording(fleet())
    result = found(given)
    assert result.first is None
    alone = synchronous(given.runtimes) - np.median(given.runtimes, axis=1).sum()
    assert result.chance.alone == pytest.approx(alone)
    (slowest, chance) = result.lines
    assert slowest.kind == candidates.WORKER
    assert result.waiting == pytest.approx(slowest.in_turn + chance.in_turn)
    assert chance is result.chance
    repaired = repairs.AtMedian(slowest.workers)(given.runtimes)
    assert result.left == pytest.approx(np.median(repaired, axis=1).sum())
    assert result.slowdown == pytest.approx(result.recorded / result.left)


def test_a_cause_that_is_over_is_named_as_such_and_nobody_is_left_out_for_it():
    runtimes = fleet()
    runtimes[50:130, 5] *= 1.6
    result = found(recording(runtimes))
    assert result.first.workers == (5,)
    assert result.first.over
    assert result.drained == ()
    runtimes[200:, 9] *= 1.3
    result = found(recording(runtimes))
    assert result.first.workers == (9,)  # though worker 5 has cost more
    assert not result.first.over
    assert {line.workers for line in result.lines if line.over} == {(5,)}
    ((worker, rate),) = result.drained
    assert worker == 9
    assert abs(result.drained_since - 201) <= 2
    since = runtimes[result.drained_since - 1 :]
    assert rate == pytest.approx(15 / 16 * synchronous(since) / synchronous(np.delete(since, 9, axis=1)))
    # The sentence is of those steps, and the columns say that they are not.
    assert f"measured since step {result.drained_since}" in table.drain_sentence(result)
    assert {"if repaired, all steps", "if left out, all steps"} <= table.scores(result).columns.keys()


def test_communication_is_counted_once_whoever_waits():
    given, _, _ = jitter_of_communication()
    transfer = given.transfer()
    line = found(given).first
    assert line.alone == pytest.approx((transfer - np.minimum(transfer, np.median(transfer))).sum())


def test_phases_of_a_cluster_without_causes_are_not_called_causes():
    runtimes = fleet()
    result = found(recording(runtimes, phases={"forward": 0.3 * runtimes, "backward": 0.7 * runtimes}))
    assert result.first is None
    assert result.waiting == found(recording(runtimes)).waiting
    assert {line.title for line in result.lines if line.kind == candidates.PHASE} == {"phase forward", "phase backward"}


def test_few_of_many_equal_workers_explain_little_and_one_slow_worker_most():
    assert found(recording(fleet())).slowest_share < 0.1
    runtimes = fleet()
    runtimes[:, 2] *= 3.0
    assert found(recording(runtimes)).slowest_share > 0.9


def test_machines_of_one_worker_each_are_no_rows_besides_their_workers():
    result = found(recording(fleet(), nodes=tuple(f"host{i}" for i in range(16))))
    assert [line.kind for line in result.lines] == [candidates.WORKER, candidates.CHANCE]


def test_the_slowest_node_is_a_row_even_where_it_is_slowest_by_chance():
    given = recording(fleet(), nodes=NODES)
    (node,) = [line for line in found(given).lines if line.kind == candidates.NODE]
    gains = [
        synchronous(given.runtimes) - synchronous(repairs.AtMedian(range(i, i + 4))(given.runtimes))
        for i in (0, 4, 8, 12)
    ]
    assert not node.evident
    assert node.alone == pytest.approx(max(gains))
    assert node.workers[0] == 4 * int(np.argmax(gains))


@pytest.mark.parametrize("workers", [2, 3])
def test_very_small_fleets(workers):
    runtimes = fleet(40, workers)
    runtimes[:, 0] *= 2.0
    result = found(recording(runtimes), diagnosed=False)
    assert result.first.workers == (0,)
    assert sum(line.in_turn for line in result.lines) + result.left == pytest.approx(result.recorded)


@pytest.mark.skipif(not TRACES.exists(), reason="the traces lie beside the project")
@pytest.mark.parametrize(("name", "least", "most"), [("AR", 0.95, 1.05), ("SE", 0.0, 0.1)])
def test_recorded_jobs(name, least, most):
    # The artifact of Lin et al. gives M_W = 1.00 for AR and 0.025 for SE, replayed with pipeline and collectives.
    from sgdlab import cluster  # noqa: PLC0415

    read = cluster.recorded(TRACES / f"trace-{name}.parquet").complete()
    result = found(Recording(read.runtimes, read.steps, read.workers))
    assert least <= result.slowest_share <= most
    assert (None if result.first is None else result.first.workers) == {"AR": (0,), "SE": None}[name]
    assert [worker for worker, _ in result.drained] == {"AR": [0], "SE": []}[name]


def test_every_nth_step_of_a_worker_comes_before_the_worker_and_its_node():
    runtimes = fleet(400)
    runtimes[3::12, 6] += 0.8
    result = found(recording(runtimes, nodes=NODES))
    assert (result.first.kind, result.first.workers) == (candidates.PERIOD, (6,))
    assert [line.kind for line in result.lines if line.evident] == [candidates.PERIOD]


def test_what_comes_and_goes_has_no_step_since_which_it_shows():
    from sgdlab.stragglers.diagnosis.causes import SLOW_WORKER, Cause  # noqa: PLC0415
    from sgdlab.stragglers.diagnosis.history import Episode  # noqa: PLC0415

    given = recording(fleet())
    stretches = (Episode(20, 40, 1.5), Episode(90, 110, 1.5))
    for episodes, since in ((stretches[:1], 20), (stretches, None)):
        cause = Cause(SLOW_WORKER, (3,), None, 20, None, 1.5, 0.1, "", episodes)
        assert candidates.of_workers(given, (3,), cause=cause).since == (since and given.steps[since])


@pytest.mark.parametrize(("in_turn", "mends"), [(2.0, True), (1.999, False)])
def test_a_cause_of_one_per_cent_of_the_time_is_the_first_to_mend(in_turn, mends):
    gains = {
        "alone": 2.0,
        "alone_interval": (2.0, 2.0),
        "times": 1.01,
        "times_interval": (1.0, 1.02),
        "times_since": 1.01,
    }
    row = RepairRow(
        "slow",
        "worker 1",
        "",
        lambda times: times,
        (1,),
        in_turn=in_turn,
        in_turn_interval=(0.0, 9.0),
        evident=True,
        **gains,
    )
    nothing = {"recording": None, "left": 0.0, "waiting": 0.0, "scores": None, "drained": (), "drained_since": None}
    found = WhatIf(lines=(row,), recorded=200.0, slowest=1, slowest_share=1.0, **nothing)
    assert found.first == (row if mends else None)
