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
