"""`scripts/supervise`: what is started again, how often, and where signals go."""

import importlib.machinery
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest
from fakes import SCRIPTS, answer, is_running, until

from sgdlab.checkpoints import Checkpoints
from sgdlab.live import checkpoint
from sgdlab.live.lines import LogPlace

ENDS = """
import os, pathlib, sys
count = pathlib.Path(sys.argv[1])
times = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(times))
how, _, leaves = sys.argv[1 + times].partition("+")
if leaves:
    left = pathlib.Path(sys.argv[-1].partition("=")[2]) / leaves
    left.parent.mkdir(parents=True, exist_ok=True)
    left.touch()
if how.startswith("SIG"):
    import signal
    os.kill(os.getpid(), getattr(signal, how))
sys.exit(int(how))
"""
STOPS = """
import os, pathlib, signal, subprocess, sys, time
def stop(number, frame):
    os.write(1, f"signal {number}\\n".encode())  # print may be interrupted in print
    sys.exit(75)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, stop)
child = subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(child.pid, flush=True)
time.sleep(1000)
"""


def supervised(folder, *ways, restarts=3, wait="0"):
    """Supervises a command that ends in one way after the other: (exit code, lines of errors, times it was run)."""
    count = folder / "count"
    flags = f"--restarts={restarts}", f"--wait={wait}"
    ended = answer(SCRIPTS / "supervise", *flags, sys.executable, "-I", "-c", ENDS, count, *ways)
    return ended.returncode, ended.stderr.splitlines(), int(count.read_text())


@pytest.mark.parametrize("way", ["69", "134", "137", "139", "SIGKILL", "SIGABRT", "SIGSEGV", "SIGTERM"])
def test_a_lost_host_or_process_is_started_again(way, tmp_path):
    code, lines, times = supervised(tmp_path, way, "0")
    assert (code, times) == (0, 2)
    (line,) = lines
    assert line.endswith("starting again in 0 s (restart 1 of 3)")


@pytest.mark.parametrize("code", [1, 2, 3, 75, 130])
def test_other_ends_are_final(code, tmp_path):
    ended, lines, times = supervised(tmp_path, str(code), "0")
    assert (ended, times) == (code, 1)
    (line,) = lines
    assert "not started again" in line
    assert str(code) in line or code == 130


def test_success_says_nothing(tmp_path):
    assert supervised(tmp_path, "0") == (0, [], 1)


def test_an_interrupted_command_is_not_started_again(tmp_path):
    code, lines, times = supervised(tmp_path, "SIGINT", "0")
    assert (code, times) == (128 + signal.SIGINT, 1)
    assert "ended by SIGINT" in lines[-1]  # behind Python's own traceback


def test_restarts_have_a_limit(tmp_path):
    code, lines, times = supervised(tmp_path, *["SIGKILL", "69"] * 2, restarts=3)
    assert (code, times) == (69, 4)
    assert "given up after 3 restarts" in lines[-1]
    assert ["SIGKILL" in line for line in lines] == [True, False, True, False]


LATER = [f"69+states/run/{name}" for name in ("10", "checkpoint-20.npz", "30")]


@pytest.mark.parametrize(
    ("ways", "times"),
    [
        ([*LATER, "69"], 4),  # one restart is left after each that gets on, and none after one that does not
        (["69+checkpoint-7.npz", "69+checkpoint-8.npz", "69"], 3),  # a loop of one's own
        (["69+metrics/a.jsonl", "SIGKILL+metrics/b.jsonl", "69"], 3),  # a comparison's finished runs
        ([LATER[0], LATER[0], "0"], 2),  # the same checkpoint again is no progress
        (["69+states/run/log.jsonl", "69+states/run/log.jsonl", "0"], 2),
        (["69+states/run/10.orbax-checkpoint-tmp-1", "69+states/run/11.part", "0"], 2),  # unfinished
    ],
)
def test_a_restart_that_left_a_later_checkpoint_counts_anew(ways, times, tmp_path):
    command = *ways, f"--workdir={tmp_path / 'work'}"
    code, lines, run = supervised(tmp_path, *command, restarts=1)
    assert (code, run) == (69, times)
    assert "given up after 1 restarts" in lines[-1]
    assert all(line.endswith("starting again in 0 s (restart 1 of 1)") for line in lines[:-1])


def test_a_work_directory_can_be_named_to_the_supervisor(tmp_path):
    flags = "--restarts=1", "--wait=0", f"--workdir={tmp_path}"
    command = sys.executable, "-I", "-c", ENDS, tmp_path / "count", "69", "69+checkpoint-1.npz", "69", "0"
    leaves = f"x={tmp_path}"  # no flag of the command's
    assert answer(SCRIPTS / "supervise", *flags, *command, leaves).returncode == 69
    assert (tmp_path / "count").read_text() == "3"
    (tmp_path / "count").unlink()  # and what is there from the beginning is no progress
    assert answer(SCRIPTS / "supervise", *flags, *command, leaves).returncode == 69
    assert (tmp_path / "count").read_text() == "2"


def test_checkpoints_of_both_kinds_are_known(tmp_path):
    loader = importlib.machinery.SourceFileLoader("supervise", str(SCRIPTS / "supervise"))
    script = importlib.util.module_from_spec(importlib.util.spec_from_loader("supervise", loader))
    loader.exec_module(script)
    own = tmp_path / "states" / "own"
    with Checkpoints(own, {}) as kept:
        kept.save(3, {"step": np.zeros(1)})
    live = tmp_path / "states" / "run"
    live.mkdir()
    checkpoint.save(live, checkpoint.Checkpoint(12, LogPlace(), {}, {}))
    assert script.progress(str(tmp_path)) == {own / "3", live / "checkpoint-12.npz"}
    assert script.progress(str(tmp_path / "missing")) == script.progress(None) == set()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_is_passed_on_once_and_its_end_is_final(number):
    """The whole process group of the supervisor is signalled, as by Ctrl-C in a terminal."""
    command = [SCRIPTS / "supervise", "--wait=0", sys.executable, "-I", "-c", STOPS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as script:
        child = int(script.stdout.readline())
        os.killpg(script.pid, number)
        rest = script.stdout.read()
        assert script.wait(timeout=60) == 75
    assert rest.split() == ["signal", str(number.value)]
    until(lambda: not is_running(child))  # what the command had left behind


def test_a_signal_ends_the_wait_for_the_next_start(tmp_path):
    count = tmp_path / "count"
    command = [SCRIPTS / "supervise", "--wait=1000", sys.executable, "-I", "-c", ENDS, count, "69", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as script:
        assert "starting again in 1000 s" in script.stderr.readline()
        script.send_signal(signal.SIGTERM)
        assert script.wait(timeout=60) == 69
    assert count.read_text() == "1"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "COMMAND must be given"),
        (("--restarts=-1", "true"), "-1 must be a whole number"),
        (("--wait=nan", "true"), "nan must be a number of seconds"),
    ],
)
def test_wrong_usage(arguments, words):
    ended = answer(SCRIPTS / "supervise", *arguments)
    assert ended.returncode == 2
    assert words in ended.stderr


def test_a_command_that_is_not_there(tmp_path):
    missing = tmp_path / "nothing"
    ended = answer(SCRIPTS / "supervise", missing)
    assert ended.returncode == 127
    assert str(missing) in ended.stderr


def test_it_runs_by_itself():
    """It needs nothing but Python's own library, and is executable."""
    path = pathlib.Path(SCRIPTS / "supervise")
    assert os.access(path, os.X_OK)
    ended = answer(sys.executable, "-I", "-S", path, "true")
    assert (ended.returncode, ended.stderr) == (0, "")
