"""A trace is read and split, or refused in one line that names it."""

import re

import numpy as np
import pytest
from toy_traces import STEPS, saved, toy

from sgdlab.advice import recording
from sgdlab.errors import UsageError


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
