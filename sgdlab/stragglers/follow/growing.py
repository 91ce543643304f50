"""`Growing`, whole lines of a text file that another process writes; `LiveLog`, those of the log of a live run."""

import io
import json
import os
import pathlib
import stat
from collections import Counter
from typing import BinaryIO

import numpy as np

from sgdlab.stragglers.follow.parsing import ParsedRows

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
        """New whole lines; nothing where there are none, or no file."""
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
        status = os.fstat(file.fileno())
        identity = status.st_dev, status.st_ino
        same = self._identity in (None, identity) and status.st_size >= self._offset
        if same and self.begin:
            same = file.read(len(self.begin)) == self.begin
        self._identity = identity
        if not same:
            self.generation += 1
            self._offset, self._rest, self.begin = 0, b"", b""


BEGINS = b'["log"'
"""So the first line begins."""
_CAME = b'["came"'
_PLACES = ("log.jsonl", "states/run/log.jsonl")


def path_in(folder: pathlib.Path) -> pathlib.Path | None:
    """The log of the run in a work directory; None where there is none."""
    return next((folder / place for place in _PLACES if (folder / place).is_file()), None)


class LiveLog:
    r"""Reads the gradients that came, each as long as its worker took for it.

    A row holds the gradients that came at about the same time: the next one of a worker is in the next row, or in the
    one before the newest, if it is farther behind, as it is where nobody waits for it. Such a worker has none in other
    rows.

    Attributes:
      bad: how many lines were left out, by what was wrong with them.

    Example:
      >>> log = LiveLog()
      >>> came = [["came", 1.0, 0, 0, 0.5, None, True, "sum"], ["came", 1.5, 1, 1, 0.75, None, True, "sum"]]
      >>> rows = log.parse("".join(json.dumps(line) + "\n" for line in came).encode())
      >>> rows.names, rows.step, rows.seconds
      (('worker 0', 'worker 1'), array([0, 0]), array([0.5 , 0.75]))
    """

    has_phases, skips, in_order, sorts = False, True, True, True
    has_epochs = counts_on_nodes = False

    def __init__(self) -> None:
        self.bad: Counter[str] = Counter()
        self._steps: dict[int, int] = {}
        self._newest = 0

    def parse(self, data: bytes) -> ParsedRows:
        """The rows of whole lines."""
        names: dict[str, int] = {}
        found: list[tuple[int, int, float]] = []
        for line in io.BytesIO(data):
            if not line.startswith(_CAME):
                continue
            try:
                _, _, worker, _, seconds, *_ = json.loads(line)
                step = max(self._steps.get(worker, -1) + 1, self._newest - 1)
                row = (names.setdefault(f"worker {worker}", len(names)), step, float(seconds))
            except (ValueError, TypeError):
                self.bad["lines that are not of a log"] += 1
                continue
            self._steps[worker], self._newest = step, max(self._newest, step)
            found.append(row)
        worker, step, seconds = zip(*found, strict=True) if found else ((), (), ())
        return ParsedRows(tuple(names), np.array(worker, int), np.array(step, int), np.array(seconds, float))
