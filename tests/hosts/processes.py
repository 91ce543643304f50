"""Programs in several processes of this machine: a log each, one deadline, and none left behind."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import time

from sgdlab.hosts import rendezvous


def free_port():
    """A port of this machine that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def called(port, seconds=60.0):
    """A connection to a port of this machine, on which somebody will listen."""
    ends = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=seconds)
        except ConnectionRefusedError:
            assert time.monotonic() < ends
            time.sleep(0.01)


def until(condition, seconds=60.0):
    """Wait until something is so."""
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, f"not so within {seconds:g} s"
        time.sleep(0.02)


def member(index, count=2, facts={"--config.epochs": "1.0"}, host=None, least=0):  # noqa: B006 (nobody changes it)
    """A process that comes to a meeting."""
    return rendezvous.Member(index, count, facts, host or f"host{index}", "10.0.0.1", least)


class Processes:
    """Commands that run at once, each in a process group of its own.

    Args:
      folder: where the logs go: a pipe that nobody reads would block.
      commands: one a process.
      environment: variables besides this process's, for all, or one mapping for each.
      devices: of the processor, for each process.
    """

    def __init__(self, folder, commands, *, environment=(), devices=1):
        self.logs = [pathlib.Path(folder) / f"process{i}.log" for i in range(len(commands))]
        several = list(environment) if isinstance(environment, list) else [environment] * len(commands)
        # XLA_FLAGS would give every process the four devices of the tests; JAX writes its cache for one process alone.
        shared = os.environ | {"JAX_NUM_CPU_DEVICES": str(devices), "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
        shared |= {"JAX_ENABLE_COMPILATION_CACHE": "false", "PYTHONFAULTHANDLER": "1"}
        self.children = []
        for command, log, own in zip(commands, self.logs, several, strict=True):
            with log.open("wb") as file:
                child = subprocess.Popen(
                    command, stdout=file, stderr=subprocess.STDOUT, env=shared | dict(own), start_new_session=True
                )
            self.children.append(child)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for child in self.children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()

    def codes(self, seconds=120.0, after_failure=20.0, allowed=(0,)):
        """The exit codes of all; once one has failed, the others have some seconds left."""
        ends = time.monotonic() + seconds
        while any(child.poll() is None for child in self.children):
            if any(child.poll() not in (None, *allowed) for child in self.children):
                ends = min(ends, time.monotonic() + after_failure)
            if time.monotonic() > ends:
                raise AssertionError(f"not ended in time:\n{self.stacks()}")
            time.sleep(0.02)
        return [child.returncode for child in self.children]

    def wait_for(self, text, *indices):
        """Waits until each of some processes has written a text."""
        ends = time.monotonic() + 60.0
        while missing := [index for index in indices if text not in self.log(index)]:
            assert time.monotonic() < ends, f"process {missing} did not write {text!r}:\n{self.output()}"
            ended = [child.poll() for child in self.children] if text not in self.log(missing[0]) else [None]
            assert ended == [None] * len(ended), f"one ended before process {missing} wrote {text!r}:\n{self.output()}"
            time.sleep(0.02)

    def log(self, index):
        """Return what a process has written."""
        return self.logs[index].read_text(encoding="utf-8", errors="replace")

    def stacks(self):
        """Return what all have written, and where those are that have not ended, which this ends."""
        for child in self.children:
            if child.poll() is None:
                child.send_signal(signal.SIGABRT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(5.0)
        return self.output()

    def output(self):
        """Return what all have written, for a message of failure."""
        codes = [child.poll() for child in self.children]
        return "\n".join(f"--- process {i}, exit code {codes[i]}\n{self.log(i)}" for i in range(len(codes)))
