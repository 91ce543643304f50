"""The state of a run from its newest checkpoint and its log: to go on with it, or to look at it."""

import itertools
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

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


class Past:
    """The entries of a log, which a new engine is told once more, with the clock set to each.

    `write` adds the entry that the server was killed before it could write.
    """

    def __init__(
        self,
        path: pathlib.Path,
        entries: Iterator[tuple[Entry, LogPlace]],
        clock: Clock,
        write: Callable[[Entry], None],
    ):
        self._path, self._entries, self._clock, self._write, self._line = path, entries, clock, write, 0

    def happens_again(self, engine: LiveEngine) -> None:
        """Let everything happen to the engine as it did before; a `LogError` says where it answers otherwise."""
        transport, engine.reading = engine.transport, self._reading
        engine.connect(Nobody())
        while (entry := self._next()) is not None:
            try:
                event, now = messages.read(entry)
                _check(event, engine)
                self._clock.resume(now)
                engine.handle(event, now)
            except LogError:
                raise
            except (ValueError, KeyError, IndexError, TypeError) as error:
                why = f"{type(error).__name__}: {error}"
                raise LogError(
                    f"log={str(self._path)!r}, line {self._line}, does not follow from the lines before it (was "
                    f"it written by another version of the program?): {why}"
                ) from error
        engine.connect(transport)

    def _next(self) -> Entry | None:
        """Return the next entry; None at the end."""
        entry, place = next(self._entries, (None, LogPlace(self._line)))
        self._line = place.lines
        return entry

    def _reading(self, now: float, ticket: int) -> float:
        """Return the reading that follows an event in the log; of the last event, its own instant."""
        entry = self._next()
        if entry is None:
            self._write([messages.BEGUN, now, ticket])
            return now
        if entry[::2] != [messages.BEGUN, ticket]:
            raise ValueError(f"ticket={ticket} must begin there, by the policy; the log says {entry}")
        self._clock.resume(entry[1])
        return entry[1]


def state_of(engine: LiveEngine, clock: Clock, others: Mapping[str, Any]) -> Snapshot:
    """Return what `resume` continues from, between two updates; `Unwritable` if the policy's state is not plain.

    Args:
      engine: of the run.
      clock: that it is told.
      others: by name, what is told of updates: with `state()` and `go_on(state)`, where `state` is plain.
    """
    told = {name: one.state() for name, one in others.items()}
    return snapshot.taken(engine.policy, {"engine": engine.state(), "clock": clock.last, "others": told})


def _go_on(engine: LiveEngine, clock: Clock, others: Mapping[str, Any], log: pathlib.Path, base: Checkpoint) -> None:
    """Continue from the state in a checkpoint."""
    try:
        found = snapshot.put(cast(Snapshot, base.state), engine.policy)
        engine.go_on(found["engine"])
        clock.resume(found["clock"])
        for name in others.keys() & found["others"].keys():
            others[name].go_on(found["others"][name])
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
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
        _go_on(engine, clock, others, log.path, base)
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
    Past(log.path, log.entries(), clock, log.write).happens_again(engine)
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
    if first is not None:
        begun: Any = messages.read(first[0])[0]
        told, entries = begun._asdict(), itertools.chain([first], entries)
    else:
        told = snapshot.read(base.state.tree[1], base.state.arrays)["engine"]
    config, versions = header[2:4]
    numbers = {name: told[name] for name in NUMBERS}
    engine = LiveEngine(make_policy(config), None, Nobody(), settings=LiveSettings(), **numbers)
    clock, parts = Clock(lambda: 0.0), []
    if base is not None:
        _go_on(engine, clock, {}, path, base)
        parts = checkpoint.read_parts(folder, base.record)
    Past(path, entries, clock, lambda entry: None).happens_again(engine)
    return engine.recording(config, versions, parts)


def _check(event: Event, engine: LiveEngine) -> None:
    if isinstance(event, Start):
        for name in NUMBERS:
            check_same(name, getattr(event, name), getattr(engine, name))
