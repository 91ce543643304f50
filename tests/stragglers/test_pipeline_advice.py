"""The advice on jobs of pipelines: planted causes come first, priced by the longest path; nothing else is blamed."""

import dataclasses
import json
import pathlib
import re

import numpy as np
import pandas as pd
import pytest

from experiments.benchmarks.planted import pipelines as planted
from sgdlab import traces
from sgdlab.commands import what_if as command
from sgdlab.errors import UsageError
from sgdlab.pipelines import OperationRows, PipelineJob, arranged
from sgdlab.stragglers import findings, recording, what_if
from sgdlab.stragglers.answer import headline, next_steps, publish
from sgdlab.stragglers.comparison.comparison import ComparisonSettings
from sgdlab.stragglers.diagnosis import pauses
from sgdlab.stragglers.what_if import pipeline_words, table
from sgdlab.stragglers.what_if.candidates import CHANCE, COMMUNICATION, LENGTHS, LINK, LINKS, LONG_STAGE, STAGE_OF_RANK
from sgdlab.stragglers.what_if.micro_batches import whole_layers
from sgdlab.traces.operations import of_pipeline
from sgdlab.traces.options import Options

TRACES = pathlib.Path(__file__).parents[3] / "shared" / "traces"


def job_of(rows: OperationRows) -> traces.Recording:
    return of_pipeline(PipelineJob.of(arranged(rows)), [])


def tried(found: traces.Recording, **options) -> what_if.WhatIf:
    return what_if.try_repairs(found, pauses.find_pauses(found), **options)


def written(rows: OperationRows, path: pathlib.Path) -> str:
    columns = {
        "dp_rank": rows.rank, "stage": rows.stage, "step": rows.step, "start_ts": rows.start, "duration": rows.seconds,
        "optype": pd.Categorical.from_codes(rows.kind, rows.kinds), "seq_id": rows.number, "gmc": rows.chunk,
    }  # fmt: skip
    pd.DataFrame(columns).to_parquet(path)
    return str(path)


@pytest.mark.parametrize("first", [0, 1])
def test_chunks_may_count_within_stages_that_count_from_one(tmp_path, first):
    shape, draw = planted.Shape(ranks=2, stages=4, chunks=2, steps=4), np.random.default_rng(0)
    rows = planted.recorded(shape, planted.durations(shape, draw, spread=0.2), draw)
    path = pathlib.Path(written(rows, tmp_path / "job.parquet"))
    table = pd.read_parquet(path)
    whole = traces.read(path)
    within = table.drop(columns="gmc").assign(mc=table.gmc.clip(0) // shape.stages, stage=table.stage + first)
    within.to_parquet(path)
    found = traces.read(path)
    np.testing.assert_array_equal(found.job.steps, whole.job.steps)
    np.testing.assert_array_equal(found.runtimes, whole.runtimes)


@pytest.mark.covering
@pytest.mark.parametrize("name", [*planted.PLANTS, "nothing"])
@pytest.mark.parametrize("draw", range(len(planted._SHAPES)))
def test_a_planted_cause_comes_first(name, draw):
    outcome = planted.run(planted.PipelineTrial(name, draw, seed=3))
    assert outcome.right, outcome.told
    assert (outcome.since_error or 0) <= 1


def test_a_repair_gives_the_job_without_the_cause():
    """A mended job takes what the same draw takes without a slow machine, to the noise of a median."""
    shape = planted.Shape()
    given = planted.durations(shape, np.random.default_rng(0))
    slow = dataclasses.replace(given, work=given.work.copy())
    slow.work[:, 2, :, 10:, 1] *= 2
    before, after = (job_of(planted.recorded(shape, one, np.random.default_rng(1))) for one in (given, slow))
    row = tried(after).lines[0]
    assert (row.kind, row.since, row.workers) == (STAGE_OF_RANK, 10, (1,))
    mended = row.apply(after.job).steps
    np.testing.assert_allclose(mended, before.job.steps, rtol=0.02)
    np.testing.assert_array_equal(mended[:10], after.job.steps[:10])
    assert row.alone == pytest.approx(after.job.steps.sum() - mended.sum())


def test_rows_add_up_to_the_longest_paths():
    shape = planted.Shape(ranks=8, stages=2, batches=6)
    generator = np.random.default_rng(4)
    given = planted.durations(shape, generator)
    given.work[:] *= np.exp(0.3 * generator.standard_normal((1, 1, *given.work.shape[2:])))
    given.work[:, 1] *= 1.6
    given.work[:, 0, :, :, 3] *= 2.0
    result = tried(job_of(planted.recorded(shape, given, generator)))
    assert [row.kind for row in result.lines if row.kind != COMMUNICATION] == [
        STAGE_OF_RANK,
        LENGTHS,
        LONG_STAGE,
        CHANCE,
    ]
    assert result.recorded == pytest.approx(result.recording.job.steps.sum())
    assert result.recorded - sum(row.in_turn for row in result.lines) == pytest.approx(result.left)
    assert all(row.in_turn_interval[0] <= row.in_turn <= row.in_turn_interval[1] for row in result.lines)
    told = pipeline_words.told(result)
    assert {row.kind for row in told} == {STAGE_OF_RANK, LENGTHS, LONG_STAGE}


def test_messages_between_two_stages_of_all_ranks():
    shape = planted.Shape()
    generator = np.random.default_rng(5)
    given = planted.durations(shape, generator)
    given.messages[0, 1] *= 20
    given.messages[1, 2] *= 20
    result = tried(job_of(planted.recorded(shape, given, generator)))
    first = pipeline_words.told(result)[0]
    assert (first.kind, first.title) == (LINKS, "the messages between stages 1 and 2")
    assert re.search(r"take (19|20)\.\d\d times as long as those between other stages, on all ranks", first.said)
    assert "Look at the network of the messages between stages 1 and 2" in pipeline_words.advice(result)


@pytest.mark.parametrize("stages", [2, 4])
def test_messages_of_all_ranks_that_become_slow(stages):
    """With two stages there are no others to compare them with, but their own steps before."""

    def slow(given):
        given.messages[0, 0, :, 20:] *= 40
        given.messages[1, 1, :, 20:] *= 40

    result, said = said_of(planted_in(slow, planted.Shape(stages=stages)))
    (row,) = pipeline_words.told(result)
    assert (row.kind, row.title) == (LINK, "the messages between stages 0 and 1 of all ranks")
    assert row.since == 20
    assert "all ranks take" in said
    assert "times as long as in other steps (since step 20)" in said


def test_stages_that_are_long_are_told_though_they_be_the_most():
    result, said = said_of(planted_in(lambda given: given.work[:, :3].__imul__(2.5)))
    (row,) = pipeline_words.told(result)
    assert (row.kind, row.title) == (LONG_STAGE, "stages 0, 1 and 2")
    assert "compute up to 2.50 times as long as the other stages" in said.replace("2.51", "2.50")
    assert "hold 0.85, 0.85, 0.85 and 1.45 of what" in said


def test_whole_layers_are_the_best_split():
    """Against all splits, by the sum of a stage's median times."""
    shape, generator = planted.Shape(ranks=2, stages=3, batches=6, steps=6), np.random.default_rng(6)
    given = planted.durations(shape, generator, spread=0.0)
    given.work[:, 2] *= 2.0
    job = job_of(planted.recorded(shape, given, generator)).job
    held, seconds = whole_layers(job, 4)
    assert sum(held) == 12
    splits = [(a, b, 12 - a - b) for a in range(13) for b in range(13 - a)]
    longest = lambda split: max(split[0] / 4, split[1] / 4, 1 + split[2] / 4)
    assert longest(held) == min(map(longest, splits))
    assert seconds < job.steps.sum()


def test_one_rank_has_stages_too(tmp_path, capsys):
    path = written(planted.long_stage(planted.Shape(ranks=1), np.random.default_rng(7)).rows, tmp_path / "one.parquet")
    command.run(path, Options(), tmp_path / "out", 0, layers=8)
    printed = capsys.readouterr().out
    assert "times as long as the other stages, on all ranks" in printed
    assert "layers, which by itself makes steps" in printed
    with pytest.raises(UsageError, match="at least 2; --what_if says what slows its stages"):
        recording.read(path, train_share=0.5)


def test_what_is_said_of_a_clean_job():
    result = tried(job_of(planted.nothing(planted.Shape(), np.random.default_rng(8)).rows))
    assert pipeline_words.problem(result).startswith("No single cause costs 3 % of a step")
    assert pipeline_words.advice(result) == ""


def test_a_rank_that_was_not_recorded():
    """Waiting for it looks like a slow collective."""
    shape, generator = planted.Shape(steps=12), np.random.default_rng(9)
    given = planted.durations(shape, generator)
    given.work[:, 0, :, :, 0] *= 2.5
    rows = planted.recorded(shape, given, generator)
    keep = rows.rank != 0
    columns = ("kind", "step", "rank", "stage", "start", "seconds", "number", "chunk")
    result = tried(job_of(OperationRows(rows.kinds, **{name: getattr(rows, name)[keep] for name in columns})))
    assert "a slow network, or a rank that was not recorded" in pipeline_words.problem(result)


def test_time_that_operations_do_not_explain():
    shape, generator = planted.Shape(steps=12), np.random.default_rng(10)
    given = dataclasses.replace(planted.durations(shape, generator), delays=0.01)
    assert " % of a step; the rest passes between them" in pipeline_words.problem(
        tried(job_of(planted.recorded(shape, given, generator)))
    )


def test_the_whole_advice(tmp_path):
    """Headline, page, tables and JSON of a job in which stages are long and a link is slow."""
    shape, generator = planted.Shape(steps=40), np.random.default_rng(11)
    given = planted.durations(shape, generator)
    given.work[:, 3] *= 1.5
    given.messages[0, 0, :, :, 1] *= 60
    given.messages[1, 1, :, :, 1] *= 60
    parts = recording.read(
        written(planted.recorded(shape, given, generator), tmp_path / "job.parquet"), train_share=0.5
    )
    settings = ComparisonSettings(model="no")
    found = findings.gather_findings(parts, tmp_path / "model", settings=settings, layers=10, report=lambda line: None)
    said = headline.headline(found)
    assert "Stage 3 computes 1.50 times as long as the other stages" in said.problem
    assert "The messages between stages 0 and 1 of rank 1 take" in said.problem
    assert "No protocol that waits for fewer ranks repairs a long stage." in said.advice
    assert "the stages should hold 11, 12, 11 and 6 layers" in said.advice
    page = publish.write(tmp_path / "out", found, next_steps.commands(found, "out")).read_text()
    assert "a red cell is a slow machine" in page
    assert "Slowdowns by kind of operation" in page
    stored = json.loads((tmp_path / "out" / "advice.json").read_text())["pipelines"]
    assert stored["slowdown"] == found.what_if.pipelines.overall
    assert {row["kind"] for row in stored["repairs"]} >= {LONG_STAGE, "link"}
    assert "(M_S)" in table.summary(found.what_if)
    assert "DropCompute" in publish.terminal_text(found, [])


@pytest.mark.skipif(not TRACES.is_dir(), reason="the real traces are not here")
def test_real_jobs():
    """A slow machine, and long data before a long stage: what their authors and the design's own prototype found."""
    by_name = {name: tried(traces.read(TRACES / f"trace-{name}.parquet")) for name in ("AR", "SE")}
    (slow,) = pipeline_words.told(by_name["AR"])
    assert slow.title == "stage 0 of rank 0"
    assert slow.in_turn / 44 == pytest.approx(23.41, abs=0.01)
    assert "3 of 4 ranks without it would do a step in 22.8 s" in pipeline_words.advice(by_name["AR"])
    long, stage = pipeline_words.told(by_name["SE"])
    assert (long.kind, stage.kind) == (LENGTHS, LONG_STAGE)
    assert long.in_turn / 43 == pytest.approx(1.90, abs=0.01)
    assert stage.in_turn / 43 == pytest.approx(0.53, abs=0.01)
    assert "1.29 and 0.71" in stage.mended


def said_of(rows: OperationRows) -> tuple[what_if.WhatIf, str]:
    result = tried(job_of(rows))
    return result, pipeline_words.problem(result) + " " + pipeline_words.advice(result)


def planted_in(change, shape=None, seed=20):
    """The rows of a job in whose durations something is changed."""
    shape, generator = shape or planted.Shape(), np.random.default_rng(seed)
    given = planted.durations(shape, generator)
    change(given)
    return planted.recorded(shape, given, generator)


def longer(rows: OperationRows, chosen: np.ndarray, seconds: float) -> OperationRows:
    """Operations that are longer; what comes after them in the record is later by as much."""
    late = np.zeros(len(rows.kind))
    for step in np.unique(rows.step[chosen]):
        first = rows.start[chosen & (rows.step == step)].min()
        late[(rows.step == step) & (rows.start > first)] = seconds
    return dataclasses.replace(rows, start=rows.start + late, seconds=rows.seconds + seconds * chosen)


def of_kind(rows: OperationRows, kind: str) -> np.ndarray:
    return rows.kind == rows.kinds.index(kind)


def test_machines_that_hide_each_other_are_mended_together():
    """Of two that are equally slow, to mend one gains nothing."""

    def slow(given):
        given.work[:, 1, :, :, 0] *= 1.6
        given.work[:, 1, :, :, 5] *= 1.6

    plain = job_of(planted_in(lambda given: None, planted.Shape(ranks=8))).job.steps.sum()
    result, said = said_of(planted_in(slow, planted.Shape(ranks=8)))
    (row,) = pipeline_words.told(result)
    assert row.workers == (0, 5)
    assert "tage 1 of rank 0 computes 1.60 times" in said.replace("1.59", "1.60").replace("1.61", "1.60")
    assert "tage 1 of rank 5" in said
    assert row.times == pytest.approx(result.recorded / plain, rel=0.02)


def test_all_stages_of_a_rank_are_one_machine():
    result, said = said_of(planted_in(lambda given: given.work[..., 2].__imul__(1.5)))
    assert "All stages of rank 2 compute" in said
    assert pipeline_words.told(result)[0].title == "rank 2"


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_factor_of_few_ranks(ranks):
    _, said = said_of(planted_in(lambda given: given.work[:, 1, :, :, 1].__imul__(2.0), planted.Shape(ranks=ranks)))
    assert re.search(r"Stage 1 of rank 1 computes (1\.99|2\.0[0-2]) times as long as stage 1 of the other rank", said)


def test_a_single_rank_is_compared_with_its_other_steps():
    change = lambda given: given.work[:, 1, :, 20:].__imul__(2.0)
    result, said = said_of(planted_in(change, planted.Shape(ranks=1)))
    row = pipeline_words.told(result)[0]
    assert (row.kind, row.since) == (STAGE_OF_RANK, 20)
    assert "times as long as in other steps" in said
    plain = job_of(planted_in(lambda given: None, planted.Shape(ranks=1))).job.steps.sum()
    assert row.times == pytest.approx(result.recorded / plain, rel=0.02)
    _, said = said_of(planted_in(lambda given: given.work[:, 1].__imul__(2.0), planted.Shape(ranks=1)))
    assert "with a single rank, a slow machine would look the same" in said


def test_what_medians_do_not_show_is_no_chance():
    """A loader in the first forward computation of a rank, in every step."""
    result, said = said_of(planted_in(lambda given: given.work[0, 0, 0, :, 1].__iadd__(0.2)))
    assert pipeline_words.told(result)[0].title.startswith("stage 0 of rank 1")
    assert "whichever rank" not in said


def test_operations_other_than_forward_and_backward_are_a_machines_own():
    rows = planted_in(lambda given: None)
    slow = of_kind(rows, "optimizer") & (rows.rank == 1) & (rows.stage == 2)
    result = tried(job_of(longer(rows, slow, 0.2)))
    assert pipeline_words.told(result)[0].title == "optimizer of stage 2 of rank 1"


def test_what_all_ranks_have_in_common_is_told():
    _, said = said_of(planted_in(lambda given: given.work[:, :, :, 20:].__imul__(1.5)))
    assert "All ranks have been slower since step 20" in said

    def pause(given):
        given.work[0, :, 0, ::10] += 0.3

    result, said = said_of(planted_in(pause))
    assert pipeline_words.told(result)[0].kind == "pauses"
    assert "Find out what pauses all ranks" in said


def test_a_collective_that_always_takes_long():
    rows = planted_in(lambda given: None)
    _, said = said_of(longer(rows, of_kind(rows, "grads-reduce-scatter"), 0.3))
    assert "grads-reduce-scatter takes 4" in said
    assert "a slow network, or a rank that was not recorded" in said


def test_a_step_in_which_nothing_took_time_hides_nothing():
    def change(given):
        given.work[:, 2, :, :, 3] *= 2
        given.work[:, 0, :, 7, 0] = 0

    result, _ = said_of(planted_in(change))
    assert pipeline_words.told(result)[0].title == "stage 2 of rank 3"


def test_what_is_not_understood_is_said_beside_the_table(tmp_path, capsys):
    rows = planted_in(lambda given: given.work[:, 1, :, :, 0].__imul__(2.0))
    keep = rows.stage != 3
    columns = ("kind", "step", "rank", "stage", "start", "seconds", "number", "chunk")
    path = written(
        OperationRows(rows.kinds, **{name: getattr(rows, name)[keep] for name in columns}), tmp_path / "lost.parquet"
    )
    command.run(path, Options(), tmp_path / "out", 0)
    printed = capsys.readouterr().out
    assert "Not seen: bubbles and messages between pipeline stages (stage 2 has a forward-send" in printed
    assert "Times are lower bounds, and gains upper ones." in printed
