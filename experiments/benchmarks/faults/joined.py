"""A worker that joins a run: the process that a person, SLURM or Kubernetes starts, and starts again.

    python -m experiments.benchmarks.faults.joined ADDRESS SOURCE [CERTIFICATE] [LOGS]

SOURCE is the function and the argument of a `WorkSource`, as JSON; the token is in SGDLAB_TOKEN. With LOGS, a folder,
it prints into a file there, `worker_N.log`.
"""

import json
import os
import pathlib
import sys
import traceback

from sgdlab.live import wire
from sgdlab.live.gradients import Gradients
from sgdlab.live.join import join
from sgdlab.live.work import WorkSource


def main(address: str, source: str, certificate: str = "", logs: str = "") -> None:
    """Computes what the source says, until the run has ended."""
    work = WorkSource(*json.loads(source)).make()
    Gradients(work).compile()  # before it has a place: others compute meanwhile
    with join(address, certificate=certificate or None) as worker:
        if logs:
            with open(pathlib.Path(logs) / f"worker_{worker.number}.log", "ab") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
        gradients = {}
        for ticket, params in worker:
            place = (worker.number, worker._asked.run)
            if place not in gradients:  # each counts its own
                gradients = {place: Gradients(work, worker=worker.number)}
            try:
                found = gradients[place].compute(ticket, params, lambda: worker.interrupted)
            except Exception as error:
                traceback.print_exc()
                worker.fail(wire.in_one_line(error))
                continue
            if found is not None:
                worker.send_with(*found)


if __name__ == "__main__":
    main(*sys.argv[1:])
