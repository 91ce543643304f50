"""`Tail`, a trace that grows: a file of all workers, a directory or a glob of one file for each, or a live run."""

import glob
import os
import pathlib
import stat
import zlib
from collections import Counter
from typing import BinaryIO

import numpy as np

from sgdlab.stragglers.follow.alarms import is_alarm
from sgdlab.stragglers.follow.parsing import LiveLog, Parser
from sgdlab.stragglers.follow.step_collector import WINDOW, StepCollector
from sgdlab.traces import paths, text_tables
from sgdlab.traces.options import Options
from sgdlab.traces.paths import object_of
from sgdlab.traces.problems import BadTrace

ENDINGS = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json", ".log")
_CHUNK, _CHUNK_OF_MANY = 1 << 22, 1 << 16
_MOST_OTHERS = 1000
"""So many lines may stand before the first row."""

_FINGERPRINT = 1024
"""So many of its first bytes tell a file from another."""

_LOGS = ("log.jsonl", "states/run/log.jsonl")
"""Place of the log of a live run in its work directory."""


class Growing:
    """A file that another process writes: what is added to it, line by line; half a line waits for its end.

    A file that was renamed goes on in the file that has its name now, as logs that rotate do: `trace.csv.1`, or
    `log-7.jsonl`. One that became shorter, was replaced, or begins with something else is a new one, which is read from
    its beginning. It need not be there yet.

    Attributes:
      generation: how often the file was a new one, beginning with 0.
      turned: whether it goes on in another file, whose first bytes nobody has looked at.
      begin: its first bytes.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = pathlib.Path(path)
        self.generation, self.turned = 0, False
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
        """New whole lines, of at most so many bytes; nothing where there are none, or no file."""
        try:
            with self._before() or self.path.open("rb") as file:
                self._notice(file)
                file.seek(self._offset)
                data = file.read(most)
        except (FileNotFoundError, PermissionError, IsADirectoryError):
            return b""  # it is being replaced, or not there yet
        self._offset += len(data)
        self.begin += data[: max(_FINGERPRINT - len(self.begin), 0)]
        whole, end, self._rest = (self._rest + data).rpartition(b"\n")
        return whole + end

    def _before(self) -> BinaryIO | None:
        """The file that another has replaced, while it is there, under a name of its own, and not read to its end."""
        now = self.path.stat()
        if self._identity in (None, (now.st_dev, now.st_ino)):
            return None
        for path in self.path.parent.glob(f"{glob.escape(self.path.stem)}*"):
            found = path.stat()
            if (found.st_dev, found.st_ino) == self._identity:
                if found.st_size > self._offset:
                    return path.open("rb")
                self._identity, self._offset, self.begin = None, 0, b""
                self.turned = True
        return None

    def rest(self) -> bytes:
        """The last line, where its end is missing; it is not read again."""
        rest, self._rest = self._rest, b""
        return rest

    def _notice(self, file: BinaryIO) -> None:
        status = os.fstat(file.fileno())
        identity = status.st_dev, status.st_ino
        same = self._identity in (None, identity) and status.st_size >= self._offset
        same = same and file.read(len(self.begin)) == self.begin
        self._identity = identity
        if not same:
            self.generation += 1
            self._offset, self._rest, self.begin = 0, b"", b""


class _File(Growing):
    """A file of a trace, and what is known of it."""

    def __init__(self, path: pathlib.Path, worker: str):
        super().__init__(path)
        self.series = paths.series(path)
        self.parser: Parser | LiveLog | None = None
        self.newest = int(np.iinfo(np.int64).min)
        self.worker = worker
        self.first_row = b""
        self.is_other, self.others = False, 0  # it is no trace; how many lines are none


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
      left_out: names of files in a directory that are no traces, and why.
      why: what happened, where everything began anew.
      offset: what is added to step numbers, those of earlier epochs.
      overdue: bool[M], which of the first M workers of `steps` are not waited for any more; None: all are.

    Raises:
      ValueError: where the file has an ending of a format that does not grow by lines.
    """

    def __init__(self, path: str | os.PathLike[str], options: Options):
        self.path, self._options = str(path), options
        ending = pathlib.Path(self.path).suffix.lower()
        if ending == ".gz" or (self._is_one and ending and ending not in ENDINGS):
            raise ValueError(
                f"{self.path} cannot be followed: a file that grows is CSV or JSON lines ({', '.join(ENDINGS)})"
            )
        self.why, self.bytes_read = "", 0
        self.overdue: np.ndarray | None = None
        self._reset()

    def _reset(self, *, joins: bool = False) -> None:
        self.steps, self.bad, self.left_out, self.offset = StepCollector(), Counter[str](), dict[str, str](), 0
        self._files: dict[pathlib.Path, _File] = {}
        self._one, self._log = self._is_one, False
        self._jobs = 0  # how often the job was started again
        self._joins = joins  # whether workers are named by their nodes too

    @property
    def _is_one(self) -> bool:
        return not (pathlib.Path(self.path).is_dir() or glob.has_magic(self.path))

    @property
    def nodes(self) -> tuple[str, ...]:
        """The machine of each worker, by name or so many in a row a machine; empty if it is not known of all."""
        workers, nodes, per_node = self.steps.workers, self.steps.nodes, self._options.workers_per_node
        if per_node:
            return tuple(f"node {number // per_node}" for number in range(len(workers)))
        return tuple(nodes[name] for name in workers) if nodes.keys() >= set(workers) else ()

    @property
    def run(self) -> str:
        """A checksum of the first row of the first file, which another run's trace does not have."""
        rows = [file.first_row for _, file in sorted(self._files.items()) if file.first_row]
        return f"{zlib.crc32(rows[0], self._jobs):08x}" if rows else ""

    @property
    def unread(self) -> int:
        """Bytes that were written and not read."""
        return sum(file.unread for file in self._files.values()) + self.steps.restarted

    def poll(self, *, end: bool = False) -> tuple[np.ndarray, np.ndarray] | None:
        """Reads more, and gives out the steps that are whole.

        Args:
          end: nothing more comes: lines without an end, and steps that are not whole, are used too.

        Returns:
          Numbers int64[B] and compute times float64[B, N], seconds, of `steps.workers`; None where all begins anew,
          because of what `why` says: the job was started again, or files are read from their beginning again.

        Raises:
          ValueError: where a file has not the columns of a trace, or sgdlab-record has written it in a newer format;
            where rows are in no order of steps.
        """
        if self.steps.restarted and any(file.parser and file.parser.has_epochs for file in self._files.values()):
            self.offset += self.steps.given + 1  # the next epoch
            self.steps = self.steps.anew(same_workers=True)
        elif self.steps.restarted:
            try:
                self.steps, self._jobs = self.steps.anew(), self._jobs + 1
            except BadTrace as error:
                raise ValueError(f"{self.path}: {error}") from None
            self.why = "its step numbers went back: the job that was started again is watched from its first step"
            return None
        if not self._look():
            return self._begin_anew("files of workers have the same numbers, so their whole names tell them apart")
        ahead, begun = self._newest_of_slowest(), set[str]()
        for file in self._files.values():
            if file.series not in begun and (ahead is None or file.newest <= ahead + WINDOW // 2):
                self._read(file, end=end)
            if file.unread:
                begun.add(file.series)  # later files of it come when this one is read
            if file.generation:
                return self._begin_anew("it was replaced or became shorter")
            if file.parser and file.parser.counts_on_nodes:
                return self._begin_anew(
                    "workers of several nodes have the same numbers, so nodes name them too", joins=True
                )
        if end and self.left_out and not any(file.parser for file in self._files.values()):
            raise ValueError(next(iter(self.left_out.values())))
        steps, runtimes = self.steps.take(
            oldest_unread=self._newest_of_slowest(), overdue=self.overdue, end=end and not self.unread
        )
        return steps + self.offset, runtimes

    def _look(self) -> bool:
        """Finds new files, and tells whether those that were there are called as before."""
        path = pathlib.Path(self.path)
        if not any(file.begin or file.turned for file in self._files.values()):
            # It may have become another kind of path.
            self._files, self._one = {}, self._is_one
        logs = [path / place for place in _LOGS if (path / place).is_file()]
        if logs and not self._files:
            self._one = self._log = True
        found = logs[:1] if self._log else [path] if self._one else paths.files(path, ENDINGS)
        for name, worker in paths.workers(found).items():
            if self._files.setdefault(name, _File(name, worker)).worker != worker:
                return False
        return True

    def _newest_of_slowest(self) -> int | None:
        """Of the files with an unread part, the newest step of the farthest behind; None if there is none."""
        if self._one:
            return None
        first: dict[str, _File] = {}  # of each series of files
        for file in self._files.values():
            if file.unread and not file.is_other:
                first.setdefault(file.series, file)
        return min((file.newest for file in first.values()), default=None)

    def _read(self, file: _File, *, end: bool) -> None:
        data = file.read(_CHUNK if self._one else _CHUNK_OF_MANY)
        if data and file.turned:
            file.turned = False
            if file.parser and not file.parser.is_continued(data):
                file.generation += 1  # it has other columns
                return
        if end and not file.unread and (rest := file.rest()).strip():
            data += rest + b"\n"
        self.bytes_read += len(data)
        if file.is_other:
            return
        if file.parser is None:
            data = self._begun(file, data)
        if not data.strip() or file.parser is None:
            return
        file.first_row = file.first_row or data.lstrip().partition(b"\n")[0]
        try:
            rows = file.parser.parse(data)
            self.steps.add(rows)
        except BadTrace as error:
            self._refuse(file, error)
            return
        self.bad += file.parser.bad
        file.parser.bad.clear()
        file.newest = int(rows.step.max()) if rows.step.size else file.newest

    def _begun(self, file: _File, data: bytes) -> bytes:
        """The first rows of a file, whose first line tells what it holds.

        Objects of JSON before the first row, such as a configuration, are left out.
        """
        error: BadTrace | None = None
        while data := data.lstrip(b"\r\n"):
            first, _, below = data.partition(b"\n")
            if first.startswith(b"#"):
                data = below
                continue
            text_tables.check_recorded(first, f"{file.path} ")
            try:
                parser = file.parser = self._parser(first, file)
            except BadTrace as found:
                error, data = error or found, below
                file.others += 1
                if first.startswith(b"{") and first.rstrip().endswith(b"}") and file.others < _MOST_OTHERS:
                    continue
                break
            self.steps.has_phases |= parser.has_phases
            self.steps.in_order, self.steps.sorts = parser.in_order, parser.sorts
            if file.others:
                self.bad["lines of another kind before the first row"] += file.others
            return below if parser.skips else data
        if error is not None and (data or not file.unread):
            self._refuse(file, error)
        return b""

    def _refuse(self, file: _File, error: BadTrace) -> None:
        if self._one:
            raise ValueError(f"{file.path}: {error}")
        # A directory may hold other files too; that none is a trace is known in the end.
        file.is_other, file.parser, self.left_out[file.path.name] = True, None, f"{file.path}: {error}"

    def _parser(self, first: bytes, file: _File) -> Parser | LiveLog:
        if first.startswith(LiveLog.BEGINS):
            return LiveLog()
        if first.startswith(b"{") and is_alarm(object_of(first.decode("utf-8", "replace")) or {}):
            raise BadTrace("it is a file of alarms")
        parser = Parser(first, self._options, None if self._one else file.worker, joins=self._joins)
        if parser.layout.kind == "wide" and len(self._files) > 1:
            raise BadTrace("one file for each worker must have a row for each step, not a column for each worker")
        return parser

    def _begin_anew(self, why: str, *, joins: bool = False) -> None:
        self.why = f"{why}: it is read from its beginning"
        self._reset(joins=joins)
