"""The server of a live run: a policy, a rule, a recorder and a clock, in one thread, over any transport."""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np
import optax

from sgdlab.errors import HostLost, RunFailed, Stopped, UsageError
from sgdlab.live.engine import LiveEngine, Updated
from sgdlab.live.fleet import not_started
from sgdlab.live.log import SYNC_SECONDS, Log
from sgdlab.live.messages import (
    BEGUN,
    Came,
    Event,
    Joined,
    Killed,
    Lost,
    Message,
    Restarted,
    Resumed,
    Silent,
    Spawned,
    Start,
    Timer,
    event_of,
    spelled,
)
from sgdlab.live.recording import LiveRecording, versions
from sgdlab.live.resume import resume, state_of
from sgdlab.live.settings import LiveSettings
from sgdlab.live.snapshot import Unwritable
from sgdlab.live.status import ENDED, RESTARTED, Status, View
from sgdlab.live.transport import Clock, Nobody, Transport
from sgdlab.protocols.policy import Policy
from sgdlab.protocols.recorder import Row
from sgdlab.replay import check_rule
from sgdlab.replay.steps import Steps
from sgdlab.rules.server_rule import ServerRule
from sgdlab.schedule import Schedule
from sgdlab.types import Tree

OnUpdate = Callable[[Updated], dict[str, float | str] | None]


def serve(
    policy: Policy,
    steps: Steps,
    transport: Transport,
    *,
    num_workers: int,
    num_gradients: int,
    settings: LiveSettings = LiveSettings(),  # noqa: B008 (it is frozen)
    log: Log | None = None,
    on_update: OnUpdate | None = None,
    watch: Callable[[Status], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> LiveRecording:
    """Execute a policy on workers until enough gradients have entered updates, and record what happened.

    The caller compiles `steps` before (`Steps.compile`), and closes the transport afterwards.

    Args:
      policy: whom to wait for; a new one, also when a run is resumed.
      steps: compiled; it holds parameters and state during and after the run.
      transport: the workers; the server spawns them, `num_workers` of them, numbered from 0.
      num_workers: N, the largest number of workers that may ever take part.
      num_gradients: the run ends with the first update by which so many have entered updates.
      settings: patience, respawning and saving.
      log: where the run is written, and read from if it was begun already. None: nothing is saved.
      on_update: called after each update, when the workers have begun again; `steps` holds that version if
        `Updated.computed`. What it returns is shown as the newest evaluation. A run that is resumed calls it again for
        the updates since the checkpoint from which it continues.
        If it remembers something of all before, it has `state()`, plain values (`sgdlab.live.snapshot`) that are kept
        with each checkpoint, and `go_on(state)`, called first.
      watch: called with the `Status` about twice a second, and at the end.
      stop: asked at each turn; if it says True, a checkpoint is made and `Stopped` raised.

    Returns:
      The `LiveRecording`.

    Raises:
      ValueError: if policy and steps do not fit together.
      LogError: (a ValueError) if the log cannot be followed, or written.
      UsageError: (a ValueError) if the log was deleted meanwhile; it says where it and the state are saved now.
      HostLost: if fewer than `settings.min_workers` are there for too long; it says why.
      RunFailed: if gradients of all workers fail, or are not finite, or their processes end, again and again.
      Stopped: if `stop` said so.
    """
    single = getattr(steps, "single", policy.single)
    if single != policy.single:
        raise ValueError(f"steps.single={single} must be {policy.single}, as the policy's updates are")
    engine = LiveEngine(
        policy, steps, transport, num_workers=num_workers, num_gradients=num_gradients, settings=settings
    )
    try:
        _Loop(engine, log, on_update=on_update, watch=watch, stop=stop).run()
        if log is None:
            return engine.recording({}, versions())
        return engine.recording(log.config, log.versions, log.parts)
    finally:
        if log is not None:
            log.close()


def check(policy: Policy, rule: ServerRule | optax.GradientTransformation, num_workers: int) -> None:
    """Check that a rule can be used with a policy, before processes are started; errors are as of `check_rule`.

    Example:
      >>> from sgdlab import policies, rules
      >>> check(policies.asynchronous(num_workers=3), rules.dana(learning_rate=0.1, num_workers=2), 3)
      Traceback (most recent call last):
      ...
      ValueError: rule keeps state for num_workers=2, but schedule has 3 workers
    """
    size = 1 if policy.single else 2  # gradients of the one update
    schedule = Schedule(
        worker=np.zeros(size),
        read=np.zeros(size),
        update=np.zeros(size),
        started=np.arange(size),
        arrived=np.arange(1, size + 1),
        applied=np.array([size]),
        num_workers=num_workers,
    )
    check_rule(schedule, rule)


class _Loop:
    """Waits for a message, handles it, and what is due, until the run is at an end; arguments are as of `serve`."""

    def __init__(
        self,
        engine: LiveEngine,
        log: Log | None,
        *,
        on_update: OnUpdate | None,
        watch: Callable[[Status], None] | None,
        stop: Callable[[], bool],
    ):
        self.engine, self.transport, self.settings = engine, engine.transport, engine.settings
        self.log: Any = log
        self.on_update, self.watch, self.stop = on_update, watch, stop
        engine.on_update = self.updated
        engine.fleet.at_once, engine.fleet.starts = self.transport.at_once, self.transport.STARTS
        self.view, self.clock = View(engine), Clock(self.transport.time)
        self.remember = {"view": self.view} | ({"on_update": on_update} if hasattr(on_update, "go_on") else {})
        self.plain = True  # whether the state of the engine could be written
        self.looked = self.watched = self.saved_at = -math.inf
        self.saved = 0  # updates, of the last checkpoint
        self.short_since: float | None = None
        self.message: Any = None  # that is being handled

    def run(self) -> None:
        """Execute the whole run, or the rest of it."""
        engine = self.engine
        resumed = self.log is not None and self.log.begun
        if resumed:
            resume(engine, self.log, self.clock, self.remember)
            self.saved = engine.computed_from
        engine.gradient, engine.reading = self.gradient, self.reading
        self.clock.start()
        if resumed:
            engine.bad, engine.failure = 0, ""
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
        """Free the workers for another run, however this one ends."""
        for worker, ticket in self.engine.flying.current.items():
            self.transport.interrupt(worker, ticket)
        self.engine.flying.versions.release()

    def restart(self) -> None:
        """Count all processes of before as gone, and with them what was in flight."""
        engine, flying = self.engine, self.engine.flying
        engine.connect(Nobody())
        # Those that wait go first: a loss of one that they wait for would let them begin.
        for worker in sorted(engine.fleet.there(), key=lambda worker: (worker in flying.current, worker)):
            if not engine.finished:
                self.happens(Restarted(worker))
        now = self.clock.now()
        for worker in engine.fleet:
            worker.restarted(now)
            engine.patience.heard(worker.worker)
        engine.notes.append((self.clock.last, ENDED if engine.finished else RESTARTED))
        engine.connect(self.transport)

    def gather(self) -> list[Joined]:
        """Return the workers that are there when the run begins: all whose first process came. The clock stands."""
        fleet, patience, settings = self.engine.fleet, self.engine.patience, self.settings
        ready: dict[int, Joined] = {}
        began = since = self.clock.now()  # since: when the last process was to come, or came
        while True:
            now = self.clock.now()
            patience.look(now)
            self.starts([*map(Spawned, fleet.due(now)), *self.hopeless()])
            # Nobody knows if those will come whom others start: they are waited for, but no longer than one may take.
            expected = fleet.starts or now - began < settings.join_seconds
            if expected and not all(worker.deaths or worker.worker in ready for worker in fleet):
                since = now
            elif len(ready) >= settings.min_workers:
                break
            elif now - since > settings.wait_seconds:
                raise HostLost(self.too_few(len(ready)))
            self.show(now)
            self.stop_if_asked()
            for message in self.transport.next(settings.turn_seconds):
                if isinstance(message, Joined):
                    ready[message.worker], since = message, self.clock.now()
                    patience.heard(message.worker)
                    fleet[message.worker].enters("ready", since)
                elif isinstance(message, Lost):
                    ready.pop(message.worker, None)
                    self.starts([message])
        fleet.shift(self.clock.last - self.clock.now())
        return [ready[worker] for worker in sorted(ready)]

    def starts(self, events: Iterable[Event]) -> None:
        """Handle what happens before the run begins, which no log says."""
        engine, notes = self.engine, self.engine.notes
        for event in events:
            now = self.clock.now()
            engine.handle(event, now)
            if engine.failure:
                raise RunFailed(f"error: {engine.failure}")
            if notes and notes[-1][0] == now > self.clock.last:
                notes[-1] = self.clock.last, notes[-1][1]  # the clock of the run stands

    def hopeless(self) -> Iterator[Killed]:
        """Yield the ends of processes that have been silent, or starting, for too long."""
        patience = self.engine.patience
        for worker in self.engine.fleet:
            starting, silence = worker.state == "starting", patience.silence(worker.worker)
            if worker.state in ("silent", "starting") and patience.hopeless(worker.worker, starting=starting):
                yield Killed(
                    worker.worker, not_started(silence) if starting else f"silent for {silence:.0f} s, and killed"
                )

    def begin(self, joined: list[Joined], *, resumed: bool) -> None:
        """Let the clock run, and the workers begin."""
        engine = self.engine
        self.clock.start()
        if resumed:
            for message in joined:
                self.happens(message)
        else:
            self.happens(Start(tuple(joined), engine.num_workers, engine.num_gradients), at=0.0)

    def turn(self) -> None:
        """Wait for messages, and see to what is due."""
        engine, now = self.engine, self.clock.now()
        due = [engine.fleet.next_start(), *engine.wakes[:1]]
        timeout = max(min(self.settings.turn_seconds, min(due) - now), 0.0)
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
        """Handle messages in their order, but after the instants that the policy asked for, if these have come."""
        for message in messages:
            self.wake(self.clock.now())
            if self.engine.finished:
                return
            self.message, current = message, self.engine.flying.current
            if self.log is not None and isinstance(message, Came) and current.get(message.worker) == message.ticket:
                self.log.keep(message.ticket, message.grads, message.aux)  # if nobody can compute it again
            self.happens(event_of(message))

    def wake(self, now: float) -> None:
        """Tell the policy that an instant that it asked for has come."""
        if not self.engine.finished and self.engine.wakes and self.engine.wakes[0] <= now:
            self.happens(Timer())

    def happens(self, event: Event, at: float | None = None) -> None:
        """Write an event down, then handle it."""
        engine, before = self.engine, self.engine.updates
        now = self.clock.event() if at is None else at
        if self.log is not None:
            self.log.write(spelled(event, now))
        engine.handle(event, now)
        if engine.failure:
            raise RunFailed(f"error: {engine.failure}")
        if engine.updates > before:
            least = 1 if self.log is not None and self.log.full else self.settings.checkpoint_updates
            self.save(least_updates=least, least_seconds=self.settings.checkpoint_seconds)

    def gradient(self, row: Row, params: Tree) -> tuple[Tree, Tree]:
        """Return that of the message that is being handled."""
        return self.message.grads, self.message.aux

    def reading(self, now: float, ticket: int) -> float:
        """Read the clock, no earlier than the event, and write it down."""
        reading = self.clock.reading()
        if self.log is not None:
            self.log.write([BEGUN, reading, ticket])
        return reading

    def updated(self, updated: Updated) -> None:
        """Tell the caller of an update."""
        self.view.updated(updated)
        if self.on_update is not None and (evaluation := self.on_update(updated)):
            self.view.evaluation = evaluation

    def look(self) -> None:
        """Find workers that are silent, and end the run if too few are left."""
        engine, patience = self.engine, self.engine.patience
        if any(patience.overdue(worker) for worker in engine.flying.current):
            self.receive(self.transport.next(0.0))  # it may have spoken, and nobody has listened
        for worker in sorted(engine.flying.current):
            if not engine.finished and worker in engine.flying.current and patience.overdue(worker):
                self.happens(Silent(worker, patience.silence(worker)))
        for event in (*self.hopeless(), *(Killed(worker, why) for worker, why in engine.fleet.spoiling())):
            if not engine.finished:
                self.happens(event)
        there, least = len(engine.fleet.there()), self.settings.min_workers
        if there >= least:
            self.short_since = None
            return
        self.short_since = patience.awake if self.short_since is None else self.short_since
        waited = patience.awake - self.short_since
        if waited > self.settings.wait_seconds:
            raise HostLost(self.too_few(there))

    def too_few(self, there: int) -> str:
        """Say who is missing, and why."""
        missing, least = self.engine.fleet.missing(), self.settings.min_workers
        return f"{there} of {len(self.engine.fleet)} workers are there, and min_workers={least} are needed: {missing}"

    def stop_if_asked(self) -> None:
        """End the run if `stop` says so."""
        if self.stop():
            self.save(least_updates=1, least_seconds=0.0)
            raise Stopped(self.engine.used, self.engine.num_gradients, saved=self.log is not None)

    def save(self, *, least_updates: int, least_seconds: float) -> None:
        """Save a checkpoint if there is a log, and the last one is old enough; inside an open update there is none.

        While one is being written the next is put off, so that the run does not wait for a disk; only where no time
        (`least_seconds=0.0`) is to be between them, or it is the last one, it waits.
        """
        engine, now = self.engine, self.clock.now()
        enough = engine.updates - self.saved >= least_updates and now - self.saved_at >= least_seconds
        if self.log is None or engine.taken or not enough or (least_seconds > 0 and self.log.saves):
            return
        try:
            state = state_of(engine, self.clock, self.remember)
        except Unwritable as error:
            state = None
            if self.plain:
                self.log.say(f"A run that is resumed will read its whole log: {error}")
        self.plain = state is not None
        if state is None and self.log.cut:
            self.saved, self.saved_at = engine.updates, now  # it is tried again when the next one is due
            return
        held = {version: jax.tree.leaves(tree) for version, tree in engine.flying.versions.held().items()}
        part = engine.flying.recorder.take()
        self.log.checkpoint(engine.updates, engine.steps.snapshot(), held, state=state, part=part)
        self.saved, self.saved_at = engine.updates, now

    def show(self, now: float, *, at_once: bool = False) -> None:
        """Show the run to those who watch, and see to it that the log is on the disk."""
        if self.watch is not None and (at_once or not self.watched <= now < self.watched + self.settings.watch_seconds):
            self.watched = now
            self.watch(self.view.status(now))
        if self.log is not None:
            self.log.sync(now, least_seconds=0.0 if at_once else SYNC_SECONDS)
            if self.log.lost and not self.engine.taken:  # inside an open update there is no checkpoint
                self.abandon()

    def abandon(self) -> None:
        """End a run whose log is lost, so that the same command continues it.

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
