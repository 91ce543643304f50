"""What a run will take, estimated before it is made; one that does not fit is refused in one line."""

import math

import jax
import numpy as np
import psutil
from ml_collections import ConfigDict

from sgdlab import replay
from sgdlab.errors import UsageError
from sgdlab.rules import ServerRule

_GIB = 2**30
_BYTES_PER_GRADIENT = 700
"""What making a schedule takes at its peak, for each gradient and block. Measured from 100 to 10,000 workers: 140 to
180 for `asynchronous`, 190 to 230 `synchronous`, 210 to 320 `bounded_staleness`, 250 to 300 `gossip`, 420 to 690
`ringmaster`."""


def check_schedule(config: ConfigDict, num_gradients: int, *, num_blocks: int = 1) -> None:
    """Raises a `UsageError` where run-times and schedule will not fit the memory of this machine."""
    workers = config.cluster.num_workers
    runtimes = 8 * (2 * num_gradients // workers + 2) * workers
    gradients = _BYTES_PER_GRADIENT * num_blocks * max(num_gradients, workers)
    limit = _limit(config, psutil.virtual_memory().available)
    if runtimes + gradients > limit:
        raise UsageError(
            f"--config.cluster.num_workers={workers} with {num_gradients:,} gradients would take about "
            f"{_size(runtimes + gradients)} for run-times and schedule, and {_size(limit)} are free; fewer workers or "
            "epochs take less, and --config.memory=GIB sets another limit"
        )


def check_run(
    config: ConfigDict, program: replay.Program, rule: ServerRule, params: object, local: object = None
) -> None:
    """Raises a `UsageError` where the versions that workers hold, their own state and the rule's do not fit."""
    size = _bytes(jax.eval_shape(lambda tree: tree, params))
    state = _bytes(jax.eval_shape(rule.init, params))
    copies = program.capacity.slots + program.capacity.kept + 4
    own = program.capacity.workers * _bytes(local)
    needed = copies * size + state + own
    stats = jax.local_devices()[0].memory_stats() or {}
    free = stats.get("bytes_limit", 0) - stats.get("bytes_in_use", 0) or psutil.virtual_memory().available
    limit = _limit(config, free)
    if needed > limit:
        of_workers = f", and {_size(own)} of the workers" if own else ""
        raise UsageError(
            f"--config.cluster.num_workers={config.cluster.num_workers} would take about {_size(needed)} on the device "
            f"({program.capacity.slots} versions of parameters of {_size(size)}, {_size(state)} of the rule"
            f"{of_workers}), and {_size(limit)} are free; fewer workers or a smaller network take less, and "
            "--config.memory=GIB sets another limit"
        )


def _limit(config: ConfigDict, free: float) -> float:
    return free if config.memory is None else config.memory * _GIB


def _bytes(tree: object) -> int:
    return sum(math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(tree))


def _size(count: float) -> str:
    """Example: `_size(3 * 2**30)` is "3.0 GiB"."""
    for unit, size in (("GiB", _GIB), ("MiB", 2**20)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count / 2**10:,.1f} KiB"
