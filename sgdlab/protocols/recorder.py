"""`Recorder`: what became of every gradient, as it happens; the `Schedule` of simulation and of real processes."""

import array
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from sgdlab.ordering import by_number, by_time
from sgdlab.schedule import PENDING, Schedule
from sgdlab.traffic import Traffic

FATES = ("", "late", "interrupted", "lost", "failed", "refused")
"""Why a gradient enters no update; empty: it does, or it is in flight."""


@dataclasses.dataclass(slots=True)
class Row:
    """One gradient.

    Attributes:
      ticket: its number in the order in which gradients begin; it names its batch.
      worker: who computes it.
      read: the version that it is computed on.
      started: seconds, when it began.
      arrived: seconds, when it came, or was given up; NaN while it is in flight.
      update: the update that it entered, `DROPPED`, or `PENDING` while it is in flight.
      fate: of a dropped one, why, one of `FATES`; else empty.
      seconds: how long its worker computed, by its own clock; NaN where that is unknown.
      loss: NaN where it is unknown.
      life: which of its worker's processes computes it, counted from 0.
    """

    ticket: int
    worker: int
    read: int
    started: float
    arrived: float = math.nan
    update: int = PENDING
    fate: str = ""
    seconds: float = math.nan
    loss: float = math.nan
    life: int = 0


class RecordPart:
    """Some of what happened, in columns: a gradient takes 65 bytes, as days of gradients are kept.

    Attributes:
      columns: by the names of `Row`, of gradients that ended, in this order, `fate` as its place in `FATES`; `applied`,
        seconds, when each update was; `late`, tickets of gradients that had ended before their workers said how long
        they took, and `late_seconds`, so long.
    """

    ROW: ClassVar = {
        "ticket": "q", "worker": "i", "read": "q", "started": "d", "arrived": "d", "update": "q", "fate": "b",
        "seconds": "d", "loss": "d", "life": "i",
    }  # fmt: skip
    TYPES: ClassVar = ROW | {"applied": "d", "late": "q", "late_seconds": "d"}

    def __init__(self, columns: Mapping[str, Any] | None = None):
        self.columns: Any = columns or {name: array.array(typecode) for name, typecode in self.TYPES.items()}

    def append(self, row: Row) -> None:
        """Adds a row."""
        for name in self.ROW:
            self.columns[name].append(FATES.index(row.fate) if name == "fate" else getattr(row, name))

    @classmethod
    def joined(cls, parts: Sequence["RecordPart"]) -> dict[str, np.ndarray]:
        """The columns of all parts, one after the other; what came late is in `seconds`."""
        found = {name: np.concatenate([part.columns[name] for part in parts]) for name in cls.TYPES}
        late, seconds = (found.pop(name)[::-1] for name in ("late", "late_seconds"))  # of two, the first comes last
        if late.size:
            place = np.empty(found["ticket"].max() + 1, np.int64)
            place[found["ticket"]] = np.arange(found["ticket"].size)
            unknown = np.isnan(found["seconds"][place[late]])
            found["seconds"][place[late[unknown]]] = seconds[unknown]
        return found


class Recorder:
    """Writes down gradients as they begin and end, and updates as they close.

    Attributes:
      open: ticket -> its row, of gradients in flight, in the order in which they began.
      part: what has ended since `take` was called.
      updates: how many were applied.

    Example:
      >>> recorder = Recorder()
      >>> recorder.began(0, worker=1, version=0, now=0.0)
      >>> recorder.ended(0, now=2.0, update=0)
      >>> recorder.closed(now=2.0)
      >>> schedule, rows = recorder.schedule(num_workers=2)
      >>> print(schedule)
      Schedule: 2 workers, 1 updates from 1 gradients (0 dropped, 0 pending) in 2 s, mean staleness 0
      >>> rows["ticket"].tolist()
      [0]
    """

    def __init__(self) -> None:
        self.open: dict[int, Row] = {}
        self.part, self.updates = RecordPart(), 0

    def began(self, ticket: int, worker: int, version: int, now: float, *, life: int = 0) -> None:
        """A worker begins a gradient on a version, at `now` seconds."""
        self.open[ticket] = Row(ticket, worker, version, now, life=life)

    def ended(self, ticket: int, now: float, update: int, fate: str = "") -> None:
        """A gradient came and entered an update, or was dropped (`update` is `DROPPED`), and `fate` says why."""
        row = self.open.pop(ticket)
        row.arrived, row.update, row.fate = now, update, fate
        self.part.append(row)

    def took(self, ticket: int, seconds: float) -> None:
        """Its worker says how long a gradient took, which may have ended before; what is said twice counts once."""
        row = self.open.get(ticket)
        if row is None:
            self.part.columns["late"].append(ticket)
            self.part.columns["late_seconds"].append(seconds)
        elif math.isnan(row.seconds):
            row.seconds = seconds

    def closed(self, now: float) -> None:
        """The open update was applied, at `now` seconds."""
        self.part.columns["applied"].append(now)
        self.updates += 1

    def take(self) -> RecordPart:
        """Return what has ended since the last call, which is not kept here any more."""
        part, self.part = self.part, RecordPart()
        return part

    def schedule(self, num_workers: int, before: Sequence[RecordPart] = ()) -> tuple[Schedule, dict[str, np.ndarray]]:
        """Return what has happened so far.

        Gradients of an update that is still open are pending, like those in flight, which stand with the last update's
        time, since nobody knows when they would come. What began at the last update, or later, and has not ended is
        left out: nothing that was applied depends on it.

        Args:
          num_workers: N.
          before: what was taken, in its order.

        Returns:
          The schedule, and the columns of its rows by the names of `Row`, `fate` as str[G].
        """
        parts = [*before, self.part]
        applied = [part.columns["applied"] for part in parts]
        end = next((times[-1] for times in reversed(applied) if len(times)), 0.0)
        flying = RecordPart()
        for row in self.open.values():
            flying.append(dataclasses.replace(row, arrived=max(end, float(np.nextafter(row.started, np.inf)))))
        columns = RecordPart.joined([*parts, flying])
        own = {name: columns[name] for name in ("worker", "read", "update", "started", "arrived")}
        schedule, order = schedule_of(own, columns.pop("applied"), num_workers)
        rows = {name: column[order] for name, column in columns.items()}
        return schedule, rows | {"fate": np.array(FATES)[rows["fate"]]}


def schedule_of(
    columns: Mapping[str, np.ndarray], applied: np.ndarray, num_workers: int, traffic: Traffic | None = None
) -> tuple[Schedule, np.ndarray]:
    """Returns the schedule of gradients that were written down in any order.

    Args:
      columns: `worker`, `read`, `update`, `started` and `arrived` of each gradient, [K], and what else a `Schedule`
        holds of them. Those of an update that was
        not applied are pending; of those that are pending, what began at the last update or later is left out.
      applied: float64[U], seconds.
      num_workers: N.
      traffic: what messages cost.

    Returns:
      The schedule, and int64[G], which of the gradients each of its rows is.
    """
    update, started = np.array(columns["update"]), columns["started"]
    update[update >= len(applied)] = PENDING
    order = by_number(columns["worker"], num_workers)
    order = order[by_time(columns["arrived"][order])]
    order = order[(update[order] != PENDING) | (started[order] < (applied[-1] if len(applied) else 0.0))]
    rows = {name: (update if name == "update" else column)[order] for name, column in columns.items()}
    return Schedule(**rows, applied=applied, num_workers=num_workers, traffic=traffic), order
