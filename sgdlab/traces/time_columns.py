"""Columns of times in a long table: those of a worker's own work, of communication, and of the whole step."""

import dataclasses
from collections.abc import Sequence

from sgdlab.traces import phases
from sgdlab.traces.column_names import COMPUTE, NAMES, base, unit_of, words

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
