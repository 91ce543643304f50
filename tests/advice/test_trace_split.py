"""A trace is read and split, or refused in one line that names it."""

import re

import numpy as np
import pytest
from toy_traces import STEPS, saved, toy

from sgdlab.advice import recording
from sgdlab.errors import UsageError
from sgdlab.traces import Recording


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
    assert re.findall(r"\d+", facts["missing run-times"]) == ["2", "300", "2"]
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


def test_a_worker_that_is_often_missing_has_not_stopped():
    runtimes = toy()
    runtimes[[5, 20, 35, *range(54, 60)], 1] = np.nan
    missing_in_the_end = Recording(runtimes, np.arange(STEPS), tuple("abcde"))
    assert recording.left_out(missing_in_the_end).left.workers == tuple("acde")
    runtimes[10:14, 1] = np.nan  # a gap that is not much shorter
    assert recording.left_out(missing_in_the_end).left is missing_in_the_end


def test_the_rows_of_a_live_run_are_gradients_of_which_a_slow_worker_has_fewer():
    runtimes = toy()
    runtimes[30:, 1] = np.nan
    live = recording.split(Recording(runtimes, np.arange(STEPS), tuple("abcde")), live=True)
    assert (live.workers, live.stopped) == (tuple("abcde"), "")


def test_with_too_few_steps_the_worker_with_the_fewest_is_named(tmp_path):
    runtimes = toy()
    runtimes[::2, 3] = np.nan
    runtimes[1:52:2, 2] = np.nan
    with pytest.raises(UsageError, match="Worker w3 has run-times in 30 of 60 steps, fewest of all"):
        recording.read(saved(tmp_path / "trace.csv", runtimes), train_share=0.5)
