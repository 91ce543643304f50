"""The state of a run from its newest checkpoint and its log: to go on with it, or to look at it."""

import contextlib
import functools
import itertools
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sgdlab.live import checkpoint, messages, snapshot
from sgdlab.live.checkpoint import Checkpoint
from sgdlab.live.engine import NUMBERS, LiveEngine, check_same
from sgdlab.live.lines import Entry, LogError, LogPlace, begin_of, follow, header_of, path_in
from sgdlab.live.log import Log, found_in
from sgdlab.live.messages import Event, Start
from sgdlab.live.recording import LiveRecording
from sgdlab.live.settings import LiveSettings
from sgdlab.live.snapshot import Snapshot
from sgdlab.live.transport import Clock, Nobody
from sgdlab.protocols.recorder import Row
from sgdlab.types import Tree

_WRONG = (ValueError, KeyError, IndexError, TypeError, AttributeError)
"""Errors of what is read that another program has written."""


def happens_again(
    engine: LiveEngine,
    path: pathlib.Path,
    entries: Iterator[tuple[Entry, LogPlace]],
    clock: Clock,
    write: Callable[[Entry], None] = lambda entry: None,
) -> None:
    """Let all entries of a log happen to an engine once more, with the clock set to each; `LogError` if it cannot.

    `write` adds the entry that the server was killed before it could write.
    """
    line, transport = 0, engine.transport

    def following() -> Entry | None:
        """Return the next entry; None at the end."""
        nonlocal line
        entry, place = next(entries, (None, LogPlace(line)))
        line = place.lines
        return entry

    def reading(now: float, ticket: int) -> float:
        """Return the reading that follows an event in the log; of the last event, its own instant."""
        entry = following()
        if entry is None:
            write([messages.BEGUN, now, ticket])
            return now
        if entry[::2] != [messages.BEGUN, ticket]:
            raise ValueError(f"ticket={ticket} must begin there, by the policy; the log says {entry}")
        clock.resume(entry[1])
        return entry[1]

    engine.reading = reading
    engine.connect(Nobody())
    while (entry := following()) is not None:
        try:
            event, now = messages.read(entry)
            _check(event, engine)
            clock.resume(now)
            engine.handle(event, now)
        except LogError:
            raise
        except _WRONG as error:
            raise LogError(
                f"log={str(path)!r}, line {line}, does not follow from the lines before it (was it written by another "
                f"version of the program?): {type(error).__name__}: {error}"
            ) from error
    engine.connect(transport)


def state_of(engine: LiveEngine, clock: Clock, others: Mapping[str, Any]) -> Snapshot:
    """Return what `resume` continues from, between two updates; `Unwritable` if the policy's state is not plain.

    Args:
      engine: of the run.
      clock: that it is told.
      others: by name, what is told of updates: with `state()` and `go_on(state)`, where `state` is plain.
    """
    told = {name: one.state() for name, one in others.items()}
    return snapshot.taken(engine.policy, {"engine": engine.state(), "clock": clock.last, "others": told})


@contextlib.contextmanager
def _going_on(log: pathlib.Path, base: Checkpoint) -> Iterator[None]:
    """Raise a LogError where the state in a checkpoint is not that of this program."""
    try:
        yield
    except _WRONG as error:
        raise LogError(
            f"log={str(log)!r} does not go on from checkpoint {base.update:,} (was it written by another version of "
            f"the program?): {type(error).__name__}: {error}"
        ) from error


def resume(engine: LiveEngine, log: Log, clock: Clock, others: Mapping[str, Any]) -> None:
    """Bring a new engine to where its log ends, and the clock to the log's last instant, at which it stands.

    The engine continues from the newest checkpoint that has its state, and is told again what came later. Where there
    is none, it is told the whole log; then no arithmetic is done up to the newest checkpoint. The gradients of updates
    after that are computed again, or read. Arguments are as of `state_of`.

    Raises:
      LogError: if the log is not of this run, or cannot be followed.
    """
    base, newest = log.found
    if base is not None:
        with _going_on(log.path, base):
            state: Any = base.state  # it has one
            found = snapshot.put(state, engine.policy)
            engine.go_on(found["engine"])
            clock.resume(found["clock"])
            for name in others.keys() & found["others"].keys():
                others[name].go_on(found["others"][name])
    if newest is not None:

        def restore() -> None:
            engine.steps.restore(newest.steps)
            sent = engine.steps.sent()
            engine.flying.versions.restore({v: checkpoint.like(leaves, sent) for v, leaves in newest.versions.items()})

        engine.computed_from, engine.restore = newest.update, restore
        if newest is base:
            restore()
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
    happens_again(engine, log.path, log.entries(), clock, log.write)
    log.forget()
    since = f"checkpoint {newest.update:,}" if newest is not None else "the beginning"
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
    folder, path = pathlib.Path(folder), path_in(folder)
    header = header_of(path) if path.is_file() else None
    base: Any = None if header is None else found_in(folder, lambda line: None).base
    entries = iter(()) if header is None else follow(folder, begin_of(folder) if base is None else base.place)
    first = next(entries, None) if base is None else None
    if header is None or (base is None and first is None):
        raise LogError(f"log={str(path)!r} must be the log of a live run that has begun; there is none")
    config, versions = header[2:4]
    policy, parts = make_policy(config), tuple

    def made(told: Mapping[str, Any]) -> LiveEngine:
        return LiveEngine(policy, None, Nobody(), settings=LiveSettings(), **{name: told[name] for name in NUMBERS})

    if first is None:
        with _going_on(path, base):
            found = snapshot.put(base.state, policy)["engine"]
            engine = made(found)
            engine.go_on(found)
        parts = functools.partial(checkpoint.read_parts, folder, base.record)
    else:
        engine, entries = made(messages.read(first[0])[0]._asdict()), itertools.chain([first], entries)
    happens_again(engine, path, entries, Clock(lambda: 0.0))
    return engine.recording(config, versions, parts)


def _check(event: Event, engine: LiveEngine) -> None:
    if isinstance(event, Start):
        for name in NUMBERS:
            check_same(name, getattr(event, name), getattr(engine, name))
