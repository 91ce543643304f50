"""`sgdlab_record.Recorder`: what it writes is read back exactly; it survives kills and full disks, and never raises."""

import doctest
import errno
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import sgdlab_record.recorder
from sgdlab_record import Recorder

from sgdlab import traces
from sgdlab.stragglers.follow.tail import Tail
from sgdlab.traces.options import Options

ROOT = pathlib.Path(__file__).parents[2]
TEXT = (ROOT / "docs/traces.md").read_text(encoding="utf-8")
LOOP = re.search(r"^```python\n(import sgdlab_record\n.*?)^```", TEXT, re.DOTALL | re.MULTILINE).group(1)


class Clock:
    """Stands in for the module `time`; two clocks, of which one tells the date."""

    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        return self.now

    def time(self):
        return self.now + 1e6

    def taking(self, seconds):
        def work(*arguments):
            self.now += seconds
            return arguments[0] if arguments else None

        return work


@pytest.fixture(name="clock")
def of_recorders(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(sgdlab_record.recorder, "time", clock)
    return clock


def lines(recorder):
    recorder.flush()
    return [json.loads(line) for line in pathlib.Path(recorder.path).read_text().splitlines()]


def seconds(recorder):
    return {(line["step"], line["phase"]): line["duration"] for line in lines(recorder) if "phase" in line}


def test_its_example():
    assert doctest.testmod(sgdlab_record.recorder) == (0, 4)


def test_the_printed_loop_is_read_back_and_times_the_loader_too(tmp_path, monkeypatch, clock):
    monkeypatch.chdir(tmp_path)
    for rank in range(3):
        clock.now = 100.0

        def loader(rank=rank):
            for _ in range(4):
                clock.now += 1.0 + 4.0 * rank
                yield "batch"

        namespace = {"rank": rank, "loader": loader(), "parameters": 0, "wait_for_device": lambda _: None}
        namespace |= {
            "local_gradient": clock.taking(2.0),
            "all_reduce": clock.taking(0.5),
            "update": clock.taking(0.25),
        }
        exec(LOOP, namespace)
        namespace["recorder"].close()
        assert namespace["recorder"].errors == 0
    recording = traces.read("runs/trace")
    assert recording.workers == ("0", "1", "2")
    assert recording.steps.tolist() == [0, 1, 2, 3]
    assert list(recording.phases) == ["data", "compute", "update"]  # as they come in a step
    np.testing.assert_allclose(recording.runtimes, np.tile([3.25, 7.25, 11.25], (4, 1)))
    np.testing.assert_allclose(recording.phases["data"], np.tile([1.0, 5.0, 9.0], (4, 1)))
    np.testing.assert_allclose(recording.communication["all_reduce"], 0.5)
    np.testing.assert_allclose(recording.began, 1e6 + 100 + 3.75 * np.arange(4))
    assert len(set(recording.nodes)) == 1
    assert not [note for note in recording.notes if "left out" in note]


def test_parts_of_one_phase_add_up_and_an_exception_leaves_one_out(tmp_path, clock):
    with Recorder(tmp_path, 0) as recorder:
        for _ in range(3):
            with recorder.phase("forward"):
                clock.now += 0.5
        with pytest.raises(KeyError), recorder.phase("backward"):
            raise KeyError
        recorder.step(7)
        recorder.lap("rest")
        clock.now += 2.0
        recorder.lap("data")
        with recorder.phase("forward"):
            clock.now += 4.0
        clock.now += 8.0
        recorder.lap("update")  # since the phase ended
        recorder.step()
        assert seconds(recorder) == {
            (0, "forward"): 1.5, (7, "rest"): 0.0, (7, "data"): 2.0, (7, "forward"): 4.0, (7, "update"): 8.0,
        }  # fmt: skip
        assert recorder.number == 8


def test_a_cut_tells_own_work_from_the_wait(tmp_path, clock):
    with Recorder(tmp_path, 0) as recorder:
        for cuts in (0, 1, 2):
            with recorder.phase("forward"):
                clock.now += 1.0
            with recorder.phase("backward", waits=True):
                for _ in range(cuts):  # the last one counts
                    clock.now += 2.0
                    recorder.cut()
                clock.now += 4.0
            with recorder.phase("update", waits=False):
                clock.now += 8.0
            recorder.step()
        found = seconds(recorder)
    own = {(step, name): took for step in range(3) for name, took in (("forward", 1.0), ("update", 8.0))}
    waits = {(0, "backward + wait"): 4.0, (1, "backward"): 2.0, (1, "all_reduce"): 4.0}
    assert found == own | waits | {(2, "backward"): 4.0, (2, "all_reduce"): 4.0}


def test_threads_share_a_recorder(tmp_path):
    recorder = Recorder(tmp_path, 0)

    def work():
        for _ in range(2000):
            recorder.add("data", 0.0, 1.0)

    threads = [threading.Thread(target=work) for _ in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    recorder.step()
    assert seconds(recorder) == {(0, "data"): 16_000.0}
    recorder.close()


RECORD_AND_WAIT = """
import sys, sgdlab_record
recorder = sgdlab_record.Recorder("steps", int(sys.argv[1]), seconds=0.02)
for step in range(3):
    for phase in ("compute", "all_reduce"):
        with recorder.phase(phase):
            pass
    recorder.step()
with recorder.phase("compute"):
    pass
print("recorded", flush=True)
sys.stdin.readline()
"""


def process(code, *arguments, **named):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "record")}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **named,
    )


def test_lines_are_there_while_it_records_and_after_it_was_killed(tmp_path):
    processes = [process(RECORD_AND_WAIT, str(rank), cwd=tmp_path) for rank in range(2)]
    try:
        for each in processes:
            assert each.stdout.readline() == "recorded\n"
        files = [tmp_path / "steps" / f"rank{rank}.0000.jsonl" for rank in range(2)]
        until = time.monotonic() + 60
        while not all('"unfinished_step": 3' in file.read_text() for file in files):  # nobody calls flush
            assert time.monotonic() < until
            time.sleep(0.01)
    finally:
        for each in processes:
            each.send_signal(signal.SIGKILL)
            each.communicate()
    for file in files:
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        assert [(row["step"], row["phase"]) for row in rows if "phase" in row] == [
            (step, phase) for step in range(3) for phase in ("compute", "all_reduce")
        ]
        assert [*rows[-1]["done"]] == ["compute"]  # what was going on
    assert traces.read(tmp_path / "steps").steps.tolist() == [0, 1, 2]


def test_a_forked_child_writes_nothing(tmp_path):
    code = """
import os, sys, warnings, sgdlab_record
warnings.simplefilter("ignore")  # from 3.12 on Python warns of forks beside threads, such as the recorder's
recorder = sgdlab_record.Recorder("steps", 0)
recorder.lap("data")
if os.fork() == 0:
    recorder.lap("of the child"); recorder.step(); recorder.flush(); recorder.close(); os._exit(0)
os.wait()
recorder.step(); recorder.close()
"""
    child = process(code, cwd=tmp_path)
    assert child.communicate()[1] == ""
    rows = (tmp_path / "steps/rank0.0000.jsonl").read_text().splitlines()
    assert [json.loads(row).get("phase") for row in rows] == [None, "data"]


def test_it_never_raises_where_it_cannot_begin(tmp_path, capsys):
    (tmp_path / "file").touch()
    recorder = Recorder(tmp_path / "file", 0)
    recorder.listeners.append(lambda number: 1 / 0)
    for _ in range(3):
        with recorder.phase("data"):
            pass
        recorder.add("data", "no number", None)
        recorder.step()
    recorder.flush()
    recorder.close()
    assert recorder.errors == 1 + 3 + 3
    said = capsys.readouterr().err
    assert said.startswith("sgdlab_record: FileExistsError")
    assert said.count("\n") == 1


def test_a_full_disk_loses_nothing_but_what_is_too_old(tmp_path, monkeypatch, capsys):
    recorder, write = Recorder(tmp_path, 0, seconds=1e6), os.write
    recorder.lap("a")
    recorder.step()
    recorder.flush()

    def half(file, data):
        if len(data) > 10:
            return write(file, data[:10])
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "write", half)
    monkeypatch.setattr(sgdlab_record.recorder, "MOST_LINES", 3)
    recorder.pending = type(recorder.pending)(maxlen=3)
    for _ in range(5):
        recorder.lap("a")
        recorder.step()
        recorder.flush()
    assert [*seconds(recorder)] == [(0, "a")]
    monkeypatch.setattr(os, "write", write)
    assert [*seconds(recorder)] == [(0, "a"), (3, "a"), (4, "a"), (5, "a")]
    assert recorder.errors == 6 + 2  # flushes, and lines
    assert capsys.readouterr().err.count("\n") == 1
    recorder.close()


def steps_of(recorder, numbers, clock, took=1.0):
    for number in numbers:
        recorder.number = number
        for phase in ("compute", "all_reduce"):
            with recorder.phase(phase):
                clock.now += took
        recorder.step()
        recorder.flush()


def test_files_are_rotated_and_the_oldest_removed(tmp_path, clock):
    recorders = [Recorder(tmp_path, rank, max_bytes=1000, keep=3) for rank in range(2)]
    for recorder in recorders:
        steps_of(recorder, range(40), clock)
        recorder.close()
        assert recorder.errors == 0
    files = sorted(tmp_path.iterdir())
    numbers = [[int(file.name.split(".")[1]) for file in files if file.name.startswith(f"rank{n}.")] for n in (0, 1)]
    assert numbers[0] == numbers[1] == list(range(numbers[0][-1] - 2, numbers[0][-1] + 1))
    assert max(file.stat().st_size for file in files) < 1000 + 400
    recording = traces.read(tmp_path)
    assert recording.workers == ("0", "1")
    first = recording.steps[0]
    assert recording.steps.tolist() == list(range(first, 40))
    np.testing.assert_allclose(recording.runtimes, 1.0)


def test_a_process_that_is_started_again_counts_once(tmp_path, clock):
    for rank in range(2):
        for numbers, took in ((range(10), 1.0), (range(6, 15), 2.0), (range(13, 16), 3.0)):
            with Recorder(tmp_path, rank) as recorder:
                steps_of(recorder, numbers, clock, took)
    Recorder(tmp_path, 0).close()  # and once more, without a step
    recording = traces.read(tmp_path)
    assert recording.steps.tolist() == list(range(16))
    expected = np.repeat([1.0, 2.0, 3.0], [6, 7, 3])
    np.testing.assert_allclose(recording.runtimes, np.tile(expected[:, None], 2))
    assert sum("started again" in note for note in recording.notes) == 1


def test_files_are_followed_one_after_the_other(tmp_path, clock):
    recorders = [Recorder(tmp_path, rank, max_bytes=120_000, keep=99, seconds=1e6) for rank in range(2)]
    for recorder in recorders:
        steps_of(recorder, range(50), clock)
    tail = Tail(tmp_path, Options())
    found = tail.poll()[0].tolist()
    assert found  # of one file each
    for recorder in recorders:
        steps_of(recorder, range(50, 2000), clock)
    assert len(list(tmp_path.iterdir())) >= 8
    clock.now += 1e7
    for recorder in recorders:
        recorder.flush()  # a line on the step that goes on
    while tail.unread:
        polled = tail.poll()
        assert polled is not None, tail.why
        found += polled[0].tolist()
    steps_of(recorders[0], range(2000, 2100), clock)
    steps_of(recorders[1], range(2000, 2100), clock)
    for _ in range(3):
        found += tail.poll()[0].tolist()
    found += tail.poll(end=True)[0].tolist()
    assert found == list(range(2100))
    assert tail.steps.late == tail.steps.repeated == 0
    for recorder in recorders:
        recorder.close()


def test_a_newer_format_is_refused(tmp_path):
    with Recorder(tmp_path, 0) as recorder:
        recorder.lap("data")
        recorder.step()
    path = pathlib.Path(recorder.path)
    path.write_text(path.read_text().replace('"sgdlab_record": 1', '"sgdlab_record": 2'))
    with pytest.raises(ValueError, match="format 2 of sgdlab-record"):
        traces.read(tmp_path)


@pytest.mark.parametrize(("named", "expected"), [({"RANK": "3"}, 3), ({"SLURM_PROCID": "5"}, 5), ({"RANK": "x"}, 0)])
def test_the_environment_says_the_rank(tmp_path, monkeypatch, named, expected):
    for name in sgdlab_record.recorder._RANKS:
        monkeypatch.delenv(name, raising=False)
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    with Recorder(tmp_path) as recorder:
        assert recorder.worker == expected
    with Recorder(tmp_path, "east/1") as recorder:
        assert pathlib.Path(recorder.path).name == "east_1.0000.jsonl"


def test_a_stage_of_data_may_contain_the_wait(tmp_path):
    for worker, waited in enumerate([0.0, 3.0]):
        with Recorder(tmp_path, worker) as recorder:
            for step in range(3):
                recorder.write(step, {"data + wait": 1 + waited, "compute": 5 - waited})
    recording = traces.read(tmp_path)
    np.testing.assert_array_equal(recording.communication["data + wait"], [[0, 3]] * 3)
    np.testing.assert_array_equal(recording.runtimes, [[6, 3]] * 3)


def test_a_phase_that_only_steps_had_which_were_repeated_is_gone(tmp_path):
    for more in ({"zz": 1.0}, {}):
        with Recorder(tmp_path, 0) as recorder:
            for step in range(2):
                recorder.write(step, {"compute": 1.0, "data": 1.0, "total": 2.5} | (more if step else {}))
    recording = traces.read(tmp_path)
    assert [*recording.phases] == ["compute", "data"]
    np.testing.assert_array_equal(recording.runtimes, [[2], [2]])
