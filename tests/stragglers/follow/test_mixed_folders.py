"""Folders and files that hold other things beside a trace, and workers that have the same numbers."""

import json

import numpy as np
import pytest
from planted_traces import noise

from sgdlab.stragglers.diagnosis.causes import SLOW_WORKER
from sgdlab.stragglers.follow.alarms import RAISED, Alarm, AlarmFile
from sgdlab.stragglers.follow.tail import Tail
from sgdlab.traces.options import Options

T = 40
RUNTIMES = noise(T, 4, 0)


def csv_of(worker, steps=T):
    return "step,time\n" + "".join(f"{t},{RUNTIMES[t, worker]}\n" for t in range(steps))


def lines_of(workers):
    return [json.dumps({"rank": w, "step": t, "step_time": RUNTIMES[t, w]}) for t in range(T) for w in workers]


def taken(path):
    tail = Tail(path, Options())
    first, got = tail.poll(), tail.poll(end=True)
    while got is None:
        first, got = None, tail.poll(end=True)
    parts = [got] if first is None else [first, got]
    return tail, np.concatenate([part[1] for part in parts])


def test_what_is_no_trace_in_a_directory_is_left_out(tmp_path):
    for worker in range(4):
        (tmp_path / f"rank{worker}.csv").write_text(csv_of(worker))
    (tmp_path / "config.json").write_text('{\n "lr": 0.1\n}\n')
    (tmp_path / "train.log").write_text("epoch 0 loss 1.2\nepoch 1 loss 1.1\n")
    with AlarmFile(tmp_path / "alarms.jsonl", "trace") as file:
        file.write(Alarm(RAISED, SLOW_WORKER, 9, 5, ("1",), factor=1.5), "run")
    tail, runtimes = taken(tmp_path)
    np.testing.assert_allclose(runtimes, RUNTIMES)
    assert tail.steps.workers == list("0123")
    assert set(tail.left_out) == {"config.json", "train.log", "alarms.jsonl"}


def test_a_directory_without_a_trace_is_an_error_in_the_end(tmp_path):
    (tmp_path / "config.json").write_text('{\n "lr": 0.1\n}\n')
    tail = Tail(tmp_path, Options())
    tail.poll()
    with pytest.raises(ValueError, match=r"config\.json: "):
        tail.poll(end=True)


def test_lines_of_another_kind_may_stand_first(tmp_path):
    path = tmp_path / "trace.jsonl"
    others = [json.dumps({"event": "start", "config": {"lr": 0.1}}), json.dumps({"note": "warm-up"})]
    path.write_text("\n".join([*others, *lines_of(range(4)), ""]))
    tail, runtimes = taken(path)
    np.testing.assert_allclose(runtimes, RUNTIMES)
    assert dict(tail.bad) == {"lines of another kind before the first row": 2}


def test_files_whose_numbers_collide_are_told_apart_by_their_names(tmp_path):
    (tmp_path / "a_rank0.csv").write_text(csv_of(0))
    tail = Tail(tmp_path, Options())
    assert tail.poll()[1].shape == (T, 1)
    assert tail.steps.workers == ["0"]
    (tmp_path / "b_rank0.csv").write_text(csv_of(1))
    assert tail.poll() is None
    assert "whole names" in tail.why
    _, runtimes = tail.poll()
    np.testing.assert_allclose(runtimes, RUNTIMES[:, :2])
    assert tail.steps.workers == ["a_rank0", "b_rank0"]


def test_a_number_on_each_node_is_joined_with_the_node(tmp_path):
    path = tmp_path / "trace.csv"
    rows = [f"h{w // 2},{w % 2},{t},{RUNTIMES[t, w]}\n" for t in range(T) for w in range(4)]
    path.write_text("hostname,local_rank,step,time\n" + "".join(rows))
    tail, runtimes = taken(path)
    np.testing.assert_allclose(runtimes, RUNTIMES)
    assert tail.steps.workers == ["h0/0", "h0/1", "h1/0", "h1/1"]
    assert tail.nodes == ("h0", "h0", "h1", "h1")


def test_own_work_is_the_step_without_its_communication(tmp_path):
    path = tmp_path / "trace.csv"
    rows = [f"{w},{t},5,{5 - RUNTIMES[t, w]}\n" for t in range(T) for w in range(4)]
    path.write_text("# run 7\nrank,step,step_time,comm_time\n" + "".join(rows))
    np.testing.assert_allclose(taken(path)[1], RUNTIMES)


def test_the_checksum_of_a_run_does_not_change_as_it_grows(tmp_path):
    path, text = tmp_path / "trace.csv", csv_of(0)
    path.write_text("worker," + text.replace("\n", "\na,").removesuffix("a,"))
    whole, tail = path.read_text(), Tail(path, Options())
    path.write_text(whole[:60])
    tail.poll()
    before = tail.run
    path.write_text(whole)
    tail.poll()
    assert before == tail.run == taken(path)[0].run != ""
