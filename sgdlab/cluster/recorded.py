"""Run-times that were recorded on a real cluster, or by a schedule of the lab: read, checked, written."""

import csv
import dataclasses
import itertools
import os
import pathlib
import re
import zipfile
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from sgdlab import files
from sgdlab.schedule import Schedule

LONG = ("worker", "step", "duration")
"""Columns of a long table; `start` and `phase` may stand beside them."""

OPERATIONS = ("dp_rank", "stage", "step", "optype", "duration")
"""Columns of a table of operations."""

_COMPUTE = "-compute"
_MISSING = ("", "na", "nan", "null", "none")
_MOST_WHOLE = 2.0**53
"""Larger whole numbers are not all floats."""


@dataclasses.dataclass(frozen=True, eq=False)
class Recording:
    """Run-times as they were recorded: what is missing is missing.

    Attributes:
      runtimes: float64[T, N], seconds; NaN where a worker is missing in a step.
      steps: int64[T], the recorder's numbers of the steps, rising; not always consecutive.
      workers: N names, in their order.
    """

    runtimes: np.ndarray
    steps: np.ndarray
    workers: tuple[str, ...]

    @property
    def missing(self) -> int:
        """How many run-times are missing of those T x N."""
        return int(np.isnan(self.runtimes).sum())

    @property
    def gaps(self) -> int:
        """How many steps lie between the first and the last that were not recorded."""
        return int(self.steps[-1] - self.steps[0] + 1 - self.steps.size)

    def complete(self) -> "Recording":
        """The steps in which no worker is missing.

        Raises:
          ValueError: where there is none.
        """
        whole = ~np.isnan(self.runtimes).any(axis=1)
        if not whole.any():
            raise ValueError(
                f"none of the {self.steps.size} recorded steps has run-times of all {len(self.workers)} workers"
            )
        return Recording(self.runtimes[whole], self.steps[whole], self.workers)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a long table, Parquet or CSV by the ending of the path; missing run-times have a row without duration.

        Raises:
          ValueError: where the ending is neither.
        """
        steps, workers = self.runtimes.shape
        table = pa.table(
            {
                "worker": pa.array(list(self.workers) * steps, pa.string()),
                "step": np.repeat(self.steps, workers),
                "duration": pa.array(self.runtimes.ravel(), from_pandas=True),  # NaN becomes null, an empty cell
            }
        )
        _write(table, pathlib.Path(path))

    def __str__(self) -> str:
        times = self.runtimes[~np.isnan(self.runtimes)]
        sampled = f", sampled: {self.gaps} between them were not recorded" if self.gaps else ""
        missing = f", {self.missing} run-times missing" if self.missing else ", none missing"
        shape = f"{self.steps.size} steps x {len(self.workers)} workers"
        return f"Recording: {shape}, mean {times.mean():.4g} s{sampled}{missing}"


def from_schedule(schedule: Schedule) -> Recording:
    """The run-times that a schedule shows: row t is each worker's t-th gradient.

    Gradients that were interrupted or still pending have no known run-time: they are missing. (A gradient that was
    dropped at the very instant of an update was interrupted.)

    Args:
      schedule: any with one block; of several, the first arrival ends the gradient.

    Example:
      >>> from sgdlab import protocols
      >>> runtimes = np.array([[1.0, 3.0], [2.0, 1.0]])
      >>> from_schedule(protocols.synchronous(runtimes)).runtimes
      array([[1., 3.],
             [2., 1.]])
    """
    order = np.lexsort((schedule.started, schedule.worker))
    worker = schedule.worker[order]
    count = np.arange(worker.size) - np.searchsorted(worker, worker)  # each worker's own gradients, from 0
    duration = (schedule.arrived.min(axis=1) - schedule.started)[order]
    interrupted = schedule.dropped().all(axis=1) & np.isin(schedule.arrived, schedule.applied).all(axis=1)
    unknown = (interrupted | schedule.pending().all(axis=1))[order]
    runtimes = np.full((int(count.max(initial=-1)) + 1, schedule.num_workers), np.nan)
    runtimes[count[~unknown], worker[~unknown]] = duration[~unknown]
    names = tuple(str(i) for i in range(schedule.num_workers))
    return Recording(runtimes, np.arange(runtimes.shape[0]), names)


def recorded(path: str | os.PathLike[str]) -> Recording:
    r"""Reads recorded run-times.

    * Parquet or CSV in long form: columns `worker`, `step`, `duration` (seconds), optionally `start` and `phase`; the
      phases of one worker's step are added up.
    * Parquet or CSV of operations: `dp_rank`, `stage`, `step`, `optype`, `duration`, as in the traces of real
      language-model jobs. A data-parallel worker's run-time is the sum of its `*-compute` operations in a stage, the
      largest over the stages.
    * A wide CSV, one row a step and one column a worker; a column `step` numbers the steps. Its first line names the
      workers, unless one of them is a number with a fraction or an exponent.
    * `.npy`: an array of steps x workers.

    An empty cell, NaN or NA is a run-time that is missing. Nothing is unpickled. Errors name rows by the line of a CSV
    file, from 1 in Parquet, from 0 in an array.

    Args:
      path: of the file; its ending says the format.

    Returns:
      What was recorded.

    Raises:
      ValueError: where the file is none of these; where a value is impossible, its row and column are named.
      FileNotFoundError: where there is no file.

    Example:
      >>> import tempfile
      >>> file = pathlib.Path(tempfile.mkdtemp()) / "trace.csv"
      >>> _ = file.write_text("worker,step,duration\na,7,1.5\nb,7,2.5\na,9,1.0\n")
      >>> recording = recorded(file)
      >>> recording.runtimes, recording.steps, recording.gaps, recording.missing
      (array([[1.5, 2.5],
             [1. , nan]]), array([7, 9]), 1, 1)
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"path={str(path)!r} must be a file")
    readers = {".parquet": _parquet, ".csv": _csv, ".npy": _npy}
    ending = path.suffix.lower()
    if ending not in readers:
        raise ValueError(f"path={str(path)!r} must end in {', '.join(readers)}")
    try:
        return readers[ending](path)
    except _BadTrace as error:
        raise ValueError(f"path={str(path)!r}: {error}") from None
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, zipfile.BadZipFile) as error:
        raise ValueError(f"path={str(path)!r} cannot be read as {ending}: {error}") from error


class _BadTrace(ValueError):
    pass


def _npy(path: pathlib.Path) -> Recording:
    try:
        array = np.load(path, allow_pickle=False)
    except ValueError as error:
        raise _BadTrace(f"must be an array of numbers: {error}") from error
    if not isinstance(array, np.ndarray) or array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "fiu":
        shape = getattr(array, "shape", None)
        raise _BadTrace(f"an array of shape {shape} must be numbers of shape [steps, workers]")
    rows = np.arange(len(array))
    return _wide(array.astype(np.float64), rows, [str(i) for i in range(array.shape[1])], rows)


@dataclasses.dataclass(frozen=True)
class _Table:
    """Columns by name, as numbers or as text, and what users call each row: a line of the file, or a row's number."""

    columns: dict[str, np.ndarray | list[str | None]]
    rows: np.ndarray

    def find(self, names: Sequence[str]) -> dict[str, str]:
        """The columns that have these names, in capitals or not."""
        known = {column.lower(): column for column in self.columns}
        return {name: known[name] for name in names if name in known}

    def numbers(self, name: str) -> np.ndarray:
        """A column as float64; what is empty is NaN."""
        column = self.columns[name]
        if isinstance(column, np.ndarray):
            return column
        values = np.full(len(column), np.nan)
        for place, cell in enumerate(column):
            if cell is None or cell.strip().lower() in _MISSING:
                continue
            if not _is_number(cell):
                raise _BadTrace(f"row {self.rows[place]}, column {name!r} is {cell!r}; it must be a number")
            values[place] = float(cell)
        return values

    def wholes(self, name: str) -> np.ndarray:
        """A column as int64."""
        values = self.numbers(name)
        bad = np.flatnonzero(~(np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < _MOST_WHOLE)))
        if bad.size:
            where = f"row {self.rows[bad[0]]}, column {name!r}"
            raise _BadTrace(f"{where} is {values[bad[0]]:g}; it must be a whole number below 2^53")
        return values.astype(np.int64)

    def texts(self, name: str) -> list[str]:
        """A column of names."""
        column = self.columns[name]
        if isinstance(column, np.ndarray):
            column = [f"{value:g}" if not np.isnan(value) else None for value in column]
        for place, cell in enumerate(column):
            if cell is None or not cell.strip():
                raise _BadTrace(f"row {self.rows[place]}, column {name!r} is empty; it must be a name")
        return [cell.strip() for cell in column]


def _csv(path: pathlib.Path) -> Recording:
    rows: list[int] = []
    cells: list[list[str]] = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        try:
            header = [cell.strip() for cell in next((line for line in reader if any(line)), [])]
            for line in reader:
                rows.append(reader.line_num)
                cells.append(line)
        except csv.Error as error:
            raise _BadTrace(f"row {reader.line_num} cannot be read: {error}") from error
    if any(_is_number(cell) and not cell.isdecimal() for cell in header):  # run-times, not names
        rows, cells = [1, *rows], [header, *cells]
        header = [str(i) for i in range(len(header))]
    rows, cells = _without_blanks(rows, cells, len(header))
    for row, line in zip(rows, cells, strict=True):
        if len(line) != len(header):
            raise _BadTrace(f"row {row} has {len(line)} columns; it must have {len(header)}, as the first line")
    if header and not header[-1] and all(not line[-1].strip() for line in cells):  # every line ends in a comma
        header, cells = header[:-1], [line[:-1] for line in cells]
    for place, name in enumerate(header):
        if not name:
            raise _BadTrace(f"column {place + 1} must have a name in the first line")
        if header.count(name) > 1:
            raise _BadTrace(f"column {name!r} must not stand twice")
    columns = [list(column) for column in zip(*cells, strict=True)] or [[] for _ in header]
    return _by_columns(_Table(dict(zip(header, columns, strict=True)), np.array(rows, int)))


def _without_blanks(rows: list[int], cells: list[list[str]], width: int) -> tuple[list[int], list[list[str]]]:
    """Blank lines say nothing; but of a single worker one between others is a run-time that is missing."""
    while cells and not any(cell.strip() for cell in cells[-1]):
        rows, cells = rows[:-1], cells[:-1]
    if width == 1:
        return rows, [line or [""] for line in cells]
    kept = [place for place, line in enumerate(cells) if line]
    return [rows[place] for place in kept], [cells[place] for place in kept]


def _parquet(path: pathlib.Path) -> Recording:
    table = pa.parquet.read_table(path)
    columns: dict[str, np.ndarray | list[str | None]] = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            columns[name] = column.cast(pa.string()).to_pylist()
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind):
            columns[name] = np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
        elif name.lower() in {*LONG, *OPERATIONS}:
            raise _BadTrace(f"row 1, column {name!r} of type {column.type} must be numbers")
    if not columns:
        raise _BadTrace("must have columns of numbers")
    return _by_columns(_Table(columns, np.arange(1, table.num_rows + 1)))


def _by_columns(table: _Table) -> Recording:
    if table.rows.size == 0:
        raise _BadTrace("must have rows below its header")
    if len(operations := table.find(OPERATIONS)) == len(OPERATIONS):
        return _operations(table, operations)
    if len(long := table.find(LONG)) == len(LONG):
        return _long(table, long)
    if part := sorted(table.find([name for name in {*LONG, *OPERATIONS} if name != "step"])):
        missing = [name for name in LONG if name not in long]
        raise _BadTrace(f"column {part[0]!r} must come with {', '.join(missing)}: {', '.join(LONG)} make a long table")
    steps = np.arange(table.rows.size)
    if step := table.find(["step"]).get("step"):
        steps = table.wholes(step)
        if repeated := [i for i, (a, b) in enumerate(itertools.pairwise(steps), 1) if b <= a]:
            raise _BadTrace(f"row {table.rows[repeated[0]]}, column 'step' must rise, not be {steps[repeated[0]]}")
    names = [name for name in table.columns if name != step]
    if not names:
        raise _BadTrace("must have a column for each worker")
    return _wide(np.stack([table.numbers(name) for name in names], axis=1), steps, names, table.rows)


def _wide(values: np.ndarray, steps: np.ndarray, names: Sequence[str], rows: np.ndarray) -> Recording:
    bad = np.argwhere(~np.isnan(values) & ~((values > 0) & np.isfinite(values)))
    if bad.size:
        row, column = bad[0]
        where = f"row {rows[row]}, column {names[column]!r}"
        raise _BadTrace(f"{where} is {values[row, column]:g}; a run-time must be positive and finite")
    if np.isnan(values).all():
        raise _BadTrace("must have run-times; all are missing")
    return Recording(values, steps, tuple(names))


def _long(table: _Table, columns: dict[str, str]) -> Recording:
    duration = table.numbers(columns["duration"])
    _check_durations(duration, table.rows)
    workers, worker = _ordered(table.texts(columns["worker"]))
    steps, step = np.unique(table.wholes(columns["step"]), return_inverse=True)
    phase_column = table.find(["phase"]).get("phase")
    phases, phase = _ordered(table.texts(phase_column)) if phase_column else (("",), np.zeros_like(step))
    part = (step * len(workers) + worker) * len(phases) + phase
    _, first, count = np.unique(part, return_index=True, return_counts=True)
    if (count > 1).any():
        again = int(np.flatnonzero(part == part[first[count > 1][0]])[1])
        raise _BadTrace(
            f"row {table.rows[again]}, column 'worker': worker {workers[worker[again]]!r} already has a run-time in "
            f"step {steps[step[again]]}; a column `phase` tells its parts apart"
        )
    runtimes = np.zeros((steps.size, len(workers)))
    seen = np.zeros(runtimes.shape, bool)
    with np.errstate(over="ignore"):
        np.add.at(runtimes, (step, worker), duration)  # NaN stays NaN: a step with an unknown phase is unknown
    seen[step, worker] = True
    bad = np.flatnonzero(~(np.isnan(runtimes) | (np.isfinite(runtimes) & (runtimes > 0)))[step, worker])
    if bad.size:
        total = runtimes[step[bad[0]], worker[bad[0]]]
        told = f"adds up to {total:g}" if phase_column else f"is {total:g}"
        raise _BadTrace(f"row {table.rows[bad[0]]}, column 'duration' {told}; a run-time must be positive and finite")
    return _wide(np.where(seen, runtimes, np.nan), steps, workers, steps)


def _operations(table: _Table, columns: dict[str, str]) -> Recording:
    kinds = table.columns[columns["optype"]]
    rows = np.flatnonzero([isinstance(kind, str) and kind.strip().endswith(_COMPUTE) for kind in kinds])
    if rows.size == 0:
        raise _BadTrace(f"column 'optype' must have operations that end in {_COMPUTE!r}")
    duration = table.numbers(columns["duration"])[rows]
    _check_durations(duration, table.rows[rows])
    found = {
        name: np.unique(table.wholes(columns[name])[rows], return_inverse=True) for name in ("step", "dp_rank", "stage")
    }
    busy = np.zeros([names.size for names, _ in found.values()])
    np.add.at(busy, tuple(index for _, index in found.values()), duration)
    slowest = busy.max(axis=2)  # a NaN among a stage's operations makes the step unknown
    steps, workers = found["step"][0], [str(rank) for rank in found["dp_rank"][0]]
    return _wide(np.where(slowest == 0, np.nan, slowest), steps, workers, steps)


def _check_durations(duration: np.ndarray, rows: np.ndarray) -> None:
    bad = np.flatnonzero(~np.isnan(duration) & ~((duration >= 0) & np.isfinite(duration)))
    if bad.size:
        where = f"row {rows[bad[0]]}, column 'duration'"
        raise _BadTrace(f"{where} is {duration[bad[0]]:g}; a run-time must be positive and finite")


def _ordered(cells: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """The names among cells in their order, numbers in them by their size, and each cell's place in it."""
    # Every second part is digits, which are ordered by their size: w2 before w10.
    parts = {name: re.split(r"([0-9]+)", name) for name in set(cells)}
    size = {
        name: [(len(part.lstrip("0")) if place % 2 else 0, part) for place, part in enumerate(split)]
        for name, split in parts.items()
    }
    names = sorted(size, key=size.__getitem__)
    place = {name: i for i, name in enumerate(names)}
    return tuple(names), np.array([place[cell] for cell in cells])


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def _write(table: pa.Table, path: pathlib.Path) -> None:
    if path.suffix not in (".parquet", ".csv"):
        raise ValueError(f"path={str(path)!r} must end in .parquet or .csv")
    with files.replacing(path) as file:
        if path.suffix == ".csv":
            pa.csv.write_csv(table, file)
        else:
            pa.parquet.write_table(table, file)
