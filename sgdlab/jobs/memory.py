"""What a run will take, estimated before it is made; one that does not fit is refused in one line."""

import math
from typing import Any

import jax
import numpy as np
import psutil
from jax.sharding import Mesh

from sgdlab import graphs, replay
from sgdlab.errors import UsageError
from sgdlab.jobs.experiment import Experiment
from sgdlab.rules import ServerRule

_GIB = 2**30
_BYTES_PER_GRADIENT = 820
"""What making a schedule and its program takes at its peak, for each gradient and block. Measured from 100 to 10,000
workers, with 10^6 gradients: 160 to 180 for four blocks, 240 for `synchronous`, `partial` and `softsync`, 290 to 340
for `asynchronous`, `bounded_staleness` and `ringmaster` (with interrupts 410), 400 to 500 for `gossip`, and 800 for
`elastic_averaging`, which has two events a gradient."""

_BYTES_PER_EDGE = 190
"""What it takes besides for each parameter vector that nodes on a graph average. Measured with 20,000 gradients of 100
nodes: 1080 bytes a gradient for 3 of them (`d_psgd` on a ring), 2000 for 8, 9930 for 51 (on random graphs), 1330 for
the 4 of `ad_psgd`, 1860 for the 14 of `a2cid2`."""

_BYTES_PER_WEIGHT = 24
"""And for each entry of each matrix [N, N] of weights. Measured: 8 for ten matrices of 1000 nodes, 23 for one of
3000."""

_NO_GRAPH = graphs.Size(0)

_BYTES_PER_ROW = 80
"""What a program and its records take on the device, for each gradient and block."""


def check_schedule(
    experiment: Experiment, num_gradients: int, *, num_blocks: int = 1, graph: graphs.Size = _NO_GRAPH
) -> None:
    """Raises a `UsageError` where run-times and schedule will not fit the memory of this machine.

    Args:
      experiment: what is run.
      num_gradients: that the schedule is made for.
      num_blocks: S, of the parameters.
      graph: on which nodes average.
    """
    workers = experiment.cluster.workers.cluster
    runtimes = 8 * (2 * num_gradients // workers + 2) * workers
    each = _BYTES_PER_GRADIENT * num_blocks + _BYTES_PER_EDGE * graph.edges
    gradients = each * max(num_gradients, workers) + _BYTES_PER_WEIGHT * graph.matrices * workers**2
    limit = _limit(experiment, psutil.virtual_memory().available)
    if runtimes + gradients > limit:
        raise UsageError(
            f"--config.cluster.num_workers={workers} with {num_gradients:,} gradients would take about "
            f"{_size(runtimes + gradients)} for run-times and schedule, and {_size(limit)} are free; fewer workers or "
            "epochs take less, and --config.memory=GIB sets another limit"
        )


def check_run(
    experiment: Experiment,
    program: Any,  # replay.Program
    rule: ServerRule,
    params: object,
    local: object = None,
    mesh: Mesh | None = None,
) -> None:
    """Raises a `UsageError` where what a run holds does not fit the device.

    That is a copy of the parameters for each version that some worker holds, the state of the workers and of the rule
    (of every node where there is no server), in wave mode copies for each lane, and the program. Activations come on
    top. Each device of a mesh has its share of that, but in a replicated layout it has all versions, the rule's state
    and the gradients of all lanes.
    """
    capacity, of_peers = program.capacity, isinstance(program, replay.PeerProgram)
    size, optimizers = _bytes(params), program.num_workers if of_peers else 1
    state = optimizers * _bytes(jax.eval_shape(rule.init, params))
    waves, devices = mesh is not None or _in_waves(experiment, program), 1 if mesh is None else mesh.size
    versions = capacity.slots + capacity.kept + (program.num_workers if of_peers else 0)
    of_lanes = program.versions - versions if waves else 0
    if waves and rule.point is not None and program.uniform:
        of_lanes += capacity.width  # a version that lanes share, and each one's own point
    own = capacity.workers * _bytes(local) / devices
    if mesh is not None and (experiment.computing.layout or replay.sharding.kind_of(program, params)) == "sharded":
        versions, state = math.ceil(versions / devices), state / devices
    elif not program.synchronous:
        of_lanes += (devices - 1) * capacity.width  # the gradients of the other devices
    copies = versions + 4 + math.ceil(of_lanes / devices)
    blocks = 1 if of_peers else program.num_blocks
    needed = copies * size + state + own + _BYTES_PER_ROW * blocks * capacity.rows
    stats = jax.local_devices()[0].memory_stats() or {}
    free = stats.get("bytes_limit", 0) - stats.get("bytes_in_use", 0) or psutil.virtual_memory().available
    if mesh is not None and jax.default_backend() == "cpu":
        free /= len(mesh.local_devices)  # which share the memory of the machine
    limit = _limit(experiment, free)
    if needed > limit:
        of_workers = f", and {_size(own)} of the workers" if own else ""
        raise UsageError(
            f"--config.cluster.num_workers={experiment.cluster.workers.cluster} would take about {_size(needed)} on "
            f"the device ({copies} copies of parameters of {_size(size)}, {_size(state)} of the rule{of_workers}), and "
            f"{_size(limit)} are free; fewer workers or a smaller network take less, and --config.memory=GIB sets "
            "another limit"
        )


def _in_waves(experiment: Experiment, program: replay.Program) -> bool:
    if experiment.computing.mode is None:
        return jax.default_backend() != "cpu" and program.mean_wave_length() >= 2
    return experiment.computing.mode == "wave"


def _limit(experiment: Experiment, free: float) -> float:
    return free if experiment.computing.memory is None else experiment.computing.memory * _GIB


def _bytes(tree: object) -> int:
    return sum(math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(tree))


def _size(count: float) -> str:
    """Example: `_size(3 * 2**30)` is "3.0 GiB"."""
    for unit, size in (("GiB", _GIB), ("MiB", 2**20)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count / 2**10:,.1f} KiB"
