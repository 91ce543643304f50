"""`Log`, what a live run writes ahead of all that it does, and its checkpoints: a run that was killed resumes."""

import concurrent.futures
import contextlib
import errno
import fcntl
import json
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, NamedTuple

from sgdlab import files
from sgdlab.errors import RunFailed, UsageError
from sgdlab.live import checkpoint, lines
from sgdlab.live.checkpoint import RECORD, Checkpoint, KeptMessages, RecordFile
from sgdlab.live.lines import Entry, LogError, LogPlace, line_of, path_in
from sgdlab.live.recording import versions
from sgdlab.live.snapshot import Snapshot
from sgdlab.protocols.recorder import RecordPart
from sgdlab.types import Tree

SYNC_SECONDS = 1.0
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
FULL = 256 << 20
"""Bytes of kept messages after which a checkpoint is made, however few updates there were."""
LONG = 64 << 20
"""Bytes of a file of the log after which a checkpoint begins another."""


def agree(path: pathlib.Path, stored: dict[str, Any], given: dict[str, Any], prefix: str = "") -> None:
    """Check that the configuration is that of the log; a `LogError` names the entry that differs."""
    for name in sorted(stored.keys() | given.keys()):
        before, now = stored.get(name), given.get(name)
        if isinstance(before, dict) and isinstance(now, dict):
            agree(path, before, now, f"{prefix}{name}.")
        elif before != now:
            raise LogError(
                f"log={str(path)!r} is of a run with {prefix}{name}={json.dumps(before)}, not {json.dumps(now)}; name "
                "another directory"
            )


class Found(NamedTuple):
    """Holds where a run can continue: checkpoints that are whole and of its log; None where there is none."""

    base: Checkpoint | None  # the newest with the state of the engine
    newest: Checkpoint | None  # the newest with parameters


def found_in(folder: pathlib.Path, say: Callable[[str], None]) -> Found:
    """Return the checkpoints from which a run continues; others are passed over, with a line."""
    newest, path = None, folder / RECORD
    written = path.stat().st_size if path.exists() else 0
    for update in reversed(checkpoint.updates_of(folder)):
        try:
            found = checkpoint.load(folder, update)
        except checkpoint.Damaged as error:
            say(f"{error}; an earlier one, or the log alone, is used instead")
            continue
        if not lines.holds(folder, found.place):
            say(f"{checkpoint.path_of(folder, update)} is not of this log, or ahead of it, and is not used")
            continue
        newest = newest or found
        if found.state is not None and found.record <= written:
            return Found(found, newest)
        if found.state is not None:
            say(f"{path} has {written:,} of the {found.record:,} bytes of checkpoint {update}; an earlier one is used")
    return Found(None, newest)


class Log:
    """The log and the checkpoints of one live run, in one directory; a log that is there is resumed.

    `log.jsonl` has a header, which names the configuration, and a line for each thing that happened, with the operating
    system before it is handled: a JSON array, whose last element is a checksum of this line and all before. About every
    second, and before each checkpoint, the file is on the disk. `checkpoint-<update>.npz` are the two newest
    checkpoints, and `record.bin` is what had ended before the newest; `messages-<update>.bin` are there where
    `sent_like` is given. A checkpoint that finds the log longer than `LONG` begins another file: the one before is
    called `log-<lines before it>.jsonl` then, and is removed when two checkpoints have come that do not need it.

    Args:
      folder: the directory; made if it is not there.
      config: all values that the run depends on, as JSON holds them.
      compute_of: `(worker) -> compute`, where `compute(ticket, params, version=...) -> (grads, aux)` is bit for bit
        what the worker computes on the version of this number: gradients are not logged, those after the newest
        checkpoint are computed again. None: a log that is there cannot be resumed.
      sent_like: {"params": ..., "aux": ...} of gradients that nobody can compute again, since workers keep something
        between them: these are written down (`sgdlab.live.checkpoint.KeptMessages`). None: workers keep nothing.
      say: called with a line where a run is resumed, or a checkpoint cannot be used.

    Attributes:
      config: the configuration.
      versions: of Python, libraries and devices, when the run was begun.
      begun: whether something has happened in it already.
      found: the checkpoints from which it continues, until `forget`.
      cut: whether lines were removed, so that no checkpoint may be without the state of the engine.
      lost: whether its file was deleted, moved or unmounted, as `sync` has found: `write_again` saves what it holds.

    Raises:
      LogError: if the log is of another configuration (it names the entry that differs), or is damaged (it says where,
        and what of it can be used).
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        config: Mapping[str, Any],
        *,
        compute_of: Callable[[int], Callable[..., Any]] | None = None,
        sent_like: Tree = None,
        say: Callable[[str], None] = print,
    ):
        self.folder, self.path, self.say = pathlib.Path(folder), path_in(folder), say
        self.compute_of, self._sent_like = compute_of, sent_like
        self._synced, self._dirty, self.lost = 0.0, False, False
        self._record: Any = None
        self._writer = concurrent.futures.ThreadPoolExecutor(1, "checkpoint")
        self._syncing: concurrent.futures.Future | None = None
        self._saving: concurrent.futures.Future | None = None
        try:
            files.make_folder(self.folder)
            self._file = self._opened()
            try:
                self._begin(json.loads(json.dumps(config)))
                self.messages = self._opened_messages()
            except BaseException:
                self._file.close()
                if self._record is not None:
                    self._record.close()
                raise
        except OSError as error:
            raise LogError(f"log={str(self.path)!r} cannot be written: {error.strerror}") from error

    @property
    def saves(self) -> bool:
        """Return True while a checkpoint is being written."""
        return self._saving is not None and not self._saving.done()

    @property
    def full(self) -> bool:
        """Return True if the messages since the last checkpoint take so much room that it is time for another."""
        return self.messages is not None and self.messages.size >= FULL

    def entries(self) -> Iterator[tuple[Entry, LogPlace]]:
        """Yield what has happened since the checkpoint from which the run continues, each with the place after it."""
        return lines.follow(self.folder, self._from)

    def forget(self) -> None:
        """Free the memory of the checkpoints, from which the run goes on."""
        self.found = Found(None, None)

    def parts(self) -> Iterator[RecordPart]:
        """Return what had ended before the newest checkpoint, part by part; a `LogError` if it is damaged."""
        self._saved()
        return iter(self._record)

    def other_versions(self, later: Mapping[str, str]) -> dict[str, str]:
        """Return versions that have changed since the run was here last, and say so: its gradients may change too.

        Args:
          later: by name, those that have changed since the run was begun.
        """
        before = self.versions | dict(later)
        others = {name: now for name, now in versions().items() if before.get(name) != now}
        if others:
            changes = ", ".join(f"{name} {before.get(name, 'unknown')} is now {now}" for name, now in others.items())
            self.say(f"Computed otherwise than before: {changes}; a replay may differ in the last bits, and more")
        return others

    def write(self, entry: Entry) -> None:
        """Add a line; `RunFailed` if it cannot be written, since without its log a run must not go on."""
        line, chain = line_of(entry, self._place.chain)
        with self._writing():
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        lines, _, first, offset = self._place
        self._place = LogPlace(lines + 1, chain, first, offset + len(line))
        self._dirty = True

    def keep(self, ticket: int, grads: Tree, aux: Tree) -> None:
        """Keep a message that has come, where these are kept, before `write` says so; `RunFailed` if it cannot."""
        if self.messages is not None:
            with self._writing():
                self.messages.write(ticket, grads, aux)

    def sync(self, now: float, *, least_seconds: float = SYNC_SECONDS) -> None:
        """See to it that the lines will be on the disk, in a thread, if that is long ago by this clock.

        It looks whether the file is still where it was, too (`lost`): nobody but this process can read one that is not.

        Raises:
          RunFailed: if they could not be written there when this was called before.
        """
        if self._syncing is not None and self._syncing.done():
            self._synchronized()
        if 0 <= now - self._synced < least_seconds:
            return
        self._synced, self.lost = now, not _is_at(self.path, self._file)
        if self._syncing is None and self._dirty:
            self._syncing = self._writer.submit(self._on_disk, None if self.messages is None else self.messages.file)
            self._dirty = False

    def write_again(self) -> None:
        """Write a log that is lost anew: where it was, or in a folder beside that if another log is there now.

        From here on this is its folder. The caller makes a checkpoint there, since those of before may be gone too.

        Raises:
          UsageError: if it cannot be written.
        """
        self._saved()
        self._synchronized()
        lost, before = self.path, self._file
        try:
            if lost.exists():
                self.folder = next(beside for beside in files.numbered(self.folder) if not path_in(beside).exists())
                self.path = path_in(self.folder)
            files.make_folder(self.folder)
            with self.path.open("xb") as copy:
                before.seek(0)
                shutil.copyfileobj(before, copy)
                copy.flush()
                os.fsync(copy.fileno())
            self._file = self._opened()
            before.close()
            self._record = self._record.again(self.folder)
            if self.messages is not None:
                self.messages.close()
            self.messages = self._opened_messages()
        except OSError as error:
            why = f"and cannot be written again at {self.path}: {error.strerror}"
            raise UsageError(f"log={str(lost)!r} was deleted, moved or unmounted, {why}") from error
        self.lost, self.cut = False, self.cut or self._place.first > 0  # of several files, only the newest is there
        self.say(f"The log is written again: {self.path}")

    def checkpoint(
        self,
        update: int,
        steps: dict[str, Any],
        versions: dict[int, list[Any]],
        *,
        state: Snapshot | None = None,
        part: RecordPart | None = None,
    ) -> None:
        """Begin to save the server's state, in a thread; what it is given must not change any more.

        It waits for a checkpoint that is still being written (`saves`).

        Args:
          update: number of updates made.
          steps: what `Steps.snapshot` returned.
          versions: leaves of those that gradients in flight are computed on.
          state: of the engine. None: it cannot be written, and the log must not be cut.
          part: of the record, what has ended since the last checkpoint.

        Raises:
          RunFailed: if the messages that follow it cannot be written.
        """
        self._saved()
        ended = self._another_file() if self._place.offset >= LONG else None
        made = Checkpoint(update, self._place, steps, versions, state)
        with self._writing():
            messages = None if self.messages is None else self.messages.checkpoint(update)
        self._saving = self._writer.submit(self._save, made, part or RecordPart(), messages, ended)

    def close(self) -> None:
        """Wait until everything is on the disk; `RunFailed` if that fails."""
        if self._file.closed:
            return
        self._saved()
        self._writer.shutdown()
        try:
            self._synchronized()
            with self._writing():
                self._on_disk(None if self.messages is None else self.messages.file)
        finally:
            self._file.close()
            self._record.close()
            if self.messages is not None:
                self.messages.close()

    def _opened(self) -> IO[bytes]:
        """Open the file, which no other process writes until this one ends."""
        file = self.path.open("a+b", buffering=0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_at(self.path, file):
                raise BlockingIOError  # the other process has gone on in another file
        except OSError as error:
            file.close()
            raise LogError(f"log={str(self.path)!r} is being written by another process") from error
        return file

    def _another_file(self) -> IO[bytes] | None:
        """Go on in another file, and return the one before, for the caller to close; None where that fails."""
        before, path = self._place, self.folder / f".{self.path.name}.part"
        line, chain = line_of(lines.header(self.config, self.versions, before), before.chain)
        ended = self.path.with_name(f"log-{before.first}.jsonl")
        try:
            path.unlink(missing_ok=True)
            ended.unlink(missing_ok=True)
            file = path.open("a+b", buffering=0)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if file.write(line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.link(self.path, ended)  # at each instant there is a `log.jsonl`
                os.replace(path, self.path)
            except BaseException:
                file.close()
                path.unlink(missing_ok=True)
                raise
        except OSError:  # such as on a file system without links
            return None
        self._place = LogPlace(before.lines + 1, chain, before.lines, len(line))
        file, self._file = self._file, file
        return file

    def _opened_messages(self) -> KeptMessages | None:
        """Open the messages beside the log, where they are kept; the names of all files are on the disk then."""
        messages = None if self._sent_like is None else KeptMessages(self.folder, self._sent_like)
        files.sync_folder(self.folder)
        return messages

    def _begin(self, given: dict[str, Any]) -> None:
        """Find what is there; a log that is not there gets its header."""
        checkpoint.remove_unfinished(self.folder)
        self.found, self._firsts, self.cut = Found(None, None), {}, False
        begun = lines.header_of(self.path)
        if begun is None:
            self._file.truncate(0)  # half a line is none
            if left := checkpoint.paths_in(self.folder):
                what = f"{self.path} has no line, but {len(left)} files of a run lie beside it, such as {left[0].name}"
                self.say(f"{what}: they are put aside in {files.put_aside(left)}, and the run begins at 0")
            self.config, self.versions, self._place = given, versions(), LogPlace()
            self._record, self.begun = RecordFile(self.folder), False
            self.write(lines.header(given, self.versions, self._place))
            self._from = self._place
            return
        self.config, self.versions = begun[2:4]
        agree(self.path, self.config, given)
        self.found = found_in(self.folder, self.say)
        base = self.found.base
        self._from = self._place = lines.begin_of(self.folder) if base is None else base.place
        for _, place in lines.follow(self.folder, self._from, parsed=False):
            self._place = place
        self.begun, self.cut = self._place.lines > 1, min(lines.files_in(self.folder)) > 0
        self._file.truncate(self._place.offset)
        self._record = RecordFile(self.folder, 0 if base is None else base.record)

    def _save(self, made: Checkpoint, part: RecordPart, messages: IO[bytes] | None, ended: IO[bytes] | None) -> None:
        with messages or contextlib.nullcontext(), ended or contextlib.nullcontext():
            self._on_disk(messages, ended)  # a checkpoint is never ahead of its log
        if ended is not None:
            files.sync_folder(self.folder)
        checkpoint.save(self.folder, made._replace(record=self._record.add(part)))
        self._firsts[made.update] = 0 if made.state is None else made.place.first
        left = checkpoint.updates_of(self.folder)
        if len(left) < 2:  # with one alone, the log's beginning stands behind it
            return
        if self.messages is not None:
            self.messages.forget(left[0])
        self._firsts = {update: self._firsts.get(update, 0) for update in left}
        for first, path in checkpoint.numbered(self.folder, "log-*.jsonl").items():
            if first < min(self._firsts.values()):
                self.cut = True
                path.unlink(missing_ok=True)

    def _on_disk(self, *before: IO[bytes] | None) -> None:
        """Bring all to the disk, messages first: no line may be there without its message.

        The one thread of the writer does this in the order in which it was asked to: a file of messages that a
        checkpoint ends is closed after all that was asked of it before.
        """
        for file in before:
            if file is not None:
                os.fsync(file.fileno())
        os.fsync(self._file.fileno())

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """End the run where the disk fails: without its log it must not go on."""
        try:
            yield
        except OSError as error:
            why = f"cannot be written: {error.strerror}; the same command continues when there is room"
            raise RunFailed(f"error: log={str(self.path)!r} {why}") from error

    def _synchronized(self) -> None:
        """Wait until the lines of the last `sync` are on the disk."""
        syncing, self._syncing = self._syncing, None
        if syncing is not None:
            with self._writing():
                syncing.result()

    def _saved(self) -> None:
        """Wait for the last checkpoint."""
        saving, self._saving = self._saving, None
        if saving is None:
            return
        try:
            saving.result()
        except OSError as error:  # the log alone has all that happened
            self.say(f"A checkpoint in {self.folder} cannot be written, and the run goes on: {error}")


def _is_at(path: pathlib.Path, file: IO[bytes]) -> bool:
    """Return True if an open file is still the one of this name: it was not deleted, or made anew by somebody else."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except OSError as error:
        return error.errno not in _GONE
