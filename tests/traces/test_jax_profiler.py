"""JAX's profiles: one made here, and some by hand in the form that XLA writes."""

import gzip
import json
import time

import jax
import numpy as np
import pytest

from sgdlab import traces
from sgdlab.traces import Options

HOST, TPU = 701, 3


def span(name, begin, end, pid=HOST, tid=1, **arguments):
    return {"ph": "X", "pid": pid, "tid": tid, "ts": begin, "dur": end - begin, "name": name, "args": arguments}


def metadata(kind, name, pid, tid=None):
    return {"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": {"name": name}}


def write(log, host, events, session="2026_01_02_03_04_05"):
    folder = log / "plugins" / "profile" / session
    folder.mkdir(parents=True, exist_ok=True)
    names = [
        metadata("process_name", "/host:CPU", HOST),
        metadata("thread_name", "python", HOST, 1),
        *(metadata("process_name", f"/device:TPU:{n}", TPU + n) for n in range(2)),
        *(metadata("thread_name", "Steps", TPU + n, 1) for n in range(2)),
        *(metadata("thread_name", "XLA Ops", TPU + n, 3) for n in range(2)),
        *(metadata("thread_name", "XLA Modules", TPU + n, 2) for n in range(2)),
    ]
    whole = {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": [*names, *events]}
    (folder / f"{host}.trace.json.gz").write_bytes(gzip.compress(json.dumps(whole).encode()))
    return folder


def test_a_profile_that_jax_has_made(tmp_path):
    slept = [0.004, 0.012, 0.004]
    with jax.profiler.trace(tmp_path):
        for step, seconds in enumerate(slept, 20):
            with jax.profiler.StepTraceAnnotation("train", step_num=step):
                time.sleep(seconds)
                with jax.profiler.TraceAnnotation("all_reduce"):
                    time.sleep(0.005)
    recording = traces.read(tmp_path)
    assert recording.steps.tolist() == [20, 21, 22]
    assert (recording.runtimes[:, 0] >= slept).all()
    assert (recording.communication["all_reduce"][:, 0] >= 0.005).all()
    assert recording.nodes == recording.workers
    assert any("block_until_ready" in note for note in recording.notes)


def test_a_step_begins_where_the_one_before_it_ended(tmp_path):
    for host, wait in (("east", 10), ("west", 30)):
        events = [span("$train.py:1 all_reduce", 0, 900)]
        for step in (4, 5, 7):
            begin = 100 * step
            events.append(
                span("train", begin + 20, begin + 90, step_num=str(step))
            )  # 20 for reading data, 10 behind it
            events.append(span("all_reduce", begin + 90 - wait, begin + 90, tid=2))
        write(tmp_path, host, events)
    recording = traces.read(tmp_path)
    assert recording.workers == recording.nodes == ("east", "west")
    assert recording.steps.tolist() == [4, 5, 7]
    # Before steps 4 and 7 there is none.
    np.testing.assert_allclose(recording.runtimes * 1e6, [[60, 40], [90, 70], [60, 40]])
    np.testing.assert_allclose(recording.communication["all_reduce"] * 1e6, np.tile([10, 30], (3, 1)))


def test_devices_tell_their_steps_and_the_last_of_them_counts(tmp_path):
    events = [span("train", 0, 5, step_num=str(step)) for step in (8, 9)]  # the host only dispatches
    for device, work in ((0, 60), (1, 80)):
        for step in (8, 9):
            begin, pid = 1000 * step, TPU + device
            events += [
                span(str(step), begin, begin + 100, pid, 1),
                span("jit_train_step(1234)", begin, begin + 100, pid, 2),
                span("fusion.1", begin, begin + work, pid, 3),
                span("all-reduce.3", begin + work, begin + 95, pid, 3),
                span("copy.2", begin + 95, begin + 100, pid, 3),
            ]
    write(tmp_path, "host", events)
    recording = traces.read(tmp_path)
    np.testing.assert_allclose(recording.runtimes[:, 0] * 1e6, [85, 1000 - 15])
    np.testing.assert_allclose(recording.communication["all_reduce"][:, 0] * 1e6, [15, 15])
    assert recording.notes == ()


def test_processes_of_one_machine_have_directories_of_their_own(tmp_path):
    for rank in (0, 1):
        for number, session in enumerate(("2026_01_01_00_00_00", "2026_01_01_01_00_00")):
            folder = write(tmp_path / f"rank{rank}", "host", [span("train", 0, 10 + rank, step_num=number)], session)
            (folder / "perfetto_trace.json.gz").write_bytes(gzip.compress(b"{}"))
    recording = traces.read(tmp_path)
    assert recording.workers == ("rank0/host", "rank1/host")
    assert recording.nodes == ("host", "host")
    np.testing.assert_allclose(recording.runtimes * 1e6, [[10, 11], [10, 11]])


def test_what_cannot_be_read_is_refused_or_left_out(tmp_path):
    write(tmp_path, "a", [span("train", 0, 10, step_num=1)])
    folder = write(tmp_path, "b", [span("train", 0, 10)])
    with pytest.raises(ValueError, match=r"b\.trace\.json\.gz has no steps.*StepTraceAnnotation"):
        traces.read(tmp_path)
    (folder / "b.trace.json.gz").write_bytes((folder / "b.trace.json.gz").read_bytes()[:-40])
    with pytest.raises(ValueError, match=r"b\.trace\.json\.gz ends after"):
        traces.read(tmp_path)
    assert traces.read(tmp_path, Options(skip_bad_rows=True)).workers == ("a",)
