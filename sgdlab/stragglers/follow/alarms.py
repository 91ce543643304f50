"""`Alarm`, something that was found in a trace while it grows, and the file of JSON lines that keeps alarms."""

import contextlib
import dataclasses
import json
import os
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from sgdlab.stragglers.diagnosis.causes import HANGS, PAUSES, SILENT, SLOW_NODE

RAISED, NAMED, WORSE, CLEARED = "raised", "named", "worse", "cleared"

GONE = "nothing was recorded since"
"""The evidence where the alarm of something slow ends because its workers are silent."""

_NAMED = 4
"""More workers than this are counted, and the first ones named."""


@dataclasses.dataclass(frozen=True)
class Alarm:
    """Tells what was found, or is over; of one cause there is one alarm at a time.

    Attributes:
      event: "raised", "cleared" when it is over, "worse" when it has become slower still (by a tenth, at least), or
        "named" when the period of pauses is known.
      kind: "slow worker", "slow node", "all slower" (the whole cluster), "pauses" (steps that are slow for all), or
        "silent worker" (the others have steps, and it has none), or "no steps" (nobody has any: the job hangs, or has
        ended; `workers` are those that are behind the others).
      step: the last step that was read when this was found.
      since: the first step of the slowness, of the silence or of the pauses; in "cleared", the first one without it; in
        "worse", the first of those that show it.
      workers: their names; empty where it concerns all.
      node: of a slow node, its name.
      factor: how many times slower; seconds of a pause, or without steps, over a usual step's; None of silence.
      against_fleet: the workers' compute time since then over the others' median; None where it says nothing.
      against_itself: the same over the workers' own best; None where it says nothing.
      count: how many pauses there were.
      period: every how many steps they come; None if that is unknown.
      evidence: half a sentence with numbers; of something slow that is "cleared", `GONE` if it is silent, else empty.
    """

    event: str
    kind: str
    step: int
    since: int
    workers: tuple[str, ...] = ()
    node: str | None = None
    factor: float | None = None
    against_fleet: float | None = None
    against_itself: float | None = None
    count: int | None = None
    period: int | None = None
    evidence: str = ""

    @property
    def cause(self) -> tuple[str, tuple[str, ...], str | None]:
        """Return what a "raised" and its "cleared" have in common."""
        if self.kind == SLOW_NODE:
            return self.kind, (), self.node
        return self.kind, () if self.kind == HANGS else self.workers, None

    @property
    def identity(self) -> tuple[Any, ...]:
        """Return the same for an alarm that is found again when the trace is read again."""
        return self.event, *self.cause, self.since

    @property
    def who(self) -> str:
        """Name whom it concerns."""
        if self.kind == SLOW_NODE:
            return f"node {self.node}"
        if len(self.workers) > _NAMED:
            return f"{len(self.workers)} workers ({', '.join(self.workers[:_NAMED])}, ...)"
        return f"worker {', '.join(self.workers)}" if self.workers else "the whole cluster"

    def sentence(self) -> str:
        """Say it in one line for a terminal.

        Example:
          >>> alarm = Alarm(RAISED, "slow worker", 340, 300, ("5",), factor=1.6, evidence="in 39 of 40 steps")
          >>> alarm.sentence()
          'step 340: worker 5 has been 1.60 times slower since step 300 (in 39 of 40 steps)'
          >>> Alarm(CLEARED, "slow worker", 860, 812, ("5",)).sentence()
          'step 860: worker 5 is back to normal since step 812'
          >>> Alarm(CLEARED, "slow worker", 860, 812, ("5",), evidence=GONE).sentence()
          'step 860: worker 5 is slow no more since step 812 (nothing was recorded since)'
        """
        why = f" ({self.evidence})" if self.evidence else ""
        hangs = "steps come again" if self.event == CLEARED else "no step comes any more: the job hangs, or has ended"
        return f"step {self.step}: {hangs if self.kind == HANGS else self._what()}{why}"

    def _what(self) -> str:
        who = self.who
        many = self.kind != SLOW_NODE and len(self.workers) > 1
        has, been = ("have", "are") if many else ("has", "is")
        if self.event == CLEARED:
            usual = "slow no more" if self.evidence == GONE else "back to normal"
            return f"{who} {been} {'there again' if self.kind == SILENT else usual} since step {self.since}"
        if self.kind == SILENT:
            return f"{who} {has} been silent since step {self.since}"
        if self.event == WORSE:
            return f"{who} {has} become slower still: {self.factor:.2f} times since step {self.since}"
        if self.kind == PAUSES:
            if self.event == NAMED:
                return f"steps that are slow for all workers come every {self.period} steps: a checkpoint?"
            return f"all workers took {self.factor:.1f} times as long as usual at step {self.since}: a checkpoint?"
        return f"{who} {has} been {self.factor:.2f} times slower since step {self.since}"


def is_alarm(record: Mapping[str, Any]) -> bool:
    """Return whether an object of a file of JSON lines is an alarm."""
    return {field.name for field in dataclasses.fields(Alarm)} <= set(record)


class AlarmFile(contextlib.AbstractContextManager):
    """Adds alarms to a file of JSON lines, each at once; one that stands there already is not written again.

    The keys of a line are the fields of `Alarm`, `trace` (what was followed), `run` (a checksum of the beginning of the
    trace) and `time` (seconds since 1970 at which the line was written). A trace that is read again from its beginning
    raises the same alarms again: the file is continued, and has each of them once. Another trace in the same place has
    another `run`.

    Args:
      path: of the file; its directory is made if it is not there. Half a line at its end is removed.
      trace: what is followed.
      clock: tells the seconds since 1970.

    Raises:
      ValueError: where the file is there and holds something else.
      OSError: where it cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], trace: str, *, clock: Callable[[], float] = time.time):
        self.path, self._trace, self._clock = pathlib.Path(path), trace, clock
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._known: set[tuple[Any, ...]] = set()
        self._file = self.path.open("a+b")
        try:
            self._read()
        except ValueError:
            self._file.close()
            raise

    def write(self, alarm: Alarm, run: str) -> dict[str, Any] | None:
        """Adds a line, and returns what it holds; None if the file has it."""
        if (run, *alarm.identity) in self._known:
            return None
        self._known.add((run, *alarm.identity))
        more = {"trace": self._trace, "run": run, "time": round(self._clock(), 3)}
        record = dataclasses.asdict(alarm) | more
        self._file.write(f"{json.dumps(record, allow_nan=False)}\n".encode())
        self._file.flush()
        return record

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _read(self) -> None:
        self._file.seek(0)
        data = self._file.read()
        whole = data.rfind(b"\n") + 1
        for number, line in enumerate(data[:whole].splitlines(), 1):
            try:
                record = json.loads(line)
                event, kind, since, node = (record[name] for name in ("event", "kind", "since", "node"))
                found = Alarm(event, kind, 0, since, tuple(record["workers"]), node)
                trace, run = record["trace"], record["run"]
            except (ValueError, KeyError, TypeError):
                raise ValueError(
                    f"alarms={str(self.path)!r} has something else than an alarm in line {number}: name another file"
                ) from None
            if trace == self._trace:
                self._known.add((run, *found.identity))
        if whole < len(data):
            if not data[whole:].startswith(b'{"event"'):
                raise ValueError(f"alarms={str(self.path)!r} has something else than alarms: name another file")
            self._file.truncate(whole)
