"""Processes that join a run, as a person would start them, for tests."""

import os
import pathlib
import secrets
import subprocess
import sys
import time

from experiments.benchmarks.faults import joined
from sgdlab.live.remote import Remote
from sgdlab.live.settings import VARIABLE, Endpoint

TOKEN = secrets.token_urlsafe()
HERE = pathlib.Path(__file__).parent


def started(program, *arguments, **given):
    """A process of this Python, which finds what tests import."""
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), str(HERE), *sys.path]), VARIABLE: TOKEN,
        "JAX_PLATFORMS": "cpu", **given.pop("env", {}),
    }  # fmt: skip
    return subprocess.Popen([sys.executable, program, *map(str, arguments)], env=environment, **given)


def kill_one(server, processes):
    """Kills one that has joined, and returns it, no longer among `processes`."""
    there = {stream.joined.process for stream in server._transport._workers.values() if stream.joined}
    process = next(process for process in processes if process.pid in there)
    processes.remove(process)
    process.kill()
    return process


def come_late(server, start):
    """Starts a process, and waits until it has a place, however long that takes."""
    before = list(server._transport._workers.values())
    process = start()
    while all(stream in before for stream in server._transport._workers.values()):
        time.sleep(0.01)
    return process


class Joining(Remote):
    """The transport, and somebody who starts a process for each place that is free."""

    def __init__(self, source, *given, env, logs, **named):
        work = {"function": source.function, "argument": source.argument}
        super().__init__(*given, **named, endpoint=Endpoint(token=TOKEN), work=work)
        self._logs, self._program = logs, ("-m", joined.__name__, self.address, "", logs)
        self._env, self._started = dict(env), []

    def spawn(self, worker):
        super().spawn(worker)
        alive = [process for process in self._started if process.poll() is None]
        for _ in range(len(self._free | self._workers.keys()) - len(alive)):
            self._started.append(started(*self._program, env=self._env))

    def kill(self, worker):
        known = worker in self._workers and self._workers[worker].joined
        super().kill(worker)
        for process in self._started:
            if known and process.pid == known.process:
                process.kill()
                process.wait()

    def close(self):
        super().close()
        for process in self._started:
            process.kill()
            process.wait()
