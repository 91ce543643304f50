"""`Tail`, a trace that grows: a file of all workers, a directory or a glob of one file for each, or a live run."""

import glob
import os
import pathlib
import zlib
from collections import Counter

import numpy as np

from sgdlab.traces import paths
from sgdlab.traces.options import Options
from sgdlab.traces.problems import BadTrace
from sgdlab.watch.growing import Growing
from sgdlab.watch.live_log import BEGINS, LiveLog, path_in
from sgdlab.watch.parsing import Parser
from sgdlab.watch.steps import WINDOW, Steps, nodes_of

ENDINGS = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json", ".log")
_CHUNK, _CHUNK_OF_MANY = 1 << 22, 1 << 16


class Tail:
    """Reads what is added to a trace, and gives out whole steps.

    Args:
      path: of a file, which need not be there yet, of a directory, a pattern such as `logs/rank*.jsonl`, or the work
        directory of a run of `sgdlab live`.
      options: how it is read, as by `sgdlab.traces.read`.

    Attributes:
      steps: the steps that are not given out yet, and the workers.
      bad: how many rows were left out, by what was wrong with them.
      bytes_read: of all files.

    Raises:
      ValueError: where the file has an ending of a format that does not grow by lines.
    """

    def __init__(self, path: str | os.PathLike[str], options: Options):
        self.path, self._options = str(path), options
        ending = pathlib.Path(self.path).suffix.lower()
        self._one = not (pathlib.Path(self.path).is_dir() or glob.has_magic(self.path))
        if self._one and ending and ending not in ENDINGS:
            raise ValueError(
                f"{self.path} cannot be followed: a file that grows is CSV or JSON lines ({', '.join(ENDINGS)})"
            )
        self.steps = Steps()
        self._log: pathlib.Path | None = None
        self._files: dict[pathlib.Path, _File] = {}
        self.bad: Counter[str] = Counter()
        self.bytes_read = 0

    @property
    def nodes(self) -> tuple[str, ...]:
        """The machine of each worker; empty if that is unknown."""
        return nodes_of(self.steps.workers, self.steps.nodes, self._options.workers_per_node)

    @property
    def run(self) -> str:
        """A checksum of the beginning of the first file, which another run's trace does not have."""
        begins = [file.growing.begin for file in self._files.values() if file.growing.begin]
        return f"{zlib.crc32(begins[0]):08x}" if begins else ""

    @property
    def unread(self) -> int:
        """Bytes that were written and not read."""
        return sum(file.growing.unread for file in self._files.values())

    def poll(self, *, end: bool = False) -> tuple[np.ndarray, np.ndarray] | None:
        """Reads more, and gives out the steps that are whole.

        Args:
          end: nothing more comes: lines without an end, and steps that are not whole, are used too.

        Returns:
          Numbers int64[B] and run-times float64[B, N], seconds, of `steps.workers`; None where a file was replaced or
          became shorter: everything is read from the beginning again.

        Raises:
          ValueError: where a file has not the columns of a trace.
        """
        self._look()
        ahead = self._newest_of_slowest()
        for file in self._files.values():
            if ahead is None or file.newest is None or file.newest <= ahead + WINDOW // 2:
                self._read(file, end=end)
                if file.growing.generation:
                    self._begin_anew()
                    return None
        return self.steps.take(oldest_unread=self._newest_of_slowest(), end=end and not self.unread)

    def _look(self) -> None:
        """New files."""
        path = pathlib.Path(self.path)
        if not any(file.growing.begin for file in self._files.values()):  # it may have become another kind of path
            self._files = {}
            self._one = not (path.is_dir() or glob.has_magic(self.path))
        log = path_in(path)
        if log is not None and not self._files:
            self._one, self._log = True, log
        found = [self._log or path] if self._one else paths.files(path, ENDINGS)
        for path in found:
            if path not in self._files:
                self._files[path] = _File(path)

    def _newest_of_slowest(self) -> int | None:
        """Of the files with an unread part, the newest step of the farthest behind; None if there is none."""
        if self._one:
            return None
        unread = [file.newest for file in self._files.values() if file.growing.unread]
        return None if not unread else min((np.iinfo(np.int64).min if one is None else one) for one in unread)

    def _read(self, file: "_File", *, end: bool) -> None:
        data = file.growing.read(_CHUNK if self._one else _CHUNK_OF_MANY)
        if end and not file.growing.unread and (rest := file.growing.rest()).strip():
            data += rest + b"\n"
        self.bytes_read += len(data)
        if file.parser is None:
            data = data.lstrip(b"\r\n")
            first, newline, below = data.partition(b"\n")
            if not newline:
                return
            try:
                file.parser = self._parser(first, file)
            except BadTrace as error:
                raise ValueError(f"{file.growing.path}: {error}") from None
            self.steps.has_phases |= file.parser.has_phases
            self.steps.in_order, self.steps.sorts = file.parser.in_order, file.parser.sorts
            data = below if file.parser.skips else data
        if not data.strip():
            return
        rows = file.parser.parse(data)
        self.bad += file.parser.bad
        file.parser.bad.clear()
        if rows.step.size:
            file.newest = int(rows.step.max())
        self.steps.add(rows)

    def _parser(self, first: bytes, file: "_File") -> Parser | LiveLog:
        if first.startswith(BEGINS):
            return LiveLog()
        return Parser(first, self._options, None if self._one else file.worker)

    def _begin_anew(self) -> None:
        self.steps, self._files, self._log, self.bad = Steps(), {}, None, Counter()


class _File:
    """One file, and what is known of it."""

    def __init__(self, path: pathlib.Path):
        self.growing = Growing(path)
        self.parser: Parser | LiveLog | None = None
        self.newest: int | None = None
        self.worker = paths.worker_of(path)
