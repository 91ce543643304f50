"""The transports that faults are tried on."""

import contextlib
import pathlib

import jax

from experiments.benchmarks.faults import runs, work
from sgdlab.live.processes import Processes
from sgdlab.live.transport import Transport

KINDS = ("processes", "ray")


def made(kind: str, folder: pathlib.Path, seconds: float, workers: int) -> contextlib.closing[Transport]:
    """Return a transport, which the end of a `with` block closes."""
    source, logs = work.source(folder, seconds), folder / "workers"
    # As in this process: a replay here must round as the workers do.
    env = {"JAX_ENABLE_X64": str(int(jax.config.jax_enable_x64)), "JAX_ENABLE_COMPILATION_CACHE": "false"}
    given = {"num_workers": workers, "logs": logs, "env": env}
    if kind == "ray":
        from sgdlab.live.ray import Ray  # noqa: PLC0415 (an extra)

        return contextlib.closing(Ray(source, work.params(), runs.AUX, **given))
    return contextlib.closing(Processes(source, work.params(), runs.AUX, **given))
