"""`scripts/hosts_here.sh`: outputs apart, one exit code, one signal for all, and nothing left behind."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import pytest
from fakes import SCRIPTS, answer, is_running, until

pytestmark = pytest.mark.skipif(not pathlib.Path("/proc/self/stat").exists(), reason="looks for processes in /proc")

MEMBER = """
import os, pathlib, signal, subprocess, sys, time
index, folder, says = int(os.environ["SGDLAB_PROCESS_ID"]), pathlib.Path(sys.argv[1]), dict(enumerate(sys.argv[2:]))
print("at", os.environ["SGDLAB_HOSTS"], "of", os.environ["SGDLAB_NUM_PROCESSES"])
print("to stderr", file=sys.stderr)
child = subprocess.Popen(["sleep", "1000"])
def write(name, text):
    (folder / f"{name}.new").write_text(text)
    (folder / f"{name}.new").rename(folder / name)
def stop(number, frame):
    os.write(1, f"signal {number}\\n".encode())
    sys.exit(75)
signal.signal(signal.SIGINT, stop)
signal.signal(signal.SIGTERM, stop)
write(f"pids{index}", f"{os.getpid()} {child.pid}")
says = says.get(index, "wait")
if says.startswith("exit"):
    while len(list(folder.glob("pids?"))) < int(os.environ["SGDLAB_NUM_PROCESSES"]):
        time.sleep(0.01)
    sys.exit(int(says[4:]))
if says == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(1000)
"""


@pytest.fixture(name="started")
def script_that_ends_with_the_test(tmp_path):
    """Starts two processes by the script: (the script, a function that returns (exit code, output, errors))."""
    scripts = []

    def start(*says, **environment):
        script = subprocess.Popen(
            [SCRIPTS / "hosts_here.sh", "2", sys.executable, "-I", "-c", MEMBER, tmp_path, *says],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env=os.environ | environment,
        )  # fmt: skip
        scripts.append(script)

        def end():
            output, errors = script.communicate(timeout=60)
            return script.returncode, output, errors

        return script, end

    yield start
    for script in scripts:
        script.kill()
    for file in tmp_path.glob("pids?"):
        for pid in map(int, file.read_text().split()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    for script in scripts:
        script.communicate()


def pids(folder):
    """The numbers of all processes, once both have started."""
    files = until(lambda: found if len(found := sorted(folder.glob("pids?"))) == 2 else None)
    return [int(word) for file in files for word in file.read_text().split()]


def test_outputs_are_apart_and_one_address_is_shared(started, tmp_path):
    code, output, errors = started("exit0", "exit0")[1]()
    assert (code, errors) == (0, "")
    addresses = set()
    for index in (0, 1):
        lines = [line.removeprefix(f"{index}: ") for line in output.splitlines() if line.startswith(f"{index}: ")]
        assert len(lines) == 2
        (found,) = re.fullmatch(
            r"at (127\.0\.0\.1:\d+) of 2", next(line for line in lines if line != "to stderr")
        ).groups()
        addresses.add(found)
    assert len(addresses) == 1
    assert len(output.splitlines()) == 4
    assert not any(map(is_running, pids(tmp_path)))  # nor what they had started


@pytest.mark.parametrize(("says", "code"), [(("exit3", "wait"), 3), (("wait", "killed"), 137)])
def test_the_first_failure_ends_the_others_and_is_the_exit_code(started, says, code, tmp_path):
    """The others end with 75 when they are terminated."""
    ended, output, errors = started(*says, GRACE_SECONDS="0.1")[1]()
    assert ended == code
    failed, other = (index for index, word in sorted(enumerate(says), key=lambda item: item[1] == "wait"))
    assert f"process {failed} ended with exit code {code}" in errors
    assert len(errors.splitlines()) == 1
    assert f"{other}: signal {signal.SIGTERM.value}" in output
    assert not any(map(is_running, pids(tmp_path)))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_every_process_once(started, number, tmp_path):
    """As by Ctrl-C in a terminal, which signals the script's process group."""
    script, end = started()
    running = pids(tmp_path)
    os.killpg(script.pid, number)
    with contextlib.suppress(subprocess.TimeoutExpired):
        script.wait(timeout=15)
    if script.poll() is None:  # bash forgets a signal that comes just when it begins to wait
        os.killpg(script.pid, number)
    code, output, _ = end()
    assert code == 75
    lines = [line for line in output.splitlines() if "signal" in line]
    assert sorted(lines) == [f"{index}: signal {number.value}" for index in (0, 1)]
    assert not any(map(is_running, running))


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="util-linux ties processes to the script")
def test_processes_end_with_a_script_that_is_killed(started, tmp_path):
    script, _ = started()
    members = pids(tmp_path)[::2]
    assert all(map(is_running, members))
    script.kill()
    until(lambda: not any(map(is_running, members)))


@pytest.mark.parametrize("arguments", [(), ("2",), ("0", "true"), ("two", "true"), ("-1", "true")])
def test_wrong_usage(arguments):
    ended = answer(SCRIPTS / "hosts_here.sh", *arguments)
    assert ended.returncode == 2
    assert ended.stderr.startswith("usage: hosts_here.sh N COMMAND")
