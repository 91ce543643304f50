"""The state of a run from its log: to go on with it, or to look at it."""

import os
import pathlib
from collections.abc import Callable
from typing import Any

from sgdlab.live import checkpoint, messages
from sgdlab.live.engine import LiveEngine
from sgdlab.live.log import Entry, Log, LogError, path_in, read
from sgdlab.live.messages import Event, Start
from sgdlab.live.recording import LiveRecording
from sgdlab.live.settings import LiveSettings
from sgdlab.live.transport import Clock, Nobody
from sgdlab.protocols.recorder import Row
from sgdlab.types import Tree


class Past:
    """The entries of a log without its header, which a new engine is told once more, with the clock set to each.

    `write` adds the entry that the server was killed before it could write.
    """

    def __init__(self, path: pathlib.Path, entries: list[Entry], clock: Clock, write: Callable[[Entry], None]):
        self._path, self._entries, self._clock, self._write, self._place = path, entries, clock, write, 0

    def happens_again(self, engine: LiveEngine) -> None:
        """Let everything happen to the engine as it did before; a `LogError` says where it answers otherwise."""
        transport, engine.reading = engine.transport, self._reading
        engine.connect(Nobody())
        while self._place < len(self._entries):
            entry, self._place = self._entries[self._place], self._place + 1
            try:
                event, now = messages.read(entry)
                _check(event, engine)
                self._clock.resume(now)
                engine.handle(event, now)
            except (ValueError, KeyError, IndexError, TypeError) as error:
                why = f"{type(error).__name__}: {error}"
                raise LogError(
                    f"log={str(self._path)!r}, line {self._place + 1}, does not follow from the lines before it (was "
                    f"it written by another version of the program?): {why}"
                ) from error
        engine.connect(transport)

    def _reading(self, now: float, ticket: int) -> float:
        """Return the reading that follows an event in the log; of the last event, its own instant."""
        if self._place == len(self._entries):
            self._write([messages.BEGUN, now, ticket])
            return now
        entry, self._place = self._entries[self._place], self._place + 1
        if entry[::2] != [messages.BEGUN, ticket]:
            raise ValueError(f"ticket={ticket} must begin there, by the policy; the log says {entry}")
        self._clock.resume(entry[1])
        return entry[1]


def resume(engine: LiveEngine, log: Log, clock: Clock) -> None:
    """Bring a new engine to where its log ends, and the clock to the log's last instant, at which it stands.

    Up to the newest checkpoint no arithmetic is done. The gradients of later updates are computed again, or read.

    Raises:
      LogError: if the log is not of this run, or cannot be followed.
    """
    found = log.newest()
    if found is not None:

        def restore() -> None:
            engine.steps.restore(found.steps)
            sent = engine.steps.sent()
            engine.flying.versions.restore({v: checkpoint.like(leaves, sent) for v, leaves in found.versions.items()})

        engine.computed_from, engine.restore = found.update, restore
    again = 0

    def gradient(row: Row, params: Tree) -> tuple[Tree, Tree]:
        nonlocal again
        again += 1
        if log.messages is not None:
            return log.messages.read(row.ticket)
        if log.compute_of is None:
            raise ValueError("compute_of=None must be a function: it makes what computes a worker's gradients again")
        return log.compute_of(row.worker)(row.ticket, params, version=row.read)

    engine.gradient = gradient
    Past(log.path, log.entries, clock, log.write).happens_again(engine)
    log.forget()
    since = f"checkpoint {found.update:,}" if found is not None else "the beginning"
    unit = engine.settings.unit
    log.say(
        f"Resumed from {log.path}: {engine.updates:,} updates, {engine.used:,} of {engine.num_gradients:,} {unit}s; "
        f"{again:,} {unit}s since {since} were {'computed' if log.messages is None else 'read'} again"
    )


def examined(folder: str | os.PathLike[str], make_policy: Callable[[dict[str, Any]], Any]) -> LiveRecording:
    """Return what has happened in a run so far, by its log alone, such as after a crash; no gradient is computed.

    Args:
      folder: the directory of the log.
      make_policy: called with the configuration of the log; it makes a policy like the run's.

    Returns:
      The recording; gradients that were in flight are pending.

    Raises:
      LogError: if there is no log of a run that has begun, or it is damaged.
    """
    path = path_in(folder)
    entries, _, _ = read(path) if path.is_file() else ([], [], 0)
    if len(entries) < 2:
        raise LogError(f"log={str(path)!r} must be the log of a live run that has begun; there is none")
    (_, _, config, versions), *past = entries
    start: Any = messages.read(past[0])[0]
    engine = LiveEngine(
        make_policy(config),
        None,
        Nobody(),
        num_workers=start.num_workers,
        num_gradients=start.num_gradients,
        settings=LiveSettings(),
    )
    Past(path, past, Clock(lambda: 0.0), lambda entry: None).happens_again(engine)
    return engine.recording(config, versions)


def _check(event: Event, engine: LiveEngine) -> None:
    if isinstance(event, Start):
        for name in ("num_workers", "num_gradients"):
            if getattr(event, name) != getattr(engine, name):
                raise ValueError(f"{name}={getattr(engine, name)} must be {getattr(event, name)}, as the log says")
