"""`RecordFile`, what has ended in a live run, on the disk: each checkpoint adds a part, and no part changes again."""

import os
import pathlib
import zlib
from typing import IO

import numpy as np

from sgdlab.live.lines import LogError
from sgdlab.protocols.recorder import RecordPart

NAME = "record.bin"
_HEAD = np.dtype([("check", "<u4"), *((name, "<i8") for name in RecordPart.TYPES)])
_TYPES = {name: np.dtype(typecode).newbyteorder("<") for name, typecode in RecordPart.TYPES.items()}


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
      >>> [part.columns["worker"] for part in read_from(folder, length)]
      [array([1], dtype=int32)]
    """

    def __init__(self, folder: pathlib.Path, length: int = 0):
        self._path = folder / NAME
        self._file = self._path.open("r+b" if self._path.exists() else "w+b", buffering=0)
        self._file.truncate(length)
        self._length = length
        self._waiting: list[RecordPart] = []  # those that could not be written yet

    def add(self, *parts: RecordPart) -> int:
        """Bring parts to the disk, and return how long the file is then; an OSError leaves them for the next time."""
        self._waiting += parts
        data = b"".join(_spelled(part) for part in self._waiting)
        left = memoryview(data)
        self._file.seek(self._length)
        while left:
            left = left[self._file.write(left) :]
        os.fsync(self._file.fileno())
        self._length += len(data)
        self._waiting.clear()
        return self._length

    def parts(self) -> list[RecordPart]:
        """Return all parts; the file may have been deleted, since it is open."""
        self._file.seek(0)
        return [*read(self._file, self._length, self._path), *self._waiting]

    def again(self, folder: pathlib.Path) -> "RecordFile":
        """Return another file of the same parts, in the place of this one, which was deleted."""
        copy = RecordFile(folder)
        copy.add(*self.parts())
        self.close()
        return copy

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_from(folder: pathlib.Path, length: int) -> list[RecordPart]:
    """Return the parts in the first bytes of the record in a folder, of a run that may go on; errors as of `read`."""
    path = folder / NAME
    with path.open("rb") as file:
        return read(file, length, path)


def read(file: IO[bytes], length: int, path: pathlib.Path) -> list[RecordPart]:
    """Return the parts in a file's next bytes.

    Raises:
      LogError: if one is damaged or missing.
    """
    parts, place = [], 0
    while place < length:
        head = file.read(_HEAD.itemsize)
        counts = np.frombuffer(head.ljust(_HEAD.itemsize, b"\0"), _HEAD)[0]
        size = sum(int(counts[name]) * dtype.itemsize for name, dtype in _TYPES.items())
        data = file.read(size) if 0 <= size < length else b""
        if zlib.crc32(data, zlib.crc32(head[4:])) != counts["check"] or place + len(head) + size > length:
            raise LogError(f"{path} is damaged after {place} bytes: what had ended by then is not known any more")
        columns, at = {}, 0
        for name, dtype in _TYPES.items():
            columns[name] = np.ndarray(int(counts[name]), dtype, data, at)
            at += columns[name].nbytes
        parts.append(RecordPart(columns))
        place += len(head) + size
    return parts


def _spelled(part: RecordPart) -> bytes:
    """Return a part as bytes: a checksum, the length of each column, and these."""
    columns = [np.asarray(part.columns[name], dtype) for name, dtype in _TYPES.items()]
    body = np.array((0, *map(len, columns)), _HEAD).tobytes()[4:] + b"".join(column.tobytes() for column in columns)
    return zlib.crc32(body).to_bytes(4, "little") + body
