"""`Tail`, a trace that grows: a file of all workers, a directory or a glob of one file for each, or a live run."""

import glob
import os
import pathlib
import zlib
from collections import Counter
from typing import Any

import numpy as np

from sgdlab.stragglers.follow.alarms import is_alarm
from sgdlab.stragglers.follow.growing import BEGINS, Growing, LiveLog, path_in
from sgdlab.stragglers.follow.parsing import Parser
from sgdlab.stragglers.follow.step_collector import WINDOW, StepCollector, nodes_of
from sgdlab.traces import paths
from sgdlab.traces.options import Options
from sgdlab.traces.paths import object_of
from sgdlab.traces.problems import BadTrace

ENDINGS = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json", ".log")
_CHUNK, _CHUNK_OF_MANY = 1 << 22, 1 << 16
_MOST_OTHERS = 1000
"""So many lines may stand before the first row."""


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
        self._one = not (pathlib.Path(self.path).is_dir() or glob.has_magic(self.path))
        if self._one and ending and ending not in ENDINGS:
            raise ValueError(
                f"{self.path} cannot be followed: a file that grows is CSV or JSON lines ({', '.join(ENDINGS)})"
            )
        self.steps = StepCollector()
        self._log: pathlib.Path | None = None
        self._files: dict[pathlib.Path, _File] = {}
        self.bad: Counter[str] = Counter()
        self.bytes_read = 0
        self.left_out: dict[str, str] = {}
        self.why = ""
        self.overdue: np.ndarray | None = None
        self._jobs = 0  # how often the job was started again
        self._joins = False  # whether workers are named by their nodes too
        self.offset = 0  # steps of earlier epochs

    @property
    def nodes(self) -> tuple[str, ...]:
        """The machine of each worker; empty if that is unknown."""
        return nodes_of(self.steps.workers, self.steps.nodes, self._options.workers_per_node)

    @property
    def run(self) -> str:
        """A checksum of the first row of the first file, which another run's trace does not have."""
        rows = [file.first_row for _, file in sorted(self._files.items()) if file.first_row]
        return f"{zlib.crc32(rows[0], self._jobs):08x}" if rows else ""

    @property
    def unread(self) -> int:
        """Bytes that were written and not read."""
        return sum(file.growing.unread for file in self._files.values()) + self.steps.restarted

    def poll(self, *, end: bool = False) -> tuple[np.ndarray, np.ndarray] | None:
        """Reads more, and gives out the steps that are whole.

        Args:
          end: nothing more comes: lines without an end, and steps that are not whole, are used too.

        Returns:
          Numbers int64[B] and run-times float64[B, N], seconds, of `steps.workers`; None where all begins anew, because
          of what `why` says: the job was started again, or files are read from their beginning again.

        Raises:
          ValueError: where a file has not the columns of a trace.
        """
        if self.steps.restarted and any(file.parser.has_epochs for file in self._files.values() if file.parser):
            self.offset += self.steps.given + 1  # the next epoch
            self.steps = self.steps.anew(same_workers=True)
        elif self.steps.restarted:
            self.steps, self._jobs = self.steps.anew(), self._jobs + 1
            self.why = "its step numbers went back: the job that was started again is watched from its first step"
            return None
        if not self._look():
            return self._begin_anew("files of workers have the same numbers, so their whole names tell them apart")
        ahead = self._newest_of_slowest()
        for file in self._files.values():
            if ahead is None or file.newest is None or file.newest <= ahead + WINDOW // 2:
                self._read(file, end=end)
                if file.growing.generation:
                    return self._begin_anew("it was replaced or became shorter")
                if not self._joins and file.parser and file.parser.counts_on_nodes:
                    self._begin_anew("workers of several nodes have the same numbers, so nodes name them too")
                    self._joins = True
                    return None
        if end and self.left_out and not any(file.parser for file in self._files.values()):
            raise ValueError(next(iter(self.left_out.values())))
        steps, runtimes = self.steps.take(
            oldest_unread=self._newest_of_slowest(), overdue=self.overdue, end=end and not self.unread
        )
        return steps + self.offset, runtimes

    def _look(self) -> bool:
        """New files; whether those that were there are called as before."""
        path = pathlib.Path(self.path)
        if not any(file.growing.begin for file in self._files.values()):  # it may have become another kind of path
            self._files = {}
            self._one = not (path.is_dir() or glob.has_magic(self.path))
        log = path_in(path)
        if log is not None and not self._files:
            self._one, self._log = True, log
        found = [self._log or path] if self._one else paths.files(path, ENDINGS)
        for path, worker in paths.workers(found).items():
            if path not in self._files:
                self._files[path] = _File(path, worker)
            elif self._files[path].worker != worker:
                return False
        return True

    def _newest_of_slowest(self) -> int | None:
        """Of the files with an unread part, the newest step of the farthest behind; None if there is none."""
        if self._one:
            return None
        unread = [file.newest for file in self._files.values() if file.growing.unread and not file.is_other]
        return None if not unread else min((np.iinfo(np.int64).min if one is None else one) for one in unread)

    def _read(self, file: "_File", *, end: bool) -> None:
        data = file.growing.read(_CHUNK if self._one else _CHUNK_OF_MANY)
        if end and not file.growing.unread and (rest := file.growing.rest()).strip():
            data += rest + b"\n"
        self.bytes_read += len(data)
        if file.is_other:
            return
        if file.parser is None:
            data = self._begun(file, data)
        if not data.strip():
            return
        file.first_row = file.first_row or data.lstrip().partition(b"\n")[0]
        parser: Any = file.parser
        rows = parser.parse(data)
        self.bad += parser.bad
        parser.bad.clear()
        if rows.step.size:
            file.newest = int(rows.step.max())
        self.steps.add(rows)

    def _begun(self, file: "_File", data: bytes) -> bytes:
        """The first rows of a file, whose first line tells what it holds.

        Objects of JSON before the first row, such as a configuration, are left out.
        """
        error: BadTrace | None = None
        while data := data.lstrip(b"\r\n"):
            first, _, below = data.partition(b"\n")
            if first.startswith(b"#"):
                data = below
                continue
            try:
                file.parser = self._parser(first, file)
            except BadTrace as found:
                error, data = error or found, below
                file.others += 1
                if first.startswith(b"{") and first.rstrip().endswith(b"}") and file.others < _MOST_OTHERS:
                    continue
                break
            self.steps.has_phases |= file.parser.has_phases
            self.steps.in_order, self.steps.sorts = file.parser.in_order, file.parser.sorts
            if file.others:
                self.bad["lines of another kind before the first row"] += file.others
            return below if file.parser.skips else data
        if error is not None and (data or not file.growing.unread):
            self._leave_out(file, f"{file.growing.path}: {error}")
        return b""

    def _leave_out(self, file: "_File", why: str) -> None:
        """A directory may hold other files too; that none is a trace is known in the end.

        Raises:
          ValueError: where the file is the trace.
        """
        if self._one:
            raise ValueError(why)
        file.is_other = True
        self.left_out[file.growing.path.name] = why

    def _parser(self, first: bytes, file: "_File") -> Parser | LiveLog:
        if first.startswith(BEGINS):
            return LiveLog()
        if first.startswith(b"{") and is_alarm(object_of(first.decode("utf-8", "replace")) or {}):
            raise BadTrace("it is a file of alarms")
        parser = Parser(first, self._options, None if self._one else file.worker, joins=self._joins)
        if parser.layout.kind == "wide" and len(self._files) > 1:
            raise BadTrace("one file for each worker must have a row for each step, not a column for each worker")
        return parser

    def _begin_anew(self, why: str) -> None:
        self.why = f"{why}: it is read from its beginning"
        self.steps, self._files, self._log, self.bad = StepCollector(), {}, None, Counter()
        self.left_out, self._jobs, self._joins, self.offset = {}, 0, False, 0


class _File:
    """One file, and what is known of it."""

    def __init__(self, path: pathlib.Path, worker: str):
        self.growing = Growing(path)
        self.parser: Any = None  # Parser | LiveLog | None
        self.newest: int | None = None
        self.worker = worker
        self.first_row = b""
        self.is_other, self.others = False, 0  # it is no trace; how many lines are none
