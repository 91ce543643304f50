"""`KeptMessages`, the gradients of a run whose workers keep a state: nobody can compute them again."""

import errno
import os
import pathlib
import zlib
from typing import IO, Any

import numpy as np

from sgdlab.live.shared_arrays import MemoryLayout, own

Tree = Any
_HEAD = np.dtype([("ticket", "<i8"), ("check", "<u4")])
_NAME = "messages-"


class KeptMessages:
    """Messages in files beside a log, from the older of its two checkpoints on.

    A server that was started again computes a gradient anew that came after its newest checkpoint, from the version and
    the batch. Where workers keep something between two messages, that is gone with them, and the messages themselves
    are written down instead. Each checkpoint begins a file, so that files from before the older one can be removed.

    Args:
      folder: that of the log.
      like: {"params": ..., "aux": ...}, arrays like a gradient and what came with it.

    Attributes:
      size: bytes of the messages since the newest checkpoint that this process has begun.

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
        self._memory: Any = np.zeros(self._layout.size, np.uint8)
        self._views = self._layout.views(self._memory)
        self._length, self.size = _HEAD.itemsize + self._layout.size, 0
        folder.mkdir(parents=True, exist_ok=True)
        self._places: dict[int, tuple[pathlib.Path, int]] = {}
        # By age, not by number: a log that was cut off counts its updates anew.
        paths = sorted(paths_in(folder), key=lambda path: path.stat().st_mtime_ns)
        for path in paths:
            self._find(path)
        self._file = self._opened(paths[-1] if paths else _path_of(folder, 0))

    def __enter__(self) -> "KeptMessages":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def write(self, ticket: int, grads: Tree, aux: Tree) -> None:
        """Adds a message; it is with the operating system then.

        Raises:
          OSError: if it cannot be written.
          ValueError: if an array has another shape or dtype than it should.
        """
        self._layout.write(self._views, {"params": grads, "aux": aux})
        head = np.array((ticket, zlib.crc32(self._memory)), _HEAD)
        for part in (head.tobytes(), self._memory):
            left = memoryview(part)
            while left:  # Linux takes at most 2 GiB at once
                written = self._file.write(left)
                if not written:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                left = left[written:]
        self.size += self._length

    def read(self, ticket: int) -> tuple[Tree, Tree]:
        """The gradient and aux of a ticket that came before the server was started again.

        Raises:
          ValueError: if it is not there, or cannot be read, or is damaged.
        """
        if ticket not in self._places:
            raise ValueError(f"ticket={ticket} must be of a message that was kept in {self._folder}")
        path, place = self._places[ticket]
        try:
            with path.open("rb") as file:
                file.seek(place)
                begin, memory = file.read(_HEAD.itemsize), file.read(self._layout.size)
        except OSError as error:
            raise ValueError(f"ticket={ticket} cannot be read in {path}: {error.strerror}") from error
        head = np.frombuffer(begin.ljust(_HEAD.itemsize, b"\0"), _HEAD)[0]
        if len(begin) < _HEAD.itemsize or head["ticket"] != ticket or head["check"] != zlib.crc32(memory):
            raise ValueError(f"ticket={ticket} is damaged in {path}")
        tree = self._layout.tree(own(np.frombuffer(memory, np.uint8)))
        return tree["params"], tree["aux"]

    def checkpoint(self, update: int) -> None:
        """A checkpoint of this update is being made: what comes now is not in it, and belongs to another file."""
        before, self._file = self._file, self._opened(_path_of(self._folder, update))
        before.close()
        self.size = 0

    def forget(self, update: int) -> None:
        """Removes the files from before the oldest checkpoint that is left, that of this update."""
        for path in paths_in(self._folder):
            if _number_of(path) < update:
                path.unlink(missing_ok=True)

    def descriptor(self) -> int:
        """A new descriptor of the file that is being written, for the caller to close."""
        return os.dup(self._file.fileno())

    def close(self) -> None:
        """Ends it."""
        self._file.close()

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


def _path_of(folder: pathlib.Path, update: int) -> pathlib.Path:
    return folder / f"{_NAME}{update}.bin"


def paths_in(folder: pathlib.Path) -> list[pathlib.Path]:
    """The files of messages in a folder."""
    return [path for path in folder.glob(f"{_NAME}*.bin") if path.stem.removeprefix(_NAME).isdigit()]


def _number_of(path: pathlib.Path) -> int:
    return int(path.stem.removeprefix(_NAME))
