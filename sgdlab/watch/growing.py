"""`Growing`, a text file that another process writes: its whole lines, as they come."""

import os
import pathlib
import stat
from typing import BinaryIO

_FINGERPRINT = 1024


class Growing:
    """Reads what is added to a file, line by line; half a line waits for its end.

    A file that became shorter, was replaced, or begins with something else is a new one, which is read from its
    beginning.

    Args:
      path: of the file, which need not be there yet.

    Attributes:
      generation: how often the file was a new one, beginning with 0.
      begin: its first bytes.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = pathlib.Path(path)
        self.generation = 0
        self._offset, self._rest = 0, b""
        self._identity: tuple[int, int] | None = None
        self.begin = b""

    @property
    def unread(self) -> int:
        """Bytes that were written and not read."""
        try:
            status = self.path.stat()
        except OSError:
            return 0
        return max(status.st_size - self._offset, 0) if stat.S_ISREG(status.st_mode) else 0

    def read(self, most: int = 1 << 22) -> bytes:
        """New whole lines; nothing where there are none, or no file.

        Args:
          most: bytes to read, at most.
        """
        try:
            with self.path.open("rb") as file:
                self._notice(file)
                file.seek(self._offset)
                data = file.read(most)
        except (FileNotFoundError, PermissionError, IsADirectoryError):
            return b""  # it is being replaced, or not there yet
        self._offset += len(data)
        if len(self.begin) < _FINGERPRINT:
            self.begin += data[: _FINGERPRINT - len(self.begin)]
        data = self._rest + data
        whole = data.rfind(b"\n") + 1
        self._rest = data[whole:]
        return data[:whole]

    def rest(self) -> bytes:
        """The last line, where its end is missing; it is not read again."""
        rest, self._rest = self._rest, b""
        return rest

    def _notice(self, file: BinaryIO) -> None:
        """Whether this is another file than before."""
        status = os.fstat(file.fileno())
        identity = status.st_dev, status.st_ino
        same = self._identity in (None, identity) and status.st_size >= self._offset
        if same and self.begin:
            same = file.read(len(self.begin)) == self.begin
        self._identity = identity
        if not same:
            self.generation += 1
            self._offset, self._rest, self.begin = 0, b"", b""
