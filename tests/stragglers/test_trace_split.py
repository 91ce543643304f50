"""A trace is read and split, or refused in one line that names it; what its tuning and evaluation steps hold."""

import dataclasses
import re

import made_findings as made
import numpy as np
import pytest
from toy_traces import STEPS, saved, toy

from sgdlab.commands import what_if
from sgdlab.errors import UsageError
from sgdlab.stragglers import recording
from sgdlab.stragglers.answer import next_steps
from sgdlab.traces import Options, Recording


@pytest.mark.parametrize(
    ("text", "share", "words"),
    [
        ("worker,step,duration\n" + "".join(f"a,{i},1.5\n" for i in range(20)), 0.5, "has one worker, a"),
        ("a,b\n" + "1.5,2.5\n" * 7, 0.5, "has 4 tuning steps and 3 evaluation steps"),
        ("a,b\n" + "1.5,2.5\n1.0,-2.0\n" * 10, 0.5, "row 3, column 'b' is -2"),
        ("a,b\n" + "1.5,\n,2.0\n" * 10, 0.5, ": none of the 20 recorded steps"),
        (None, 0.5, " must be a file"),
    ],
)
def test_a_trace_that_cannot_be_used_is_refused(text, share, words, tmp_path):
    trace = tmp_path / "trace.csv"
    if text is not None:
        trace.write_text(text)
    with pytest.raises(UsageError, match=re.escape(words)) as caught:
        recording.read(trace, train_share=share)
    message = str(caught.value)
    assert message.startswith(f"--trace={trace}")
    assert message.count(str(trace)) == 1


@pytest.mark.parametrize("share", [0.0, 1.0, 1.5, -1.0])
def test_a_share_out_of_range_is_refused(share, tmp_path):
    with pytest.raises(UsageError, match=f"--train_share={share:g} must be"):
        recording.read(saved(tmp_path / "trace.csv", toy()), train_share=share)


def test_incomplete_steps_are_excluded(tmp_path):
    runtimes = toy()
    runtimes[[3, 40], [0, 2]] = np.nan
    steps = np.arange(STEPS) * 2
    names = tuple(f"w{i}" for i in (10, 9, 2, 1, 0))
    parts = recording.read(saved(tmp_path / "trace.parquet", runtimes, steps, names), train_share=0.25)
    assert (parts.left_out, len(parts.train), len(parts.test)) == (2, 14, 44)
    assert parts.workers == ("w0", "w1", "w2", "w9", "w10")  # in numerical order
    np.testing.assert_array_equal(parts.train[0], runtimes[0, ::-1])
    assert parts.recording.gaps == STEPS - 1
    facts = dict(parts.facts())
    assert re.findall(r"\d+", facts["missing compute times"]) == ["2", "300", "2"]
    assert re.findall(r"\d+", facts["sampling"]) == ["59", "0", "60"]


def test_a_worker_that_stopped_is_left_out_and_the_last_steps_count(tmp_path):
    runtimes = toy()
    runtimes[30:, 1] = np.nan
    runtimes[40, 2] = np.nan
    parts = recording.read(saved(tmp_path / "trace.csv", runtimes), train_share=0.5)
    assert len(parts.workers) == runtimes.shape[1] - 1
    assert parts.test_steps[-1] == STEPS - 1
    assert parts.left_out == 1
    np.testing.assert_array_equal(parts.runtimes, np.delete(np.delete(runtimes, 40, axis=0), 1, axis=1))
    assert "since step 30" in parts.stopped
    assert parts.stopped in dict(parts.facts()).values()


def test_where_many_steps_lack_somebody_this_is_said_first(tmp_path):
    said = []
    for late in (11, 12):  # of 60
        runtimes = toy()
        runtimes[:late, 1] = np.nan
        said.append(recording.read(saved(tmp_path / f"trace{late}.csv", runtimes), train_share=0.5).stopped)
    assert said[0] == ""
    assert said[1].startswith("Only 48 of the 60 steps have compute times of all workers, and nothing is said of the")
    assert "has compute times in 48 of 60 steps, fewest of all" in said[1]


@pytest.mark.parametrize("lacking", [11, 12])  # of 60 steps
def test_where_many_steps_lack_single_times_these_are_filled_in(lacking, tmp_path):
    runtimes = toy()
    rows = 5 * np.arange(lacking)
    runtimes[rows, np.arange(lacking) % 5] = np.nan
    parts = recording.read(saved(tmp_path / "trace.csv", runtimes), train_share=0.5)
    assert parts.stopped == ""
    told = [note for note in parts.recording.notes if "filled in" in note]
    if lacking == 11:
        assert (parts.left_out, told) == (11, [])
        return
    assert parts.left_out == 0
    assert told[0].startswith("12 missing compute times of 300 in all are filled in")
    filled = Recording(runtimes, np.arange(STEPS), tuple("abcde")).filled()
    np.testing.assert_allclose(parts.runtimes, filled.runtimes)
    assert re.findall(r"\d+", dict(parts.facts())["missing compute times"]) == ["12", "300", "12", "0"]
    notes = what_if.complete_steps(str(tmp_path / "trace.csv"), Options(), "trace")[0].notes
    assert told[0] in notes
    live = recording.usable(Recording(runtimes, np.arange(STEPS), tuple("abcde")), live=True)[1]
    assert live.steps.size == STEPS - 12


def test_a_worker_that_is_often_missing_has_not_stopped():
    runtimes = toy()
    runtimes[[5, 20, 35, *range(54, 60)], 1] = np.nan
    missing_in_the_end = Recording(runtimes, np.arange(STEPS), tuple("abcde"))
    assert recording.left_out(missing_in_the_end)[0].workers == tuple("acde")
    runtimes[10:14, 1] = np.nan  # a gap that is not much shorter
    assert recording.left_out(missing_in_the_end)[0] is missing_in_the_end


def test_the_rows_of_a_live_run_are_gradients_of_which_a_slow_worker_has_fewer():
    runtimes = toy()
    runtimes[30:, 1] = np.nan
    live = recording.split(Recording(runtimes, np.arange(STEPS), tuple("abcde")), live=True)
    assert (live.workers, live.stopped) == (tuple("abcde"), "")


def test_with_too_few_steps_the_worker_with_the_fewest_is_named(tmp_path):
    runtimes = toy()
    runtimes[::2, 3] = np.nan
    runtimes[1:52:2, 2] = np.nan
    with pytest.raises(UsageError, match="Worker w3 has compute times in 30 of 60 steps, fewest of all"):
        recording.read(saved(tmp_path / "trace.csv", runtimes), train_share=0.5)


PAUSED = (9, 29, 49, 69)


@pytest.fixture(name="parts")
def paused():
    """Every twentieth step takes five seconds more on all workers; an all-reduce transfers for 0.25 s."""
    times = made.runtimes()
    times[list(PAUSED)] += 5.0
    waiting = times.max(axis=1, keepdims=True) - times + 0.25
    whole = Recording(times, np.arange(80), tuple("abcdef"), ("n0", "n1") * 3, communication={"all_reduce": waiting})
    return recording.split(whole, name="paused", train_share=0.5)


def test_pauses_are_left_out_of_tuning_and_count_in_evaluation(parts):
    assert parts.pauses.rows.tolist() == list(PAUSED)
    assert parts.train.shape == (40 - 2, 6)
    assert parts.test.shape == (40, 6)
    assert np.flatnonzero(parts.test_pauses).tolist() == [row - 40 for row in PAUSED[2:]]
    assert parts.train.max() < 2.0
    assert parts.test.max() > 5.0
    assert parts.test_steps.tolist() == list(range(40, 80))


def test_full_synchrony_takes_the_time_that_was_recorded(parts):
    """Let the last one wait for nobody: a step takes the slowest worker's own time and the transfer."""
    recorded = (parts.complete.runtimes + parts.complete.communication["all_reduce"]).max(axis=1)
    np.testing.assert_allclose(parts.runtimes.max(axis=1), recorded)
    assert parts.transfer_share == pytest.approx(0.25 * 80 / recorded.sum())


def test_a_pause_of_few_workers_stays_among_the_tuning_steps(parts):
    few = dataclasses.replace(parts.pauses, workers=np.array([2, 3, 6, 6]))
    few_paused = dataclasses.replace(parts, pauses=few)
    assert len(few_paused.train) == 40 - 1
    assert np.flatnonzero(few_paused.paused).tolist() == list(PAUSED[1:])


@pytest.mark.parametrize("warm_up", [0, 5, 20, 100])
def test_the_answered_steps_are_the_evaluation_steps_after_the_warm_up(parts, warm_up):
    chosen = made.Protocol("median + k MAD", "", made.DEPLOYABLE, {}, warm_up=warm_up)
    answered = next_steps.answered(parts, chosen)
    before = min(warm_up, len(parts.train))
    np.testing.assert_array_equal(answered.runtimes[before:], parts.test)
    np.testing.assert_array_equal(answered.runtimes[:before], parts.train[len(parts.train) - before :])
    assert answered.steps[before:].tolist() == parts.test_steps.tolist()
    assert (np.diff(answered.steps) > 0).all()
    assert not set(answered.steps[:before]) & set(PAUSED)
    assert answered.nodes == parts.complete.nodes


def test_facts_name_nodes_communication_and_pauses(parts):
    facts = dict(parts.facts())
    assert "2 nodes" in facts["recorded"]
    assert f"{100 * parts.transfer_share:.1f} %" in facts["communication"]
    assert "20" in facts["pauses of all"]  # the period
    assert facts["tuning steps"].startswith("38 steps, 0 to 39")


def test_a_live_recording_that_is_too_short_names_the_slowest_worker():
    times = made.runtimes()[:20]
    times[6:, 2] = np.nan
    whole = Recording(times, np.arange(20), tuple("abcdef"))
    with pytest.raises(ValueError, match=r"too short: 6 rows .* 8 are needed\. Worker c has compute times in 6 of 20 "):
        recording.split(whole, live=True)
