"""Test that what comes over a lifeline cannot end its watch silently: it is ignored, or the process counts as lost."""

import contextlib
import json
import os
import socket
import threading

import pytest

from sgdlab.hosts import lifeline
from sgdlab.hosts.lifeline import LOST, Lifeline

PATIENCE = 60.0
NESTED = b"[" * 100_000


class Ends:
    """In the place of `os._exit`: the test is told the code, and the watch goes on as if it were to close."""

    def __init__(self):
        self.code, self.ended, self.own = None, threading.Event(), None

    def __call__(self, code):
        self.code, self.own._closing, self.own._decision = code, True, None
        self.ended.set()

    def wait(self):
        assert self.ended.wait(PATIENCE)
        return self.code


@pytest.fixture(name="ends")
def ends_of_this_process(monkeypatch):
    for seconds in ("_GRACE", "_LINGER"):
        monkeypatch.setattr(lifeline, seconds, 0.0)
    ends = Ends()
    monkeypatch.setattr(os, "_exit", ends)
    return ends


@pytest.fixture(name="far")
def other_ends_of_process_0s_connections(ends):
    """Process 0 watches processes 1 and 2, which are the test."""
    pairs = {index: socket.socketpair() for index in (1, 2)}
    own = Lifeline(0, ("host0", "host1", "host2"), {index: near for index, (near, _) in pairs.items()}, PATIENCE)
    ends.own = own
    with contextlib.ExitStack() as stack:
        yield {index: stack.enter_context(far) for index, (_, far) in pairs.items()}
        for _, far in pairs.values():
            with contextlib.suppress(OSError):
                far.sendall(b'{"bye": true}\n')
    own.close()


def told(far):
    """The first message that comes, which is no sign of life."""
    far.settimeout(PATIENCE)
    with far.makefile("rb") as lines:
        return json.loads(next(line for line in lines if line.strip()))


STRANGE = [
    (NESTED[:60_000], "it sent JSON that is nested too deeply"),
    (bytes(range(11, 256)), "it sent what is not JSON"),
    (b'{"bye": 1}', "it sent no message with bye (bool), or with ended (str) and code (int)"),
    (b'{"ended": "x", "code": true}', "it sent no message with bye (bool)"),
    (b'{"ended": "x", "code": 0}', "it sent code=0, which is no exit code"),
    (b'{"ended": "x", "code": 99999999999999999999}', "it sent code=99999999999999999999, which is no exit code"),
]


@pytest.mark.parametrize(("data", "why"), STRANGE, ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_no_message_is_said_once_and_the_watch_goes_on(far, ends, capsys, data, why):
    far[1].sendall((data + b"\n") * 2)
    far[1].sendall(b'{"ended": "process 1 on host1: it raised", "code": 7}\n')
    assert told(far[2]) == {"ended": "process 1 on host1: it raised", "code": 7}
    assert ends.wait() == 7
    warning, error = capsys.readouterr().err.splitlines()
    assert warning.startswith(f"warning: a message of process 1 on host1 is passed over: {why}")
    assert error == "error: process 1 on host1: it raised"


def test_a_line_without_an_end_loses_the_process(far, ends):
    with contextlib.suppress(ConnectionError):
        far[1].sendall(NESTED)
    line = "process 1 on host1 is none of ours: it sent more than 65,536 bytes, which no message has"
    assert told(far[2]) == {"ended": line, "code": LOST}
    assert ends.wait() == LOST


def test_an_end_is_told_in_one_line_that_can_be_printed(far, ends, capsys):
    far[1].sendall(json.dumps({"ended": "a\nb\ud800\x1b[2J" + "c" * 5000, "code": 1}).encode() + b"\n")
    assert ends.wait() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: a b  [2Jccc")
    assert len(line) < 1100


def test_a_watch_that_fails_ends_the_process_with_a_line(monkeypatch, far, ends, capsys):
    def fails(own, index, inbox):
        raise MemoryError("none is left")

    monkeypatch.setattr(Lifeline, "_read", fails)
    far[1].sendall(b"\n")
    line = "process 0 on host0: its watch over the others failed: MemoryError: none is left"
    assert told(far[2]) == {"ended": line, "code": LOST}
    assert ends.wait() == LOST
    assert capsys.readouterr().err == f"error: {line}\n"


def test_signs_of_life_and_goodbyes_need_no_word(ends, capsys):
    near, far = socket.socketpair()
    with far:
        own = Lifeline(0, ("host0", "host1"), {1: near}, PATIENCE)
        far.sendall(b"\n" * 70_000 + b'{"bye": true}\n')
        assert own._all_gone.wait(PATIENCE)
        own.close()
    assert (capsys.readouterr().err, ends.code) == ("", None)
