"""Graphs of recorded pipelines against jobs that a recursion of its own has made, and against published results."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest

from experiments.benchmarks.planted import pipelines as planted
from sgdlab import traces
from sgdlab.pipelines import NotAPipeline, OperationRows, PipelineJob, arranged, slowdown

TRACES = pathlib.Path(__file__).parents[3] / "shared" / "traces"
SHAPES = {
    "1F1B": planted.Shape(steps=4),
    "two stages": planted.Shape(ranks=3, stages=2, batches=5, steps=3),
    "fewer batches than stages": planted.Shape(ranks=2, stages=4, batches=2, steps=3),
    "no pipeline": planted.Shape(ranks=4, stages=1, batches=3, steps=3),
    "one rank": planted.Shape(ranks=1, stages=3, batches=4, steps=3),
    "interleaved": planted.Shape(ranks=2, stages=4, chunks=2, steps=3),
    "three chunks": planted.Shape(ranks=3, stages=3, chunks=3, batches=6, steps=3),
}


def made(shape: planted.Shape, seed: int = 0, *, delays: float = 0.0005) -> tuple[planted.Durations, OperationRows]:
    generator = np.random.default_rng(seed)
    given = dataclasses.replace(planted.durations(shape, generator, spread=0.2), delays=delays)
    return given, planted.recorded(shape, given, generator)


def kept(rows: OperationRows, keep: np.ndarray, **changed) -> OperationRows:
    columns = {
        name: getattr(rows, name)[keep]
        for name in ("kind", "step", "rank", "stage", "start", "seconds", "number", "chunk")
    }
    return OperationRows(rows.kinds, **(columns | changed))


def of_kinds(rows: OperationRows, *kinds: str) -> np.ndarray:
    return np.isin(rows.kind, [rows.kinds.index(kind) for kind in kinds])


@pytest.mark.parametrize("name", SHAPES)
def test_the_longest_path_is_the_recorded_step(name):
    """Without delays it is the step itself, and with those that are told from the record too, whatever their size."""
    shape = SHAPES[name]
    _, rows = made(shape, delays=0.0)
    job = PipelineJob.of(arranged(rows))
    recorded = np.nanmax(job.operations.end, axis=(0, 2))
    # A receive that does nothing waits for the computation before, which a graph of what is recorded cannot know.
    tolerance = 1e-12 if shape.chunks == 1 else 3e-4
    np.testing.assert_allclose(job.steps, recorded, rtol=tolerance)
    job = PipelineJob.of(arranged(made(shape, delays=0.005)[1]))
    np.testing.assert_allclose(replayed(job), job.operations.end.max(axis=(0, 2)), rtol=1e-12)


def replayed(job: PipelineJob) -> np.ndarray:
    """The ends of the steps with the recorded delay of each operation, after all that it waits for."""
    begin, end = job.operations.begin, job.operations.end
    ready = lambda ends, o: np.max(
        [np.zeros(begin.shape[1:]), *(ends[needed] for needed in job.graph.before[o])], axis=0
    )
    ends: dict[int, np.ndarray] = {}
    for party, across in zip(job.graph.parties, job.graph.across, strict=True):
        come = np.max([ready(ends, o) + begin[o] - ready(end, o) for o in party], axis=0)
        come = come.max(axis=1, keepdims=True) if across else come
        ends |= {o: come + job.seconds[o] for o in party}
    return np.max([*ends.values()], axis=(0, 2))


@pytest.mark.parametrize("name", SHAPES)
def test_waiting_is_told_from_transfers(name):
    shape = SHAPES[name]
    given, rows = made(shape)
    job = PipelineJob.of(arranged(rows))
    ops = job.operations
    work = {
        way: np.sort(np.concatenate([job.seconds[ops.of(f"{kind}-compute")].ravel()]))
        for way, kind in enumerate(planted.WAYS)
    }
    for way, seconds in work.items():
        np.testing.assert_allclose(seconds, np.sort(given.work[way].ravel()), rtol=1e-9)
    chunks = shape.stages * shape.chunks
    for way, kind in enumerate(planted.WAYS):
        sends = job.seconds[ops.of(f"{kind}-send")]
        passed = given.messages[way, : chunks - 1] if way == 0 else given.messages[way, 1:]
        real = sends[np.median(sends, axis=(1, 2)) > 1e-4] if sends.size else sends
        np.testing.assert_allclose(np.sort(real.ravel()), np.sort(passed.ravel()), rtol=1e-9)
    np.testing.assert_allclose(job.seconds[ops.of("grads-reduce-scatter")], 0.02, rtol=1e-9)


def test_run_times_are_longest_paths_of_each_rank_alone():
    shape = SHAPES["1F1B"]
    given, rows = made(shape, delays=0.0)
    job = PipelineJob.of(arranged(rows))
    for rank in range(shape.ranks):
        alone = dataclasses.replace(given, work=given.work[..., [rank]], messages=given.messages[..., [rank]])
        other = PipelineJob.of(
            arranged(planted.recorded(dataclasses.replace(shape, ranks=1), alone, np.random.default_rng()))
        )
        backward = other.operations.of("backward-compute")
        begin = other.operations.end[other.operations.of("params-all-gather")].max(axis=0)
        np.testing.assert_allclose(
            job.runtimes[:, rank], (other.operations.end[backward].max(axis=0) - begin)[:, 0], rtol=1e-9
        )


def test_clocks_do_not_matter():
    _, rows = made(SHAPES["1F1B"])
    clocks = np.random.default_rng(1).normal(scale=30.0, size=(4, 4))
    moved = dataclasses.replace(rows, start=rows.start + clocks[rows.rank, rows.stage])
    np.testing.assert_allclose(PipelineJob.of(arranged(moved)).steps, PipelineJob.of(arranged(rows)).steps, rtol=1e-9)
    np.testing.assert_allclose(
        PipelineJob.of(arranged(moved)).recorded, PipelineJob.of(arranged(rows)).recorded, rtol=1e-9
    )


def test_few_rows_may_lack():
    _, rows = made(planted.Shape(steps=12))
    whole = slowdown.measure(PipelineJob.of(arranged(rows)))
    generator = np.random.default_rng(2)
    job = PipelineJob.of(arranged(kept(rows, generator.random(len(rows.kind)) > 0.01)))
    assert "operations lack, and count as long as others of their kind there" in " ".join(job.notes)
    found = slowdown.measure(job)
    assert abs(found.overall / whole.overall - 1) < 0.005
    broken = kept(rows, ~((rows.step == 5) & (generator.random(len(rows.kind)) < 0.2)))
    job = PipelineJob.of(arranged(broken))
    assert job.operations.steps.tolist() == [step for step in range(12) if step != 5]
    assert "1 of 12 steps lack more than 5 % of their operations and were left out" in job.notes


def test_messages_that_were_not_recorded():
    """A stage then begins when the one before it has ended; half of them are as good as none."""
    _, rows = made(SHAPES["1F1B"])
    whole = PipelineJob.of(arranged(rows)).steps
    none = PipelineJob.of(
        arranged(kept(rows, ~of_kinds(rows, "forward-send", "forward-recv", "backward-send", "backward-recv")))
    )
    assert any("sends and receives were not recorded" in note for note in none.notes)
    assert 0.98 < none.steps.mean() / whole.mean() < 1
    half = PipelineJob.of(arranged(kept(rows, ~of_kinds(rows, "forward-send"))))
    assert "of sends and receives only some were recorded: they were left out" in half.notes
    np.testing.assert_allclose(half.steps, none.steps, rtol=1e-12)


def test_several_devices_of_a_rank_and_numbers_by_start():
    """Of tensor-parallel devices the longest computation and the shortest communication count."""
    _, rows = made(SHAPES["two stages"])
    both = {
        name: np.tile(getattr(rows, name), 2)
        for name in ("kind", "step", "rank", "stage", "start", "seconds", "number", "chunk")
    }
    computes = of_kinds(rows, "forward-compute", "backward-compute", "gc", "optimizer")
    both["seconds"][len(rows.kind) :] *= np.where(computes, 0.5, 3.0)
    job = PipelineJob.of(arranged(OperationRows(rows.kinds, **both)))
    assert "operations are there up to 2 times" in job.notes[0]
    np.testing.assert_array_equal(job.seconds, PipelineJob.of(arranged(rows)).seconds)
    counted = arranged(dataclasses.replace(rows, number=None))
    np.testing.assert_array_equal(counted.begin, arranged(rows).begin)


def test_other_names_of_operations():
    _, rows = made(SHAPES["two stages"])
    whole = PipelineJob.of(arranged(rows))
    named = dataclasses.replace(
        rows, kinds=[{"grads-reduce-scatter": "all-grads-sync"}.get(kind, kind) for kind in rows.kinds]
    )
    np.testing.assert_array_equal(PipelineJob.of(arranged(named)).seconds, whole.seconds)
    # What overlaps no computation of its stage is one; what does is left out.
    extra = [*rows.kinds, "loader"]
    loads = kept(rows, of_kinds(rows, "optimizer"))
    after = np.full(len(loads.kind), len(extra) - 1)
    added = {
        name: np.concatenate([getattr(rows, name), getattr(loads, name)])
        for name in ("step", "rank", "stage", "number", "chunk")
    }
    added |= {
        "kind": np.concatenate([rows.kind, after]),
        "seconds": np.concatenate([rows.seconds, np.full(after.size, 0.5)]),
    }
    later = np.concatenate([rows.start, loads.start + 1.0])
    job = PipelineJob.of(arranged(OperationRows(extra, **added, start=later)))
    assert "operations of other names count as computation of their stage: loader" in job.notes
    assert (job.steps > whole.steps + 0.4).all()
    beside = np.concatenate([rows.start, loads.start * 0 + 0.02])
    job = PipelineJob.of(arranged(OperationRows(extra, **added, start=beside)))
    assert "operations beside computation were left out: loader" in job.notes
    np.testing.assert_allclose(job.steps, whole.steps, rtol=1e-12)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda rows: kept(rows, rows.stage != 1), "stage 1 of 4 must compute forward and backward"),
        (lambda rows: kept(rows, ~of_kinds(rows, "backward-compute")), "must compute forward and backward"),
        (lambda rows: kept(rows, ~(of_kinds(rows, "forward-send") & (rows.number == 3))), "do not fit|no receive"),
    ],
)
def test_what_is_no_pipeline(broken, message):
    with pytest.raises(NotAPipeline, match=message):
        PipelineJob.of(arranged(broken(made(SHAPES["1F1B"])[1])))


def test_slowdowns_by_hand():
    """One stage of a rank takes three times as long: S_w of its rank is S, and M_W is all of it."""
    shape = planted.Shape(ranks=4, stages=2, batches=4, steps=2)
    generator = np.random.default_rng(0)
    given = planted.durations(shape, generator, spread=0.0)
    given.work[:] = np.reshape([0.01, 0.02], (2, 1, 1, 1, 1))
    given.work[:, 1, :, :, 2] *= 3
    given.messages[:] = 0
    job = PipelineJob.of(arranged(planted.recorded(shape, dataclasses.replace(given, delays=0.0), generator)))
    found = slowdown.measure(job)
    mean = np.array([0.01, 0.02]) * (1 + 2 / 8)  # of a kind, over stages, ranks and steps
    # A stage computes all micro-batches one after the other; the first reaches it, and the last comes back.
    fixed = 0.010 + 1e-4 + 0.005 + 0.020 + 0.002 + 0.010

    def step(first: np.ndarray, second: np.ndarray) -> float:
        """1F1B of two stages: the second works without a pause, once the first has begun."""
        return fixed + max(first.sum() + 4 * second.sum(), 4 * first.sum() + second.sum())

    ideal, slow = step(mean, mean), step(np.array([0.01, 0.02]), np.array([0.03, 0.06]))
    np.testing.assert_allclose(found.ideal, ideal, rtol=1e-9)
    np.testing.assert_allclose(found.base, slow, rtol=1e-9)
    assert found.slowest == ((1, 2),)
    np.testing.assert_allclose(found.ranks[2], slow / ideal, rtol=1e-9)
    np.testing.assert_allclose(found.kinds["optimizer"], 1.0, rtol=1e-12)


@pytest.mark.skipif(not TRACES.is_dir(), reason="the real traces are not here")
@pytest.mark.parametrize("name", ["AR", "SE"])
def test_published_slowdowns(name):
    """Of ByteDance's traces, as their authors have computed them; here no clocks are compared."""
    result, of_workers, of_stage = (
        json.loads((TRACES / "expected" / f"{kind}-{name}.json").read_text()) for kind in ("result", "mw", "ms")
    )
    recording = traces.read(TRACES / f"trace-{name}.parquet")
    found = slowdown.measure(recording.job)
    assert abs(found.overall - result["blocking_slowdown"]) < 1e-3
    assert abs(found.workers - of_workers["Mw"]) < 1e-3
    assert abs(found.last_stage - of_stage["Ms"]) < 1e-3
    for ours, theirs in (
        (found.kinds, "optype"),
        (dict(zip(recording.workers, found.ranks, strict=True)), "dp_rank"),
        (dict(zip(map(str, recording.job.operations.stages), found.stages, strict=True)), "stage"),
    ):
        published = result[f"blocking_decompose_by_{theirs}"]
        assert set(published) <= set(ours)
        for key, value in published.items():
            assert abs(ours[key] - value) < 1e-3
    base = [result["step_t_nodelay"][str(step)] for step in recording.steps]
    np.testing.assert_allclose(found.base, base, rtol=1e-3)
    # Full synchrony of the longest paths is the step.
    np.testing.assert_allclose(recording.runtimes.max(axis=1) + recording.transfer(), found.base, rtol=1e-12)


def test_a_rank_that_has_stopped_is_left_out():
    _, rows = made(planted.Shape(ranks=6, stages=2, batches=4, steps=20))
    job = PipelineJob.of(arranged(kept(rows, ~((rows.rank == 4) & (rows.step >= 8)))))
    assert job.operations.ranks.tolist() == [0, 1, 2, 3, 5]
    assert "rank 4 has no operations since step 8: it is left out" in job.notes
    assert job.operations.steps.size == 20


def test_numbers_and_stages_may_begin_anywhere():
    _, rows = made(SHAPES["1F1B"])
    whole = PipelineJob.of(arranged(rows))
    moved = dataclasses.replace(rows, stage=rows.stage + 1, number=rows.number - 1)
    job = PipelineJob.of(arranged(moved))
    np.testing.assert_array_equal(job.seconds, whole.seconds)
    assert "stages count from 0 here, and from 1 in the trace" in job.notes


def test_devices_of_a_stage_are_counted_apart():
    """Without numbers, operations of two tensor-parallel devices are not taken for twice as many micro-batches."""
    _, rows = made(SHAPES["two stages"])
    names = ("kind", "step", "rank", "stage", "start", "seconds", "chunk")
    both = {name: np.tile(getattr(rows, name), 2) for name in names}
    device = np.repeat([0, 1], len(rows.kind))
    job = PipelineJob.of(arranged(OperationRows(rows.kinds, **both, device=device)))
    np.testing.assert_allclose(job.steps, PipelineJob.of(arranged(rows)).steps, rtol=1e-12)


@pytest.mark.parametrize("name", ["interleaved", "last stage", "last of two stages"])
def test_a_stage_beside_those_that_were_recorded(name):
    """Interleaved without chunks, the first stage receives; without the last stage, the one before sends."""
    _, rows = made(SHAPES[{"last stage": "1F1B", "last of two stages": "two stages"}.get(name, name)])
    broken = (
        dataclasses.replace(rows, chunk=None) if name == "interleaved" else kept(rows, rows.stage < rows.stage.max())
    )
    with pytest.raises(
        NotAPipeline, match="for each computation: a stage beside it was not recorded, or an interleaved"
    ):
        PipelineJob.of(arranged(broken))
