"""A second process gives what this one would, fails as this one would, and is never left behind."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from sgdlab.stragglers import second_process
from sgdlab.stragglers.diagnosis import history


def started(monkeypatch):
    """Note the processes that are started."""
    found, popen = [], subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *given, **named: found.append(popen(*given, **named)) or found[-1])
    return found


def test_it_computes_while_this_one_goes_on(monkeypatch):
    large = np.arange(300_000.0)  # more than a pipe holds, either way
    found = started(monkeypatch)
    with second_process.beside(np.add, large, 1.0) as result:
        np.testing.assert_array_equal(result(), large + 1)
    with second_process.beside(os.getpid) as result:
        assert result() == found[1].pid
    assert all(process.poll() is not None for process in found)


def test_where_it_fails_the_result_is_computed_here(monkeypatch):
    found = started(monkeypatch)
    with second_process.beside(os.getpid) as result:
        found[0].kill()
        assert result() == os.getpid()
    ends = "raise SystemExit"  # without an answer
    with second_process.beside(exec, ends) as result, pytest.raises(SystemExit):
        result()
    with second_process.beside(os.getpid, elsewhere=False) as result:
        assert result() == os.getpid()
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with second_process.beside(os.getpid) as result:
        assert result() == os.getpid()


def test_an_error_of_the_function_is_raised_here_and_one_of_the_block_ends_the_process(monkeypatch):
    with second_process.beside(np.linalg.inv, np.zeros((2, 2))) as result, pytest.raises(np.linalg.LinAlgError):
        result()
    found = started(monkeypatch)
    with pytest.raises(KeyboardInterrupt), second_process.beside(time.sleep, 600.0):
        raise KeyboardInterrupt
    assert found[0].returncode == -signal.SIGKILL


def test_slow_stretches_are_the_same_in_two_processes(monkeypatch):
    generator = np.random.default_rng(0)
    runtimes = generator.gamma(50.0, 0.02, (200, 9))
    runtimes[60:120, [1, 4, 8]] *= 1.8
    alone, found = history.find_slow_stretches(runtimes), started(monkeypatch)
    monkeypatch.setattr(history, "_SHARED", 100)
    both = history.find_slow_stretches(runtimes)
    assert found
    assert both.episodes == alone.episodes
    assert [bool(own) for own in alone.episodes] == [worker in (1, 4, 8) for worker in range(9)]
