"""The first signal asks to stop, the second ends the process at once, also while Python itself is not running."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from sgdlab import hosts


def until(condition, seconds=20.0):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_to_stop_and_handlers_are_restored(number, capfd):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    assert not hosts.stop_requested()
    with hosts.stopping():
        assert not hosts.stop_requested()
        signal.raise_signal(number)
        until(hosts.stop_requested)
    assert not hosts.stop_requested()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert signal.set_wakeup_fd(-1) == -1
    (line,) = capfd.readouterr().err.strip().splitlines()
    assert line.startswith("Stopping at the next pause")


def test_one_inside_another_changes_nothing():
    with hosts.stopping():
        signal.raise_signal(signal.SIGTERM)
        with hosts.stopping():
            until(hosts.stop_requested)
        assert hosts.stop_requested()


def test_other_threads_do_not_handle_signals():
    found = []

    def use():
        with hosts.stopping():
            found.append(hosts.stop_requested())

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert found == [False]


def test_the_second_signal_ends_a_process_whose_main_thread_does_not_run_python():
    # A barrier of threads in C waits here as a compiler or a collective would: handlers in Python would not run.
    script = (
        "import ctypes, sys\n"
        "from sgdlab import hosts\n"
        "with hosts.stopping():\n"
        "    print('ready', flush=True)\n"
        "    libc = ctypes.CDLL(None)\n"
        "    while True:\n"
        "        libc.pause()\n"
        "        libc.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        try:
            assert child.stdout.readline() == b"ready\n"
            child.send_signal(signal.SIGTERM)
            assert child.stderr.readline() == b"\n"
            assert b"Stopping at the next pause" in child.stderr.readline()
            for _ in range(3):  # passed on by what has started it: the same request
                child.send_signal(signal.SIGTERM)
            time.sleep(1.1)
            assert child.poll() is None
            child.send_signal(signal.SIGTERM)
            assert child.wait(timeout=30) == 128 + signal.SIGTERM
            assert child.stderr.read() == b"Ended at once.\n"
        finally:
            child.kill()
