"""The environment in which workers compute, and so the server: devices, threads, and JAX's settings that count."""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

import jax

_SETTINGS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_random_seed_offset",
    "jax_disable_most_optimizations",
)
"""Settings of JAX on which the bits of a gradient depend."""

_PREFIXES = ("JAX_", "XLA_")
_ROOT = pathlib.Path(__file__).parents[2]
_GPUS = pathlib.Path("/proc/driver/nvidia/gpus")
_MEMORY_SHARE = 0.9
"""Of a GPU's memory, for all workers on it together."""


def for_server(gpus_per_worker: float | None) -> None:
    """Let this process compute where its workers do, so that gradients computed again have the same bits.

    It must be called before JAX is first used. Of a GPU, which it may share with a worker, the server takes memory only
    as it needs it, and so do the workers, which inherit that; `XLA_PYTHON_CLIENT_PREALLOCATE` wins over it.
    """
    if gpus_per_worker is None:
        jax.config.update("jax_platforms", "cpu")
    else:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def settings() -> dict[str, Any]:
    """Return the settings of JAX on which the bits of a gradient depend, as this process has them."""
    # Not all of them are attributes.
    return {name: getattr(jax.config, name, jax.config.values.get(name)) for name in _SETTINGS}


def for_joined(told: Mapping[str, Any], gpus_per_worker: float | None) -> None:
    """Let this process compute as a server's workers do, of which another machine has told it this."""
    for name, value in told.items():
        jax.config.update(name, value)
    jax.config.update("jax_platforms", devices(None, 1, gpus_per_worker)["JAX_PLATFORMS"])


def for_worker(
    worker: int | None,
    *,
    num_workers: int,
    gpus_per_worker: float | None,
    given: Mapping[str, str],
    cores: float | None = None,
) -> dict[str, str]:
    """Return environment variables of a worker: this process's, with what differs.

    JAX reads the settings of this process, whether they were made by variables or in code. Where there are fewer than
    two cores a worker, each computes in one thread, so that they do not get in each other's way.

    Args:
      worker: as of `devices`, as are the next two.
      num_workers: see there.
      gpus_per_worker: see there.
      given: variables that win over all others.
      cores: that all workers have together; None: those that this process may use.
    """
    own, together = {"PYTHONUNBUFFERED": "1"}, own_cores() if cores is None else cores
    own |= {name.upper(): str(value) for name, value in settings().items() if value is not None}
    if num_workers * 2 > together:
        flags = os.environ.get("XLA_FLAGS", "")
        own |= {"OMP_NUM_THREADS": "1", "XLA_FLAGS": f"{flags} --xla_cpu_multi_thread_eigen=false".strip()}
    found = {**os.environ, **own, **devices(worker, num_workers, gpus_per_worker), **given}
    # The code of this very package, and not another version.
    return {**found, "PYTHONPATH": os.pathsep.join(filter(None, (str(_ROOT), found.get("PYTHONPATH"))))}


def for_actors(
    num_workers: int, gpus_per_worker: float | None, given: Mapping[str, str], *, cores: float | None, local: bool
) -> dict[str, str]:
    """Return the environment variables in which workers differ from the processes that their cluster would start.

    Arguments are as of `for_worker`; `local`: the cluster is of this machine, where folders mean the same.
    """
    own = for_worker(None, num_workers=num_workers, gpus_per_worker=gpus_per_worker, given={}, cores=cores)
    own = {name: value for name, value in own.items() if value != os.environ.get(name) or name.startswith(_PREFIXES)}
    if not local:
        del own["PYTHONPATH"]
    return {**own, **given}


def devices(worker: int | None, num_workers: int, gpus_per_worker: float | None) -> dict[str, str]:
    """Return the environment variables that say which devices a worker computes on.

    Args:
      worker: its number; None: of any worker of a cluster, which says itself which of a machine's GPUs are a worker's.
      num_workers: the largest number of workers at once.
      gpus_per_worker: None: it computes on the CPU. A whole number: GPUs of its own. 1/k: k workers share a GPU, and
        its memory.

    Raises:
      ValueError: if `gpus_per_worker` is neither, or there are not GPUs enough.

    Example:
      >>> devices(3, 4, None)
      {'JAX_PLATFORMS': 'cpu'}
    """
    if gpus_per_worker is None:
        return {"JAX_PLATFORMS": "cpu"}
    sharing = round(1 / gpus_per_worker) if 0 < gpus_per_worker < 1 else 1
    count = round(gpus_per_worker) if gpus_per_worker >= 1 else 1
    if gpus_per_worker <= 0 or abs(count / sharing - gpus_per_worker) > 1e-6:
        raise ValueError(f"gpus_per_worker={gpus_per_worker} must be a whole number, or 1 over one, such as 0.5")
    chosen = {"JAX_PLATFORMS": "cuda,cpu"}
    if sharing > 1:
        chosen["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{_MEMORY_SHARE / sharing:.3f}"
    if worker is None:
        return chosen
    there, wanted = _visible(), -(-num_workers // sharing) * count
    if wanted > len(there):
        raise ValueError(
            f"gpus_per_worker={gpus_per_worker} wants {wanted} GPUs for {num_workers} workers; there are {len(there)}"
        )
    first = worker // sharing * count
    return {**chosen, "CUDA_VISIBLE_DEVICES": ",".join(there[first : first + count])}


def own_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _visible() -> list[str]:
    """Return names of the GPUs that this process may use, without a library of theirs."""
    if (named := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name for name in named.split(",") if name.strip() not in ("", "-1")]
    return [str(number) for number in range(len(list(_GPUS.iterdir())))] if _GPUS.is_dir() else []
