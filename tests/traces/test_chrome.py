"""Traces of other tools in Chrome's format."""

import json

import numpy as np
import pytest

from sgdlab import protocols, traces
from sgdlab.cluster import Gamma
from sgdlab.results.trace import write_trace
from sgdlab.traces import Options


def span(name, begin, end, pid=1, tid=1, **arguments):
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": begin, "dur": end - begin, "args": arguments}


def named(pid, name, tid=None):
    return {"ph": "M", "name": "thread_name" if tid else "process_name", "pid": pid, "tid": tid, "args": {"name": name}}


def write(path, events, *, array=True):
    path.write_text(json.dumps(events if array else {"traceEvents": events, "displayTimeUnit": "ms"}))
    return path


@pytest.mark.parametrize("array", [True, False])
def test_processes_are_workers_and_their_events_parts_of_a_step(tmp_path, array):
    events = [named(1, "rank 1"), named(2, "rank 0")]
    for pid, wait in ((1, 10), (2, 40)):
        for step in (7, 8):
            begin = 1000 * step
            events += [
                span("train_step", begin, begin + 100, pid, step=step),
                span("forward", begin + 5, begin + 20, pid),
                span("all_reduce", begin + 100 - wait, begin + 100, pid, tid=2),
                span("nccl:barrier", begin + 500, begin + 600, pid),  # in no step
            ]
    recording = traces.read(write(tmp_path / "trace.json", events, array=array))
    assert recording.workers == ("rank 0", "rank 1")
    assert recording.steps.tolist() == [7, 8]
    np.testing.assert_allclose(recording.runtimes, np.tile([60e-6, 90e-6], (2, 1)))
    np.testing.assert_allclose(recording.communication["all_reduce"], np.tile([40e-6, 10e-6], (2, 1)))
    assert set(recording.communication) == {"all_reduce"}
    np.testing.assert_allclose(recording.phases["forward"], 15e-6)
    np.testing.assert_allclose(sum(recording.phases.values()), recording.runtimes)
    np.testing.assert_allclose(recording.began, [7e-3, 8e-3])


@pytest.mark.parametrize("name", ["step {}", "TrainStep#{}", "Train step ({})", "iteration_{}", "batch {}", "Step: {}"])
def test_numbers_are_in_names(tmp_path, name):
    events = [span(name.format(step), 10 * step, 10 * step + 4) for step in (2, 3)]
    recording = traces.read(write(tmp_path / "trace.json", events))
    assert recording.steps.tolist() == [2, 3]
    np.testing.assert_allclose(recording.runtimes, 4e-6)


def test_begins_and_ends_that_hold_others(tmp_path):
    events = []
    for number, begin in enumerate((0, 100)):
        events += [
            {"ph": "B", "name": "step", "pid": 1, "tid": 1, "ts": begin, "args": {"step_num": str(number)}},
            {"ph": "B", "name": "barrier", "pid": 1, "tid": 1, "ts": begin + 50},
            {"ph": "E", "pid": 1, "tid": 1, "ts": begin + 70},
            {"ph": "E", "pid": 1, "tid": 1, "ts": begin + 90},
            {"ph": "E", "pid": 1, "tid": 1, "ts": begin + 95},  # begun before the recording
        ]
    recording = traces.read(write(tmp_path / "trace.json", events))
    np.testing.assert_allclose(recording.runtimes, [[70e-6], [70e-6]])
    assert recording.steps.tolist() == [0, 1]


def test_threads_are_workers_where_a_process_has_several(tmp_path):
    events = [named(1, "job"), named(1, "east", tid=5), named(1, "west", tid=6)]
    events += [span("step", 0, 10, tid=5), span("step", 0, 30, tid=6), span("all_reduce", 8, 10, tid=5)]
    recording = traces.read(write(tmp_path / "trace.json", events))
    assert recording.workers == ("east", "west")
    np.testing.assert_allclose(recording.runtimes, [[8e-6, 30e-6]])
    assert any("counted" in note for note in recording.notes)


def test_one_file_a_rank_and_steps_by_another_name(tmp_path):
    for rank in (10, 9):
        write(tmp_path / f"rank{rank}.json", [span(f"unit {n}", 0, rank + n, pid=77) for n in (1, 2)])
    with pytest.raises(ValueError, match=r"--columns=step=NAME.*unit 1"):
        traces.read(tmp_path)
    recording = traces.read(tmp_path, Options(columns=("step=unit",)))
    assert recording.workers == ("9", "10")
    np.testing.assert_allclose(recording.runtimes, np.array([[10, 11], [11, 12]]) * 1e-6)


def test_events_that_lack_a_part_are_left_alone(tmp_path):
    damaged = [
        {"ph": "X", "name": "step 3", "ts": 1},
        {"ph": "X", "ts": 1, "dur": 2},
        {"ph": "B", "name": "step 4"},
        {},
    ]
    damaged += [{"ph": "E", "pid": 1, "tid": 1}, {"ph": "X", "name": "step 5", "ts": "1", "dur": 1, "args": 7}, 7, None]
    recording = traces.read(write(tmp_path / "trace.json", [span("step 1", 0, 5), *damaged]))
    assert recording.steps.tolist() == [1]


def test_of_steps_within_steps_the_longer_are_meant(tmp_path):
    events = [span(f"iteration {n}", 100 * n, 100 * n + 90) for n in (1, 2)]
    events += [span(f"batch {n}", 100 * n, 100 * n + 20) for n in (1, 2)]
    recording = traces.read(write(tmp_path / "trace.json", events))
    np.testing.assert_allclose(recording.runtimes, 90e-6)
    assert any("'iteration'" in note and "'batch'" in note for note in recording.notes)


def test_gradients_that_were_dropped_are_missing(tmp_path):
    became = {0: ["used", "dropped", "used"], 1: ["used", "used", "pending"]}
    events = [
        span(f"gradient {2 * n + tid}", 10 * n, 10 * n + 4 + tid, tid=tid, became=kind)
        for tid, kinds in became.items()
        for n, kind in enumerate(kinds)
    ]
    recording = traces.read(write(tmp_path / "trace.json", events))
    expected = [[4e-6, 5e-6], [np.nan, 5e-6], [4e-6, np.nan]]
    np.testing.assert_allclose(recording.runtimes, expected)


def test_an_unfinished_file_is_read_as_far_as_it_goes(tmp_path):
    text = json.dumps({"traceEvents": [span(f"step {n}", 10 * n, 10 * n + n) for n in range(1, 40)]})
    (tmp_path / "trace.json").write_text(text[: len(text) // 2])
    recording = traces.read(tmp_path / "trace.json")
    assert 10 < recording.steps.size < 39
    np.testing.assert_allclose(recording.runtimes[:, 0], recording.steps * 1e-6)
    assert "damaged" in recording.notes[0]


def test_the_time_line_of_a_schedule_is_read_back(tmp_path):
    runtimes = Gamma(4).draw(12, seed=0)
    write_trace(tmp_path / "trace.json", protocols.synchronous(runtimes))
    recording = traces.read(tmp_path / "trace.json")
    np.testing.assert_allclose(recording.runtimes, runtimes, rtol=1e-9)
    assert recording.workers == tuple(f"worker {n}" for n in range(4))
