"""Columns of usual logs: which holds what, in which unit, and what is refused because two could be meant."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sgdlab.traces import BadTrace, Options, read
from sgdlab.traces.column_names import start_per_second, unit_of
from sgdlab.traces.columns import layout
from sgdlab.traces.options import SECONDS

LONG = {
    # header: worker, step, duration, unit, further parts
    "worker,step,duration": ("worker", "step", "duration", "s", {}),
    "rank,iteration,time_ms": ("rank", "iteration", "time_ms", "ms", {}),
    "Rank,Iteration,Time (ms)": ("Rank", "Iteration", "Time (ms)", "ms", {}),
    "globalRank,globalStep,stepTimeMs": ("globalRank", "globalStep", "stepTimeMs", "ms", {}),
    "global_rank,local_rank,global_step,loss,step_time_s": ("global_rank", "global_step", "step_time_s", "s", {}),
    "dp_rank,iter,elapsed_us": ("dp_rank", "iter", "elapsed_us", "us", {}),
    "worker_id,epoch,batch,batch_time [ns]": ("worker_id", "batch", "batch_time [ns]", "ns", {"epoch": "epoch"}),
    "process,step,seconds": ("process", "step", "seconds", "s", {}),
    "hostname,step,duration": ("hostname", "step", "duration", "s", {}),
    "worker,rank,step,iteration,duration,time": ("worker", "step", "duration", "s", {}),
    "rank,step,compute_time,step_time": ("rank", "step", "compute_time", "s", {}),
    "rank,step,time,step_time": ("rank", "step", "step_time", "s", {}),
    "rank,host,step,op,timestamp,dur_us": (
        "rank", "step", "dur_us", "us", {"node": "host", "phase": "op", "start": "timestamp"},
    ),
    "worker,step,duration,phase,event,node,start_us": (
        "worker", "step", "duration", "s", {"phase": "phase", "node": "node", "start": "start_us"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("header", LONG)
def test_long(header):
    worker, step, duration, unit, others = LONG[header]
    found = layout(header.split(","), Options())
    assert (found.kind, found.unit) == ("long", unit)
    assert dict(found.columns) == {"worker": worker, "step": step, "duration": duration} | others


@pytest.mark.parametrize(
    ("header", "step", "workers", "unit"),
    [
        ("a,b", None, "a,b", "s"),
        ("step,a,b", "step", "a,b", "s"),
        ("b,Iteration,a", "Iteration", "b,a", "s"),
        ("step,w0_ms,w1_ms", "step", "w0_ms,w1_ms", "ms"),
        ("w0_ms,w1_us", None, "w0_ms,w1_us", "s"),
        ("us,eu,asia", None, "us,eu,asia", "s"),
        ("step,timestamp,a", "step", "a", "s"),
        ("gpu,host,c", None, "gpu,host,c", "s"),
        ("step,rank0,rank1,loss,lr,epoch", "step", "rank0,rank1", "s"),
        ("step,rank0,rank1,grad_norm,step_time", "step", "rank0,rank1", "s"),
        ("_step,t/rank0,t/rank0__MIN,t/rank0__MAX,t/rank1,t/rank1__MIN,_runtime", "_step", "t/rank0,t/rank1", "s"),
        ("step,east,west,loss", "step", "east,west", "s"),
        ("step,node0_gpu0,node0_gpu1,node1_gpu0,note", "step", "node0_gpu0,node0_gpu1,node1_gpu0", "s"),
    ],
)
def test_wide(header, step, workers, unit):
    found = layout(header.split(","), Options())
    assert (found.kind, found.unit, ",".join(found.workers)) == ("wide", unit, workers)
    assert found.columns.get("step") == step
    left = {*header.split(",")} - {*found.workers, *found.columns.values()}
    assert any("were not read as workers" in note for note in found.notes) == bool(left)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("r,i,t", {"worker": "r", "step": "i", "duration": "t"}),
        ("R, I ,T", {"worker": "r", "step": "i", "duration": "t"}),
        ("worker=r,step=i,duration=t", {"worker": "r", "step": "i", "duration": "t"}),
        ("r,i,t,node=worker", {"worker": "r", "step": "i", "duration": "t", "node": "worker"}),
        ("duration=t,phase=", {"worker": "worker", "step": "step", "duration": "t"}),
        ("duration=t", {"worker": "worker", "step": "step", "duration": "t", "phase": "op"}),
    ],
)
def test_what_a_person_says_comes_first(columns, expected):
    header = ["r", "i", "t", "worker", "step", *(["op"] if columns == "duration=t" else [])]
    found = layout(header, Options(columns=tuple(columns.split(","))))
    assert dict(found.columns) == expected
    assert not found.guessed - {"phase"}  # nothing else was recognised by another name than ours


@pytest.mark.parametrize(
    ("header", "columns", "message"),
    [
        ("rank,worker_id,step,time", "", "columns 'rank' and 'worker_id' could be the worker.*--columns=worker=rank"),
        ("rank,step,time_ms,time_us", "", "columns 'time_ms' and 'time_us' could be the duration.*=duration=time_ms"),
        ("rank,iter,iteration,time", "", "columns 'iter' and 'iteration' could be the step"),
        ("rank,step,duration,op,event", "", "columns 'op' and 'event' could be the phase"),
        ("rank,duration", "", "column 'rank' must come with step: worker, step, duration make a long table"),
        ("time,loss", "", "column 'time' must come with worker, step: .*The columns are time, loss"),
        ("worker,step", "", "column 'worker' must come with duration"),
        ("a,b,c", "a,b,x", "--columns=a,b,x names 'x'; the columns are a, b, c"),
        ("a,b,c,d", "a,b,c,d", "--columns=a,b,c,d must be the names of the columns of worker, step, duration, or part"),
        ("a,b,c", "machine=a", "--columns=machine=a must be the names .* one of worker, step, duration, node, phase"),
        ("a,b,c", "worker=a", "column 'a' must come with step, duration"),
    ],
)
def test_refusals_name_the_columns_and_the_flag(header, columns, message):
    with pytest.raises(BadTrace, match=message):
        layout(header.split(","), Options(columns=tuple(filter(None, columns.split(",")))))


def test_units_of_names():
    for unit, words in {"s": "s,sec,seconds", "ms": "ms,milliseconds", "us": "us,µs", "ns": "ns,nanos"}.items():
        for word in words.split(","):
            assert [unit_of(name) for name in (f"time_{word}", f"Time ({word})", f"time-{word}")] == [unit] * 3
    assert [unit_of(name) for name in ("times", "columns", "status", "w0")] == [None] * 4


@pytest.mark.parametrize("unit", SECONDS)
@pytest.mark.parametrize("said", [True, False])
def test_durations_are_divided_by_their_unit(tmp_path, unit, said):
    column = "time" if said else f"time_{unit}"
    path = tmp_path / "trace.csv"
    path.write_text(f"rank,iteration,{column}\n0,3,350\n1,3,7\n")
    recording = read(path, Options(unit=unit if said else None))
    np.testing.assert_array_equal(recording.runtimes, np.array([[350.0, 7.0]]) / SECONDS[unit])
    unit_in_note = any("durations were read as" in note for note in recording.notes)
    assert unit_in_note == (not said and unit != "s")
    assert all(word in recording.notes[0] for word in ("rank", "iteration", "worker", "step"))


def test_a_unit_that_is_said_is_stronger_than_the_name(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("rank,iteration,time_ms\n0,3,350\n1,3,7\n")
    np.testing.assert_array_equal(read(path, Options(unit="us")).runtimes, [[350e-6, 7e-6]])


@pytest.mark.parametrize(
    ("name", "first", "scale"),
    [
        ("start", 12.5, 7),
        ("ts", 1.7e9, 1),
        ("ts", 1.7e12, 1e3),
        ("ts", 1.7e15, 1e6),
        ("ts", 1.7e18, 1e9),
        ("ts_ns", 3, 1e9),
    ],
)
def test_units_of_starts(name, first, scale):
    assert start_per_second(name, first, 7) == scale


class TestBegan:
    def read(self, tmp_path, starts, name="start"):
        path = tmp_path / "trace.csv"
        rows = [f"{'ab'[i % 2]},{i // 2},1,{start}" for i, start in enumerate(starts)]
        path.write_text("\n".join([f"worker,step,duration,{name}", *rows]))
        return read(path)

    def test_the_first_worker_begins_a_step(self, tmp_path):
        recording = self.read(tmp_path, [5, 4, "", 6, 9, 8.5])
        np.testing.assert_array_equal(recording.began, [4, 6, 8.5])

    def test_dates(self, tmp_path):
        dates = ["2024-05-01T12:00:00Z", "2024-05-01 14:00:01+02:00", "2024-05-01T12:00:03.5"]
        began = self.read(tmp_path, [date for date in dates for _ in "ab"], "timestamp").began
        np.testing.assert_allclose(began - began[0], [0, 1, 3.5], atol=1e-6)
        assert began[0] == np.datetime64("2024-05-01T12:00:00").astype(int)

    def test_a_clock_that_begins_anew_is_none(self, tmp_path):
        recording = self.read(tmp_path, [0, 0, 0, 0.5])
        assert recording.began is None
        assert "'start' was left out" in recording.notes[-1]

    def test_other_texts_are_left_out(self, tmp_path):
        recording = self.read(tmp_path, ["noon", 1, 2, 3])
        assert recording.began is None
        assert "'start' was left out" in recording.notes[0]


def test_machines(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("worker,step,duration,node\na,0,1,n1\nb,0,1,n2\nc,0,1,n1\na,1,1,n3\nb,1,1,\nd,1,1,\n")
    recording = read(path)
    assert recording.nodes == ("n3", "n2", "n1", "")
    assert "a" in recording.notes[0].split(": ")[1].split(", ")
    assert read(path, Options(workers_per_node=3)).nodes == ("node 0",) * 3 + ("node 1",)


@pytest.mark.parametrize(
    ("times", "word"),
    [([[2e5, 3e5]] * 2, "unit"), ([[2e-8, 3e-8]] * 2, "unit"), (np.arange(1.0, 21).reshape(10, 2), "since the start")],
)
def test_doubtful_times_are_noted(tmp_path, times, word):
    np.save(tmp_path / "trace.npy", times)
    assert word in read(tmp_path / "trace.npy").notes[0]
    np.save(tmp_path / "trace.npy", np.tile([[1.0, 2.0], [2.0, 1.0]], (5, 1)))
    assert read(tmp_path / "trace.npy").notes == ()


STEPS, TIMES = np.arange(1, 25), np.random.default_rng(0).gamma(50, 0.005, (24, 3))


def table(header, *columns):
    rows = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
    return "\n".join([header, *rows, ""])


COUNTING = {
    "of each step": ("trainer,it,secs", np.tile([1, 2, 3], 8), np.repeat(STEPS[:8], 3), TIMES[:, 0]),
    "of each worker": ("trainer,it,secs", np.repeat([0, 1, 2], 8), np.tile(STEPS[:8], 3), TIMES[:, 0]),
    "in any order": ("trainer,tick,took", [3, 1, 2] * 8, np.repeat(STEPS[:8], 3)[::-1], TIMES[:, 0]),
    "milliseconds": ("trainer,tick,took", np.tile([1, 2, 3], 8), np.repeat(STEPS[:8], 3), [251, 248, 260, 249] * 6),
    "two times": ("trainer,it,secs,wait", np.tile([1, 2, 3], 8), np.repeat(STEPS[:8], 3), *TIMES.T[:2]),
    "a step that is known": ("trainer,step,took", np.tile([4, 7, 9], 8), np.repeat(STEPS[:8], 3), TIMES[:, 0]),
    "names of workers": ("trainer,tick,took", np.tile(["east", "west"], 12), np.repeat(STEPS[:12], 2), TIMES[:, 0]),
    "a wide one": ("tick,east,west", STEPS, TIMES[:, 0], TIMES[:, 1]),
}  # fmt: skip


@pytest.mark.parametrize("case", COUNTING)
def test_columns_that_only_count_are_no_workers(tmp_path, case):
    header, *columns = COUNTING[case]
    (tmp_path / "trace.csv").write_text(table(header, *columns))
    names = "step=tick" if case == "a wide one" else ",".join(header.split(",")[:3])
    told = names.replace("secs", "DURATION") if case == "two times" else names
    with pytest.raises(ValueError, match=rf"only counts?, and .*were not recognised. --columns={told} names"):
        read(tmp_path / "trace.csv")
    recording = read(tmp_path / "trace.csv", Options(columns=tuple(names.split(","))))
    assert recording.runtimes.size == (48 if case == "a wide one" else 24)


@pytest.mark.parametrize(
    ("header", "columns", "workers"),
    [
        ("east,west,asia", TIMES.T, 3),
        ("step,east,west", (STEPS, *TIMES.T[:2]), 2),
        ("rank0,rank1,rank2", (STEPS, *TIMES.T[:2]), 3),  # their names are enough
        ("east,west", (1000 * TIMES.T[:2]).round().astype(int), 2),
        ("east,west", ([1.0] * 24, TIMES[:, 0]), 2),
        ("east,west", ([1, 2, 3, 2] * 6, [2, 3, 5, 2] * 6), 2),
        ("east,west", ([1, 1, 1, 2] * 6, [1, 2, 2, 2] * 6), 2),
        ("east,west,asia", ([2.0, 1.0] * 12, *TIMES.T[:2]), 3),
    ],
)
def test_columns_of_times_are_workers(tmp_path, header, columns, workers):
    (tmp_path / "trace.csv").write_text(table(header, *columns))
    assert len(read(tmp_path / "trace.csv").workers) == workers


@pytest.mark.parametrize("name", ["took", "time_ms"])
@pytest.mark.parametrize("kind", ["s", "ms", "us", "ns"])
def test_spans_of_time_in_parquet_have_their_own_unit(tmp_path, kind, name):
    spans = pa.array([[1, 2, 4, None][row % 4] for row in range(8)], pa.duration(kind))
    table = pa.table({"rank": [row % 2 for row in range(8)], "step": [row // 2 for row in range(8)], name: spans})
    pq.write_table(table, tmp_path / "trace.parquet", store_schema=True)
    found = read(tmp_path / "trace.parquet", Options(columns=(f"duration={name}",))).runtimes
    np.testing.assert_allclose(found * SECONDS[kind], [[1, 2], [4, np.nan]] * 2, rtol=1e-12)


@pytest.mark.parametrize(
    ("column", "unit", "doubted"),
    [
        ("time", None, True),
        ("time", "s", False),
        ("time", "ms", False),
        ("time_s", None, False),
        ("duration", None, False),
    ],
)
def test_times_that_look_like_milliseconds_are_doubted_unless_their_unit_is_known(tmp_path, column, unit, doubted):
    (tmp_path / "trace.csv").write_text(f"rank,step,{column}\n0,0,250\n1,0,260\n0,1,254\n1,1,240\n")
    words = "column 'time' names no unit: its usual value 252 is read as seconds; --unit=ms says otherwise"
    assert any(words in note for note in read(tmp_path / "trace.csv", Options(unit=unit)).notes) == doubted


def test_columns_that_count_are_workers_where_a_person_says_so(tmp_path):
    (tmp_path / "trace.csv").write_text(table("east,west", STEPS, TIMES[:, 0]))
    assert read(tmp_path / "trace.csv", Options(columns=("workers=*",))).workers == ("east", "west")
