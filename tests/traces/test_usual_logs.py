"""Logs as frameworks and people write them: what is read, as what, and what is refused with its cure."""

import gzip
import json

import numpy as np
import pytest

from sgdlab.stragglers.follow.tail import Tail
from sgdlab.traces import Options, read
from sgdlab.traces.columns import layout
from sgdlab.traces.joining import rank_in
from sgdlab.traces.paths import number_behind_rank
from sgdlab.traces.phases import is_communication
from sgdlab.traces.text_tables import dialect_of

TIMES = np.random.default_rng(0).uniform(0.5, 2.0, (6, 4)).round(4)


@pytest.fixture
def read_text(tmp_path):
    def from_text(text, name="trace.csv", **options):
        (tmp_path / name).write_text(text)
        return read(tmp_path / name, Options(**options))

    return from_text


def rows(row, header):
    """A line for each step and worker."""
    return "\n".join([header, *(row(t, w, TIMES[t, w].item()) for t in range(6) for w in range(4))]) + "\n"


class TestNodes:
    @pytest.mark.parametrize("number", ["gpu", "local_rank"])
    def test_numbers_of_each_node_are_joined_with_it(self, read_text, number):
        recording = read_text(rows(lambda t, w, time: f"{'BA'[w // 2]},{w % 2},{t},{time}", f"node,{number},step,time"))
        assert recording.workers == ("A/0", "A/1", "B/0", "B/1")
        assert recording.nodes == ("A", "A", "B", "B")
        np.testing.assert_array_equal(recording.runtimes, TIMES[:, [2, 3, 0, 1]])
        assert any("both name a worker" in note for note in recording.notes)

    def test_a_worker_that_was_restarted_elsewhere_stays_one(self, read_text):
        text = rows(lambda t, w, time: f"A,{w},{t},{time}", "node,gpu,step,time") + "B,1,5,9\n"
        with pytest.raises(ValueError, match="worker 1 has two compute times in step 5"):
            read_text(text)
        recording = read_text(text, skip_bad_rows=True)
        assert (recording.workers, recording.nodes) == (("0", "1", "2", "3"), ("A",) * 4)  # of the rows that were kept
        np.testing.assert_array_equal(recording.runtimes, TIMES)


class TestSteps:
    def test_batches_are_counted_over_epochs(self, read_text):
        recording = read_text(rows(lambda t, w, time: f"{3 + t // 2},{t % 2},{w},{time}", "epoch,batch,rank,time"))
        assert recording.steps.tolist() == [6, 7, 8, 9, 10, 11]
        np.testing.assert_array_equal(recording.runtimes, TIMES)
        assert "epoch * 2 + batch was read as the step" in recording.notes

    def test_an_epoch_beside_steps_of_the_run_changes_nothing(self, read_text):
        recording = read_text(rows(lambda t, w, time: f"{t // 2},{t},{w},{time}", "epoch,step,rank,time"))
        assert recording.steps.tolist() == list(range(6))

    def test_a_global_step_comes_first(self, read_text):
        text = rows(lambda t, w, time: f"{t // 3},{t % 3},{100 + t},{w},{time}", "epoch,step,global_step,rank,time")
        assert read_text(text).steps.tolist() == list(range(100, 106))


class TestFirstLine:
    @pytest.mark.parametrize("line", ["0,0,0.231", "hostA;0;0,231", "7,0.2,0.3"])
    def test_one_without_names_is_refused(self, read_text, line):
        with pytest.raises(ValueError, match=r"row 1 is .*the first line must name the columns, as in rank,step,time"):
            read_text(f"{line}\n{line}\n")

    def test_times_alone_are_workers_with_a_note(self, read_text):
        recording = read_text("0.5,0.25\n1.5,1.25\n")
        np.testing.assert_array_equal(recording.runtimes, [[0.5, 0.25], [1.5, 1.25]])
        assert recording.notes == ("the first line has no names: 2 columns were read as workers",)

    def test_comments_above_it_are_left_out(self, read_text):
        text = "# job 17\n\n#\n" + rows(lambda t, w, time: f"{w},{t},{time}", "rank,step,time")
        np.testing.assert_array_equal(read_text(text).runtimes, TIMES)
        assert "begin with # were left out: 2" in read_text(text).notes[-1]
        with pytest.raises(ValueError, match="row 29 has 1 columns"):
            read_text(text + "x\n")

    def test_repetitions_of_it_are_left_out(self, read_text):
        lines = rows(lambda t, w, time: f"{w},{t},{time}", "rank,step,time").splitlines()
        recording = read_text("\n".join([*lines[:9], "rank, step,time", *lines[9:], lines[0]]) + "\n")
        np.testing.assert_array_equal(recording.runtimes, TIMES)
        assert recording.workers == ("0", "1", "2", "3")
        assert "lines that repeat the first one were left out: 2" in recording.notes

    def test_an_unnamed_column_that_counts_is_left_out(self, read_text):
        recording = read_text(rows(lambda t, w, time: f"{4 * t + w},{t},{w},{time}", ",step,rank,time"))
        np.testing.assert_array_equal(recording.runtimes, TIMES)
        assert "no name" in recording.notes[-1]
        assert read_text(",a,b\n0,1,2\n1,3,4\n").workers == ("a", "b")
        with pytest.raises(ValueError, match="column 1 must have a name"):
            read_text(",a,b\n0.5,1,2\n")
        assert dialect_of([",step,rank"]).repeated(["", "step", "rank"])


class TestColumnsOfTimes:
    def read(self, read_text, header, *columns):
        """Columns of times, each the compute times times a factor per worker."""
        factors = np.array(columns, np.float64)
        row = lambda t, w, time: ",".join(
            [str(w), str(t), *(repr(time * x) for x in np.broadcast_to(factors.T, (4, len(columns)))[w].tolist())]
        )
        return read_text(rows(row, header))

    def test_parts_and_communication(self, read_text):
        header = "rank,step,data_ms,fwd_ms,bwd_ms,allreduce_ms"
        recording = self.read(read_text, header, [100] * 4, [300] * 4, [600] * 4, [250] * 4)
        np.testing.assert_allclose(recording.runtimes, TIMES)
        np.testing.assert_allclose(recording.phases["data"], TIMES / 10)
        np.testing.assert_allclose(recording.communication["allreduce"], TIMES / 4)
        assert list(recording.phases) == ["data", "fwd", "bwd"]
        assert any("allreduce_ms was read as communication" in note for note in recording.notes)

    def test_the_whole_step_less_communication(self, read_text):
        communication = np.array([3.0, 3.0, 1.0, 3.0])  # worker 2 waits for nobody
        recording = self.read(read_text, "rank,step,step_time,comm_time", [4] * 4, communication)
        np.testing.assert_allclose(recording.runtimes, TIMES * (4 - communication))
        np.testing.assert_allclose(recording.communication["comm_time"], TIMES * communication)
        with pytest.raises(ValueError, match="row 2, column 'step_time - comm_time' is -"):
            self.read(read_text, "rank,step,step_time,comm_time", [4] * 4, [5] * 4)

    @pytest.mark.parametrize(
        ("header", "own"),
        [
            ("rank,step,forward_time,backward_time,comm_time,step_time", ("forward_time", "backward_time")),
            ("rank,step,compute_ms,comm_ms", ("compute_ms",)),
            ("rank,step,data_time,step_time", ("step_time",)),
            ("rank,step,forward_time,step_time", ("step_time",)),
            ("rank,step,data_time,comm_time,step_time", ("step_time",)),
            ("rank,step,data_time,optimizer_time,step_time", ("step_time",)),
            ("rank,step,step_time_s,eta_s,tokens_per_s,it/s", ("step_time_s",)),
            ("worker,step,duration,comm_time", ("duration",)),
            ("rank,step,compute_time,step_time", ("compute_time",)),
        ],
    )
    def test_what_own_work_is(self, header, own):
        found = layout(header.split(","), Options())
        assert (found.parts.added if found.parts else found.times) == own

    def test_two_units(self, read_text):
        with pytest.raises(ValueError, match="must be in one unit"):
            self.read(read_text, "rank,step,step_time_s,comm_ms", [1] * 4, [1] * 4)


class TestWide:
    def test_a_pattern_names_them(self, read_text):
        text = "step,time_a,time_b,loss\n0,1,2,7\n1,3,4,7\n"
        assert read_text(text, columns=("workers=TIME*",)).workers == ("time_a", "time_b")
        with pytest.raises(ValueError, match=r"--columns=workers=rank. fits none of the columns time_a, time_b, loss"):
            read_text(text, columns=("workers=rank*",))
        with pytest.raises(ValueError, match=r"--columns=workers=rank\* names these"):
            read_text(text, columns=("worker=time_a",))


def test_sends_and_waits_for_the_own_device_are_own_work(read_text):
    own = ["send_to_device", "broadcast_inputs", "h2d sync", "loss.item() sync"]
    assert [is_communication(name) for name in (*own, "grad sync", "broadcast", "send")] == [False] * 4 + [True] * 3
    recording = read_text("worker,step,phase,duration\na,0,f,1\na,0,h2d sync,2\na,0,barrier,4\nb,0,f,1\n")
    np.testing.assert_array_equal(recording.runtimes, [[3, 1]])
    assert recording.notes == ("read as communication: 'barrier'",)


class TestFiles:
    @pytest.mark.parametrize("name", ["trace.json", "trace.log", "trace.txt"])
    def test_json_lines_of_other_endings(self, read_text, name):
        lines = [json.dumps({"rank": w, "step": t, "time": TIMES[t, w].item()}) for t in range(6) for w in range(4)]
        np.testing.assert_array_equal(read_text("\n".join(lines) + "\n", name).runtimes, TIMES)

    @pytest.mark.parametrize("name", ["trace.log", "trace.txt"])
    def test_csv_of_other_endings(self, read_text, name):
        np.testing.assert_array_equal(read_text("a,b\n1,2\n", name).runtimes, [[1, 2]])

    def test_a_directory_of_them(self, tmp_path):
        for rank in range(2):
            (tmp_path / f"rank{rank}.log").write_text(f"step,time\n0,{rank + 1}\n")
        np.testing.assert_array_equal(read(tmp_path).runtimes, [[1, 2]])

    @pytest.mark.parametrize(
        ("cell", "cure"),
        [("201.5ms", "must be 201.5 alone.*--unit"), ('"1,200.5"', "must be 1200.5, without separators of thousands")],
    )
    def test_cells_with_more_than_a_number(self, read_text, cell, cure):
        with pytest.raises(ValueError, match=cure):
            read_text(f"rank,step,time\n0,0,{cell}\n")

    def test_another_encoding(self, tmp_path):
        (tmp_path / "trace.csv").write_text("rank,step,time\n0,0,1\n", encoding="utf-16")
        with pytest.raises(ValueError, match="must be UTF-8, as iconv"):
            read(tmp_path / "trace.csv")

    def test_a_rank_is_preferred_to_a_host(self, tmp_path):
        for rank in range(2):
            (tmp_path / f"host1{rank}_rank{rank}.csv").write_text(f"step,time\n0,{rank + 1}\n")
        assert read(tmp_path).workers == ("0", "1")
        path = tmp_path / "node7_gpu12.csv"
        assert (number_behind_rank(path), rank_in(path)) == ("12", "12")


def test_a_step_that_is_called_time(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("gpu,time,batch_time\n0,0,1.5\n1,0,2.5\n0,1,1.0\n1,1,3.0\n")
    recording = read(path)
    np.testing.assert_array_equal(recording.runtimes, [[1.5, 2.5], [1.0, 3.0]])
    assert "column 'time' was read as the step" in recording.notes[0]
    path.write_text("gpu,iteration,time\n0,0,1.5\n1,0,2.5\n")
    np.testing.assert_array_equal(read(path).runtimes, [[1.5, 2.5]])


def test_steps_that_were_sampled_are_said_so(tmp_path):
    """As rows of every tenth step, or as cells that are empty in all others."""
    path = tmp_path / "log.csv"
    for every in (1, 10):
        rows = [f"{rank},{step},{1.5 if step % 10 == 0 else ''}" for step in range(0, 60, every) for rank in range(2)]
        path.write_text("\n".join(["rank,step,duration", *rows]))
        assert "every 10th step was recorded" in read(path).notes


def test_a_row_that_is_there_twice_counts_once(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("rank,step,duration\n0,0,1.5\n1,0,2.5\n1,0,2.5\n0,1,1.0\n1,1,2.0\n1,1,2.0\n")
    recording = read(path)
    np.testing.assert_array_equal(recording.runtimes, [[1.5, 2.5], [1.0, 2.0]])
    assert "2 rows that are the same as others were left out" in recording.notes


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "ndjson"])
def test_packed_files_are_read_as_those_that_are_not(tmp_path, ending):
    values = [(rank, step, round(1 + rank / 8 + step / 64, 6)) for step in range(5) for rank in range(3)]
    names = ("rank", "step", "seconds")
    if ending in ("csv", "tsv"):
        separator = "," if ending == "csv" else "\t"
        text = "".join(separator.join(map(str, row)) + "\n" for row in [names, *values])
    else:
        text = "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in values)
    (tmp_path / f"plain.{ending}").write_text(text)
    (tmp_path / "packed").mkdir()
    packed = tmp_path / "packed" / f"trace.{ending}.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    plain = read(tmp_path / f"plain.{ending}")
    for path in (packed, packed.parent):
        np.testing.assert_array_equal(read(path).runtimes, plain.runtimes)
        assert read(path).workers == plain.workers == ("0", "1", "2")
    for path in (packed, packed.parent / f"*.{ending}.gz"):
        with pytest.raises(ValueError, match=r"\.gz cannot be followed: a file that grows is CSV or JSON lines"):
            Tail(path, Options())
