"""Lines as rows of workers, steps and seconds: CSV and JSON lines, as `sgdlab.traces` reads them; logs of live runs."""

import dataclasses
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sgdlab.traces import columns, phases, step_tables, text_tables
from sgdlab.traces.cells import Cells, Names
from sgdlab.traces.options import Options
from sgdlab.traces.paths import object_of
from sgdlab.traces.problems import BadTrace

_FIRST = 20
"""Rows of a wide table whose columns are looked at: no step is given out before there are as many."""

_BEGIN = 1 << 16
"""First bytes of a file among which its header is."""


@dataclasses.dataclass(frozen=True, eq=False)
class ParsedRows:
    """Rows of a long table; bad ones are left out.

    Attributes:
      names: of workers, each once; some may have no row.
      worker: int64[R], indices among the names.
      step: int64[R].
      seconds: float64[R], NaN where a compute time is said to be missing.
      nodes: machine of a worker, by the worker's name.
    """

    names: tuple[Any, ...]
    worker: np.ndarray
    step: np.ndarray
    seconds: np.ndarray
    nodes: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Parser:
    """Reads the lines of one file, whose first line tells the format and the columns.

    Args:
      first: the first whole line.
      options: how it is read.
      worker: the name of the worker whose file it is, if no column names it; None for a file of all.
      joins: whether a worker's name is that of its node too.

    Attributes:
      bad: how many rows were left out, by what was wrong with them.
      has_phases: whether several rows make a compute time.
      skips: whether the first line names columns, and is no row.
      sorts: whether workers are to be sorted by name.
      in_order: whether a worker's steps are surely in order.
      has_epochs: whether the numbers of steps may begin anew in each epoch.
      counts_on_nodes: whether workers of different nodes were found to have one name, unless nodes are joined.

    Raises:
      BadTrace: where the first line has not the columns of a trace.
    """

    in_order = False

    def __init__(self, first: bytes, options: Options, worker: str | None = None, *, joins: bool = False):
        self.bad: Counter[str] = Counter()
        self._worker, self._joins, self.counts_on_nodes = worker, joins, False
        self._row = 0
        self._first: dict[str, np.ndarray] = {}
        self._parts_seen = False
        text = first.decode("utf-8-sig", "replace").strip()
        self._dialect: text_tables.Dialect | None = None
        if text.startswith("{"):
            found = object_of(text)
            if found is None:
                raise BadTrace("the first line must be an object of JSON")
            self.layout = columns.layout(tuple(found), options, of_worker=worker is not None)
            if not all(isinstance(found[name], int | float | None) for name in self.layout.workers):
                raise BadTrace("columns of workers must hold numbers")
        else:
            self._dialect = text_tables.dialect_of([text + "\n"])
            self.layout = self._dialect.layout(options, of_worker=worker is not None)
        if self.layout.kind == "operations":
            raise BadTrace("a table of operations is read when it is whole, without --follow")
        self.has_epochs = "epoch" in self.layout.columns
        self.layout = self.layout.without("start").without("epoch").without("job")
        self.skips = self._dialect is not None and self._dialect.named
        self.sorts = self.layout.kind == "long"  # columns of a wide table are in order
        self._necessary = [self.layout.columns[part] for part in ("step", "duration")] if self.sorts else []
        self.has_phases = "phase" in self.layout.columns

    def is_continued(self, data: bytes) -> bool:
        """Return whether the lines of another file are rows of this one: its header is the same, or it has none."""
        if self._dialect is None:
            return True
        try:
            found = text_tables.dialect_of(data[:_BEGIN].decode("utf-8-sig", "replace").splitlines())
        except BadTrace:  # text and numbers: a row
            return True
        return not found.named or found.header == self._dialect.header

    def parse(self, data: bytes) -> ParsedRows:
        """Return the rows of whole lines.

        Raises:
          BadTrace: where columns that seemed to be workers only count.
        """
        cells = self._cells(data.decode("utf-8", "replace").encode())
        repeats = "lines of another kind" if self._dialect is None else "lines that repeat the header"
        self.bad[repeats] += cells.left_out.total()  # as a program that was started again does
        rows = self._wide(cells) if self.layout.kind == "wide" else self._long(cells)
        self.bad += cells.rows.kinds
        return rows

    def _cells(self, data: bytes) -> Cells:
        if self._dialect is None:
            piece = text_tables.Piece(data)
            return text_tables.json_cells(piece, self.layout, text_tables.json_rows(piece), self._necessary)
        piece = text_tables.Piece(data, self._dialect.first)
        try:
            return text_tables.csv_cells(piece, self._dialect, self.layout)
        except BadTrace:  # as after a quote that does not end
            self.bad["lines that cannot be read"] += piece.lines
            return text_tables.csv_cells(dataclasses.replace(piece, data=b""), self._dialect, self.layout)

    def _long(self, cells: Cells) -> ParsedRows:
        columns = self.layout.columns
        step = cells.wholes(columns["step"])
        seconds = step_tables.own_times(cells) / self.layout.per_second
        worker = Names((self._worker or "",), np.zeros(step.size, np.int64))
        if "worker" in columns:
            worker = cells.named(columns["worker"])
        kept = ~cells.rows.bad
        if self.has_phases:
            names = cells.names[columns["phase"]]
            kept &= self._own(names.values)[names.codes] & (names.codes >= 0)
        nodes = {}
        if "node" in columns:
            node = cells.names[columns["node"]]
            if self._joins:
                worker = step_tables.named_by_node(worker, node)
            else:
                self.counts_on_nodes |= step_tables.several(
                    worker.codes[kept], step[kept], node.codes[kept], most=step_tables.RESTARTS
                )
            size, told = np.int64(len(node.values) + 1), kept & (node.codes >= 0)
            pairs = np.unique(worker.codes[told] * size + node.codes[told])
            nodes = {worker.values[pair // size]: node.values[pair % size] for pair in pairs.tolist()}
        return ParsedRows(
            worker.values,
            worker.codes[kept].astype(np.int64),
            step[kept].astype(np.int64),
            seconds[kept],
            nodes,
        )

    def _own(self, names: Sequence[str]) -> np.ndarray:
        """Phases of a worker's own work, which are neither communication nor a sum of others."""
        own = np.array([not phases.is_communication(name) for name in names], bool)
        total = np.array([phases.is_total(name) for name in names], bool)
        self._parts_seen |= bool((own & ~total).any())
        return np.append(own & ~(total & self._parts_seen), False)

    def _wide(self, cells: Cells) -> ParsedRows:
        names = self.layout.workers
        if self._row < _FIRST:
            before = self._first or dict.fromkeys(names, np.empty(0))
            self._first = {name: np.append(before[name], cells.numbers[name]) for name in names}
            columns.check_workers(self.layout, self._first)
        step = np.arange(self._row, self._row + len(cells.rows))
        if "step" in self.layout.columns:
            step = cells.wholes(self.layout.columns["step"])
        self._row += len(cells.rows)
        kept = ~cells.rows.bad
        seconds = np.stack([cells.numbers[name][kept] for name in names], axis=1) / self.layout.per_second
        impossible = (seconds <= 0) | np.isinf(seconds)
        if impossible.any():  # of one worker: those of others in the row count
            self.bad["compute times that are not positive and finite"] += int(impossible.sum())
            seconds[impossible] = np.nan
        worker = np.tile(np.arange(len(names)), len(seconds))
        return ParsedRows(names, worker, np.repeat(step[kept].astype(np.int64), len(names)), seconds.ravel())


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

    BEGINS = b'["log"'
    has_phases, skips, in_order, sorts, has_epochs, counts_on_nodes = False, True, True, True, False, False

    def __init__(self) -> None:
        self.bad: Counter[str] = Counter()
        self._steps: dict[int, int] = {}
        self._newest = 0

    def is_continued(self, data: bytes) -> bool:
        """Return True: of a log that rotates, each file is the next part of it."""
        del data
        return True

    def parse(self, data: bytes) -> ParsedRows:
        """The rows of whole lines."""
        names: dict[str, int] = {}
        found: list[tuple[int, int, float]] = []
        for line in io.BytesIO(data):
            if not line.startswith(b'["came"'):
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
