"""No failure of one process leaves another one hanging, or looking as if all were well; each says which it was."""

import os
import pathlib
import signal
import socket
import sys
import time

import pytest
from processes import Processes, free_port

MEMBER = str(pathlib.Path(__file__).with_name("member.py"))
HOST = socket.gethostname()


@pytest.fixture(name="begin")
def begun(tmp_path):
    started = []

    def begin(action, count, *, devices=1, environment=(), where=None, there=None, counts=None):
        address, told = where or f"127.0.0.1:{free_port()}", counts or str(count)
        indices = range(count) if there is None else there
        commands = [[sys.executable, MEMBER, address, told, str(i), action] for i in indices]
        if where == "auto":
            commands = [[sys.executable, MEMBER, "auto", "", "", action]] * count
        path = {"PYTHONPATH": str(pathlib.Path(__file__).parents[2])}
        several = [dict(own) | path for own in environment] if isinstance(environment, list) else path
        started.append(Processes(tmp_path, commands, environment=several, devices=devices))
        return started[-1]

    yield begin
    for processes in started:
        processes.__exit__()


def test_processes_agree_and_share_their_devices(begin):
    processes = begin("agrees", 2, devices=2)
    assert processes.codes() == [0, 0], processes.output()
    for index in range(2):
        lines = processes.log(index).splitlines()
        for i in range(3):
            assert f"['0.{i}', '1.{i}']" in lines
        assert f"sum {float(sum(range(4)))}" in lines


@pytest.mark.sample(1)
@pytest.mark.parametrize(("there", "counts"), [((0, 2), "2:3"), ((0,), "1:3")])
def test_those_that_are_there_go_on_with_all_their_devices(begin, there, counts):
    processes = begin("agrees", 3, devices=2, there=there, counts=counts)
    assert processes.codes() == [0] * len(there), processes.output()
    for index in range(len(there)):
        lines = processes.log(index).splitlines()
        assert f"connected {index} of {len(there)}" in lines
        assert str([f"{i}.2" for i in range(len(there))]) in lines
        assert f"sum {float(sum(range(2 * len(there))))}" in lines


@pytest.mark.full
def test_slurms_variables_are_enough(begin, tmp_path):
    port = free_port()
    variables = {"SLURM_JOB_ID": "1", "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0"}
    several = [variables | {"SLURM_PROCID": str(i), "JAX_COORDINATOR_PORT": str(port)} for i in range(2)]
    processes = begin("agrees", 2, environment=several, where="auto")
    assert processes.codes() == [0, 0], processes.output()
    assert "connected 1 of 2" in processes.log(1)


def test_an_exception_ends_all_with_its_line_and_its_code(begin):
    processes = begin("raises", 3)
    assert processes.codes(allowed=()) == [1, 1, 1], processes.output()
    assert "ValueError: this gradient is none" in processes.log(2)
    for index in range(2):
        (line,) = [line for line in processes.log(index).splitlines() if line.startswith("error: ")]
        assert line.startswith(f"error: process 2 on {HOST}: the command failed:")
        assert line.endswith("ValueError: this gradient is none")


def test_an_exit_ends_all_with_its_code(begin):
    processes = begin("exits", 2)
    assert processes.codes(allowed=()) == [7, 7], processes.output()
    assert f"error: process 1 on {HOST}: ended with exit code 7" in processes.log(0)


@pytest.mark.sample(1)
@pytest.mark.parametrize("victim", [1, 0])
def test_a_process_that_is_killed_amid_collectives_is_named(begin, victim):
    processes = begin("sums", 2)
    processes.wait_for("begun", 0, 1)
    os.killpg(processes.children[victim].pid, signal.SIGKILL)
    codes = processes.codes(allowed=())
    assert (codes[victim], codes[1 - victim]) == (-9, 69), processes.output()
    assert f"error: process {victim} on {HOST} ended without a message (killed?)" in processes.log(1 - victim)


def test_a_process_that_is_killed_is_named_to_those_that_wait_for_it(begin):
    processes = begin("waits", 3)
    processes.wait_for("waits", 0, 1, 2)
    os.killpg(processes.children[2].pid, signal.SIGKILL)
    assert processes.codes(allowed=()) == [69, 69, -9], processes.output()
    for index in range(2):
        assert f"error: process 2 on {HOST} ended without a message (killed?)" in processes.log(index)


@pytest.mark.sample(1)
@pytest.mark.parametrize("victim", [1, 0])
def test_a_process_that_is_frozen_is_named(begin, victim):
    processes = begin("freezes", 2)
    processes.wait_for("waits", 0, 1)
    os.killpg(processes.children[victim].pid, signal.SIGSTOP)
    processes.children[1 - victim].wait(timeout=60)
    os.killpg(processes.children[victim].pid, signal.SIGCONT)
    assert processes.codes(allowed=()) == [69, 69], processes.output()
    assert f"error: process {victim} on {HOST} has not answered for 3 s" in processes.log(1 - victim)


def test_who_is_late_at_a_barrier_is_named(begin):
    processes = begin("late", 2)
    assert processes.codes(allowed=()) == [69, 69], processes.output()
    line = f"waited 1 s at 'the first pause' for process 1 on {HOST}"
    assert f"error: {line}" in processes.log(0)
    assert f"error: process 0 on {HOST}: {line}" in processes.log(1)


def test_all_stop_after_one_signal_and_end_after_two(begin):
    processes = begin("stops", 2)
    processes.wait_for("ready", 0, 1)
    os.killpg(processes.children[1].pid, signal.SIGTERM)
    processes.wait_for("all stop", 0, 1)
    assert "Stopping at the next pause" in processes.log(1)
    time.sleep(1.1)  # signals within a second are one
    os.killpg(processes.children[1].pid, signal.SIGTERM)
    assert processes.codes(allowed=()) == [130, 143], processes.output()
    assert f"error: process 1 on {HOST}: ended at once by a second SIGTERM" in processes.log(0)


def test_a_directory_that_not_all_see_is_refused(begin, tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    processes = begin("shares", 2, environment=[{"SHARED_FOLDER": str(folder)}] * 2)
    assert processes.codes(allowed=()) == [2, 2], processes.output()
    for index in range(2):
        assert f"--workdir={folder}" in processes.log(index)
        assert f"process 1 on {HOST} does not see the files" in processes.log(index)
    assert list(folder.iterdir()) == []
