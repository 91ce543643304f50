"""A worker that joins a run: the process that a person, SLURM or Kubernetes starts, and starts again.

    python -m experiments.benchmarks.faults.joined ADDRESS [CERTIFICATE] [LOGS]

It computes what the server says; the token is in SGDLAB_TOKEN. With LOGS, a folder, it prints into a file there,
`worker_N.log`.
"""

import os
import pathlib
import sys
from typing import Any

from sgdlab.live.gradients import Computer
from sgdlab.live.settings import token_of
from sgdlab.live.worker import ComputingWorker

_WAIT_SECONDS = 600.0


def main(address: str, certificate: str = "", logs: str = "") -> None:
    """Computes what it learns from the server, until the run has ended."""

    def make(welcome: dict[str, Any]) -> Computer:
        if logs:
            with open(pathlib.Path(logs) / f"worker_{welcome['worker']}.log", "ab") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
        return Computer(welcome["work"], welcome["answer"], welcome["worker"])

    with ComputingWorker(make, address, token_of(None), certificate or None, _WAIT_SECONDS) as worker:
        worker.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
