"""`LiveEngine`, the server's state: a function of the events and the clock readings, live and from a log alike."""

import collections
import heapq
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from sgdlab.live.fleet import NOT_FINITE, Fleet, Patience, failing, lost, processes
from sgdlab.live.messages import (
    Arrived,
    Event,
    Failed,
    GaveUp,
    Joined,
    Killed,
    Lost,
    Restarted,
    Resumed,
    Silent,
    Spawned,
    Start,
    Timer,
)
from sgdlab.live.recording import InFlight, LiveRecording
from sgdlab.live.settings import LiveSettings
from sgdlab.live.snapshot import Remembering
from sgdlab.live.transport import ANEW, Transport
from sgdlab.protocols.policy import Action, Begin, Close, Drop, Interrupt, Policy, Take, Wake
from sgdlab.protocols.recorder import RecordPart
from sgdlab.replay.steps import Steps
from sgdlab.types import Tree

NUMBERS = ("num_workers", "num_gradients")
"""Arguments of a run that stay as they are when it is resumed."""
_NOTES = 50


class Taken(NamedTuple):
    """A gradient of an update; `delay` is its staleness + 1, `loss` NaN where it is unknown."""

    ticket: int
    worker: int
    delay: int
    loss: float


class Updated(NamedTuple):
    """An update that was made, as `sgdlab.live.server.serve` tells its caller."""

    number: int  # how many updates there are now; it is the newest version
    gradients: int  # how many gradients have entered updates
    seconds: float  # since the start of the run
    taken: tuple[Taken, ...]  # the gradients of this update, in their order
    computed: bool  # whether `steps` holds this version; not so before a resumed run's checkpoint: the log is read


class LiveEngine(Remembering):
    """Policy, rule, recorder and ledger of a run: it is told what happens, and does what the policy says.

    Every gradient has a ticket, its number in the order in which gradients are begun. A message counts only if it
    answers the ticket that its worker has: what comes twice, too late, or from a process that is gone, changes nothing.

    Arguments are as of `sgdlab.live.server.serve`; without `steps` no arithmetic is done, as where a log is examined.

    Attributes:
      flying: the gradients in flight, the record, and the number of gradients by fate.
      notes: what happened lately: (seconds, words).
      held: the versions that the policy may begin gradients on later.
      gradient: `(row, params) -> (grads, aux)`, the gradient of this row, which has come, computed on `params`.
      reading: `(now, ticket) -> seconds`, the clock, read when the worker begins that is given this ticket.
      on_update: called with each `Updated`, when the workers have begun again.
      computed_from: number of the first version that `steps` is to hold; until then, updates are only counted.
      restore: called when that version is reached, if it is not the initial one.
      finished: whether enough gradients were used.
      failure: why the run cannot go on; empty if it can.
      later_versions: of Python, libraries and devices, where a server that was started again had others.
    """

    KEPT = (*NUMBERS, "notes", "used", "wakes", "come", "bad", "later_versions")

    def __init__(
        self,
        policy: Policy,
        steps: Steps | None,
        transport: Transport,
        *,
        num_workers: int,
        num_gradients: int,
        settings: LiveSettings,
    ):
        self.policy = policy
        self.steps: Any = steps  # None until there is something to compute
        self.num_workers, self.num_gradients, self.settings = num_workers, num_gradients, settings
        self.flying = InFlight(transport, self._sent)
        self.fleet, self.patience = Fleet(num_workers, settings), Patience(settings)
        self.notes: collections.deque[tuple[float, str]] = collections.deque(maxlen=_NOTES)
        self.used = 0
        self.taken: list[Taken] = []  # of the open update
        self.wakes: list[float] = []
        self.come = -1  # the ticket that has come last
        self.bad = 0  # gradients that failed or were refused since the last good one
        self.finished, self.failure = False, ""
        self.later_versions: dict[str, str] = {}
        self.held: Callable[[], Collection[int]] = getattr(policy, "held", tuple)
        self.gradient: Any = None
        self.reading: Callable[[float, int], float] = lambda now, ticket: now
        self.on_update: Callable[[Updated], None] = lambda updated: None
        self.computed_from = 0
        self.restore: Callable[[], None] = lambda: None

    @property
    def updates(self) -> int:
        """Return the number of updates made."""
        return self.flying.recorder.updates

    @property
    def transport(self) -> Transport:
        """Return the workers; `connect` makes them others."""
        return self.flying.versions.transport

    def connect(self, transport: Transport) -> None:
        """Tell another transport what follows from now on."""
        self.flying.versions.connect(transport)

    def recording(
        self, config: dict[str, Any], versions: dict[str, str], before: Callable[[], Iterable[RecordPart]] = tuple
    ) -> LiveRecording:
        """Return what has happened so far; versions that changed on the way are given as "first, later last".

        Args:
          config: of the run.
          versions: when it was begun.
          before: () -> what was taken from the record, to be kept elsewhere.
        """
        later = {name: f"{versions.get(name, 'unknown')}, later {now}" for name, now in self.later_versions.items()}
        schedule, rows = self.flying.recorder.schedule(self.num_workers, before)
        fates = rows["fate"]
        fates[fates == ""] = "pending"
        fates[schedule.used()[:, 0]] = "applied"
        fates.flags.writeable = False
        told = (rows["ticket"], rows["seconds"], rows["loss"], fates, config, versions | later, rows["life"])
        return LiveRecording(schedule, *told)

    def state(self) -> dict[str, Any]:
        """Return what `go_on` needs, between two updates; without the policy, the record and what `steps` holds."""
        parts = {"flying": self.flying.state(), "fleet": list(self.fleet), "patience": self.patience.state()}
        return super().state() | parts

    def go_on(self, state: Mapping[str, Any]) -> None:
        """Continue where another engine of this run was; the policy and `steps` are those of before already.

        Raises:
          ValueError: if it is another run.
        """
        for name in NUMBERS:
            check_same(name, state[name], getattr(self, name))
        super().go_on(state)
        self.flying.go_on(state["flying"], self.held())
        self.patience.go_on(state["patience"])
        self.fleet[:] = state["fleet"]
        self.finished = self.used >= self.num_gradients

    def handle(self, event: Event, now: float) -> None:  # noqa: PLR0912 (one line for each kind of event)
        """Change the state by what happens, and tell the transport what follows."""
        match event:
            case Arrived():
                self._arrived(event, now)
            case GaveUp(worker, ticket, _):
                # Given up without having been told to: it would wait for ever.
                self._failed(worker, ticket, "it gave a gradient up", "lost", now)
            case Failed(worker, ticket, error):
                self._failed(worker, ticket, error, "failed", now)
            case Lost(worker, error):
                self._ended(worker, error, now)
            case Joined(worker, process, host):
                self._joined(worker, process, host, now)
            case Silent(worker, seconds):
                self._silent(worker, seconds, now)
            case Killed(worker, error):
                self.transport.kill(worker)
                if self.fleet[worker].there:
                    self.fleet[worker].spoils()
                else:
                    self.patience.double(worker)
                self._ended(worker, error or "silent, and killed", now)
            case Spawned(worker):
                self.transport.spawn(worker)
                self.fleet[worker].spawned(now)
                if self.transport.STARTS:  # else it comes when others start it
                    self.patience.expect(worker)
            case Timer():
                while self.wakes and self.wakes[0] <= now:
                    heapq.heappop(self.wakes)
                self.perform(self.policy.timer(now), now)
            case Start(joined, _, _):
                self.notes.append((now, f"the workers are there: {processes(joined)}"))
                for worker, process, host in joined:
                    self.fleet[worker].joined(process, host, now)
                    self.patience.heard(worker)
                self.perform(self.policy.start([worker for worker, *_ in joined]), now)
            case Restarted(worker):
                self.fleet[worker].restarted(now)
                self.patience.heard(worker)
                self._lose(worker, now)
            case Resumed(versions):
                self.later_versions.update(versions)
        if not self.finished:
            self.policy.prepare()

    def perform(self, actions: Iterable[Action], now: float) -> None:
        """Do what the policy says, in its order."""
        began: float | None = None
        updated: Updated | None = None
        for action in actions:
            match action:
                case Take(worker, update):
                    self._take(worker, update, now)
                case Drop(worker):
                    self._check_come(worker)
                    self._end(worker, now, "late")
                case Interrupt(worker):
                    self.transport.interrupt(worker, self.flying.current[worker])
                    self._end(worker, now, "interrupted")
                case Close():
                    updated = self._close(now)
                    if self.finished:
                        break
                case Begin(worker, version):
                    # Once for all of them, after the update: its time is not the workers'.
                    began = self.reading(now, self.flying.begun) if began is None else began
                    self._begin(worker, version, began)
                case Wake(at):
                    if at < math.inf:
                        heapq.heappush(self.wakes, at)
        self.flying.versions.hold(self.held())
        if updated is not None:
            self.on_update(updated)

    def _arrived(self, event: Arrived, now: float) -> None:
        worker, ticket = event.worker, event.ticket
        if ticket < self.flying.begun:
            self.flying.recorder.took(ticket, event.seconds)
        if self._is_ghost(worker, ticket, now):
            return
        if not event.finite:
            self._failed(worker, ticket, NOT_FINITE, "refused", now)
            return
        self.bad, self.come = 0, ticket
        self.fleet[worker].sent_good()
        row = self.flying.row(worker)
        row.loss = event.loss
        self.patience.learn(worker, now - row.started)
        self.perform(self.policy.arrived(now, worker, row.read, now - row.started), now)

    def _is_ghost(self, worker: int, ticket: int, now: float) -> bool:
        """Return True if a message does not answer its worker's ticket; a worker that was silent is back then."""
        self.patience.heard(worker)
        if self.flying.current.get(worker) == ticket:
            return False
        if worker in self.flying.current:
            self.patience.expect(worker)  # it lives, and has another to answer
        if self.fleet[worker].state == "silent":
            self.notes.append((now, f"worker {worker} is back after {now - self.fleet[worker].since:.1f} s"))
            self.fleet[worker].enters("there", now)
            self.patience.double(worker)
            self.perform(self.policy.joined(now, worker), now)
        return True

    def _failed(self, worker: int, ticket: int, error: str, fate: str, now: float) -> None:
        """Begin another gradient in the place of one that cannot be used, unless too many were so."""
        if self._is_ghost(worker, ticket, now):
            return
        self.notes.append((now, f"worker {worker}: {error}"))
        self.bad += 1
        if self.bad >= self.settings.failures * max(len(self.fleet.there()), 1):
            self.failure = failing(self.bad, worker, error, fate)
        if self.fleet.failed(worker, error):
            self.transport.kill(worker)
            self._ended(worker, f"{self.fleet[worker].failures} gradients in a row: {error}", now, fate)
            return
        self._end(worker, now, fate)
        self.perform(self.policy.lost(now, worker), now)
        if not self.finished:
            self.perform(self.policy.joined(now, worker), now)

    def _ended(self, number: int, error: str, now: float, fate: str = "lost") -> None:
        """Count a process as gone, and what it computed as lost."""
        worker = self.fleet[number]
        if worker.state == "down":
            return  # it is known
        there = worker.there
        self.fleet.ended(number, error, now)
        self.patience.heard(number)
        self.notes.append((now, lost(worker, now, starts=self.fleet.starts)))
        self.failure = self.failure or self.fleet.hopeless(number)
        if there:
            self._lose(number, now, fate)

    def _lose(self, worker: int, now: float, fate: str = "lost") -> None:
        if worker in self.flying.current:
            self._end(worker, now, fate)
        self.perform(self.policy.lost(now, worker), now)

    def _joined(self, number: int, process: int | None, host: str, now: float) -> None:
        worker = self.fleet[number]
        if worker.there:
            if (process, host) == (worker.process, worker.host):
                return  # said twice
            self._lose(number, now)  # another process under the same number
            if self.finished:
                return
        self.notes.append((now, f"worker {number} has joined: process {process} on {host}"))
        worker.joined(process, host, now)
        self.patience.heard(number)
        self.perform(self.policy.joined(now, number), now)

    def _silent(self, worker: int, seconds: float, now: float) -> None:
        ticket = self.flying.current[worker]
        error = f"silent for {seconds:.1f} s" if seconds else "silent"
        self.fleet[worker].error = error
        self.fleet[worker].enters("silent", now)
        self.notes.append((now, f"worker {worker} is lost: {error}"))
        self.transport.interrupt(worker, ticket)
        self._lose(worker, now)

    def _begin(self, worker: int, version: int, now: float) -> None:
        own = self.fleet[worker]
        # One that has never joined begins with its first process.
        self.flying.begin(worker, version, now, after=own.after, life=max(own.life, 0))
        own.computes(now)
        self.patience.expect(worker)

    def _take(self, worker: int, update: int, now: float) -> None:
        self._check_come(worker)
        row, own = self.flying.row(worker), self.fleet[worker]
        if update != self.updates:
            raise ValueError(f"policy must take gradients into update {self.updates}, the open one, not {update}")
        delay = update - row.read + 1
        if self._computes:
            read = self.flying.versions.read(row.read)
            grads, aux = self.gradient(row, read)
            told = {"worker": worker, "delay": float(delay), "number": row.ticket, "anew": own.after == ANEW}
            self.steps.receive(grads, aux, read=read, **told)
        self.flying.taken(worker, update, now)
        self.used += 1
        self.taken.append(Taken(row.ticket, worker, delay, row.loss))
        own.after, own.since = row.ticket, now

    def _check_come(self, worker: int) -> None:
        if self.flying.current.get(worker) != self.come:
            raise ValueError(f"policy must take or drop the gradient that has come; worker {worker}'s has not")

    def _end(self, worker: int, now: float, fate: str) -> None:
        """End a gradient that enters no update."""
        self.flying.ended(worker, now, fate)
        self.fleet[worker].since = now  # it waits

    def _close(self, now: float) -> Updated:
        if not self.taken:
            raise ValueError(f"policy must close an update with a gradient; update {self.updates} has none")
        if self._computes:
            self.steps.close()
        self.flying.closed(now)
        if self.updates == self.computed_from:
            self.restore()
        taken, self.taken = tuple(self.taken), []
        self.finished = self.used >= self.num_gradients
        return Updated(self.updates, self.used, now, taken, self._computes)

    @property
    def _computes(self) -> bool:
        """Return True if `steps` holds the newest version."""
        return self.steps is not None and self.updates >= self.computed_from

    def _sent(self) -> Tree:
        return self.steps.sent() if self._computes else None


def check_same(name: str, before: int, now: int) -> None:
    """Raise a `ValueError` where a number is not that with which the run was begun."""
    if before != now:
        raise ValueError(f"{name}={now} must be {before}, as the log says")
