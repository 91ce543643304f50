"""Names of columns: what people, frameworks and tools call those of a trace, their units, and which hold times."""

import dataclasses
import fnmatch
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from sgdlab.traces import phases
from sgdlab.traces.options import SECONDS
from sgdlab.traces.phases import words
from sgdlab.traces.problems import BadTrace

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
        ("time", "timestep", "time_step"),
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
    "job": (("job", "job_id", "job_name"), ("run", "run_id", "run_name", "experiment")),
}  # fmt: skip
"""Part of a row -> groups of names of its column, in lower case, without the unit."""

CERTAIN = {"worker": 3, "step": 3, "duration": 2, "start": 2}
"""So many groups of names are such that no worker of a wide table has them."""

WITHIN_NODE = 4
"""From this group on, names of workers tell a machine, or a place on it."""

TIME_AS_STEP = 4
"""Names of this group are steps only beside a worker and a duration of another name."""

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

    Example:
      >>> start_per_second("timestamp", 1.7e12, 1), start_per_second("start_us", 5.0, 1), start_per_second("ts", 5, 1)
      (1000, 1000000, 1)
    """
    if unit := unit_of(name):
        return SECONDS[unit]
    # A clock that counts from 1970 shows from 1e9 to 1e10 seconds for the next centuries.
    since_1970 = [scale for scale in SECONDS.values() if 1e9 <= first / scale < 1e10]
    return since_1970[0] if since_1970 else duration_per_second


def base(name: str) -> str:
    """Return a column's name without its unit, words joined by underscores."""
    parts = words(name)
    return "_".join(parts[:-1] if parts and parts[-1] in _UNIT_OF else parts)


_TIMES = ("time", "duration", "dur", "latency")
_NO_PARTS = ("eta", "wall", "uptime", "since", "remaining", "left", "end", "ended", "finish", "per", "timestamp", "ts")
_FORWARD, _BACKWARD = {"forward", "fwd"}, {"backward", "bwd"}
_COMPUTE = {"compute", "computation", "computing"}


@dataclasses.dataclass(frozen=True)
class TimeColumns:
    """Columns of which a worker's own work is made.

    Attributes:
      added: their sum is the own work,
      subtracted: less that of these.
      communication: times inside it.
      remark: what was decided, as a sentence.
    """

    added: tuple[str, ...]
    subtracted: tuple[str, ...] = ()
    communication: tuple[str, ...] = ()
    remark: str = ""


def split_times(header: Sequence[str], duration: str | None) -> TimeColumns | None:
    """Tells columns of times apart, by their names.

    The header is of columns that hold neither workers nor steps, and `duration` would be the duration if there was no
    other; None where that column alone is the own work, or none is.

    Example:
      >>> split_times(["step_time", "comm_time"], "step_time").subtracted
      ('comm_time',)
      >>> split_times(["data_ms", "fwd_ms", "bwd_ms", "allreduce_ms"], None).added
      ('data_ms', 'fwd_ms', 'bwd_ms')
    """
    if duration is not None and base(duration) in NAMES["duration"][0]:
        return None
    times = [name for name in header if _is_time(name)]
    communication = tuple(name for name in times if phases.is_communication(base(name)))
    totals = [name for name in times if name not in communication and _is_total(name)]
    parts = tuple(name for name in times if name not in communication and name not in totals)
    known = {word for name in parts for word in words(name)}
    # Parts that leave out the computation are not the whole of the own work.
    whole = bool(known & _COMPUTE) or bool(known & _FORWARD and known & _BACKWARD)
    if parts and (whole or not totals):
        if len(parts) == 1 and not communication:
            return None
        remark = f"own work is {' + '.join(parts)}"
        if totals:
            remark += f"; {' and '.join(map(repr, totals))} was left out: it is the whole step"
        if communication:
            remark += f"; {', '.join(communication)} was read as communication"
        return TimeColumns(parts, (), communication, remark)
    if duration in totals and communication:
        remark = (
            f"own work is {duration} - {' - '.join(communication)}: the whole step, less communication; "
            f"{', '.join(communication)} was read as communication"
        )
        return TimeColumns((duration,), communication, communication, remark)
    return None


def _is_time(name: str) -> bool:
    parts = words(name)
    if "/" in name or not parts or set(parts) & set(_NO_PARTS) or base(name) in NAMES["start"][1]:
        # Rates such as it/s, and moments; but `time_per_step` is a time.
        return _is_total(name)
    return unit_of(name) is not None or parts[-1] in _TIMES or _is_total(name)


def _is_total(name: str) -> bool:
    known = {word for names in NAMES["duration"][COMPUTE + 1 :] for word in names}
    return base(name) in known or (
        phases.is_total(base(name)) and base(name) not in ("step", "iteration", "iter", "batch")
    )


INDEX = "Unnamed: 0"
"""The name that pandas gives the first column of a table that it has written with its index."""

_METRICS = (
    "loss", "lr", "epoch", "accuracy", "acc", "perplexity", "ppl", "throughput", "tokens", "samples", "loss_scale",
    "learning_rate", "grad_norm", "gradient_norm", "runtime", "memory", "mem", "mean", "average", "avg", "median",
    "min", "minimum", "max", "maximum", "std", "sum", "total",
)  # fmt: skip
_EXTREMES = re.compile(r"__(MIN|MAX)$")


def workers_among(names: Sequence[str], patterns: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return which columns are workers, of those without steps and starts, and a sentence that lists the others.

    They are those of the patterns that a person says, such as "rank*"; without any, numbered columns where two or more
    are alike but for their numbers, else all; without metrics, minima and maxima.

    Raises:
      BadTrace: where a pattern has no column, or nothing is left.

    Example:
      >>> workers_among(["rank0", "rank1", "loss"], ())
      (('rank0', 'rank1'), "columns 'loss' were not read as workers")
    """
    if patterns:
        for pattern in patterns:
            if not any(_matches(name, pattern) for name in names):
                raise BadTrace(f"--columns=workers={pattern} fits none of the columns {', '.join(names)}")
        return tuple(name for name in names if any(_matches(name, pattern) for pattern in patterns)), ""
    found = [name for name in names if not _is_metric(name)]
    if alike(found):
        found = [name for name in found if re.search("[0-9]", name)]
    if not found:
        raise BadTrace("must have a column for each worker")
    left = [name for name in names if name not in found and name != INDEX]
    shown = ", ".join(map(repr, left[:5])) + ", ..." * (len(left) > 5)
    return tuple(found), f"columns {shown} were not read as workers" if left else ""


def alike(names: Sequence[str]) -> bool:
    """Tell whether two or more columns have one name but for their numbers."""
    stems = Counter(re.sub("[0-9]+", "#", name) for name in names if not _is_metric(name))
    return any("#" in stem and count > 1 for stem, count in stems.items())


def _matches(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name.lower(), pattern.lower())


def _is_metric(name: str) -> bool:
    known = {*_METRICS, *NAMES["epoch"][0]}
    parts = words(name)
    called = {parts[-1], "_".join(parts)} if parts else set()
    return name == INDEX or bool(_EXTREMES.search(name)) or bool(called & known)
