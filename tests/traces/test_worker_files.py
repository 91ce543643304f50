"""One file for each worker: in a directory, of a pattern, and alone; and steps of workers put together."""

import pathlib

import numpy as np
import pytest

from sgdlab.traces import BadTrace, Options, read
from sgdlab.traces.joining import WorkerSteps, together
from sgdlab.traces.paths import files, workers

RUNTIMES = np.random.default_rng(0).uniform(0.5, 2.0, (4, 12))


@pytest.fixture
def folder(tmp_path):
    """Twelve files of four steps, with phases of 3/4 and 1/4 of the compute time, and as long a barrier."""

    def write(ending, name="rank{}"):
        for rank, column in enumerate(RUNTIMES.T.tolist()):
            rows = [
                (step, phase, time * share)
                for step, time in enumerate(column, 7)
                for phase, share in (("f", 0.75), ("b", 0.25), ("barrier", 1))
            ]
            if ending == "csv":
                lines = ["step,phase,seconds", *(f"{step},{phase},{time!r}" for step, phase, time in rows)]
            else:
                lines = [f'{{"step": {step}, "phase": "{phase}", "seconds": {time!r}}}' for step, phase, time in rows]
            (tmp_path / f"{name.format(rank)}.{ending}").write_text("\n".join(lines) + "\n")
        return tmp_path

    return write


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
@pytest.mark.parametrize("pattern", ["", "rank*.{}"])
def test_all_of_them(folder, ending, pattern):
    path = folder(ending)
    (path / "notes.txt").write_text("not for us")
    (path / ".rank3.csv.part").write_text("unfinished")
    recording = read(path / pattern.format(ending) if pattern else path)
    np.testing.assert_array_equal(recording.runtimes, RUNTIMES)  # these shares add up without rounding
    np.testing.assert_array_equal(recording.communication["barrier"], RUNTIMES)
    assert recording.workers == tuple(map(str, range(12)))
    assert recording.steps.tolist() == [7, 8, 9, 10]


def test_one_of_them(folder):
    recording = read(folder("csv") / "rank11.csv")
    np.testing.assert_array_equal(recording.runtimes, RUNTIMES[:, 11:])
    assert recording.workers == ("11",)


def test_a_single_file_is_no_workers_only_because_of_its_name(tmp_path):
    (tmp_path / "gpu8.csv").write_text("host,step,duration\nx,0,1\ny,0,2\n")
    assert read(tmp_path / "gpu8.csv").workers == ("x", "y")
    (tmp_path / "gpu8.csv").write_text("step,x,y\n0,1,2\n")
    assert read(tmp_path / "gpu8.csv").workers == ("x", "y")


def test_a_column_of_workers_is_stronger_than_the_name(tmp_path):
    for rank in range(2):
        (tmp_path / f"rank{rank}.csv").write_text(f"worker,step,duration\nw{rank},0,{rank + 1}\n")
    assert read(tmp_path).workers == ("w0", "w1")
    (tmp_path / "rank2.csv").write_text("worker,step,duration\nw0,1,5\n")  # that worker's second file
    np.testing.assert_array_equal(read(tmp_path).runtimes, [[1, 2], [5, np.nan]])


def test_where_every_file_is_a_workers_the_host_is_its_machine(tmp_path):
    for rank in range(3):
        (tmp_path / f"rank{rank}.csv").write_text(f"step,duration,host\n0,{rank + 1},h{rank // 2}\n")
    recording = read(tmp_path)
    assert (recording.workers, recording.nodes) == (("0", "1", "2"), ("h0", "h0", "h1"))


def test_bad_rows_of_all_files(tmp_path):
    for rank in range(3):
        (tmp_path / f"rank{rank}.csv").write_text(f"step,duration\n0,1\n1,{'x' if rank else 1}\n0,2\n")
    with pytest.raises(ValueError, match="5 rows cannot be used") as caught:
        read(tmp_path)
    message = str(caught.value)
    for line in (
        "row 3 of rank1.csv, column 'duration' is 'x'",
        "worker 2 has two compute times in step 0 (row 2 of rank2.csv, row 4 of rank2.csv)",
    ):
        assert line in message
    np.testing.assert_array_equal(
        read(tmp_path, Options(skip_bad_rows=True)).runtimes, [[1, 1, 1], [1, np.nan, np.nan]]
    )


def test_a_worker_that_has_not_begun_is_left_out(tmp_path):
    (tmp_path / "rank0.csv").write_text("step,duration\n0,1\n")
    (tmp_path / "rank1.csv").write_text("")
    recording = read(tmp_path)
    assert recording.workers == ("0",)
    assert "rank1.csv" in recording.notes[-1]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("iter,duration\n0,1\n", "rank1.csv has other columns than rank0.csv"),
        ("a,b\n1,2\n", "a column for each worker"),
    ],
)
def test_files_that_do_not_belong_together(tmp_path, second, message):
    (tmp_path / "rank0.csv").write_text("step,duration\n0,1\n")
    (tmp_path / "rank1.csv").write_text(second)
    with pytest.raises(ValueError, match=message):
        read(tmp_path)


def test_names_of_workers(tmp_path):
    names = ["logs/rank10.jsonl", "logs/rank_2.jsonl", "logs/Worker-3.csv", "logs/east.csv", "logs/trace7.csv"]
    assert list(workers([*map(pathlib.Path, names)]).values()) == ["10", "2", "3", "east", "trace7"]
    for name in ("rank2.csv", "rank10.csv", "rank1.csv"):
        (tmp_path / name).touch()
    assert [file.name for file in files(tmp_path, (".csv",))] == ["rank1.csv", "rank2.csv", "rank10.csv"]
    for job in "ab":
        (tmp_path / f"{job}-rank1.csv").touch()
    twice = workers(files(tmp_path / "?-rank1.csv", ()))
    assert list(twice.values()) == ["a-rank1", "b-rank1"]  # the number alone would be that of both


def worker(name, steps, own, node="", began=None, **communication):
    steps, own = np.array(steps, np.int64), np.array(own, np.float64)
    times = {kind: np.array(values, np.float64) for kind, values in communication.items()}
    began = np.full(own.shape, np.nan) if began is None else np.array(began)
    return WorkerSteps(name, steps, own, times, {"all": own}, began, node)


def test_workers_are_put_side_by_side_by_step_number():
    recording = together([
        worker("10", [3, 2], [3.0, 2.0], node="b", began=[30.0, 20.0], send=[1.0, 2.0]),
        worker("9", [2, 4], [5.0, 6.0], node="a", began=[19.0, 41.0]),
    ])  # fmt: skip
    assert recording.workers == ("9", "10")
    assert recording.nodes == ("a", "b")
    assert recording.steps.tolist() == [2, 3, 4]
    np.testing.assert_array_equal(recording.runtimes, [[5.0, 2.0], [np.nan, 3.0], [6.0, np.nan]])
    # A worker that does not know a collective spent no time in it; in a step that it has not recorded that is unknown.
    np.testing.assert_array_equal(recording.communication["send"], [[0.0, 2.0], [np.nan, 1.0], [0.0, np.nan]])
    np.testing.assert_array_equal(recording.phases["all"], recording.runtimes)
    np.testing.assert_array_equal(recording.began, [19.0, 30.0, 41.0])
    assert "2 of 3 steps" in recording.notes[-1]


def test_several_files_of_a_worker_are_joined_and_the_first_of_a_repeated_step_counts():
    recording = together([worker("0", [1, 2], [1.0, 2.0]), worker("0", [2, 3], [9.0, 3.0])])
    np.testing.assert_array_equal(recording.runtimes, [[1.0], [2.0], [3.0]])
    assert recording.notes == ("1 steps of a worker were recorded more than once: the first of each was taken.",)


def test_a_step_without_work_is_missing_and_machines_must_be_known_of_all():
    recording = together(
        [worker("0", [1, 2, 3], [1.0, 0.0, np.nan], node="a"), worker("1", [1, 2, 3], [1.0, 1.0, 1.0])]
    )
    np.testing.assert_array_equal(recording.runtimes, [[1.0, 1.0], [np.nan, 1.0], [np.nan, 1.0]])
    assert recording.nodes == ()
    assert recording.began is None


@pytest.mark.parametrize("parts", [[], [worker("0", [], [])], [worker("0", [1], [-1.0])]])
def test_without_a_step_there_is_no_recording(parts):
    with pytest.raises(BadTrace, match="steps"):
        together(parts)
