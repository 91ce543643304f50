"""Names of columns: what people, frameworks and tools call those of a trace, and the units at their ends."""

import re
from collections.abc import Mapping

from sgdlab.traces.options import SECONDS

UNITS: Mapping[str, tuple[str, ...]] = {
    "s": ("s", "sec", "secs", "second", "seconds"),
    "ms": ("ms", "msec", "msecs", "millis", "millisecond", "milliseconds"),
    "us": ("us", "µs", "μs", "usec", "usecs", "micros", "microsecond", "microseconds"),
    "ns": ("ns", "nsec", "nsecs", "nanos", "nanosecond", "nanoseconds"),
}
"""Unit -> the words for it."""

_UNIT_OF = {word: unit for unit, words in UNITS.items() for word in words}

# Our own name first, then names that say it, then names that may say it; a name of an earlier group is preferred.
NAMES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "worker": (
        ("worker",),
        ("global_rank", "world_rank"),
        ("rank", "worker_id", "worker_rank", "worker_name", "dp_rank", "process_index"),
        ("process", "process_id", "proc", "replica", "replica_id", "device", "device_id", "gpu", "gpu_id"),
        ("local_rank", "local_gpu", "local_device", "local_process"),
        ("host", "hostname", "host_name", "node", "node_name", "node_id", "machine"),
    ),
    "step": (
        ("global_step", "global_iteration", "global_iter", "global_batch"),
        ("step",),
        ("iteration", "iter", "step_num", "step_id", "step_number", "train_step"),
        ("batch", "batch_idx", "batch_index", "batch_id", "it"),
    ),
    "duration": (
        ("duration",),
        ("compute", "compute_time", "compute_duration"),
        ("step_time", "step_duration", "iteration_time", "iter_time", "batch_time", "time_per_step", "time_per_iter",
         "time_per_iteration", "runtime", "run_time", "elapsed", "elapsed_time", "dur"),
        ("time", "wall_time", "latency", ""),  # the last is a unit alone: `ms`, `seconds`
    ),
    "node": (("node",), ("host", "hostname", "host_name", "node_name", "node_id", "node_rank", "machine")),
    "phase": (("phase",), ("op", "operation", "event", "op_name", "event_name")),
    "start": (
        ("start",),
        ("began", "begin", "started", "start_ts", "start_time", "timestamp", "time_stamp", "ts", "datetime"),
    ),
    "epoch": (("epoch", "epoch_idx", "epoch_index", "epoch_id", "epoch_num"),),
}  # fmt: skip
"""Part of a row -> groups of names of its column, in lower case, without the unit."""

CERTAIN = {"worker": 3, "step": 3, "duration": 2, "start": 2}
"""So many groups of names are such that no worker of a wide table has them."""

WITHIN_NODE = 4
"""From this group on, names of workers tell a machine, or a place on it."""

COMPUTE = 1
"""The last group of durations that are a worker's own work; those of later groups may be of whole steps."""


def unit_of(name: str) -> str | None:
    """Return the unit that ends a column's name.

    Example:
      >>> [unit_of(name) for name in ("time_ms", "Step time (us)", "elapsedSeconds", "duration", "rank")]
      ['ms', 'us', 's', None, None]
    """
    parts = words(name)
    return _UNIT_OF.get(parts[-1]) if parts else None


def is_start(name: str) -> bool:
    """Tell whether a column of that name holds the times at which steps begin."""
    return any(base(name) in names for names in NAMES["start"])


def start_per_second(name: str, first: float, duration_per_second: int) -> int:
    """Say how many units of a column of starts are a second: by its name, or since 1970, or those of the durations.

    Args:
      name: of the column.
      first: a value of it.
      duration_per_second: of the durations.

    Example:
      >>> start_per_second("timestamp", 1.7e12, 1), start_per_second("start_us", 5.0, 1), start_per_second("ts", 5, 1)
      (1000, 1000000, 1)
    """
    if unit := unit_of(name):
        return SECONDS[unit]
    # A clock that counts from 1970 shows from 1e9 to 1e10 seconds for the next centuries.
    since_1970 = [scale for scale in SECONDS.values() if 1e9 <= first / scale < 1e10]
    return since_1970[0] if since_1970 else duration_per_second


def words(name: str) -> list[str]:
    """Return the words of a column's name, in lower case.

    Example:
      >>> words("stepTime (ms)")
      ['step', 'time', 'ms']
    """
    apart = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)
    return [word for word in re.split(r"[\s_\-./()\[\]]+", apart.lower()) if word]


def base(name: str) -> str:
    """Return a column's name without its unit, words joined by underscores."""
    parts = words(name)
    return "_".join(parts[:-1] if parts and parts[-1] in _UNIT_OF else parts)
