"""`Turns`, what the server does from one message to the next: it waits, handles what has come and what is due."""

import contextlib
import math
from collections.abc import Callable
from typing import Any

import jax

from sgdlab.errors import HostLost, RunFailed, Stopped, UsageError
from sgdlab.live import events
from sgdlab.live.clock import Clock
from sgdlab.live.engine import LiveEngine
from sgdlab.live.events import Arrived, Event, Killed, Restarted, Resumed, Silent, Spawned, Start, Timer
from sgdlab.live.gradient_checks import is_finite, loss_of
from sgdlab.live.log import SYNC_SECONDS, Log
from sgdlab.live.messages import Came, Joined, Lost, Message
from sgdlab.live.notes import lost
from sgdlab.live.resume import Nobody, resume
from sgdlab.live.settings import LiveSettings
from sgdlab.live.status import Status
from sgdlab.live.transport import Transport
from sgdlab.live.updated import Updated
from sgdlab.live.view import View
from sgdlab.policies.policy import Policy
from sgdlab.replay.steps import Steps

Tree = Any
OnUpdate = Callable[[Updated], dict[str, float | str] | None]


class Turns:
    """One run; the arguments are those of `serve`."""

    def __init__(
        self,
        policy: Policy,
        steps: Steps,
        transport: Transport,
        num_workers: int,
        num_gradients: int,
        settings: LiveSettings,
        log: Log | None,
    ):
        self.transport, self.settings = transport, settings
        self.log: Any = log
        self.engine = LiveEngine(
            policy, steps, transport, num_workers=num_workers, num_gradients=num_gradients, settings=settings
        )
        self.engine.on_update = self.updated
        self.view = View(self.engine)
        self.clock = Clock(transport.time)
        self.on_update: OnUpdate | None = None
        self.watch: Callable[[Status], None] | None = None
        self.stop: Callable[[], bool] = lambda: False
        self.looked = self.watched = self.saved_at = -math.inf
        self.saved = 0  # updates, of the last checkpoint
        self.short_since: float | None = None

    def run(self) -> None:
        """The whole run, or the rest of it."""
        engine = self.engine
        resumed = self.log is not None and bool(self.log.entries)
        if resumed:
            resume(engine, self.log, self.clock)
            self.saved = engine.computed_from
        engine.gradient, engine.reading = self.gradient, self.reading
        self.clock.start()
        if resumed:
            if others := self.log.other_versions(engine.later_versions):
                self.happens(Resumed(others))
            self.restart()
        if not engine.finished:
            getattr(engine.policy, "warm", lambda: None)()  # in the run it would be the workers' time
            engine.policy.prepare()
            try:
                self.begin(self.gather(), resumed=resumed)
                while not engine.finished:
                    self.turn()
            except BaseException:
                with contextlib.suppress(Exception):  # what has happened is what is said
                    self.leave()
                    self.show(self.clock.now(), at_once=True)
                raise
            self.leave()
        self.save(least_updates=1, least_seconds=0.0)
        self.show(self.clock.now(), at_once=True)

    def leave(self) -> None:
        """However the run ends, its workers are free for another one."""
        for worker, ticket in self.engine.flying.current.items():
            self.transport.interrupt(worker, ticket)
        self.engine.flying.versions.release(self.transport)

    def restart(self) -> None:
        """All processes of before are gone, and with them what was in flight."""
        engine, flying = self.engine, self.engine.flying
        engine.transport, engine.bad, engine.failure = Nobody(), 0, ""
        # Those that wait go first: a loss of one that they wait for would let them begin.
        for worker in sorted(engine.fleet.there(), key=lambda worker: (worker in flying.current, worker)):
            if not engine.finished:
                self.happens(Restarted(worker))
        now = self.clock.now()
        for worker in range(len(engine.fleet)):
            engine.fleet.restarted(worker, now)
            engine.patience.heard(worker)
        engine.notes.add(self.clock.last, "the server was started again")
        engine.transport = self.transport
        flying.versions.published_nowhere()

    def gather(self) -> list[Joined]:
        """The workers that are there when the run begins: all, or enough of them after a while. The clock stands."""
        fleet, patience, settings = self.engine.fleet, self.engine.patience, self.settings
        began, ready = self.clock.now(), {}
        while True:
            now = self.clock.now()
            patience.look(now)
            for worker in fleet.due(now):
                self.transport.spawn(worker)
                fleet.spawned(worker, now)
                patience.expect(worker)
            for worker in fleet:
                if worker.state == "starting" and patience.hopeless(worker.worker, starting=True):
                    self.transport.kill(worker.worker)
                    fleet.ended(worker.worker, "it did not start", now)
                    self.engine.notes.add(self.clock.last, lost(worker, now))
            if len(ready) == fleet.can_come() or now - began >= settings.join_seconds:
                if len(ready) >= settings.min_workers:
                    break
                if fleet.can_come() < settings.min_workers or now - began >= settings.wait_seconds:
                    raise HostLost(self.too_few(len(ready)))
            self.show(now)
            self.stop_if_asked()
            for message in self.transport.next(settings.turn_seconds):
                if isinstance(message, Joined):
                    ready[message.worker] = message
                    patience.heard(message.worker)
                elif isinstance(message, Lost):
                    ready.pop(message.worker, None)
                    now = self.clock.now()
                    fleet.ended(message.worker, message.error, now)
                    self.engine.notes.add(self.clock.last, lost(fleet[message.worker], now))
        fleet.shift(self.clock.last - self.clock.now())
        return [ready[worker] for worker in sorted(ready)]

    def begin(self, joined: list[Joined], *, resumed: bool) -> None:
        """The clock runs, and the workers begin."""
        engine = self.engine
        self.clock.start()
        if not resumed:
            self.happens(Start(tuple(joined), engine.num_workers, engine.num_gradients), at=0.0)
            return
        for message in joined:
            self.happens(message)

    def turn(self) -> None:
        """Waits for messages, and sees to what is due."""
        engine, now = self.engine, self.clock.now()
        due = [worker.respawn_at for worker in engine.fleet if worker.state == "down"] + engine.wakes[:1]
        timeout = max(min(self.settings.turn_seconds, min(due, default=math.inf) - now), 0.0)
        self.receive(self.transport.next(timeout))
        now = self.clock.now()
        engine.patience.look(now)
        self.wake(now)
        if engine.finished:
            return
        for worker in engine.fleet.due(now):
            self.happens(Spawned(worker))
        if not self.looked <= now < self.looked + self.settings.turn_seconds:
            self.looked = now
            self.look()
        self.stop_if_asked()
        self.show(now)

    def receive(self, messages: list[Message]) -> None:
        """Messages are handled in their order, but after the instants that the policy asked for, if these have come."""
        for message in messages:
            self.wake(self.clock.now())
            if self.engine.finished:
                return
            self.message = message
            self.keep(message)
            self.happens(_event_of(message))

    def keep(self, message: Message) -> None:
        """A gradient that answers what its worker was asked for is kept with the log, where nobody can repeat it."""
        if self.log is None or not isinstance(message, Came):
            return
        if self.engine.flying.current.get(message.worker) == message.ticket:
            self.log.keep(message.ticket, message.grads, message.aux)

    def wake(self, now: float) -> None:
        """Tells the policy that an instant that it asked for has come."""
        if not self.engine.finished and self.engine.wakes and self.engine.wakes[0] <= now:
            self.happens(Timer())

    def happens(self, event: Event, at: float | None = None) -> None:
        """An event is written down, then handled."""
        engine, before = self.engine, self.engine.updates
        now = self.clock.event() if at is None else at
        if self.log is not None:
            self.log.write(events.spelled(event, now))
        engine.handle(event, now)
        if engine.failure:
            raise RunFailed(f"error: {engine.failure}")
        if engine.updates > before:
            least = 1 if self.log is not None and self.log.full else self.settings.checkpoint_updates
            self.save(least_updates=least, least_seconds=self.settings.checkpoint_seconds)

    def gradient(self, ticket: int, params: Tree) -> tuple[Tree, Tree]:
        """That of the message that is being handled."""
        message: Any = self.message
        return message.grads, message.aux

    def reading(self, now: float, ticket: int) -> float:
        """The clock, no earlier than the event, read and written down."""
        reading = self.clock.reading()
        if self.log is not None:
            self.log.write([events.BEGUN, reading, ticket])
        return reading

    def updated(self, updated: Updated) -> None:
        """Tells the caller of an update."""
        self.view.updated(updated)
        if self.on_update is not None and (evaluation := self.on_update(updated)):
            self.view.evaluation = evaluation

    def look(self) -> None:
        """Finds workers that are silent, and whether enough are left."""
        engine, patience = self.engine, self.engine.patience
        if any(patience.overdue(worker) for worker in engine.flying.current):
            self.receive(self.transport.next(0.0))  # it may have spoken, and nobody has listened
        for worker in sorted(engine.flying.current):
            if not engine.finished and worker in engine.flying.current and patience.overdue(worker):
                self.happens(Silent(worker))
        for worker in engine.fleet:
            silent, starting = worker.state == "silent", worker.state == "starting"
            hopeless = (silent or starting) and patience.hopeless(worker.worker, starting=starting)
            if hopeless and not engine.finished:
                self.happens(Killed(worker.worker))
        there, least = len(engine.fleet.there()), self.settings.min_workers
        if there >= least:
            self.short_since = None
            return
        self.short_since = patience.awake if self.short_since is None else self.short_since
        waited = patience.awake - self.short_since
        if engine.fleet.can_come() < least or waited > self.settings.wait_seconds:
            raise HostLost(self.too_few(there))

    def too_few(self, there: int) -> str:
        """Who is missing, and why."""
        missing, least = self.engine.fleet.missing(), self.settings.min_workers
        return f"{there} of {len(self.engine.fleet)} workers are there, and min_workers={least} are needed: {missing}"

    def stop_if_asked(self) -> None:
        """Ends the run if `stop` says so."""
        if self.stop():
            self.save(least_updates=1, least_seconds=0.0)
            raise Stopped(self.engine.used, self.engine.num_gradients, saved=self.log is not None)

    def save(self, *, least_updates: int, least_seconds: float) -> None:
        """A checkpoint, if there is a log, and the last one is old enough; inside an open update there is none.

        While one is being written the next is put off, so that the run does not wait for a disk; only where no time
        (`least_seconds=0.0`) is to be between them, or it is the last one, it waits.
        """
        engine, now = self.engine, self.clock.now()
        enough = engine.updates - self.saved >= least_updates and now - self.saved_at >= least_seconds
        if self.log is None or engine.taken or not enough or (least_seconds > 0 and self.log.saves):
            return
        held = {version: jax.tree.leaves(tree) for version, tree in engine.flying.versions.held().items()}
        self.log.checkpoint(engine.updates, engine.steps.snapshot(), held)
        self.saved, self.saved_at = engine.updates, now

    def show(self, now: float, *, at_once: bool = False) -> None:
        """Shows the run to those who watch, and sees to it that the log is on the disk."""
        if self.watch is not None and (at_once or not self.watched <= now < self.watched + self.settings.watch_seconds):
            self.watched = now
            self.watch(self.view.status(now))
        if self.log is not None:
            self.log.sync(now, least_seconds=0.0 if at_once else SYNC_SECONDS)
            if self.log.lost and not self.engine.taken:  # inside an open update there is no checkpoint
                self.abandon()

    def abandon(self) -> None:
        """Ends a run whose log is lost, so that the same command continues it.

        Raises:
          UsageError: always; it says where the log and the state are.
        """
        lost, folder = self.log.path, self.log.folder
        self.log.write_again()
        self.saved = 0
        self.save(least_updates=1, least_seconds=0.0)
        moved = "" if self.log.folder == folder else f"with that in the place of {folder}, "
        raise UsageError(
            f"log={str(lost)!r} was deleted, moved or unmounted while the run wrote there, and so the run has ended; "
            f"its log and its state are saved in {self.log.folder}: {moved}the same command continues"
        )


def _event_of(message: Message) -> Event:
    """The event of a message: of a gradient, what the log can hold."""
    if not isinstance(message, Came):
        return message
    return Arrived(message.worker, message.ticket, message.seconds, loss_of(message.aux), is_finite(message[2:4]))
