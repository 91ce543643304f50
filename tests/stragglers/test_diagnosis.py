"""The diagnosis names the right cause first, with its steps and its share, and nothing where there is nothing."""

import pathlib

import numpy as np
import pytest
from toy_traces import noise, recording_of

from experiments.benchmarks.planted import fleets, plants, trials
from sgdlab.cluster import recorded
from sgdlab.stragglers import diagnosis, repairs
from sgdlab.stragglers.diagnosis import causes, pauses
from sgdlab.stragglers.diagnosis.diagnosis import Diagnosis, weigh_repairs

TRACES = pathlib.Path(__file__).parents[3] / "shared" / "traces"


def find(recorded_steps) -> Diagnosis:
    return diagnosis.find_causes(recorded_steps, pauses.find_pauses(recorded_steps))


def test_worker_5_since_step_300_and_checkpoints_every_100_steps():
    times = noise(600, 16) * np.random.default_rng(1).lognormal(0.0, 0.05, (600, 1))
    times[300:, 5] *= 1.6
    times[100::100] += 6.0
    run = recording_of(times)
    first, second = find(run).causes
    assert (first.kind, first.workers, first.since, first.until) == (causes.SLOW_WORKER, (5,), 300, None)
    assert first.factor == pytest.approx(1.6, rel=0.02)
    assert first.lasting
    headline = first.headline(run)
    assert "orker 5 " in headline
    assert "since step 300 " in headline
    assert second.kind == causes.PAUSES
    assert not second.lasting
    assert "every 100th step" in second.headline(run)


def test_shares_are_those_of_the_repaired_run():
    # Steps of 1 s; worker 0 takes 2 s in the second half, so mending it saves 50 s of 150 s, of which no other cause
    # saves any; checkpoints save 10 s each.
    times = np.ones((100, 4))
    times[50:, 0] = 2.0
    times[10::20] += 10.0
    worker, checkpoints = sorted(find(recording_of(times)).causes, key=lambda cause: cause.kind, reverse=True)
    total = 50 + 2 * 50 + 5 * 10
    assert worker.workers == (0,)
    assert worker.since == 50
    assert worker.share == pytest.approx(50 / total)
    assert worker.last_share == pytest.approx(50 / total)
    assert checkpoints.share == pytest.approx(50 / total)


def test_two_equally_slow_workers_gain_only_together():
    times = noise(300, 16, seed=2)
    times[:, [3, 9]] *= 1.5
    found = find(recording_of(times)).causes
    assert [cause.workers for cause in found] in ([(3,), (9,)], [(9,), (3,)])
    assert all(cause.last_share > 0.2 > 4 * cause.share for cause in found)


@pytest.mark.parametrize("workers", [12, 13])
@pytest.mark.parametrize(
    "groups", [[(3,)], [(3,), (9, 10)], [(0,), (1, 2, 3, 4), (7,)], [(0, 1, 2, 3, 4, 5)], [range(5), range(5, 10)]]
)
@pytest.mark.parametrize("all_slower", [False, True])
@pytest.mark.parametrize("large", [1, 2_000_000])
def test_weights_are_those_of_the_repairs_made_one_after_the_other(workers, groups, all_slower, large, monkeypatch):
    monkeypatch.setattr("sgdlab.stragglers.diagnosis.diagnosis.LARGE", large)
    generator = np.random.default_rng(workers)
    times = generator.gamma(20.0, 1 / 20, (80, workers)) * generator.uniform(0.8, 1.6, workers)
    times[:, [worker for group in groups for worker in group]] *= 2.0
    transfer = generator.uniform(0.0, 1.0, 80)
    made = [
        repairs.AtMedian(group, slice(None) if i else np.flatnonzero(generator.random(80) < 0.6))
        for i, group in enumerate(groups)
    ]
    if all_slower:
        made += [
            lambda x: x / np.linspace(1.0, 1.5, 80)[:, None],
            pauses.Pauses(np.array([5, 6]), np.array([0.4, 0.5]), 0.9, None, np.full(2, workers), workers).removed,
        ]

    def seconds(without):
        result = times
        for i, repair in enumerate(made):
            result = result if i in without else repair(result)
        return (result.max(axis=1) + transfer).sum()

    every = set(range(len(made)))
    now, least = seconds(every), seconds(())
    alone, last = zip(*weigh_repairs(made, times, transfer), strict=True)
    np.testing.assert_allclose(alone, [1 - seconds(every - {i}) / now for i in every], atol=1e-12)
    np.testing.assert_allclose(last, [(seconds({i}) - least) / now for i in every], atol=1e-12)


def test_sampled_steps_name_both_ends_of_the_gap():
    times = noise(200, 8, seed=4)
    times[100:, 2] *= 1.5
    steps = np.arange(200) + 20 * (np.arange(200) >= 100)
    run = recording_of(times, steps)
    (only,) = find(run).causes
    assert only.since == 100
    assert "between 99 and 120" in only.headline(run)


def test_it_says_that_a_slow_time_is_over():
    times = noise(400, 8, seed=5)
    times[100:200, 2] *= 1.5
    run = recording_of(times)
    (only,) = find(run).causes
    assert (only.since, only.until, only.lasting) == (100, 199, False)
    assert find(run).machines == ()
    assert "from step 100 to step 199" in only.headline(run)


def test_a_node_is_named_instead_of_its_workers():
    times = noise(300, 16, seed=6)
    times[100:, 8:12] *= 1.4
    run = recording_of(times, nodes=tuple(f"host{worker // 4}" for worker in range(16)))
    (only,) = find(run).causes
    assert (only.kind, only.node, only.workers, only.since) == (causes.SLOW_NODE, "host2", (8, 9, 10, 11), 100)


def test_steps_that_remember_and_histories_of_all_workers():
    times = noise(300, 8, seed=7)
    times[:, 2] *= 1.5
    found = find(recording_of(times))
    assert found.pairs == 299
    assert abs(found.memory) < 0.1
    longer = np.linspace(1.0, 1.1, 300)[:, None]  # for all workers of a step alike
    assert find(recording_of(times * longer)).memory == pytest.approx(found.memory)
    assert find(recording_of(times, 2 * np.arange(300))).memory is None
    assert [bool(own) for own in found.histories] == [worker == 2 for worker in range(8)]


def test_transfer_counts_in_the_time_of_a_step():
    times = np.ones((100, 4))
    times[50:, 0] = 2.0
    waiting = {"all_reduce": np.full((100, 4), 1.0)}
    (only,) = find(recording_of(times, communication=waiting)).causes
    assert only.share == pytest.approx(50 / (150 + 100))


@pytest.mark.parametrize("shape", [(1, 4), (3, 2), (8, 2), (5, 1)])
def test_recordings_too_short_to_tell(shape):
    assert find(recording_of(np.ones(shape))).causes == ()


@pytest.mark.parametrize("name", plants.PLANTS)
def test_planted_causes_come_first(name):
    outcomes = trials.run_all([trials.Trial(name, draw, seed=11) for draw in range(3)], processes=1)
    assert [outcome.right for outcome in outcomes] == [True] * 3, [outcome.first for outcome in outcomes]


@pytest.mark.parametrize("law", [*fleets.LAWS, *fleets.SKEWED, *fleets.HELD_OUT])
def test_nothing_is_named_where_there_is_nothing(law):
    for draw in range(8):
        run = recording_of(fleets.draw(np.random.default_rng([12, draw]), law, steps=300).runtimes)
        assert find(run).causes == (), find(run).causes[0].headline(run)


@pytest.mark.skipif(not TRACES.is_dir(), reason="needs the recorded traces")
def test_recorded_traces():
    slow = recorded(TRACES / "trace-AR.parquet").complete()
    (only,) = find(slow).causes
    assert only.lasting
    assert only.since == 0
    assert only.factor == pytest.approx(2.08, rel=0.01)
    assert only.workers == (int(np.median(slow.runtimes, axis=0).argmax()),)
    # Sequences of unequal length, dealt anew in every step: no machine is to blame.
    found = find(recorded(TRACES / "trace-SE.parquet").complete())
    assert not any(cause.workers for cause in found.causes)


def test_a_short_grave_episode_comes_before_mild_slowness():
    """30 of 3,000 steps at 1.9 times, beside three workers that are 1.09 times slow all along."""
    runtimes = np.random.default_rng(0).gamma(400, 1 / 400, (3000, 16))
    runtimes[:, 1:4] *= 1.09
    runtimes[1500:1530, 7] *= 1.9
    first, second = find(recording_of(runtimes)).causes
    assert (first.workers, first.since, first.until) == ((7,), 1500, 1529)
    assert second.workers == (1, 2, 3)
    assert second.share > first.share
    assert first.intensity(3000) > second.intensity(3000)


def test_small_recordings_are_weighed_exactly():
    """A later repair of single compute times can make the worker that was repaired before the slowest of its step."""
    runtimes = np.random.default_rng(0).gamma(4.0, 0.25, (50, 7))
    runtimes[:, 2] *= 1.5
    struck = (np.arange(50) % 5 == 0)[:, None] & (np.arange(7) != 2)
    made = [repairs.AtMedian((2,)), lambda times: np.where(struck, 0.1, times), lambda times: 0.9 * times]

    def seconds(*kept):
        times = runtimes
        for repair in kept:
            times = repair(times)
        return times.max(axis=1).sum()

    now, least = seconds(), seconds(*made)
    expected = [
        (1 - seconds(repair) / now, (seconds(*(other for other in made if other is not repair)) - least) / now)
        for repair in made
    ]
    np.testing.assert_allclose(weigh_repairs(made, runtimes, np.zeros(50)), expected, atol=1e-12)
