"""Which columns hold times: of own work, communication and whole steps in a long table, of workers in a wide one."""

import dataclasses
import fnmatch
import re
from collections import Counter
from collections.abc import Sequence

from sgdlab.traces import phases
from sgdlab.traces.column_names import COMPUTE, NAMES, base, unit_of, words
from sgdlab.traces.problems import BadTrace

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


def split(header: Sequence[str], duration: str | None) -> TimeColumns | None:
    """Tells columns of times apart, by their names.

    Args:
      header: columns that hold neither workers nor steps.
      duration: the column that would be the duration if there was no other.

    Returns:
      None where that column alone is the own work, or none is.

    Example:
      >>> split(["step_time", "comm_time"], "step_time").subtracted
      ('comm_time',)
      >>> split(["data_ms", "fwd_ms", "bwd_ms", "allreduce_ms"], None).added
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
        return TimeColumns(parts, (), communication, _with(remark, communication))
    if duration in totals and communication:
        remark = f"own work is {duration} - {' - '.join(communication)}: the whole step, less communication"
        return TimeColumns((duration,), communication, communication, _with(remark, communication))
    return None


def _with(remark: str, communication: Sequence[str]) -> str:
    if not communication:
        return remark
    return f"{remark}; {', '.join(communication)} was read as communication"


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
"""What pandas calls the first column of a table that it has written with its index."""

_METRICS = (
    "loss", "lr", "epoch", "accuracy", "acc", "perplexity", "ppl", "throughput", "tokens", "samples", "loss_scale",
    "learning_rate", "grad_norm", "gradient_norm", "runtime", "memory", "mem",
)  # fmt: skip
_EXTREMES = re.compile(r"__(MIN|MAX)$")


def workers(names: Sequence[str], patterns: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return the columns of workers, and a sentence that lists which were left out.

    Args:
      names: of columns that hold neither steps nor starts.
      patterns: those that a person says, such as "rank*"; empty: numbered columns where two or more are alike but for
        their numbers, else all; without metrics, minima and maxima.

    Raises:
      BadTrace: where a pattern has no column, or nothing is left.

    Example:
      >>> workers(["rank0", "rank1", "loss"], ())
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
