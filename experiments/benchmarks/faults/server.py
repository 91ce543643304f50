"""The server of a run whose server is to be killed, in a process of its own.

    python -m experiments.benchmarks.faults.server FOLDER

It reads `run.json` in that folder, and goes on with the run that is there; `seen.json` has what it shows: how many
gradients of each worker have come. When it is asked to stop, by SIGTERM or SIGINT, it leaves its parameters, and ends
with exit code 75.
"""

import dataclasses
import json
import os
import pathlib
import sys
import time

import jax
import numpy as np

from experiments.benchmarks.faults import checks, runs, work
from experiments.benchmarks.faults.transports import made
from sgdlab import hosts
from sgdlab.errors import Stopped
from sgdlab.live.gradients import Gradients
from sgdlab.live.log import Log
from sgdlab.live.server import serve
from sgdlab.live.status import Status
from sgdlab.replay.steps import Steps

STOPPED = 75
PARAMS = "params.npz"
UPDATES = "updates.json"
RUN = "run.json"
SEEN = "seen.json"
_PAUSE = 0.1
_JOINING = {"respawns": 1000, "join_seconds": 10.0}
"""Settings for workers that others start: nobody can say why they leave, or if they come."""


class Seen:
    """Leaves what the server shows in a file, now and then; a ledger that does not add up ends the run."""

    def __init__(self, folder: pathlib.Path):
        self._file, self._at = folder / SEEN, 0.0

    def show(self, status: Status) -> None:
        """Leave a status."""
        if not checks.adds_up(status.ledger):
            raise RuntimeError(f"at {status.seconds} s the ledger is {status.ledger}")
        if time.monotonic() - self._at > _PAUSE:
            self._at, part = time.monotonic(), self._file.with_suffix(".part")
            part.write_text(json.dumps([worker.gradients for worker in status.workers]), encoding="utf-8")
            os.replace(part, self._file)


def main(folder: pathlib.Path) -> int:
    """Executes the run until it is asked to stop; returns the exit code."""
    given = json.loads((folder / RUN).read_text(encoding="utf-8"))
    policy = runs.POLICIES[given["policy"]](num_workers=given["workers"])
    steps = Steps(work.RULE, work.params(), single=policy.single)
    steps.compile(runs.AUX)
    gradients = Gradients(work.source(folder, 0.0).make()._replace(seconds=None))
    log = Log(
        folder / "log",
        given,
        compute_of=lambda worker: gradients.compute,
        say=lambda line: print(line, flush=True),
    )
    updates: list[int] = []
    made_of = (given["transport"], folder, given["seconds"], given["workers"], given.get("address", ""))
    with hosts.stopping(), made(*made_of) as transport:
        try:
            serve(
                policy,
                steps,
                transport,
                num_workers=given["workers"],
                num_gradients=runs.MANY,
                settings=runs.SETTINGS if transport.STARTS else dataclasses.replace(runs.SETTINGS, **_JOINING),
                log=log,
                on_update=lambda update: updates.append(update.number),
                watch=Seen(folder).show,
                stop=hosts.stop_requested,
            )
        except Stopped as stopped:
            print(stopped, flush=True)
    np.savez(folder / PARAMS, *map(np.asarray, jax.tree.leaves(steps.params)))
    (folder / UPDATES).write_text(json.dumps(updates), encoding="utf-8")
    return STOPPED


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
