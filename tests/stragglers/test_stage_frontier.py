"""The frontier of stages: exact and additive; planted slow stages are named, and who cannot be told apart is."""

import numpy as np
import pytest
from lib.stage_vectors import planted

from sgdlab.stragglers import recording as recordings
from sgdlab.stragglers.answer import sentences
from sgdlab.stragglers.diagnosis import find_causes
from sgdlab.stragglers.diagnosis.stages import find_frontier
from sgdlab.traces import Recording
from sgdlab.traces.stages import without_waits


def recorded(seen):
    shape = next(iter(seen.values())).shape
    whole = Recording(sum(seen.values()), np.arange(shape[0]), tuple(map(str, range(shape[1]))), phases=dict(seen))
    return without_waits(whole, [*seen])


def found(seen):
    parts = recordings.split(recorded(seen))
    return parts, find_causes(parts.complete, parts.pauses)


def test_the_frontier_adds_up_and_is_what_a_loop_over_steps_finds():
    _, seen = planted(np.random.default_rng(3), steps=40, workers=3, jitter=0.2)
    frontier = find_frontier(recorded(seen))
    assert frontier.stages == ("update", "data", "forward", "backward")
    expected = np.zeros((4, 3))
    lengths = []
    for step in range(1, 40):
        vector = [seen["update"][step - 1], seen["data"][step], seen["forward"][step], seen["backward"][step]]
        reached, before = [0.0, 0.0, 0.0], 0.0
        for stage, times in enumerate(vector):
            reached = [one + float(other) for one, other in zip(reached, times, strict=True)]
            gained, before = max(reached) - before, max(reached)
            leaders = frontier.last if stage == 3 else [reached.index(max(reached))]
            for worker in leaders:
                expected[stage, worker] += gained / len(leaders) / 39
        lengths.append(max(reached))
    np.testing.assert_allclose(frontier.seconds, expected, rtol=1e-12)
    np.testing.assert_allclose(frontier.seconds.sum(), np.mean(lengths), rtol=1e-12)


def test_there_is_none_where_nobody_waits_in_a_stage():
    own, _ = planted(np.random.default_rng(0))
    assert find_frontier(recorded(own)) is None


@pytest.mark.parametrize("stage", ["data", "forward", "update"])
@pytest.mark.parametrize("seed", range(4))
def test_a_slow_stage_outside_of_the_wait_is_named_with_its_worker(stage, seed):
    rng = np.random.default_rng(seed)
    workers = int(rng.integers(3, 9))
    slow = int(rng.integers(workers))
    parts, diagnosis = found(planted(rng, workers=workers, slow=[(slow, stage, 4.0, 50)])[1])
    cause = diagnosis.causes[0]
    assert (cause.workers, cause.stages) == ((slow,), (stage,))
    assert abs(cause.began(parts.complete.steps) - 50) <= 1
    assert f"% of that in {stage!r}" in cause.headline(parts.complete)
    said = sentences.stages(diagnosis, parts.complete)
    ahead = f"mostly with worker {slow} ahead"
    assert ahead in said.partition(f" {stage} ")[2].partition(" %")[2]


@pytest.mark.parametrize("seed", range(4))
def test_who_is_slow_inside_the_wait_is_among_those_who_cannot_be_told_apart(seed):
    rng = np.random.default_rng(seed)
    parts, diagnosis = found(planted(rng, workers=4, slow=[(2, "backward", 1.6, 50)])[1])
    (cause,) = diagnosis.causes
    assert (cause.kind, cause.workers, cause.stages) == ("all slower", (), ("backward",))
    assert cause.began(parts.complete.steps) == 50
    assert diagnosis.frontier.last == (0, 1, 2, 3)
    assert "in 'backward', in which workers 0 to 3 cannot be told apart" in cause.headline(parts.complete)
    assert "workers 0 to 3 cannot be told apart" in sentences.stages(diagnosis, parts.complete)


def test_chance_tells_them_apart():
    """Of 40 jobs whose data stall now and then, the slow worker is always among the last, and nearly always alone."""
    sizes = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        workers = int(rng.integers(2, 9))
        slow = int(rng.integers(workers))
        _, seen = planted(rng, steps=200, workers=workers, slow=[(slow, "backward", 1.6, 0)], stalls=0.1)
        last = find_frontier(recorded(seen)).last
        assert slow in last
        sizes.append(len(last))
    assert np.mean(np.array(sizes) == 1) >= 0.9


def test_who_comes_last_for_another_reason_may_be_late_in_the_stage_of_the_wait():
    _, seen = planted(np.random.default_rng(0), slow=[(1, "data", 4.0, 0)])
    assert 1 in find_frontier(recorded(seen)).last


def test_of_a_boundary_the_stage_is_named_too_and_of_one_phase_nothing_is_said():
    rng = np.random.default_rng(0)
    own, _ = planted(rng, slow=[(1, "backward", 2.0, 50)])
    total = sum(own.values())
    waits = total.max(axis=1, keepdims=True) - total
    whole = Recording(total, np.arange(120), tuple("abcd"), phases=own, communication={"all_reduce": waits + 0.01})
    parts = recordings.split(whole)
    (cause,) = find_causes(parts.complete, parts.pauses).causes
    assert (cause.workers, cause.stages) == ((1,), ("backward",))
    parts = recordings.split(Recording(total, np.arange(120), tuple("abcd"), phases={"compute": total}))
    (cause,) = find_causes(parts.complete, parts.pauses).causes
    assert (cause.workers, cause.stages) == ((1,), ())
    assert "of that in" not in cause.evidence


def test_nothing_is_named_where_nothing_is_slow():
    for seed in range(10):
        _, diagnosis = found(planted(np.random.default_rng(seed), workers=4)[1])
        assert not [cause for cause in diagnosis.causes if cause.workers]
