"""`Log`, what a live run writes ahead of all that it does, and its checkpoints: a run that was killed resumes."""

import concurrent.futures
import errno
import fcntl
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from sgdlab.errors import RunFailed
from sgdlab.live import checkpoint, kept_messages
from sgdlab.live.checkpoint import Checkpoint
from sgdlab.live.kept_messages import KeptMessages
from sgdlab.live.log_lines import FORMAT, Entry, LogError, agree, line_of, path_in, read
from sgdlab.live.recording import versions

Tree = Any
_SYNC_SECONDS = 1.0
FULL = 256 << 20
"""Bytes of kept messages after which a checkpoint is made, however few updates there were."""


class Log:
    """The log and the checkpoints of one live run, in one directory; a log that is there is resumed.

    `log.jsonl` has a header, which names the configuration, and a line for each thing that happened, written before it
    is handled: a JSON array, whose last element is a checksum of this line and all before. `checkpoint-<update>.npz`
    are the two newest checkpoints. `messages-<update>.bin` are there where `sent_like` is given.

    A line is with the operating system before it takes effect, which survives the end of the process; about every
    second, and before each checkpoint, the file is on the disk, which survives a loss of power.

    Args:
      folder: the directory; made if it is not there.
      config: all values that the run depends on, as JSON holds them.
      compute: `(ticket, params) -> (grads, aux)`, bit for bit what a worker computes: gradients are not logged, those
        after the newest checkpoint are computed again. None: a log that is there cannot be resumed.
      compute_of: `(worker) -> compute`, where workers have examples of their own; in the place of `compute`. It is
        called with the keyword `version` too, the number of the version that the gradient was computed on.
      sent_like: {"params": ..., "aux": ...} of gradients that nobody can compute again, since workers keep something
        between them: these are written down (`sgdlab.live.kept_messages`), in the place of both. None: it can be.
      say: called with a line where a run is resumed, or a checkpoint cannot be used.

    Attributes:
      config: the configuration.
      versions: of Python, libraries and devices, when the run was begun.
      entries: what happened before, in its order; empty unless the run was begun already, and once it is forgotten.

    Raises:
      LogError: if the log is of another configuration (it names the entry that differs), or is damaged (it says where,
        and what of it can be used).
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        config: Mapping[str, Any],
        *,
        compute: Callable[[int, Tree], tuple[Tree, Tree]] | None = None,
        compute_of: Callable[[int], Callable[..., tuple[Tree, Tree]]] | None = None,
        sent_like: Tree = None,
        say: Callable[[str], None] = print,
    ):
        self.folder, self.compute, self.say = pathlib.Path(folder), compute, say
        self.compute_of = compute_of
        self.path = path_in(folder)
        self._synced, self._dirty = 0.0, False
        self._writer = concurrent.futures.ThreadPoolExecutor(1, "checkpoint")
        self._syncing: concurrent.futures.Future | None = None
        self._saving: concurrent.futures.Future | None = None
        given = json.loads(json.dumps(config))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("ab", buffering=0)
        except OSError as error:
            raise LogError(f"log={str(self.path)!r} cannot be written: {error.strerror}") from error
        try:
            self._begin(given)
            self.messages = None if sent_like is None else KeptMessages(self.folder, sent_like)
        except OSError as error:
            self._file.close()
            raise LogError(f"log={str(self.path)!r} cannot be written: {error.strerror}") from error
        except BaseException:
            self._file.close()
            raise

    @property
    def saves(self) -> bool:
        """Whether a checkpoint is being written."""
        return self._saving is not None and not self._saving.done()

    @property
    def full(self) -> bool:
        """Whether the messages since the last checkpoint take so much room that it is time for another."""
        return self.messages is not None and self.messages.size >= FULL

    def forget(self) -> None:
        """Everything that happened before has been told, and its memory is free."""
        self.entries, self._chains = [], []

    def other_versions(self, later: Mapping[str, str]) -> dict[str, str]:
        """Versions that are others than when the run was here last, and says so: its gradients may be others too.

        Args:
          later: by name, those that have changed since the run was begun.
        """
        before = self.versions | later
        others = {name: now for name, now in versions().items() if before.get(name) != now}
        if others:
            changes = ", ".join(f"{name} {before.get(name, 'unknown')} is now {now}" for name, now in others.items())
            self.say(f"Computed otherwise than before: {changes}; a replay may differ in the last bits, and more")
        return others

    def write(self, entry: Entry) -> None:
        """Adds a line.

        Raises:
          RunFailed: if it cannot be written; without its log a run must not go on.
        """
        line, chain = line_of(entry, self._chain)
        try:
            written = self._file.write(line)
        except OSError as error:
            raise self._failed(error) from error
        if written != len(line):
            raise self._failed(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        self._lines, self._chain = self._lines + 1, chain
        self._dirty = True

    def keep(self, ticket: int, grads: Tree, aux: Tree) -> None:
        """Keeps a message that has come, where these are kept; before `write` says so.

        Raises:
          RunFailed: if it cannot be written.
        """
        try:
            if self.messages is not None:
                self.messages.write(ticket, grads, aux)
        except OSError as error:
            raise self._failed(error) from error

    def sync(self, now: float, *, least_seconds: float = _SYNC_SECONDS) -> None:
        """Sees to it that the lines will be on the disk, in a thread, if that is long ago by this clock.

        Raises:
          RunFailed: if they could not be written there when this was called before.
        """
        if self._syncing is not None and self._syncing.done():
            self._synchronized()
        if self._syncing is None and self._dirty and not 0 <= now - self._synced < least_seconds:
            self._syncing = self._writer.submit(self._on_disk, self._descriptor_of_messages())
            self._synced, self._dirty = now, False

    def checkpoint(self, update: int, steps: dict[str, Any], versions: dict[int, list[Any]]) -> None:
        """Begins to save the server's state, in a thread; what it is given must not change any more.

        It waits for a checkpoint that is still being written (`saves`).

        Raises:
          RunFailed: if the messages that follow it cannot be written.
        """
        self._saved()
        made, ended = Checkpoint(update, self._lines, self._chain, steps, versions), None
        try:
            ended = self._descriptor_of_messages()  # of the file that is not written any more from here on
            if self.messages is not None:
                self.messages.checkpoint(update)
        except OSError as error:
            if ended is not None:
                os.close(ended)
            raise self._failed(error) from error
        self._saving = self._writer.submit(self._save, made, ended)

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint that is whole and of this log; those that are not are passed over, with a line."""
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
        """Waits until everything is on the disk.

        Raises:
          RunFailed: if that fails.
        """
        if self._file.closed:
            return
        self._saved()
        self._writer.shutdown()
        try:
            self._synchronized()
            self._on_disk(self._descriptor_of_messages())
        except OSError as error:
            raise self._failed(error) from error
        finally:
            self._file.close()
            if self.messages is not None:
                self.messages.close()

    def _begin(self, given: dict[str, Any]) -> None:
        """Reads what is there; a log that is not there gets its header."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until the process ends, however it does
        except OSError as error:
            raise LogError(f"log={str(self.path)!r} is being written by another process") from error
        checkpoint.remove_unfinished(self.folder)
        entries, self._chains, length = read(self.path)
        if self.path.stat().st_size > length:
            self._file.truncate(length)  # half a line is none
        self._lines, self._chain = len(self._chains), self._chains[-1] if self._chains else 0
        if entries:
            (_, _, self.config, self.versions), self.entries = entries[0], entries[1:]
            agree(self.path, self.config, given)
            return
        checkpoint.remove_all(self.folder)
        kept_messages.remove_all(self.folder)
        self.config, self.versions, self.entries = given, versions(), []
        self.write(["log", FORMAT, given, self.versions])

    def _save(self, made: Checkpoint, messages: int | None) -> None:
        self._on_disk(messages)  # a checkpoint is never ahead of its log
        checkpoint.save(self.folder, made)
        left = checkpoint.updates_of(self.folder)
        if self.messages is not None and len(left) > 1:  # with one alone, the log's beginning stands behind it
            self.messages.forget(left[0])

    def _descriptor_of_messages(self) -> int | None:
        return None if self.messages is None else self.messages.descriptor()

    def _on_disk(self, messages: int | None) -> None:
        """The messages first, since no line may be there without its message; their descriptor is closed."""
        if messages is not None:
            with os.fdopen(messages, "rb") as file:
                os.fsync(file)
        os.fsync(self._file.fileno())

    def _failed(self, error: OSError) -> RunFailed:
        why = f"log={str(self.path)!r} cannot be written: {error.strerror}"
        return RunFailed(f"error: {why}; the same command continues when there is room")

    def _synchronized(self) -> None:
        """Waits until the lines of the last `sync` are on the disk."""
        syncing, self._syncing = self._syncing, None
        try:
            if syncing is not None:
                syncing.result()
        except OSError as error:
            raise self._failed(error) from error

    def _saved(self) -> None:
        """Waits for the last checkpoint."""
        saving, self._saving = self._saving, None
        if saving is None:
            return
        try:
            saving.result()
        except OSError as error:  # the log alone has all that happened
            self.say(f"A checkpoint in {self.folder} cannot be written, and the run goes on: {error}")
