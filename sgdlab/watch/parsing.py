"""Lines of a trace as columns: CSV, separated by commas, semicolons or tabs, and JSON lines."""

import dataclasses
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sgdlab.traces import columns, delimited, phases
from sgdlab.traces.cells import Names
from sgdlab.traces.options import Options
from sgdlab.traces.problems import BadTrace

_MISSING = ("", "NA", "NaN", "nan", "null", "None", "N/A", "n/a")


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a long table; bad ones are left out.

    Attributes:
      names: of workers, each once.
      worker: int64[R], indices among the names.
      step: int64[R].
      seconds: float64[R], NaN where a run-time is said to be missing.
      nodes: machine of a worker, by the worker's name.
    """

    names: tuple[str, ...]
    worker: np.ndarray
    step: np.ndarray
    seconds: np.ndarray
    nodes: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Parser:
    """Reads the lines of one file, whose first line tells the format and the columns, as `sgdlab.traces` reads them.

    Args:
      first: the first whole line.
      options: how it is read.
      worker: the name of the worker whose file it is, if no column names it; None for a file of all.

    Attributes:
      bad: how many rows were left out, by what was wrong with them.
      has_phases: whether several rows make a run-time.
      skips: whether the first line names columns, and is no row.
      sorts: whether workers are to be sorted by name.
      in_order: whether a worker's steps are surely in order.

    Raises:
      BadTrace: where the first line has not the columns of a trace.
    """

    def __init__(self, first: bytes, options: Options, worker: str | None = None):
        self.bad: Counter[str] = Counter()
        self.worker = worker
        self._row = 0
        text = first.decode("utf-8-sig", "replace").strip()
        self.is_json = text.startswith("{")
        if self.is_json:
            self._first = _object(text)
            if self._first is None:
                raise BadTrace("the first line must be an object of JSON")
            header = tuple(self._first)
        else:
            self.dialect = delimited.dialect_of([text + "\n"])
            header = self.dialect.header
        self.in_order = False
        self.skips = not self.is_json and self.dialect.named
        self.layout = columns.layout(header, options, of_worker=worker is not None)
        if self.layout.kind == "operations":
            raise BadTrace("a table of operations is read when it is whole, without --follow")
        self.sorts = self.layout.kind == "long"  # columns of a wide table are in order
        self.has_phases = "phase" in self.layout.columns
        self._parts_seen = False
        self._columns = dict(self.layout.columns)
        self._numbers = [self._columns[part] for part in ("step", "duration") if part in self._columns]
        self._numbers += self.layout.workers if self.layout.kind == "wide" else ()
        self._texts = [self._columns[part] for part in ("worker", "phase", "node") if part in self._columns]

    def parse(self, data: bytes) -> Rows:
        """The rows of whole lines."""
        table = (self._json if self.is_json else self._csv)(data)
        return self._wide(table) if self.layout.kind == "wide" else self._long(table)

    def _long(self, table: Mapping[str, Any]) -> Rows:
        size = len(table[self._columns["duration"]])
        step, is_step = _wholes(table[self._columns["step"]])
        seconds = table[self._columns["duration"]] / self.layout.per_second
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
            nodes = {
                names[pair // (len(machines) + 1)]: machines[pair % (len(machines) + 1)] for pair in pairs.tolist()
            }
        if kept.all():
            return Rows(tuple(names), worker, step, seconds, nodes)
        return Rows(tuple(names), worker[kept], step[kept], seconds[kept], nodes)

    def _own(self, names: Sequence[str], phase: np.ndarray) -> np.ndarray:
        """Rows of a worker's own work, which are neither communication nor a sum of others."""
        own = np.array([not phases.is_communication(name) for name in names], bool)
        total = np.array([phases.is_total(name) for name in names], bool)
        self._parts_seen |= bool((own & ~total).any())
        used = own & ~(total & self._parts_seen)
        return used[phase] & (phase >= 0)

    def _wide(self, table: Mapping[str, Any]) -> Rows:
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
        return Rows(tuple(names), worker, np.repeat(step[is_step], len(names)), seconds.ravel())

    def _count(self, kind: str, rows: np.ndarray) -> None:
        if number := int(rows.sum()):
            self.bad[kind] += number

    def _csv(self, data: bytes) -> dict[str, Any]:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.csv  # noqa: PLC0415

        def skip(row: Any) -> str:
            self.bad[f"rows with {row.actual_columns} columns, not {row.expected_columns}"] += 1
            return "skip"

        header = [*self.dialect.header, *[""] * self.dialect.trailing]
        names, comma = [*self._numbers, *self._texts], self.dialect.comma

        def read(numbers: Any, data: bytes) -> Any:
            return pyarrow.csv.read_csv(
                pa.BufferReader(data),
                pyarrow.csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=header),
                pyarrow.csv.ParseOptions(delimiter=self.dialect.separator, invalid_row_handler=skip),
                pyarrow.csv.ConvertOptions(
                    include_columns=names,
                    column_types=dict.fromkeys(self._numbers, numbers) | dict.fromkeys(self._texts, pa.string()),
                    null_values=_MISSING,
                    decimal_point="," if comma else ".",
                ),
            )

        if not data.strip():
            return self._columns_of(None)
        before = self.bad.copy()
        try:
            table = read(pa.float64(), data)
        except pa.ArrowInvalid:  # a cell is text, or not in this encoding
            self.bad = before
            table = read(pa.string(), data.decode("utf-8", "replace").encode())
        return self._columns_of(table)

    def _columns_of(self, table: Any) -> dict[str, Any]:
        if table is None:
            numbers = {name: np.zeros(0) for name in self._numbers}
            return numbers | {name: ((), np.zeros(0, np.int64)) for name in self._texts}
        found: dict[str, Any] = {}
        good = np.ones(table.num_rows, bool)
        for name in self._numbers:
            column = table[name]
            if str(column.type) == "string":
                column, is_number = _from_text(column, comma=self.dialect.comma)
                self._count("cells that are no numbers", ~is_number & good)
                good &= is_number
            found[name] = np.asarray(column, np.float64)
        for name in self._texts:
            coded = table[name].combine_chunks().dictionary_encode()
            index = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
            names = Names.coded(coded.dictionary.to_pylist(), index)
            found[name] = names.values, names.codes.astype(np.int64)
        if good.all():
            return found
        return {name: (v[0], v[1][good]) if name in self._texts else v[good] for name, v in found.items()}

    def _json(self, data: bytes) -> dict[str, Any]:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.json  # noqa: PLC0415

        if not data.strip():
            return self._columns_of(None)
        kinds = {name: pa.float64() for name in self._numbers}
        for name in self._texts:
            kinds[name] = pa.int64() if isinstance(self._first.get(name), int) else pa.string()
        try:
            table = pyarrow.json.read_json(
                pa.BufferReader(data),
                pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
                pyarrow.json.ParseOptions(
                    explicit_schema=pa.schema(list(kinds.items())), unexpected_field_behavior="ignore"
                ),
            )
            for index, name in enumerate(table.column_names):
                if name in self._texts:
                    table = table.set_column(index, name, table[name].cast(pa.string()))
        except pa.ArrowInvalid:  # a line is none, or NaN stands in it, which JSON has not
            return self._json_lines(data)
        return self._columns_of(table)

    def _json_lines(self, data: bytes) -> dict[str, Any]:
        import pyarrow as pa  # noqa: PLC0415

        rows: dict[str, list[Any]] = {name: [] for name in (*self._numbers, *self._texts)}
        for line in io.BytesIO(data):
            if not line.strip():
                continue
            record = _object(line.decode("utf-8", "replace"))
            if record is None:
                self.bad["lines that are no object of JSON"] += 1
                continue
            numbers = [_number(record.get(name)) for name in self._numbers]
            if any(number is None for number in numbers):
                self.bad["cells that are no numbers"] += 1
                continue
            for name, number in zip(self._numbers, numbers, strict=True):
                rows[name].append(number)
            for name in self._texts:
                rows[name].append(None if record.get(name) is None else str(record[name]))
        arrays = {name: pa.array(rows[name], pa.float64()) for name in self._numbers}
        return self._columns_of(pa.table(arrays | {name: pa.array(rows[name], pa.string()) for name in self._texts}))


def _object(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _number(value: Any) -> float | None:
    """NaN where it is said to be missing; None where it is no number."""
    if value is None or value in _MISSING:
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _from_text(column: Any, *, comma: bool) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of a column of text, and which of its cells are numbers, or are empty."""
    import pandas as pd  # noqa: PLC0415

    text = column.to_pandas()
    if comma:
        text = text.str.replace(",", ".", regex=False)
    numbers = pd.to_numeric(text, errors="coerce").to_numpy(np.float64)
    return numbers, np.isfinite(numbers) | text.isna().to_numpy()


def _wholes(step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int64[R], and bool[R], where there is a whole number."""
    with np.errstate(invalid="ignore"):
        is_whole = (np.floor(step) == step) & (np.abs(step) < 2**62)
    return np.where(is_whole, step, 0).astype(np.int64), is_whole
