"""Ranks behind a text ("dp3") and begins as dates, of steps and of operations: the same recording as of numbers."""

import datetime
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments.benchmarks.planted import pipelines as planted
from sgdlab.stragglers.follow.tail import Tail
from sgdlab.traces import Options, read, text_tables

FIRST = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
SHAPE = planted.Shape(ranks=3, stages=2, batches=3, steps=6)
ROWS = planted.recorded(SHAPE, planted.durations(SHAPE, np.random.default_rng(0)), np.random.default_rng(1))
MICROS = np.round((ROWS.start - ROWS.start.min()) * 1e6).astype(int).tolist()


def columns(**changed):
    """Operations of pipelines, each column a list; begins are microseconds after the first."""
    found = {
        "dp_rank": ROWS.rank.tolist(),
        "stage": ROWS.stage.tolist(),
        "step": ROWS.step.tolist(),
        "optype": [ROWS.kinds[kind] for kind in ROWS.kind],
        "start_ts": [micros / 1e6 for micros in MICROS],
        "duration": ROWS.seconds.round(6).tolist(),
    }
    return {name: changed.pop(name, cells) for name, cells in found.items()} | changed


def dates(form="%Y-%m-%dT%H:%M:%S.%f+00:00"):
    return [(FIRST + datetime.timedelta(microseconds=micros)).strftime(form) for micros in MICROS]


def written(folder, kind, table, separator=","):
    path = folder / f"trace.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table(table), path)
    elif kind == "jsonl":
        rows = zip(*table.values(), strict=True)
        path.write_text("".join(json.dumps(dict(zip(table, row, strict=True))) + "\n" for row in rows))
    else:
        quoted = lambda cell: f'"{cell}"' if separator in str(cell) else str(cell)
        lines = [separator.join(map(quoted, row)) for row in (table, *zip(*table.values(), strict=True))]
        path.write_text("\n".join(lines) + "\n")
    return path


def assert_same(found, expected):
    assert found.job is not None
    assert (found.workers, found.steps.tolist()) == (expected.workers, expected.steps.tolist())
    np.testing.assert_allclose(found.job.seconds, expected.job.seconds, rtol=0, atol=1e-10)
    begins, ends = (getattr(found.job.operations, name) for name in ("begin", "end"))
    np.testing.assert_allclose(begins, expected.job.operations.begin, rtol=0, atol=1e-10)
    np.testing.assert_allclose(ends, expected.job.operations.end, rtol=0, atol=1e-10)


@pytest.fixture(name="expected")
def of_numbers(tmp_path):
    return read(written(tmp_path, "csv", columns()))


KINDS = pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])


class TestRanks:
    @KINDS
    @pytest.mark.parametrize(("dp", "pp"), [("dp", "pp"), ("rank ", "stage-"), ("DP_", "")])
    def test_one_text_before_the_number(self, tmp_path, expected, kind, dp, pp):
        table = columns(dp_rank=[f"{dp}{rank}" for rank in ROWS.rank], stage=[f"{pp}{stage}" for stage in ROWS.stage])
        assert_same(read(written(tmp_path, kind, table)), expected)

    @pytest.mark.parametrize("cell", ["3.0", "3,0"])
    def test_a_number_with_an_empty_fraction(self, tmp_path, expected, cell):
        table = columns(dp_rank=[cell.replace("3", str(rank)) for rank in ROWS.rank])
        assert_same(read(written(tmp_path, "csv", table, ";")), expected)

    @KINDS
    def test_missing_cells_are_none_of_the_texts(self, tmp_path, kind):
        table = columns(dp_rank=["NA", "", *[f"dp{rank}" for rank in ROWS.rank[2:]]])
        with pytest.raises(ValueError, match=r"2 rows cannot be used[^']*\n[^']*'dp_rank' is nan; it must be a whole"):
            read(written(tmp_path, kind, table))

    def test_devices_too(self, tmp_path, expected):
        assert_same(read(written(tmp_path, "csv", columns(rank=[f"rank {rank}" for rank in ROWS.rank]))), expected)

    def test_in_pieces(self, tmp_path, expected, monkeypatch):
        monkeypatch.setattr(text_tables, "_PIECE", 300)
        assert_same(read(written(tmp_path, "csv", columns(dp_rank=[f"dp{rank}" for rank in ROWS.rank]))), expected)

    @KINDS
    @pytest.mark.parametrize(
        "cells",
        [
            ["dp0", "pp0"],  # two texts
            ["dp0", "1"],  # a text and none
            ["dp0", "-1"],
            ["dp0", "dp"],
            ["host1gpu0", "host1gpu1"],  # two numbers
            ["0,5", "1,5"],  # decimals, or a list
            ["dp0", "dp1.5"],
            ["dp-", "0-"],
        ],
    )
    def test_what_may_mean_two_things(self, tmp_path, kind, cells):
        table = columns(dp_rank=[cells[row % 2] for row in range(len(ROWS.rank))])
        first = 1 if kind != "csv" else 2
        message = f"row {first}, column 'dp_rank' is {cells[0]!r}; it must be a number, or the cell empty"
        with pytest.raises(ValueError, match=re.escape(message)):
            read(written(tmp_path, kind, table))

    def test_a_stage_by_the_name_of_its_rank(self, tmp_path, expected):
        table = columns()
        table["pp_rank"] = [f"pp{stage}" for stage in table.pop("stage")]
        found = read(written(tmp_path, "csv", table))
        assert_same(found, expected)
        assert "column 'pp_rank' was read as the stage" in found.notes


class TestDates:
    FORMS = ("%Y-%m-%dT%H:%M:%S.%f+00:00", "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S,%f", "%Y-%m-%dT%H:%M:%S.%fZ")

    @KINDS
    @pytest.mark.parametrize("form", FORMS)
    def test_begins_of_operations(self, tmp_path, expected, kind, form):
        assert_same(read(written(tmp_path, kind, columns(start_ts=dates(form)))), expected)

    def test_with_tabs_and_durations_of_another_unit(self, tmp_path, expected):
        table = columns(start_ts=dates(self.FORMS[2]))
        table["duration"] = [1e3 * seconds for seconds in table["duration"]]
        assert_same(read(written(tmp_path, "csv", table, "\t"), Options(unit="ms")), expected)

    def test_of_another_zone(self, tmp_path, expected):
        there = datetime.timezone(datetime.timedelta(hours=5, minutes=30))
        cells = [(FIRST + datetime.timedelta(microseconds=micros)).astimezone(there).isoformat() for micros in MICROS]
        assert_same(read(written(tmp_path, "csv", columns(start_ts=cells))), expected)

    def test_as_parquet_has_them(self, tmp_path, expected):
        cells = pa.array([FIRST + datetime.timedelta(microseconds=micros) for micros in MICROS], pa.timestamp("us"))
        assert_same(read(written(tmp_path, "parquet", columns(start_ts=cells))), expected)

    @pytest.mark.parametrize("piece", [300, 16_000_000])
    def test_in_pieces_of_which_some_have_none(self, tmp_path, piece, monkeypatch):
        monkeypatch.setattr(text_tables, "_PIECE", piece)
        order = np.argsort(ROWS.step, kind="stable")
        known = ROWS.step[order] > ROWS.step.min()  # of the first step none is
        table = {name: [cells[row] for row in order] for name, cells in columns().items()}
        numbers, moments = table["start_ts"], [dates()[row] for row in order]
        expected, found = (
            read(written(tmp_path, "csv", table | {"start_ts": np.where(known, cells, "").tolist()}))
            for cells in (numbers, moments)
        )
        assert expected.steps.size == SHAPE.steps - 1
        assert_same(found, expected)

    @KINDS
    @pytest.mark.parametrize(
        ("cell", "right"),
        [
            ("yesterday", "it must be a date, as in other rows, or the cell empty if it is missing"),
            ("03:04:05", "it must be a date, as in other rows"),
        ],
    )
    def test_a_cell_that_is_none(self, tmp_path, kind, cell, right):
        cells = dates()
        cells[4] = cell
        row = 6 if kind == "csv" else 5
        message = f"row {row}, column 'start_ts' is {cell!r}; {right}"
        path = written(tmp_path, kind, columns(start_ts=cells))
        with pytest.raises(ValueError, match=re.escape(message)) as caught:
            read(path)
        assert "\n" not in str(caught.value)
        assert "1 bad row was skipped" in " ".join(read(path, Options(skip_bad_rows=True)).notes)

    @KINDS
    def test_dates_beside_numbers(self, tmp_path, kind):
        cells = dates()
        cells[4] = "1767323045.25"
        row = 2 if kind == "csv" else 1
        with pytest.raises(ValueError, match=rf"row {row}, column 'start_ts' is '2026.*'; it must be a number"):
            read(written(tmp_path, kind, columns(start_ts=cells)))

    def test_files_of_which_one_has_none_and_one_has_numbers(self, tmp_path, expected):
        cells = [dates(), [""] * len(MICROS), columns()["start_ts"]]
        for number, (begins, rank) in enumerate(zip(cells, (0, 1, 2), strict=True)):
            table = columns(start_ts=begins)
            table = {name: np.array(cells)[ROWS.rank == rank].tolist() for name, cells in table.items()}
            (tmp_path / f"{number}").mkdir()
            written(tmp_path / f"{number}", "csv", table).rename(tmp_path / f"rank{number}.csv")
        found = read(tmp_path / "rank?.csv")
        assert "column 'start_ts' was left out: it holds both numbers and dates" in found.notes
        assert "no column 'start_ts'" in found.unseen
        (tmp_path / "rank2.csv").unlink()
        found = read(tmp_path / "rank?.csv", Options(skip_bad_rows=True))
        begins, all_begins = (each.job.operations.begin for each in (found, expected))
        np.testing.assert_allclose(np.diff(begins, axis=0), np.diff(all_begins[:, :, :1], axis=0), rtol=0, atol=1e-10)

    @KINDS
    def test_a_number_that_is_none(self, tmp_path, kind):
        cells = ["0x1", *map(str, columns()["start_ts"][1:])]
        with pytest.raises(ValueError, match="column 'start_ts' is '0x1'; it must be a number"):
            read(written(tmp_path, kind, columns(start_ts=cells)))

    @KINDS
    @pytest.mark.parametrize("form", FORMS)
    def test_begins_of_steps(self, tmp_path, kind, form):
        cells = [f"{(FIRST + datetime.timedelta(seconds=step, microseconds=7)).strftime(form)}" for step in range(5)]
        table = {"dp_rank": ["dp3"] * 5, "step": [*range(5)], "duration": [1.0] * 5, "start_ts": cells}
        found = read(written(tmp_path, kind, table))
        assert found.workers == ("dp3",)
        assert found.began.tolist() == [FIRST.timestamp() + step + 7e-6 for step in range(5)]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_steps_are_followed(tmp_path, kind):
    rows = [(step, rank) for step in range(30) for rank in range(3)]
    table = {
        "dp_rank": [f"dp{rank}" for _, rank in rows],
        "step": [step for step, _ in rows],
        "duration": [1.0 + rank for _, rank in rows],
        "start_ts": [(FIRST + datetime.timedelta(seconds=step)).isoformat() for step, _ in rows],
    }
    path = written(tmp_path, kind, table)
    tail = Tail(path, Options())
    steps, runtimes = tail.poll(end=True)
    assert tuple(tail.steps.workers) == read(path).workers == ("dp0", "dp1", "dp2")
    assert steps.tolist() == [*range(30)]
    np.testing.assert_array_equal(runtimes, read(path).runtimes)


@pytest.mark.parametrize("name", ["job", "run_id"])
def test_several_jobs_in_one_file_are_refused_by_their_column(tmp_path, name):
    path, header = tmp_path / "trace.csv", f"{name},rank,step,seconds"
    jobs = {job: [f"{job},{r},{t},{1 + k + r / 8}" for t in range(9) for r in range(2)] for k, job in enumerate("bca")}
    path.write_text("\n".join([header, *jobs["b"], *jobs["c"], *jobs["a"], ""]))
    with pytest.raises(ValueError, match=rf"column '{name}' has 3 values, .*: keep the rows of one job, such as 'b'"):
        read(path)
    with pytest.raises(ValueError, match="worker 0 has two compute times in step 0"):
        read(path, Options(columns=("job=",)))
    # One job, and one that is called otherwise where it was started again and goes on.
    for rows in (jobs["c"], [*jobs["b"][:8], *jobs["c"][8:]]):
        path.write_text("\n".join([header, *rows, ""]))
        assert read(path).runtimes.shape == (9, 2)
