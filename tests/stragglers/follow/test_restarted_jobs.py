"""A job that is started again and writes to the same file is watched from its first step."""

import json

import numpy as np
import pytest
from planted_traces import noise

from sgdlab.commands import follow
from sgdlab.stragglers.follow.alarms import AlarmFile
from sgdlab.stragglers.follow.follower import Follower
from sgdlab.stragglers.follow.step_collector import in_no_order
from sgdlab.traces.options import Options

HEADER = "rank,step,time\n"


def rows(runtimes, first=0):
    return [f"{w},{first + t},{seconds:.6f}" for t, row in enumerate(runtimes) for w, seconds in enumerate(row)]


def text_of(*parts):
    return "\n".join([*(line for part in parts for line in part), ""])


def read(follower):
    found = follower.poll()
    while not follower.caught_up:
        found += follower.poll()
    return found


def ended(follower):
    found = follower.poll(end=True)
    while not follower.caught_up:
        found += follower.poll(end=True)
    return found


def slow(steps, seed):
    runtimes = noise(steps, 6, seed)
    runtimes[:, 3] *= 1.6
    return runtimes


@pytest.mark.sample(2)
@pytest.mark.parametrize("lines_at_once", [1, 7, 100_000])
@pytest.mark.parametrize("begin", [0, 150])
def test_steps_that_go_back_begin_anew(tmp_path, lines_at_once, begin):
    path = tmp_path / "trace.csv"
    path.write_text(HEADER)
    follower, found = Follower(path, Options()), []
    lines = [*rows(noise(300, 6, 0)), HEADER.strip(), *rows(slow(200, 1), begin)]
    for start in range(0, len(lines), lines_at_once):
        with path.open("a") as file:
            file.write(text_of(lines[start : start + lines_at_once]))
        if lines_at_once > 1 or start % 20 == 0:
            found += read(follower)
    found += ended(follower)
    assert follower.restarts == 1
    assert "went back" in follower.tail.why
    assert [(alarm.kind, alarm.workers) for alarm in found] == [("slow worker", ("3",))]
    assert follower.monitor.newest == begin + 199
    assert follower.tail.steps.workers == list("012345")
    assert dict(follower.tail.bad) == {"lines that repeat the header": 1}
    assert follower.monitor.steps >= 195  # a few may be late


def test_three_jobs_in_one_file_and_their_alarms(tmp_path, capsys):
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + text_of(*(rows(slow(200, seed)) for seed in range(3))))
    for _ in range(2):
        with AlarmFile(tmp_path / "alarms.jsonl", str(path)) as file:
            follower = Follower(path, Options())
            follow.follow(follower, file, follow._Terminal(as_json=False), until_idle=0.0)
    assert follower.restarts == 2
    kept = [json.loads(line) for line in (tmp_path / "alarms.jsonl").read_text().splitlines()]
    assert [line["workers"] for line in kept] == [["3"]] * 3
    assert len({line["run"] for line in kept}) == 3
    assert capsys.readouterr().err.count("went back") == 4


def test_each_worker_may_have_its_file(tmp_path):
    for worker in range(6):
        own = [noise(300, 6, 0)[:, worker], slow(200, 1)[:, worker]]
        lines = [json.dumps({"step": t, "seconds": s}) for part in own for t, s in enumerate(part.tolist())]
        (tmp_path / f"rank{worker}.jsonl").write_text(text_of(lines))
    follower = Follower(tmp_path, Options())
    found = read(follower) + ended(follower)
    assert follower.restarts == 1
    assert [(alarm.kind, alarm.workers) for alarm in found] == [("slow worker", ("3",))]
    assert (follower.monitor.steps, follower.monitor.newest) == (200, 199)


@pytest.mark.parametrize("case", ["shuffled", "short", "backwards", "from the middle on"])
def test_rows_in_no_order_of_steps_are_refused_in_a_line(tmp_path, case):
    path, lines = tmp_path / "trace.csv", rows(noise(20 if case == "short" else 300, 6, 0))
    kept = lines[:900] if case == "from the middle on" else []
    rest = lines[len(kept) :][::-1] if case == "backwards" else np.random.default_rng(0).permutation(lines[len(kept) :])
    path.write_text(HEADER + text_of([*kept, *rest]))
    follower = Follower(path, Options())
    with pytest.raises(ValueError, match=r"^\S*trace\.csv: its rows are in no order of steps.* without --follow$"):
        ended(follower)
    assert follower.restarts <= 1


def test_a_job_that_is_started_again_and_again_with_rows_somewhat_out_of_order_is_followed(tmp_path):
    near = np.argsort(np.arange(1200) + np.random.default_rng(0).uniform(0, 20, 1200))  # of 6 workers: 3 steps at most
    lines = [rows(noise(200, 6, 0))[row] for row in near]
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + text_of(lines, lines, rows(noise(15, 6, 1)), rows(noise(15, 6, 2)), lines))
    follower = Follower(path, Options())
    assert ended(follower) == []
    assert (follower.restarts, follower.monitor.steps) == (4, 200)


def test_what_is_somewhat_out_of_order_or_short_is_in_order():
    near = np.argsort(np.arange(200) + np.random.default_rng(0).uniform(0, 9, 200))
    assert (np.diff(near) < 0).mean() > 0.4
    assert not in_no_order(np.zeros(400, int), np.tile(near, 2))
    assert not in_no_order(np.array([0, 1, 0, 1]), np.array([299, 299, 0, 0]))


def test_one_worker_that_goes_back_is_no_restart(tmp_path):
    runtimes = noise(300, 6, 0)
    lines = rows(runtimes[:200]) + [f"2,{step},9.0" for step in range(100)] + rows(runtimes[200:], 200)
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + text_of(lines))
    follower = Follower(path, Options())
    assert read(follower) + ended(follower) == []
    assert follower.restarts == 0
    assert follower.monitor.steps == 300
    assert follower.tail.steps.repeated + follower.tail.steps.late == 100


def test_steps_of_epochs_go_on(tmp_path):
    runtimes = noise(300, 4, 2)
    runtimes[150:, 1] *= 1.6
    lines = [f"{t // 50},{t % 50},{w},{s}" for t, row in enumerate(runtimes.tolist()) for w, s in enumerate(row)]
    path = tmp_path / "trace.csv"
    path.write_text("epoch,batch,rank,time\n" + text_of(lines))
    follower = Follower(path, Options())
    found = read(follower) + ended(follower)
    assert (follower.restarts, follower.monitor.steps, follower.monitor.newest) == (0, 300, 299)
    assert [alarm.workers for alarm in found] == [("1",)]
    assert np.abs(found[0].since - 150) <= 5
