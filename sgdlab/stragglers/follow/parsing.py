"""Lines of a trace as columns: CSV, separated by commas, semicolons or tabs, and JSON lines."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sgdlab.traces import apart, columns, dialects, phases, text_tables
from sgdlab.traces.cells import Cells
from sgdlab.traces.options import Options
from sgdlab.traces.problems import BadTrace
from sgdlab.traces.text_tables import object_of

_CALLED = {"text cells": "cells that are no numbers", "lines that are no objects": "lines that are no object of JSON"}
"""What is wrong with rows, as it is called here where readers of whole files call it otherwise."""

_RESTARTS = 0.1
"""In so large a share of steps a worker may have several nodes, because it was started again on another one."""


@dataclasses.dataclass(frozen=True, eq=False)
class ParsedRows:
    """Rows of a long table; bad ones are left out.

    Attributes:
      names: of workers, each once.
      worker: int64[R], indices among the names.
      step: int64[R].
      seconds: float64[R], NaN where a run-time is said to be missing.
      nodes: machine of a worker, by the worker's name.
    """

    names: tuple[Any, ...]
    worker: np.ndarray
    step: np.ndarray
    seconds: np.ndarray
    nodes: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def of_used(self) -> "ParsedRows":
        """Return the same, without names that no row has."""
        used = np.bincount(self.worker, minlength=len(self.names)) > 0
        if used.all():
            return self
        names = tuple(name for name, is_used in zip(self.names, used.tolist(), strict=True) if is_used)
        return dataclasses.replace(self, names=names, worker=(np.cumsum(used) - 1)[self.worker])


class Parser:
    """Reads the lines of one file, whose first line tells the format and the columns, as `sgdlab.traces` reads them.

    Args:
      first: the first whole line.
      options: how it is read.
      worker: the name of the worker whose file it is, if no column names it; None for a file of all.
      joins: whether a worker's name is that of its node too.

    Attributes:
      bad: how many rows were left out, by what was wrong with them.
      has_phases: whether several rows make a run-time.
      skips: whether the first line names columns, and is no row.
      sorts: whether workers are to be sorted by name.
      in_order: whether a worker's steps are surely in order.
      has_epochs: whether the numbers of steps may begin anew in each epoch.
      counts_on_nodes: whether workers of different nodes were found to have one name, unless nodes are joined.

    Raises:
      BadTrace: where the first line has not the columns of a trace.
    """

    def __init__(self, first: bytes, options: Options, worker: str | None = None, *, joins: bool = False):
        self.bad: Counter[str] = Counter()
        self.worker = worker
        self._row = 0
        text = first.decode("utf-8-sig", "replace").strip()
        if text.startswith("{"):
            dialect, found = None, object_of(text)
            if found is None:
                raise BadTrace("the first line must be an object of JSON")
            self.layout = columns.layout(tuple(found), options, of_worker=worker is not None)
            if not all(isinstance(found[name], int | float | None) for name in self.layout.workers):
                raise BadTrace("columns of workers must hold numbers")
        else:
            dialect = dialects.dialect_of([text + "\n"])
            self.layout = dialects.layout_of(dialect, options, of_worker=worker is not None)
        self.in_order = False
        self.skips = dialect is not None and dialect.named
        if self.layout.kind == "operations":
            raise BadTrace("a table of operations is read when it is whole, without --follow")
        self.sorts = self.layout.kind == "long"  # columns of a wide table are in order
        self.has_phases = "phase" in self.layout.columns
        self._parts_seen = False
        self._columns = dict(self.layout.columns)
        self._dialect, self._width = dialect, 0 if dialect is None else len(dialect.header) + dialect.trailing
        self._needed = self.layout.without("start").without("epoch")
        self.has_epochs = "epoch" in self._columns
        self.joins, self.counts_on_nodes = joins, False

    def parse(self, data: bytes) -> ParsedRows:
        """Return the rows of whole lines."""
        data = data.decode("utf-8", "replace").encode()
        cells = self._cells(text_tables.Piece(data, 1 if self._dialect is None else self._dialect.first))
        self.bad["lines that repeat the header"] += cells.left_out  # as a program that was started again does
        for found, count in cells.lengths.items():
            self.bad[f"rows with {found} columns, not {self._width}"] += count
        self.bad += Counter({_CALLED[kind]: count for kind, count in cells.rows.kinds.items() if kind in _CALLED})
        good = ~cells.rows.bad
        table: dict[str, Any] = {name: values[good] for name, values in cells.numbers.items()}
        table |= {name: (names.values, names.codes[good].astype(np.int64)) for name, names in cells.names.items()}
        return self._wide(table) if self.layout.kind == "wide" else self._long(table)

    def _cells(self, piece: text_tables.Piece) -> Cells:
        if self._dialect is None:
            return text_tables.json_cells(piece, "", self._needed, text_tables.json_rows(piece))
        try:
            return text_tables.csv_cells(piece, "", self._dialect, self._needed)
        except BadTrace:  # as after a quote that does not end
            self.bad["lines that cannot be read"] += piece.lines
            return text_tables.csv_cells(text_tables.Piece(b"", piece.line), "", self._dialect, self._needed)

    def _long(self, table: Mapping[str, Any]) -> ParsedRows:
        own = self.layout.own(table)
        size = len(own)
        step, is_step = _wholes(table[self._columns["step"]])
        seconds = own / self.layout.per_second
        names, worker = (
            table[self._columns["worker"]] if "worker" in self._columns else ((self.worker,), np.zeros(size, np.int64))
        )
        impossible = (seconds < 0) | np.isinf(seconds) | ((seconds == 0) & (not self.has_phases))
        self._count("steps that are no whole number", ~is_step)
        self._count("run-times that are not positive and finite", impossible & is_step)
        self._count("rows without a worker", (worker < 0) & is_step & ~impossible)
        kept = is_step & ~impossible & (worker >= 0)
        if self.has_phases:
            kept &= self._own(*table[self._columns["phase"]])
        nodes = {}
        if "node" in self._columns and size:
            machines, machine = table[self._columns["node"]]
            pairs = np.unique(
                worker[kept & (machine >= 0)] * np.int64(len(machines) + 1) + machine[kept & (machine >= 0)]
            )
            split = [divmod(pair, len(machines) + 1) for pair in pairs.tolist()]
            whose = [(names[name], machines[node]) for name, node in split]
            if self.joins:
                names = [apart.joined(node, name) for name, node in whose]
                code = worker * np.int64(len(machines) + 1) + machine
                worker = np.minimum(np.searchsorted(pairs, code), max(len(names) - 1, 0))
                kept &= machine >= 0
                nodes = {apart.joined(node, name): node for name, node in whose}
            else:
                nodes = dict(whose)
                self.counts_on_nodes |= apart.several(worker[kept], step[kept], machine[kept], most=_RESTARTS)
        if kept.all():
            return ParsedRows(tuple(names), worker, step, seconds, nodes).of_used()
        return ParsedRows(tuple(names), worker[kept], step[kept], seconds[kept], nodes).of_used()

    def _own(self, names: Sequence[str], phase: np.ndarray) -> np.ndarray:
        """Rows of a worker's own work, which are neither communication nor a sum of others."""
        own = np.array([not phases.is_communication(name) for name in names], bool)
        total = np.array([phases.is_total(name) for name in names], bool)
        self._parts_seen |= bool((own & ~total).any())
        used = own & ~(total & self._parts_seen)
        return used[phase] & (phase >= 0)

    def _wide(self, table: Mapping[str, Any]) -> ParsedRows:
        names = self.layout.workers
        seconds = np.stack([table[name] for name in names], axis=1) / self.layout.per_second
        if "step" in self._columns:
            step, is_step = _wholes(table[self._columns["step"]])
        else:
            step, is_step = np.arange(self._row, self._row + len(seconds)), np.ones(len(seconds), bool)
        self._row += len(seconds)
        impossible = (seconds <= 0) | np.isinf(seconds)
        self._count("steps that are no whole number", ~is_step)
        self._count("run-times that are not positive and finite", impossible)
        seconds = np.where(impossible, np.nan, seconds)[is_step]
        worker = np.tile(np.arange(len(names)), len(seconds))
        return ParsedRows(tuple(names), worker, np.repeat(step[is_step], len(names)), seconds.ravel())

    def _count(self, kind: str, rows: np.ndarray) -> None:
        if number := int(rows.sum()):
            self.bad[kind] += number


def _wholes(step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int64[R], and bool[R], where there is a whole number."""
    with np.errstate(invalid="ignore"):
        is_whole = (np.floor(step) == step) & (np.abs(step) < 2**62)
    return np.where(is_whole, step, 0).astype(np.int64), is_whole
