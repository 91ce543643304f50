"""Interrupts of a pool: none is forgotten."""

import os
import signal
import sys
import time

import pytest

from sgdlab.runs import pool


class Forgetful:
    """Is interrupted while it is thrown away: Python prints such an error, and goes on."""

    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)


def test_an_interrupt_that_python_forgets_is_noted(monkeypatch):
    ignored = []
    monkeypatch.setattr(sys, "unraisablehook", lambda error: ignored.append(error.exc_type))
    with pool._interrupts() as seen:
        Forgetful()
        assert (ignored, seen) == ([KeyboardInterrupt], [signal.SIGINT])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_ends_what_is_done_as_always():
    with pytest.raises(KeyboardInterrupt), pool._interrupts():
        signal.raise_signal(signal.SIGINT)


def test_a_handler_of_somebody_else_stays(monkeypatch):
    heard = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        with pool._interrupts() as seen:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (heard, seen) == ([signal.SIGINT], [])


def shown(messages, jobs, processes, capsys):
    """The lines of a progress, which has been told that a job has ended where there is None."""
    progress = pool.Progress(sum(m is not None and m.result is not None for m in messages), 0, processes, jobs)
    with progress:
        for message in messages:
            if message is None:
                progress.finished_job()
            else:
                progress.take(message)
    return [line.partition("]")[2].strip() for line in capsys.readouterr().out.splitlines()]


def test_the_time_left_is_shown_from_the_first_run_on(capsys):
    first = [pool.Message("a0", gradients=5), pool.Message("a0", result="done", compiling=20.0, seconds=1.0)]
    others = [pool.Message(f"a{seed}", result="done", seconds=seconds) for seed, seconds in ((1, 25.0), (2, 1.0))]
    last = [pool.Message(f"b{seed}", result="done", compiling=10.0 * (not seed), seconds=1.0) for seed in range(3)]
    assert shown([*first, *others, None, *last, None], 2, 2, capsys) == [
        "a0: done; about 00:12 left",  # one other job compiles, and five runs
        "a1: done; about 00:36 left",  # by the median of 1 and 25
        "a2: done; about 00:11 left",
        "b0: done; about 00:02 left",  # by one process
        "b1: done; about 00:01 left",
        "b2: done",
    ]


def test_what_another_command_has_done_says_nothing_of_the_time(capsys):
    messages = [pool.Message("a", result="done by another command"), pool.Message("b", result="done", seconds=3.0)]
    assert shown([*messages, None], 1, 1, capsys) == ["a: done by another command", "b: done"]
