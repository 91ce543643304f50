"""`Log`, what a live run writes ahead of all that it does, and its checkpoints: a run that was killed resumes."""

import concurrent.futures
import contextlib
import errno
import fcntl
import json
import os
import pathlib
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

from sgdlab import files
from sgdlab.errors import RunFailed, UsageError
from sgdlab.live import checkpoint
from sgdlab.live.checkpoint import Checkpoint, KeptMessages
from sgdlab.live.recording import versions
from sgdlab.types import Tree

SYNC_SECONDS = 1.0
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
FULL = 256 << 20
"""Bytes of kept messages after which a checkpoint is made, however few updates there were."""
Entry = list[Any]
FORMAT = 1
"""Of a log; its header names it."""


class LogError(ValueError):
    """A log that cannot be used, or opened; the message is one line, and names the file and the place."""


def path_in(folder: str | os.PathLike[str]) -> pathlib.Path:
    """Return the log of a run in a directory."""
    return pathlib.Path(folder) / "log.jsonl"


def read(path: pathlib.Path) -> tuple[list[Entry], list[int], int]:
    """Return the entries of a log, the header first, the checksum after each, and how many bytes they take.

    Half a line at the end is left out.

    Raises:
      LogError: if a line is damaged or one before it is missing; it names the line.
    """
    data = path.read_bytes()
    entries, chains, length, chain = [], [], 0, 0
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(keepends=True), 1):
        entry = _entry(line, chain)
        if entry is None or (not entries and entry[:2] != ["log", FORMAT]):
            if not entries:
                raise LogError(f"log={str(path)!r} is not the log of a live run")
            last = next((entry[1] for entry in reversed(entries[1:])), 0.0)
            raise LogError(
                f"log={str(path)!r} is damaged in line {number}, or lines before it are missing; the "
                f"{number - 1} lines before it, up to {last:.3f} s of the run, can be used (keep a copy of it, then: "
                f"truncate -s {length} {path})"
            )
        chain = int(entry.pop(), 16)
        entries.append(entry)
        chains.append(chain)
        length += len(line)
    return entries, chains, length


def line_of(entry: Entry, chain: int) -> tuple[bytes, int]:
    """Return the line of an entry, and the checksum after it, where `chain` is that before it."""
    body = json.dumps(entry, separators=(",", ":"))[:-1].encode()
    chain = zlib.crc32(body, chain)
    return body + b',"%08x"]\n' % chain, chain


def _entry(line: bytes, chain: int) -> Entry | None:
    """Return the entry of a line, with its checksum; None if it does not fit."""
    body, comma, _ = line.rpartition(b",")
    if line != body + comma + b'"%08x"]\n' % zlib.crc32(body, chain):
        return None
    return json.loads(line)


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


class Log:
    """The log and the checkpoints of one live run, in one directory; a log that is there is resumed.

    `log.jsonl` has a header, which names the configuration, and a line for each thing that happened, with the operating
    system before it is handled: a JSON array, whose last element is a checksum of this line and all before. About every
    second, and before each checkpoint, the file is on the disk. `checkpoint-<update>.npz` are the two newest
    checkpoints; `messages-<update>.bin` are there where `sent_like` is given.

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
      entries: what happened before, in its order; empty unless the run was begun already, and once it is forgotten.
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

    def forget(self) -> None:
        """Free the memory of what happened before, which has been told."""
        self.entries, self._chains = [], []

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
        line, chain = line_of(entry, self._chain)
        with self._writing():
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._lines, self._chain = self._lines + 1, chain
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
            if self.messages is not None:
                self.messages.close()
            self.messages = self._opened_messages()
        except OSError as error:
            why = f"and cannot be written again at {self.path}: {error.strerror}"
            raise UsageError(f"log={str(lost)!r} was deleted, moved or unmounted, {why}") from error
        self.lost = False
        self.say(f"The log is written again: {self.path}")

    def checkpoint(self, update: int, steps: dict[str, Any], versions: dict[int, list[Any]]) -> None:
        """Begin to save the server's state, in a thread; what it is given must not change any more.

        It waits for a checkpoint that is still being written (`saves`).

        Raises:
          RunFailed: if the messages that follow it cannot be written.
        """
        self._saved()
        made = Checkpoint(update, self._lines, self._chain, steps, versions)
        with self._writing():
            ended = None if self.messages is None else self.messages.checkpoint(update)
        self._saving = self._writer.submit(self._save, made, ended)

    def newest(self) -> Checkpoint | None:
        """Return the newest checkpoint that is whole and of this log; others are passed over, with a line."""
        for update in reversed(checkpoint.updates_of(self.folder)):
            try:
                found = checkpoint.load(self.folder, update)
            except checkpoint.Damaged as error:
                self.say(f"{error}; an earlier one, or the log alone, is used instead")
                continue
            if found.lines <= len(self._chains) and self._chains[found.lines - 1] == found.chain:
                return found
            self.say(f"{checkpoint.path_of(self.folder, update)} is not of this log, or ahead of it, and is not used")
        return None

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
            if self.messages is not None:
                self.messages.close()

    def _opened(self) -> IO[bytes]:
        """Open the file, which no other process writes until this one ends."""
        file = self.path.open("a+b", buffering=0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise LogError(f"log={str(self.path)!r} is being written by another process") from error
        return file

    def _opened_messages(self) -> KeptMessages | None:
        """Open the messages beside the log, where they are kept; the names of all files are on the disk then."""
        messages = None if self._sent_like is None else KeptMessages(self.folder, self._sent_like)
        files.sync_folder(self.folder)
        return messages

    def _begin(self, given: dict[str, Any]) -> None:
        """Read what is there; a log that is not there gets its header."""
        checkpoint.remove_unfinished(self.folder)
        entries, self._chains, length = read(self.path)
        if self.path.stat().st_size > length:
            self._file.truncate(length)  # half a line is none
        self._lines, self._chain = len(self._chains), self._chains[-1] if self._chains else 0
        if entries:
            (_, _, self.config, self.versions), self.entries = entries[0], entries[1:]
            agree(self.path, self.config, given)
            return
        if left := checkpoint.paths_in(self.folder):
            what = f"{self.path} has no line, but {len(left)} files of a run lie beside it, such as {left[0].name}"
            self.say(f"{what}: they are put aside in {files.put_aside(left)}, and the run begins at 0")
        self.config, self.versions, self.entries = given, versions(), []
        self.write(["log", FORMAT, given, self.versions])

    def _save(self, made: Checkpoint, ended: IO[bytes] | None) -> None:
        with ended or contextlib.nullcontext():
            self._on_disk(ended)  # a checkpoint is never ahead of its log
        checkpoint.save(self.folder, made)
        left = checkpoint.updates_of(self.folder)
        if self.messages is not None and len(left) > 1:  # with one alone, the log's beginning stands behind it
            self.messages.forget(left[0])

    def _on_disk(self, messages: IO[bytes] | None) -> None:
        """Bring all to the disk, messages first: no line may be there without its message.

        The one thread of the writer does this in the order in which it was asked to: a file of messages that a
        checkpoint ends is closed after all that was asked of it before.
        """
        if messages is not None:
            os.fsync(messages.fileno())
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
