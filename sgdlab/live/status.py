"""`Status`, a run at one instant, `View`, which makes it, and `RunPage`, which shows it in a browser."""

import collections
import dataclasses
import math
import statistics
from typing import Any

import numpy as np

from sgdlab.live.engine import LiveEngine, Updated
from sgdlab.live.fleet import Worker
from sgdlab.live.snapshot import Remembering
from sgdlab.report.status_page import StatusPage

STRIP_SECONDS = 60.0
"""The page shows what each worker did for so long."""
CURVE_POINTS = 500
"""A curve has at most so many points; then every second one is left out."""
_LAST = 50
"""Gradients whose loss and staleness are averaged."""
_RATE_SECONDS = 10.0
_WORDS = {"there": "waiting", "ready": "waiting", "silent": "lost", "down": "lost", "starting": "starting"}

RESTARTED = "the server was started again"
ENDED = "the run had ended before: nothing is run"
"""Notes of a run that another process has begun, or has ended."""


@dataclasses.dataclass(frozen=True)
class WorkerStatus:
    """A worker at one instant."""

    worker: int  # its number
    state: str  # "computing", "waiting" (for others), "lost", "starting", "queued" (to start later) or "free" (to join)
    since: float  # seconds since it is in that state
    process: int | None  # number of its process; None before it has joined
    host: str
    gradients: int  # how many of its gradients have come
    applied: int  # how many of them entered an update
    dropped: int  # how many were thrown away because they were late or interrupted
    lost: int  # how many were lost with it
    seconds: float | None  # median time of its last gradients, as the server waits for them; None before the first
    against_fleet: float | None  # `seconds` over the median of all workers; 1 is as fast as the others
    against_itself: float | None  # newest time over own median; it rises while a gradient is overdue
    idle_share: float  # share of the run that it has waited for others
    respawns: int  # how often its process was started again
    error: str  # the last thing that went wrong with it; empty if nothing did
    refused: int = 0  # how many failed, or were refused since they were not finite


@dataclasses.dataclass(frozen=True)
class Status:
    """A run at one instant."""

    title: str  # the method
    seconds: float  # since its start
    updates: int
    gradients: int  # how many have entered updates
    num_gradients: int  # how many are to
    gradients_per_second: float  # over the last seconds
    loss: float | None  # mean of the last gradients; None before the first
    evaluation: dict[str, float | str]  # the last one's values, by name; empty before the first
    waiting_for: tuple[int, ...]  # the workers that the open update waits for, in the order of their beginning
    wanted: int | None  # how many gradients the open update wants; None where the protocol does not say
    staleness: float  # mean of the last gradients used
    idle_share: float  # mean share of the run that workers have waited for others
    ledger: dict[str, int]  # number of gradients begun, applied, dropped, lost, refused and in flight
    workers: tuple[WorkerStatus, ...]  # by number
    events: tuple[tuple[float, str], ...]  # the last things that went wrong or were mended: (seconds, words)
    finished: bool
    unit: str = "gradient"  # what workers send: or a "message" of several local steps, which counts as one here


class View(Remembering):
    """Remembers what means over the last gradients of an engine's run need."""

    KEPT = ("losses", "delays")

    def __init__(self, engine: LiveEngine):
        self._engine = engine
        self.losses: collections.deque[float] = collections.deque(maxlen=_LAST)
        self.delays: collections.deque[int] = collections.deque(maxlen=_LAST)
        self._counts: collections.deque[tuple[float, int]] = collections.deque()
        self.evaluation: dict[str, float | str] = {}

    def updated(self, updated: Updated) -> None:
        """Take an update into the means."""
        self.losses.extend(taken.loss for taken in updated.taken if math.isfinite(taken.loss))
        self.delays.extend(taken.delay for taken in updated.taken)

    def status(self, now: float) -> Status:
        """Return the run at this instant, seconds since its start."""
        engine = self._engine
        usual = [engine.patience.usual(worker.worker) for worker in engine.fleet]
        known = [seconds for seconds in usual if seconds is not None]
        fleet = statistics.median(known) if known else None
        workers = tuple(self._worker(worker, fleet, now) for worker in engine.fleet)
        return Status(
            title=engine.settings.title,
            seconds=now,
            updates=engine.updates,
            gradients=engine.used,
            num_gradients=engine.num_gradients,
            gradients_per_second=self._rate(now),
            loss=float(np.mean(self.losses)) if self.losses else None,
            evaluation=dict(self.evaluation),
            waiting_for=self._waiting_for(),
            wanted=self._wanted(),
            staleness=float(np.mean(self.delays)) - 1.0 if self.delays else 0.0,
            idle_share=float(np.mean([worker.idle_share for worker in workers])),
            ledger=engine.flying.counts(),
            workers=workers,
            events=tuple(engine.notes),
            finished=engine.finished,
            unit=engine.settings.unit,
        )

    def _rate(self, now: float) -> float:
        """Return gradients per second, over the last seconds."""
        counts = self._counts
        if counts and counts[-1][0] > now:
            counts.clear()  # the clock was set: all workers are there, and the run begins
        while counts and counts[0][0] < now - _RATE_SECONDS:
            counts.popleft()
        counts.append((now, self._engine.used))
        since, before = counts[0]
        return (self._engine.used - before) / (now - since) if now > since else 0.0

    def _wanted(self) -> int | None:
        wanted = getattr(self._engine.policy, "wanted", None)  # not every user's policy says it
        return wanted() if wanted is not None else None

    def _waiting_for(self) -> tuple[int, ...]:
        """Return those who compute on the newest version, or all who compute, whose versions an update may use."""
        rows = self._engine.flying.recorder.open.values()
        newest = [row.worker for row in rows if row.read == self._engine.updates]
        single = self._engine.policy.single
        return tuple(row.worker for row in rows) if single or not newest else tuple(newest)

    def _worker(self, worker: Worker, fleet: float | None, now: float) -> WorkerStatus:
        engine, number = self._engine, worker.worker
        computing, counts = number in engine.flying.current, engine.flying.fates[number]
        waits = worker.there and not computing
        usual, newest = engine.patience.usual(number), engine.patience.newest(number)
        if newest is not None and computing:
            newest = max(newest, now - worker.since)
        idle = worker.idle + (now - worker.since) * waits
        state = "queued" if worker.queued else _WORDS[worker.state]
        if state in ("queued", "starting") and not engine.fleet.starts:
            state = "free"
        return WorkerStatus(
            worker=number,
            state="computing" if computing else state,
            since=max(now - worker.since, 0.0),
            process=worker.process,
            host=worker.host,
            gradients=worker.came,
            applied=counts["applied"],
            dropped=counts["dropped"],
            lost=counts["lost"],
            seconds=usual,
            against_fleet=usual / fleet if usual is not None and fleet else None,
            # pyrefly: ignore[unsupported-operation]  # both are known, or none
            against_itself=newest / usual if usual else None,
            idle_share=min(max(idle / now, 0.0), 1.0) if now > 0 else 0.0,
            respawns=worker.respawns,
            error=worker.error,
            refused=counts["refused"],
        )


class RunPage(StatusPage):
    """Shows the newest `Status`, and what is kept of earlier ones, for pages that are opened in the middle of a run."""

    def __init__(self, port: int = 0):
        self._recent: collections.deque[tuple[float, str]] = collections.deque()
        self._curve: list[tuple[int, float | None, float]] = []
        self._every, self._shown = 1, 0
        super().__init__("sgdlab.live", port, {"/history.json": self._history})

    def show(self, state: Status) -> None:
        """Make a status the newest one."""
        with self._lock:
            if self._state is not None and state.seconds < self._state.seconds:  # the clock has begun, or begins anew
                self._recent.clear()
                self._curve.clear()
                self._every, self._shown = 1, 0
            self._recent.append((state.seconds, "".join(worker.state[:1] for worker in state.workers)))
            while self._recent[0][0] < state.seconds - STRIP_SECONDS:
                self._recent.popleft()
            if self._shown % self._every == 0:
                self._curve.append((state.gradients, state.loss, state.gradients_per_second))
            if len(self._curve) > CURVE_POINTS:
                self._curve = self._curve[::2]
                self._every *= 2
            self._shown += 1
            super().show(state)

    def _history(self) -> dict[str, Any]:
        with self._lock:
            return {"recent": list(self._recent), "curve": list(self._curve)}
