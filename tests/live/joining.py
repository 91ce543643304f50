"""Processes that join a run, as a person would start them, for tests; and the program that they execute."""

import json
import os
import pathlib
import secrets
import subprocess
import sys
import traceback

from sgdlab.live.endpoint import VARIABLE, Endpoint
from sgdlab.live.remote import Remote

TOKEN = secrets.token_urlsafe()
HERE = pathlib.Path(__file__).parent


def started(program, *arguments, **given):
    """A process of this Python, which finds what tests import."""
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), str(HERE), *sys.path]), VARIABLE: TOKEN,
        "JAX_PLATFORMS": "cpu", **given.pop("env", {}),
    }  # fmt: skip
    return subprocess.Popen([sys.executable, program, *map(str, arguments)], env=environment, **given)


class Joining(Remote):
    """The transport, and somebody who starts a process for each place that is free."""

    def __init__(self, source, *given, env, logs, **named):
        super().__init__(*given, **named, endpoint=Endpoint(token=TOKEN))
        self._logs, self._program = logs, (__file__, self.address, json.dumps(source[:2]), logs)
        self._env, self._started = dict(env), []

    def spawn(self, worker):
        super().spawn(worker)
        alive = [process for process in self._started if process.poll() is None]
        for _ in range(len(self._free | self._taken.keys()) - len(alive)):
            self._started.append(started(*self._program, env=self._env))

    def kill(self, worker):
        joined = worker in self._workers and self._workers[worker].joined
        super().kill(worker)
        for process in self._started:
            if joined and process.pid == joined.process:
                process.kill()
                process.wait()

    def close(self):
        super().close()
        for process in self._started:
            process.kill()
            process.wait()


def main(address, source, logs):
    """Computes what `process_works` says, until the run has ended."""
    from sgdlab.live import wire  # noqa: PLC0415
    from sgdlab.live.gradients import Gradients  # noqa: PLC0415
    from sgdlab.live.join import join  # noqa: PLC0415
    from sgdlab.live.work import WorkSource  # noqa: PLC0415

    work = WorkSource(*json.loads(source)).make()
    with join(address, wait_seconds=5.0) as worker:
        with open(pathlib.Path(logs) / f"worker_{worker.number}.log", "ab") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        gradients, runs = {}, Gradients(work, worker=worker.number)
        runs.compile()
        for ticket, params in worker:
            run = worker._asked.run
            if run not in gradients:  # each counts its own
                gradients = {run: Gradients(work, worker=worker.number)}
            try:
                found = gradients[run].compute(ticket, params, lambda: worker.interrupted)
            except Exception as error:
                traceback.print_exc()
                worker.fail(wire.in_one_line(error))
                continue
            if found is not None:
                worker.send_with(*found)


if __name__ == "__main__":
    main(*sys.argv[1:])
