"""`Recorder`: what became of every gradient, as it happens; the `Schedule` of simulation and of real processes."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from sgdlab.schedule import PENDING, Schedule


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
        self.rows: list[Row] = []
        self.applied: list[float] = []

    def began(self, ticket: int, worker: int, version: int, now: float) -> None:
        """A worker begins a gradient on a version, at `now` seconds."""
        self.open[ticket] = Row(ticket, worker, version, now)

    def ended(self, ticket: int, now: float, update: int, fate: str = "") -> None:
        """A gradient came and entered an update, or was dropped (`update` is `DROPPED`), and `fate` says why."""
        row = self.open.pop(ticket)
        row.arrived, row.update, row.fate = now, update, fate
        self.rows.append(row)

    def not_begun(self, ticket: int) -> None:
        """A gradient was interrupted at the instant at which it began: it never was."""
        del self.open[ticket]

    def closed(self, now: float) -> None:
        """The open update was applied, at `now` seconds."""
        self.applied.append(now)

    def schedule(
        self, num_workers: int, would_arrive: Mapping[int, float] | None = None
    ) -> tuple[Schedule, np.ndarray]:
        """What has happened so far.

        Gradients of an update that is still open are pending, like those in flight. What began at the last update, or
        later, and has not ended is left out: nothing that was applied depends on it.

        Args:
          num_workers: N.
          would_arrive: ticket -> seconds, when gradients in flight would come. None: nobody knows; they stand with the
            last update's time.

        Returns:
          The schedule, and int64[G], the ticket of each of its rows.
        """
        made, end = len(self.applied), self.applied[-1] if self.applied else 0.0
        rows = [row for row in self.rows if row.update < made]
        rest = [dataclasses.replace(row, update=PENDING) for row in self.rows if row.update >= made]
        for row in self.open.values():
            arrives = max(end, float(np.nextafter(row.started, np.inf)))
            if would_arrive is not None:
                arrives = would_arrive[row.ticket]
            rest.append(dataclasses.replace(row, arrived=arrives))
        rows += [row for row in rest if row.started < end]
        rows.sort(key=lambda row: (row.arrived, row.worker))
        schedule = Schedule(
            worker=np.array([row.worker for row in rows], np.int32),
            read=np.array([row.read for row in rows], np.int32),
            update=np.array([row.update for row in rows], np.int32),
            started=np.array([row.started for row in rows], np.float64),
            arrived=np.array([row.arrived for row in rows], np.float64),
            applied=np.array(self.applied, np.float64),
            num_workers=num_workers,
        )
        return schedule, np.array([row.ticket for row in rows], np.int64)
