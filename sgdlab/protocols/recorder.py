"""`Recorder`: what became of every gradient, as it happens; the `Schedule` of simulation and of real processes."""

import array
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from sgdlab.arrays import frozen_copy
from sgdlab.ordering import by_number, by_time
from sgdlab.schedule import PENDING, Schedule
from sgdlab.traffic import Traffic

FATES = ("", "late", "interrupted", "lost", "failed", "refused")
"""Why a gradient enters no update; empty: it does, or it is in flight."""
_DTYPES = {"read": np.int32, "update": np.int32, "life": np.int64}
"""Of columns that a schedule, or who has its rows, wants otherwise than they are written down."""
_AT_ONCE = 1 << 16
"""Rows that are looked at together."""


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
    def joined(cls, parts: Callable[[], Iterable["RecordPart"]]) -> dict[str, np.ndarray]:
        """Return the columns of all parts, one after the other; what came late is in `seconds`.

        Parts are gone through twice, one at a time, so that they can be read from a file.
        """
        sizes = dict.fromkeys(cls.TYPES, 0)
        for part in parts():
            for name, column in part.columns.items():
                sizes[name] += len(column)
        found = {name: np.empty(size, _DTYPES.get(name, cls.TYPES[name])) for name, size in sizes.items()}
        ends = dict.fromkeys(cls.TYPES, 0)
        for part in parts():
            for name, column in part.columns.items():
                begin, ends[name] = ends[name], ends[name] + len(column)
                found[name][begin : ends[name]] = frozen_copy(name, column, found[name].dtype.type)
        late, seconds = found.pop("late"), found.pop("late_seconds")
        if late.size:
            late, first = np.unique(late, return_index=True)  # of two, the first counts
            seconds = seconds[first]
            for begin in range(0, found["ticket"].size, _AT_ONCE):
                ticket, known = (found[name][begin : begin + _AT_ONCE] for name in ("ticket", "seconds"))
                place = np.minimum(np.searchsorted(late, ticket), late.size - 1)
                unknown = np.isnan(known) & (late[place] == ticket)
                known[unknown] = seconds[place[unknown]]
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

    def schedule(
        self, num_workers: int, before: Callable[[], Iterable[RecordPart]] = tuple
    ) -> tuple[Schedule, dict[str, np.ndarray]]:
        """Return what has happened so far; beside the arrays that are returned, it takes little memory.

        Gradients of an update that is still open are pending, like those in flight, which stand with the last update's
        time, since nobody knows when they would come. What began at the last update, or later, and has not ended is
        left out: nothing that was applied depends on it.

        Args:
          num_workers: N.
          before: () -> what was taken, in its order, one part at a time; it is called twice.

        Returns:
          The schedule, and the columns of its rows by the names of `Row`, `fate` as str[G].
        """

        def parts() -> Iterator[RecordPart]:
            end = 0.0
            for part in itertools.chain(before(), [self.part]):
                yield part
                end = part.columns["applied"][-1] if len(part.columns["applied"]) else end
            flying = RecordPart()
            for row in self.open.values():
                flying.append(dataclasses.replace(row, arrived=max(end, float(np.nextafter(row.started, np.inf)))))
            yield flying

        rows = RecordPart.joined(parts)
        applied = rows.pop("applied")
        size = _sort(rows, len(self.open), applied, num_workers)
        for column in rows.values():
            column.resize(size, refcheck=False)
        for column in (*rows.values(), applied):
            column.flags.writeable = False
        given: Any = {name: rows[name] for name in ("worker", "read", "update", "started", "arrived")}
        schedule = Schedule(**given, applied=applied, num_workers=num_workers)
        return schedule, rows | {"fate": np.array(FATES)[rows["fate"]]}


def _sort(rows: Mapping[str, np.ndarray], flying: int, applied: np.ndarray, num_workers: int) -> int:
    """Bring rows into the order of a schedule, in their own memory, and return how many of them are in it."""
    size = 0
    for window in _windows(rows["arrived"], flying):
        own = {name: column[window] for name, column in rows.items()}
        order = _order(own, applied, num_workers)
        for name, column in own.items():
            rows[name][size : size + order.size] = column[order]
        size += order.size
    return size


def _windows(arrived: np.ndarray, flying: int) -> Iterator[slice]:
    """Yield pieces of rows, one after the other, each of which came before all later ones.

    Rows are written down as they end, and after them those that are in flight.
    """
    ended = arrived.size - flying
    starts = range(0, max(ended - 1, 0), _AT_ONCE)
    rises = all((np.diff(arrived[start : min(start + _AT_ONCE + 1, ended)]) >= 0).all() for start in starts)
    least = arrived[ended:].min(initial=np.inf) if rises else -np.inf
    start, last = 0, int(np.searchsorted(arrived[:ended], least)) if rises else 0
    while start < last:
        stop = min(start + _AT_ONCE, last)
        stop += int(np.searchsorted(arrived[stop:last], arrived[stop - 1], side="right"))  # those of one instant
        yield slice(start, stop)
        start = stop
    yield slice(last, arrived.size)


def _order(columns: Mapping[str, np.ndarray], applied: np.ndarray, num_workers: int) -> np.ndarray:
    """Return the rows of a schedule in its order; those of an update that was not applied become pending."""
    update, started = columns["update"], columns["started"]
    update[update >= len(applied)] = PENDING
    order = by_number(columns["worker"], num_workers)
    order = order[by_time(columns["arrived"][order])]
    return order[(update[order] != PENDING) | (started[order] < (applied[-1] if len(applied) else 0.0))]


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
    columns = {**columns, "update": np.array(columns["update"])}
    order = _order(columns, applied, num_workers)
    rows = {name: column[order] for name, column in columns.items()}
    return Schedule(**rows, applied=applied, num_workers=num_workers, traffic=traffic), order
