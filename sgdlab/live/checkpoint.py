"""Keeps what a live run has beside its log: checkpoints, the record, and messages that nobody can compute again."""

import errno
import hashlib
import io
import json
import os
import pathlib
import zlib
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

import jax
import numpy as np

from sgdlab import files
from sgdlab.live.lines import LogError, LogPlace, differs
from sgdlab.live.shared_arrays import MemoryLayout
from sgdlab.live.snapshot import Snapshot
from sgdlab.protocols.recorder import RecordPart
from sgdlab.replay.steps import plain
from sgdlab.types import Tree

CHECKPOINT = 2
"""Format of checkpoints, and of the record of what has ended beside them."""
_KEPT = 2
_DIGEST = "digest"
_HEAD = np.dtype([("ticket", "<i8"), ("check", "<u4")])
_MESSAGES = "messages-*.bin"
RECORD = "record.bin"
_PART = np.dtype([("check", "<u4"), *((name, "<i8") for name in RecordPart.TYPES)])
_TYPES = {name: np.dtype(typecode).newbyteorder("<") for name, typecode in RecordPart.TYPES.items()}


class Checkpoint(NamedTuple):
    """The server's state when an update had been made and all its workers had begun again."""

    update: int  # number of updates made
    place: LogPlace  # of the log, up to then; a checkpoint belongs to one log only
    steps: dict[str, np.ndarray]  # what `Steps.snapshot` returned
    versions: dict[int, list[np.ndarray]]  # version -> leaves, of those that gradients in flight are computed on
    state: Snapshot | None = None  # of the engine; None where a policy's cannot be written, and the whole log stands
    record: int = 0  # bytes of the record of what had ended


class Damaged(ValueError):
    """A checkpoint that cannot be read."""


def path_of(folder: pathlib.Path, update: int) -> pathlib.Path:
    """Return the file of a checkpoint."""
    return folder / f"checkpoint-{update}.npz"


def updates_of(folder: pathlib.Path) -> list[int]:
    """Return the updates of the checkpoints in a folder, rising."""
    return sorted(numbered(folder, "checkpoint-*.npz"))


def paths_in(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the files of a run in a folder, but for the log's last one."""
    patterns = ("checkpoint-*.npz", _MESSAGES, "log-*.jsonl")
    found = [path for pattern in patterns for path in numbered(folder, pattern).values()]
    return [*found, *(path for path in folder.glob(RECORD) if path.stat().st_size)]


def numbered(folder: pathlib.Path, pattern: str) -> dict[int, pathlib.Path]:
    """Return the files of a pattern by the number in the place of its star."""
    found = {path.stem.partition("-")[2]: path for path in folder.glob(pattern)}
    return {int(number): path for number, path in found.items() if number.isdigit()}


def save(folder: pathlib.Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint, whole or not at all, and remove those before the last one."""
    numbers = [CHECKPOINT, checkpoint.update, checkpoint.record, *checkpoint.place]
    arrays: dict[str, Any] = {"numbers": np.array(numbers, np.int64)}
    if checkpoint.state is not None:
        arrays["tree"] = np.frombuffer(json.dumps(checkpoint.state.tree).encode(), np.uint8)
        arrays |= {f"state {name}": array for name, array in checkpoint.state.arrays.items()}
    arrays |= {f"steps {name}": array for name, array in checkpoint.steps.items()}
    for version, leaves in checkpoint.versions.items():
        arrays |= {f"version {version} {index}": plain(leaf, copy=None) for index, leaf in enumerate(leaves)}
    arrays[_DIGEST] = np.frombuffer(digest(arrays), np.uint8)
    with files.replacing(path_of(folder, checkpoint.update)) as file:
        np.savez(file, **arrays)
    there = updates_of(folder)  # later ones are of a log that was cut off
    for update in set(there) - set([update for update in there if update <= checkpoint.update][-_KEPT:]):
        path_of(folder, update).unlink(missing_ok=True)


def load(folder: pathlib.Path, update: int) -> Checkpoint:
    """Read and check a checkpoint; nothing is unpickled. `Damaged` is raised if it is not whole."""
    path = path_of(folder, update)
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        found = arrays.pop(_DIGEST).tobytes()
        numbers = arrays.pop("numbers")
    except Exception as error:  # a damaged archive can raise nearly anything
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise Damaged(f"{path} cannot be read: {why}") from error
    if found != digest({"numbers": numbers, **arrays}):
        raise Damaged(f"{path} cannot be read: its contents have another digest than was written")
    if numbers[0] != CHECKPOINT:
        raise Damaged(f"{path} {differs(numbers[0], CHECKPOINT)}")
    tree = arrays.pop("tree", None)
    parts: dict[str, dict[str, Any]] = {"state": {}, "steps": {}}
    versions: dict[int, Any] = {}
    for name, array in arrays.items():
        kind, _, rest = name.partition(" ")
        if kind == "version":
            versions.setdefault(int(rest.split()[0]), []).append(array)
        else:
            parts[kind][rest] = array
    _, update, length, *place = (int(number) for number in numbers)
    state = None if tree is None else Snapshot(json.loads(tree.tobytes()), parts["state"])
    return Checkpoint(update, LogPlace(*place), parts["steps"], versions, state, length)


def digest(arrays: dict[str, np.ndarray]) -> bytes:
    """Return the SHA-256 of arrays, their names, dtypes and shapes.

    Example:
      >>> digest({"a": np.zeros(2)}) == digest({"a": np.zeros((2, 1))})
      False
    """
    hashed = hashlib.sha256()
    for name, array in arrays.items():
        hashed.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        # pyrefly: ignore[bad-argument-type]  # an array is a buffer
        hashed.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return hashed.digest()


def like(leaves: list[np.ndarray], tree: Tree) -> Tree:
    """Return arrays of a checkpoint as a pytree like `tree`, with its dtypes.

    Example:
      >>> import jax.numpy as jnp
      >>> tree = {"a": jnp.array([1.5], jnp.bfloat16)}
      >>> like([plain(tree["a"])], tree)
      {'a': array([1.5], dtype=bfloat16)}
    """
    expected, structure = jax.tree.flatten(tree)
    typed = [
        leaf if leaf.dtype == as_.dtype else leaf.view(as_.dtype) for leaf, as_ in zip(leaves, expected, strict=True)
    ]
    return jax.tree.unflatten(structure, typed)


def remove_unfinished(folder: pathlib.Path) -> None:
    """Remove what a process that was killed while it wrote has left."""
    for path in [*folder.glob(".checkpoint-*"), *folder.glob(".log*")]:
        if files.is_unfinished(path):
            path.unlink(missing_ok=True)


class KeptMessages:
    """Keeps messages in files beside a log, from the older of its two checkpoints on.

    A server that was started again computes a gradient anew that came after its newest checkpoint, from the version and
    the batch. Where workers keep something between two messages, that is gone with them, and the messages themselves
    are written down instead. Each checkpoint begins a file, so that files from before the older one can be removed.

    Args:
      folder: that of the log.
      like: {"params": ..., "aux": ...}, arrays like a gradient and what came with it.

    Example:
      >>> import tempfile
      >>> folder = pathlib.Path(tempfile.mkdtemp())
      >>> with KeptMessages(folder, {"params": np.zeros(2), "aux": {}}) as messages:
      ...     messages.write(7, np.array([1.0, 2.0]), {})
      >>> with KeptMessages(folder, {"params": np.zeros(2), "aux": {}}) as messages:
      ...     messages.read(7)
      (array([1., 2.]), {})
    """

    def __init__(self, folder: pathlib.Path, like: Tree):
        self._folder, self._layout = folder, MemoryLayout(like)
        self._length = _HEAD.itemsize + self._layout.size
        self._message: Any = np.zeros(self._length, np.uint8)
        self._memory = self._message[_HEAD.itemsize :]
        self._views = self._layout.views(self._memory)
        self.size = 0  # bytes of the messages since the newest checkpoint that this process has begun
        folder.mkdir(parents=True, exist_ok=True)
        self._places: dict[int, tuple[pathlib.Path, int]] = {}
        # By age, not by number: a log that was cut off counts its updates anew.
        paths = sorted(numbered(folder, _MESSAGES).values(), key=lambda path: path.stat().st_mtime_ns)
        for path in paths:
            self._find(path)
        self.file = self._opened(paths[-1] if paths else self._path_of(0))

    def __enter__(self) -> "KeptMessages":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def write(self, ticket: int, grads: Tree, aux: Tree) -> None:
        """Add a message; it is with the operating system then."""
        self._layout.write(self._views, {"params": grads, "aux": aux})
        self._message[: _HEAD.itemsize] = np.frombuffer(_head(ticket, self._memory), np.uint8)
        _write_whole(self.file, self._message)
        self.size += self._length

    def read(self, ticket: int) -> tuple[Tree, Tree]:
        """Return the gradient and aux of a ticket that came before the server was started again, or say why not."""
        if ticket not in self._places:
            raise ValueError(f"ticket={ticket} must be of a message that was kept in {self._folder}")
        path, place = self._places[ticket]
        try:
            found = np.fromfile(path, np.uint8, self._length, offset=place)
        except OSError as error:
            raise ValueError(f"ticket={ticket} cannot be read in {path}: {error.strerror}") from error
        head, memory = found[: _HEAD.itemsize].tobytes(), found[_HEAD.itemsize :]
        if head != _head(ticket, memory):
            raise ValueError(f"ticket={ticket} is damaged in {path}")
        tree = self._layout.copied(memory)
        return tree["params"], tree["aux"]

    def checkpoint(self, update: int) -> IO[bytes]:
        """Begin another file: a checkpoint of this update is being made, and what comes now is not in it.

        Returns:
          The file that is not written any more, for the caller to close.
        """
        before, self.file = self.file, self._opened(self._path_of(update))
        self.size = 0
        return before

    def forget(self, update: int) -> None:
        """Remove the files from before this update, that of the oldest checkpoint that is left."""
        for number, path in numbered(self._folder, _MESSAGES).items():
            if number < update:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def _path_of(self, update: int) -> pathlib.Path:
        return self._folder / _MESSAGES.replace("*", str(update))

    def _opened(self, path: pathlib.Path) -> IO[bytes]:
        file = path.open("ab", buffering=0)
        size = path.stat().st_size
        if size % self._length:
            file.truncate(size - size % self._length)  # half a message is none
        return file

    def _find(self, path: pathlib.Path) -> None:
        size = path.stat().st_size
        with path.open("rb") as file:
            for place in range(0, size - self._length + 1, self._length):
                file.seek(place)
                ticket = int(np.frombuffer(file.read(_HEAD.itemsize), _HEAD)[0]["ticket"])
                self._places[ticket] = path, place


def _write_whole(file: IO[bytes], data: Any) -> None:
    left = memoryview(data)
    while left:  # Linux takes at most 2 GiB at once
        written = file.write(left)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left = left[written:]


def _head(ticket: int, memory: Any) -> bytes:
    return np.array((ticket, zlib.crc32(memory)), _HEAD).tobytes()


class RecordFile:
    """The parts of a record in one file; what was not wholly written belongs to no checkpoint, and is overwritten.

    Args:
      folder: of the log.
      length: bytes that count, those of the checkpoint that a run continues from; what follows them is cut off.

    Example:
      >>> import tempfile
      >>> from sgdlab.protocols.recorder import Recorder
      >>> folder, recorder = pathlib.Path(tempfile.mkdtemp()), Recorder()
      >>> recorder.began(0, worker=1, version=0, now=0.0)
      >>> recorder.ended(0, now=2.0, update=0)
      >>> file = RecordFile(folder)
      >>> length, _ = file.add(recorder.take()), file.close()
      >>> [part.columns["worker"] for part in read_parts(folder, length)]
      [array([1], dtype=int32)]
    """

    def __init__(self, folder: pathlib.Path, length: int = 0):
        self._path = folder / RECORD
        self._file = self._path.open("r+b" if self._path.exists() else "w+b", buffering=0)
        self._file.truncate(length)
        self._length = length
        self._waiting: list[RecordPart] = []  # those that could not be written yet

    def add(self, *parts: RecordPart) -> int:
        """Bring parts to the disk, and return how long the file is then; an OSError leaves them for the next time."""
        self._waiting += parts
        data = b"".join(_spelled(part) for part in self._waiting)
        self._file.seek(self._length)
        _write_whole(self._file, data)
        os.fsync(self._file.fileno())
        self._length += len(data)
        self._waiting.clear()
        return self._length

    def __iter__(self) -> Iterator[RecordPart]:
        """Yield all parts; the file may have been deleted, since it is open."""
        self._file.seek(0)
        yield from _parts(self._file, self._length, self._path)
        yield from self._waiting

    def again(self, folder: pathlib.Path) -> "RecordFile":
        """Return another file of the same parts, in the place of this one, which was deleted."""
        copy = RecordFile(folder)
        copy.add(*self)
        self.close()
        return copy

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_parts(folder: pathlib.Path, length: int) -> Iterator[RecordPart]:
    """Yield the parts in the first bytes of the record in a folder, of a run that may go on; errors as of `_parts`."""
    path = folder / RECORD
    with path.open("rb") as file:
        yield from _parts(file, length, path)


def _parts(file: IO[bytes], length: int, path: pathlib.Path) -> Iterator[RecordPart]:
    """Yield the parts in a file's next bytes.

    Raises:
      LogError: if one is damaged or missing.
    """
    place = 0
    while place < length:
        head = file.read(_PART.itemsize)
        counts = np.frombuffer(head.ljust(_PART.itemsize, b"\0"), _PART)[0]
        size = sum(int(counts[name]) * dtype.itemsize for name, dtype in _TYPES.items())
        data = file.read(size) if 0 <= size < length else b""
        is_whole = len(head) == _PART.itemsize and place + len(head) + size <= length
        if not is_whole or zlib.crc32(data, zlib.crc32(head[4:])) != counts["check"]:
            raise LogError(f"{path} is damaged after {place} bytes: what had ended by then is not known any more")
        columns, at = {}, 0
        for name, dtype in _TYPES.items():
            columns[name] = np.ndarray(int(counts[name]), dtype, data, at)
            at += columns[name].nbytes
        place += len(head) + size
        yield RecordPart(columns)


def _spelled(part: RecordPart) -> bytes:
    """Return a part as bytes: a checksum, the length of each column, and these."""
    columns = [np.asarray(part.columns[name], dtype) for name, dtype in _TYPES.items()]
    body = np.array((0, *map(len, columns)), _PART).tobytes()[4:] + b"".join(column.tobytes() for column in columns)
    return zlib.crc32(body).to_bytes(4, "little") + body
