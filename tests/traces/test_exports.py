"""Tables as databases, spreadsheets and log rotation leave them: sorted, in other types, in other files."""

import decimal
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from sgdlab.traces import read

STAGES = ("data", "forward", "backward", "update")


def with_a_wait(steps=60, workers=4):
    """Rows of stages with their starts; the wait for the others is in backward, and worker 3 is slow in forward."""
    draw = np.random.default_rng(0).gamma
    own = {"data": draw(20, 0.01, (steps, workers)), "forward": draw(200, 0.002, (steps, workers))}
    own["forward"][:, 3] *= 1.6
    own["update"] = draw(100, 0.001, (steps, workers))
    rows, clock = [], np.zeros(workers)
    for t in range(steps):
        comes = clock + own["data"][t] + own["forward"][t]
        end = comes.max() + 0.3
        for w in range(workers):
            starts = (clock[w], clock[w] + own["data"][t, w], comes[w], end)
            ends = (*starts[1:], end + own["update"][t, w])
            rows += [(w, t, name, b - a, a) for name, a, b in zip(STAGES, starts, ends, strict=True)]
        clock = end + own["update"][t]
    return rows


@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize("key", [None, lambda row: (row[1], row[0], row[2]), lambda row: (row[0], row[2], row[1])])
def test_the_wait_is_found_in_whatever_order_rows_are(tmp_path, key, start):
    rows = with_a_wait()
    rows = rows if key is None else sorted(rows, key=key)
    lines = [",".join(map(str, row if start else row[:-1])) for row in rows]
    (tmp_path / "trace.csv").write_text("rank,step,phase,duration" + ",start" * start + "\n" + "\n".join(lines) + "\n")
    recording = read(tmp_path / "trace.csv")
    assert (tuple(recording.phases), list(recording.communication)) == (STAGES, ["backward + wait"])
    assert any("the usual one was taken" in note for note in recording.notes) == (key is not None and not start)


def test_the_wait_is_found_in_columns_that_a_pivot_has_sorted(tmp_path):
    cells = {(w, t, name): seconds for w, t, name, seconds, _ in with_a_wait()}
    lines = ["rank,step," + ",".join(f"{name}_s" for name in sorted(STAGES))]
    lines += [
        ",".join(map(str, (w, t, *(cells[w, t, name] for name in sorted(STAGES))))) for t in range(60) for w in range(4)
    ]
    (tmp_path / "trace.csv").write_text("\n".join(lines) + "\n")
    recording = read(tmp_path / "trace.csv")
    assert (tuple(recording.phases), list(recording.communication)) == (STAGES, ["backward + wait"])


def test_the_order_in_which_stages_begin_is_theirs_whatever_they_are_called(tmp_path):
    rows = [(w, t, {"data": "z", "forward": "b", "backward": "a", "update": "y"}[n], s, at)
            for w, t, n, s, at in with_a_wait()]  # fmt: skip
    lines = [",".join(map(str, row)) for row in sorted(rows, key=lambda row: row[2])]
    (tmp_path / "trace.csv").write_text("rank,step,phase,duration,start\n" + "\n".join(lines) + "\n")
    assert tuple(read(tmp_path / "trace.csv").phases) == ("z", "b", "a", "y")


def test_decimals_and_views_of_texts_of_parquet_are_read(tmp_path):
    exact = lambda values: pa.array([decimal.Decimal(f"{value:.3f}") for value in values], pa.decimal128(12, 3))
    view = lambda values: pa.array(values).cast(pa.string_view())
    table = {
        "step": exact([0, 0, 1, 1]), "rank": view(["a", "b"] * 2), "host": view(["h0", "h1"] * 2),
        "compute_time": [1.0, 2.0, 3.0, 4.0], "comm_time": exact([0.25] * 4),
    }  # fmt: skip
    pyarrow.parquet.write_table(pa.table(table), tmp_path / "trace.parquet")
    recording = read(tmp_path / "trace.parquet")
    assert (recording.workers, recording.nodes, recording.steps.tolist()) == (("a", "b"), ("h0", "h1"), [0, 1])
    np.testing.assert_array_equal(recording.runtimes, [[1, 2], [3, 4]])
    np.testing.assert_array_equal(recording.communication["comm_time"], np.full((2, 2), 0.25))


def test_what_a_table_says_of_all_workers_is_none_of_them(tmp_path):
    (tmp_path / "trace.csv").write_text("step,alpha,beta,mean,max,std\n0,1,2,1.5,2,0.5\n1,1,3,2,3,1\n")
    recording = read(tmp_path / "trace.csv")
    assert recording.workers == ("alpha", "beta")
    assert "columns 'mean', 'max', 'std' were not read as workers" in " ".join(recording.notes)


@pytest.mark.parametrize("names", [("train.0.csv", "train.1.csv"), ("10.0.0.1.csv", "10.0.0.2.csv")])
def test_files_are_told_apart_by_what_is_behind_a_dot(tmp_path, names):
    for name in names:
        (tmp_path / name).write_text("step,time\n0,1\n1,2\n")
    assert read(tmp_path).workers == tuple(name.removesuffix(".csv") for name in names)


def test_epochs_in_files_that_rotate_are_all_read(tmp_path):
    row = lambda epoch, step: json.dumps({"epoch": epoch, "step": step, "time": 1.0 + epoch}) + "\n"
    for rank in range(2):
        for file, epochs in (("0000", (0, 1)), ("0001", (2,))):
            lines = [row(epoch, step) for epoch in epochs for step in range(5)]
            (tmp_path / f"rank{rank}.{file}.jsonl").write_text("".join(lines))
    assert read(tmp_path).runtimes[:, 0].tolist() == [1.0] * 5 + [2.0] * 5 + [3.0] * 5
    # The job was started again in epoch 1: what it has again counts once.
    for rank in range(2):
        (tmp_path / f"rank{rank}.0001.jsonl").write_text("".join(row(1, step) for step in range(3, 8)))
    recording = read(tmp_path)
    assert recording.runtimes.shape == (5 + 3 + 5, 2)
    assert any("recorded again" in note for note in recording.notes)


def test_lines_of_the_recorder_that_are_no_rows_are_not_said_and_others_once(tmp_path):
    for rank in range(3):
        lines = [{"step": step, "duration": 1.0} for step in range(4)]
        lines += [{"unfinished_step": 3, "after": 1.5, "done": {}}] * 2 + [{"loss": 0.5}] * (rank + 1)
        (tmp_path / f"rank{rank}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    left_out = [note for note in read(tmp_path).notes if "left out" in note]
    assert left_out == ["lines without 'step' or 'duration' were left out: 6"]


def test_files_of_machines_are_of_their_workers(tmp_path):
    for node in ("nodeA", "nodeB"):
        rows = [f"{node},{rank},{step},{1 + rank}" for step in range(4) for rank in range(2)]
        (tmp_path / f"{node}.csv").write_text("host,local_rank,step,time\n" + "\n".join(rows) + "\n")
    recording = read(tmp_path)
    assert recording.workers == ("nodeA/0", "nodeA/1", "nodeB/0", "nodeB/1")
    assert recording.nodes == ("nodeA", "nodeA", "nodeB", "nodeB")
    np.testing.assert_array_equal(recording.runtimes, [[1, 2, 1, 2]] * 4)
