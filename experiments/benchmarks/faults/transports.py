"""The transports that faults are tried on."""

import contextlib
import pathlib

import jax

from experiments.benchmarks.faults import runs, work
from sgdlab.live.processes import Processes

KINDS = ("processes", "ray")
"""On one machine."""
MACHINES = ("grpc", "ray")
"""On several: workers that join, and actors of a cluster."""


def made(kind: str, folder: pathlib.Path, seconds: float, workers: int, address: str = "") -> contextlib.closing:
    """Return a `Transport`, which the end of a `with` block closes.

    Args:
      kind: one of `KINDS`, or of `MACHINES`.
      folder: of the run; with "grpc" the certificate of the server and its key are there.
      seconds: mean time of a gradient.
      workers: how many there are.
      address: where workers join, or of the cluster; '': there is one of this machine.
    """
    source, logs = work.source(folder, seconds), folder / "workers"
    if kind == "grpc":
        from sgdlab.live.remote import Remote  # noqa: PLC0415
        from sgdlab.live.settings import Endpoint  # noqa: PLC0415 (an extra)

        endpoint = Endpoint(address, certificate=folder / "server.pem", key=folder / "server.key")
        told = {"function": source.function, "argument": source.argument}
        given = {"num_workers": workers, "endpoint": endpoint, "work": told}
        return contextlib.closing(Remote(work.params(), runs.AUX, **given))
    # As in this process: a replay here must round as the workers do.
    env = {"JAX_ENABLE_X64": str(int(jax.config.jax_enable_x64)), "JAX_ENABLE_COMPILATION_CACHE": "false"}
    given = {"num_workers": workers, "logs": logs, "env": env}
    if kind == "ray":
        from sgdlab.live.ray import Ray  # noqa: PLC0415 (an extra)

        return contextlib.closing(Ray(source, work.params(), runs.AUX, **given, address=address or "local"))
    return contextlib.closing(Processes(source, work.params(), runs.AUX, **given))
