"""The file of alarms has each alarm once, and is never another's file."""

import dataclasses
import json

import pytest

from sgdlab.stragglers.diagnosis.causes import SLOW_NODE, SLOW_WORKER
from sgdlab.stragglers.follow.alarms import CLEARED, RAISED, Alarm, AlarmFile

SLOW = Alarm(RAISED, SLOW_WORKER, 340, 300, ("5",), "n1", 1.6, 1.61, 1.58, evidence="in 39 of 40 steps")
BACK = Alarm(CLEARED, SLOW_WORKER, 860, 812, ("5",), "n1")


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_has_the_fields_of_an_alarm_and_says_where_it_is_from(tmp_path):
    with AlarmFile(tmp_path / "new" / "alarms.jsonl", "/trace.csv", clock=lambda: 12.5) as file:
        file.write(SLOW, "r1")
        assert lines(file.path) == [  # at once, not when it is closed
            dataclasses.asdict(SLOW) | {"workers": ["5"], "trace": "/trace.csv", "run": "r1", "time": 12.5}
        ]


def test_what_is_found_again_is_not_written_again(tmp_path):
    path = tmp_path / "alarms.jsonl"
    for _ in range(3):
        with AlarmFile(path, "/trace.csv") as file:
            for alarm in (SLOW, dataclasses.replace(SLOW, step=350), BACK):
                file.write(alarm, "r1")
    assert [line["event"] for line in lines(path)] == [RAISED, CLEARED]


@pytest.mark.parametrize(
    "other",
    [
        lambda: (dataclasses.replace(SLOW, since=400), "r1", "/trace.csv"),
        lambda: (dataclasses.replace(SLOW, workers=("6",)), "r1", "/trace.csv"),
        lambda: (SLOW, "r2", "/trace.csv"),
        lambda: (SLOW, "r1", "/other.csv"),
    ],
)
def test_another_alarm_run_or_trace_is_written(tmp_path, other):
    path = tmp_path / "alarms.jsonl"
    with AlarmFile(path, "/trace.csv") as file:
        file.write(SLOW, "r1")
    alarm, run, trace = other()
    with AlarmFile(path, trace) as file:
        file.write(alarm, run)
    assert len(lines(path)) == 2


def test_half_a_line_of_a_run_that_was_killed_is_replaced(tmp_path):
    path = tmp_path / "alarms.jsonl"
    with AlarmFile(path, "/trace.csv") as file:
        file.write(SLOW, "r1")
        file.write(BACK, "r1")
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with AlarmFile(path, "/trace.csv", clock=lambda: json.loads(whole.splitlines()[-1])["time"]) as file:
        file.write(SLOW, "r1")
        file.write(BACK, "r1")
    assert path.read_bytes() == whole


@pytest.mark.parametrize("content", ["worker,step\n", "1,2\n3,4", "{}\n", "[1]\n", "no newline"])
def test_a_file_of_something_else_is_left_alone(tmp_path, content):
    path = tmp_path / "trace.csv"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"^alarms='.*trace\.csv' has something else"):
        AlarmFile(path, "/trace.csv")
    assert path.read_text() == content


def test_a_node_is_one_cause_whoever_of_it_is_slow():
    raised = Alarm(RAISED, SLOW_NODE, 1, 0, ("1", "2"), "n")
    assert raised.cause == Alarm(CLEARED, SLOW_NODE, 9, 5, ("1", "2", "3"), "n").cause
    assert SLOW.cause == BACK.cause
