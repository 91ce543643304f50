"""`Recorder`: what became of every gradient, as it happens; the `Schedule` of simulation and of real processes."""

import array
import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from sgdlab.ordering import by_number, by_time
from sgdlab.schedule import PENDING, Schedule
from sgdlab.traffic import Traffic


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
      fate: of a dropped one, why: "late", "interrupted", "lost", "failed" or "refused"; else empty.
    """

    ticket: int
    worker: int
    read: int
    started: float
    arrived: float = np.nan
    update: int = PENDING
    fate: str = ""


class Rows:
    """Rows in the order in which they were added; each takes some 45 bytes, as days of gradients are kept."""

    def __init__(self) -> None:
        types = {"ticket": "q", "worker": "i", "read": "q", "started": "d", "arrived": "d", "update": "q", "fate": "b"}
        self._columns = {name: array.array(typecode) for name, typecode in types.items()}
        self._fates = [""]

    def append(self, row: Row) -> None:
        """Adds a row."""
        if row.fate not in self._fates:
            self._fates.append(row.fate)
        for name, column in self._columns.items():
            column.append(self._fates.index(row.fate) if name == "fate" else getattr(row, name))

    def column(self, name: str) -> np.ndarray:
        """A field of all rows, a copy."""
        column = np.array(self._columns[name])
        return np.array(self._fates)[column] if name == "fate" else column

    def __len__(self) -> int:
        return len(self._columns["ticket"])

    def __iter__(self) -> Iterator[Row]:
        for *fields, fate in zip(*self._columns.values(), strict=True):
            yield Row(*fields, self._fates[fate])


class Recorder:
    """Writes down gradients as they begin and end, and updates as they close.

    Attributes:
      open: ticket -> its row, of gradients in flight, in the order in which they began.
      rows: the others, in the order in which they ended.
      applied: seconds, when each update was applied.

    Example:
      >>> recorder = Recorder()
      >>> recorder.began(0, worker=1, version=0, now=0.0)
      >>> recorder.ended(0, now=2.0, update=0)
      >>> recorder.closed(now=2.0)
      >>> schedule, tickets = recorder.schedule(num_workers=2)
      >>> print(schedule)
      Schedule: 2 workers, 1 updates from 1 gradients (0 dropped, 0 pending) in 2 s, mean staleness 0
    """

    def __init__(self) -> None:
        self.open: dict[int, Row] = {}
        self.rows = Rows()
        self.applied = array.array("d")

    def began(self, ticket: int, worker: int, version: int, now: float) -> None:
        """A worker begins a gradient on a version, at `now` seconds."""
        self.open[ticket] = Row(ticket, worker, version, now)

    def ended(self, ticket: int, now: float, update: int, fate: str = "") -> None:
        """A gradient came and entered an update, or was dropped (`update` is `DROPPED`), and `fate` says why."""
        row = self.open.pop(ticket)
        row.arrived, row.update, row.fate = now, update, fate
        self.rows.append(row)

    def closed(self, now: float) -> None:
        """The open update was applied, at `now` seconds."""
        self.applied.append(now)

    def schedule(self, num_workers: int) -> tuple[Schedule, np.ndarray]:
        """Return what has happened so far.

        Gradients of an update that is still open are pending, like those in flight, which stand with the last update's
        time, since nobody knows when they would come. What began at the last update, or later, and has not ended is
        left out: nothing that was applied depends on it.

        Args:
          num_workers: N.

        Returns:
          The schedule, and int64[G], the ticket of each of its rows.
        """
        end = self.applied[-1] if self.applied else 0.0
        flying = Rows()
        for row in self.open.values():
            flying.append(dataclasses.replace(row, arrived=max(end, float(np.nextafter(row.started, np.inf)))))
        columns = {
            name: np.concatenate([rows.column(name) for rows in (self.rows, flying)])
            for name in ("ticket", "worker", "read", "update", "started", "arrived")
        }
        tickets = columns.pop("ticket")
        schedule, order = schedule_of(columns, np.array(self.applied), num_workers)
        return schedule, tickets[order]

    def fates(self, tickets: np.ndarray) -> np.ndarray:
        """str[G]: why these gradients were dropped; empty of others."""
        found = np.zeros(int(tickets.max(initial=-1)) + 1, "U11")
        own = self.rows.column("ticket")
        known = own < found.size
        found[own[known]] = self.rows.column("fate")[known]
        return found[tickets]


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
