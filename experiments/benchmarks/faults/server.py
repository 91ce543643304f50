"""The server of a run whose server is to be killed, in a process of its own.

    python -m experiments.benchmarks.faults.server FOLDER

It reads `run.json` in that folder, and goes on with the run that is there. When it is asked to stop, by SIGTERM or
SIGINT, it leaves its parameters, and ends with exit code 75.
"""

import json
import pathlib
import sys

import jax
import numpy as np

from experiments.benchmarks.faults import runs, work
from experiments.benchmarks.faults.transports import made
from sgdlab import hosts
from sgdlab.errors import Stopped
from sgdlab.live.gradients import Gradients
from sgdlab.live.log import Log
from sgdlab.live.server import serve
from sgdlab.replay.steps import Steps

STOPPED = 75
PARAMS = "params.npz"
UPDATES = "updates.json"
RUN = "run.json"


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
    with hosts.stopping(), made(given["transport"], folder, given["seconds"], given["workers"]) as transport:
        try:
            serve(
                policy,
                steps,
                transport,
                num_workers=given["workers"],
                num_gradients=runs.MANY,
                settings=runs.SETTINGS,
                log=log,
                on_update=lambda update: updates.append(update.number),
                stop=hosts.stop_requested,
            )
        except Stopped as stopped:
            print(stopped, flush=True)
    np.savez(folder / PARAMS, *map(np.asarray, jax.tree.leaves(steps.params)))
    (folder / UPDATES).write_text(json.dumps(updates), encoding="utf-8")
    return STOPPED


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
