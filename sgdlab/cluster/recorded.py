"""Run-times that were recorded on a real cluster, or by a schedule of the lab: read, checked, written."""

import dataclasses
import itertools
import os
import pathlib
import zipfile
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from sgdlab import files
from sgdlab.schedule import Schedule

LONG = ("worker", "step", "duration")
"""Columns of a long table; `start` and `phase` may stand beside them."""

OPERATIONS = ("dp_rank", "stage", "step", "optype", "duration")
"""Columns of a table of operations."""

_COMPUTE = "-compute"


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
        """Writes a long table, Parquet or CSV by the ending of the path; missing run-times have no row.

        Raises:
          ValueError: where the ending is neither.
        """
        row, worker = np.nonzero(~np.isnan(self.runtimes))
        table = pa.table(
            {
                "worker": pa.array(np.array(self.workers, object)[worker], pa.string()),
                "step": self.steps[row],
                "duration": self.runtimes[row, worker],
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
      workers, unless all of it are numbers with a fraction or an exponent.
    * `.npy`: an array of steps x workers.

    An empty cell or NaN is a run-time that is missing. Nothing is unpickled.

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
    if path.suffix not in readers:
        raise ValueError(f"path={str(path)!r} must end in {', '.join(readers)}")
    try:
        return readers[path.suffix](path)
    except _BadTrace as error:
        raise ValueError(f"path={str(path)!r}: {error}") from None
    except (pa.ArrowException, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"path={str(path)!r} cannot be read as {path.suffix}: {error}") from error


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
    return _wide(array.astype(np.float64), np.arange(len(array)), [str(i) for i in range(array.shape[1])])


def _csv(path: pathlib.Path) -> Recording:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        header = next(file, "").rstrip("\r\n").split(",")
    headless = all(_is_number(cell) and not cell.strip().isdecimal() for cell in header)
    names = [str(i) for i in range(len(header))] if headless else None
    if names is None and (repeated := {cell for cell in header if header.count(cell) > 1}):
        raise _BadTrace(f"column {sorted(repeated)[0]!r} must not stand twice")
    table = pa.csv.read_csv(
        path,
        read_options=pa.csv.ReadOptions(column_names=names),
        # As text: what is no number is then refused by its row and column, in our words.
        convert_options=pa.csv.ConvertOptions(
            column_types=dict.fromkeys(names or [cell.strip('"') for cell in header], pa.string())
        ),
    )
    return _table(table, first_line=1 if headless else 2)


def _parquet(path: pathlib.Path) -> Recording:
    return _table(pa.parquet.read_table(path), first_line=1)


def _table(table: pa.Table, first_line: int) -> Recording:
    """By its columns. `first_line` is what users call the first row: a line of the file, or a row of the table."""
    if table.num_rows == 0:
        raise _BadTrace("must have rows below its header")
    columns = set(table.column_names)
    if set(OPERATIONS) <= columns:
        return _operations(table, first_line)
    if set(LONG) <= columns:
        return _long(table, first_line)
    if part := sorted(columns & {*LONG, *OPERATIONS} - {"step"}):
        missing = [name for name in LONG if name not in columns]
        raise _BadTrace(f"column {part[0]!r} must come with {', '.join(missing)}: {', '.join(LONG)} make a long table")
    steps = np.arange(table.num_rows)
    if "step" in columns:
        steps = _whole(table, "step", first_line)
        if repeated := [i for i, (a, b) in enumerate(itertools.pairwise(steps), 1) if b <= a]:
            raise _BadTrace(f"row {first_line + repeated[0]}, column 'step' must rise, not be {steps[repeated[0]]}")
    names = [name for name in table.column_names if name != "step"]
    if not names:
        raise _BadTrace("must have a column for each worker")
    values = np.stack([_numbers(table, name, first_line) for name in names], axis=1)
    return _wide(values, steps, names, first_line)


def _wide(values: np.ndarray, steps: np.ndarray, names: Sequence[str], first_line: int = 0) -> Recording:
    bad = np.argwhere(~np.isnan(values) & ~((values > 0) & np.isfinite(values)))
    if bad.size:
        row, column = bad[0]
        where = f"row {first_line + row}, column {names[column]!r}"
        raise _BadTrace(f"{where} is {values[row, column]:g}; a run-time must be positive and finite")
    if np.isnan(values).all():
        raise _BadTrace("must have run-times; all are missing")
    return Recording(values, steps, tuple(names))


def _long(table: pa.Table, first_line: int) -> Recording:
    duration = _numbers(table, "duration", first_line)
    _check_durations(duration, first_line)
    workers, worker = _names(table, "worker", first_line)
    steps, step = np.unique(_whole(table, "step", first_line), return_inverse=True)
    phases, phase = (
        _names(table, "phase", first_line) if "phase" in table.column_names else (("",), np.zeros_like(step))
    )
    cell = (step * len(workers) + worker) * len(phases) + phase
    _, first, count = np.unique(cell, return_index=True, return_counts=True)
    if (count > 1).any():
        again = int(np.flatnonzero(cell == cell[first[count > 1][0]])[1])
        raise _BadTrace(
            f"row {first_line + again}, column 'worker': worker {workers[worker[again]]!r} already has a run-time in "
            f"step {steps[step[again]]}; a column `phase` tells its parts apart"
        )
    runtimes = np.zeros((steps.size, len(workers)))
    seen = np.zeros(runtimes.shape, bool)
    np.add.at(runtimes, (step, worker), duration)  # NaN stays NaN: a step with an unknown phase is unknown
    seen[step, worker] = True
    return _wide(np.where(seen, runtimes, np.nan), steps, workers, first_line)


def _operations(table: pa.Table, first_line: int) -> Recording:
    kind = table["optype"].cast(pa.string())
    rows = np.flatnonzero(pc.fill_null(pc.ends_with(kind, _COMPUTE), False).to_numpy(zero_copy_only=False))
    if rows.size == 0:
        raise _BadTrace(f"column 'optype' must have operations that end in {_COMPUTE!r}")
    duration = _numbers(table, "duration", first_line)[rows]
    _check_durations(duration, first_line, rows)
    indices = {}
    for name in ("dp_rank", "stage", "step"):
        indices[name] = np.unique(_whole(table, name, first_line)[rows], return_inverse=True)
    shape = tuple(indices[name][0].size for name in ("step", "dp_rank", "stage"))
    busy = np.zeros(shape)
    np.add.at(busy, tuple(indices[name][1] for name in ("step", "dp_rank", "stage")), duration)
    slowest = busy.max(axis=2)
    workers = [str(rank) for rank in indices["dp_rank"][0]]
    return _wide(np.where(slowest > 0, slowest, np.nan), indices["step"][0], workers, first_line)


def _check_durations(duration: np.ndarray, first_line: int, rows: np.ndarray | None = None) -> None:
    bad = np.flatnonzero(~np.isnan(duration) & ~((duration >= 0) & np.isfinite(duration)))
    if bad.size:
        row = first_line + (bad[0] if rows is None else rows[bad[0]])
        raise _BadTrace(f"row {row}, column 'duration' is {duration[bad[0]]:g}; a run-time must be positive and finite")


def _numbers(table: pa.Table, name: str, first_line: int) -> np.ndarray:
    """A column as float64; what is empty is NaN."""
    column = table[name].combine_chunks()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        values = np.full(len(column), np.nan)
        for row, cell in enumerate(column.to_pylist()):
            if cell is None or not cell.strip():
                continue
            if not _is_number(cell):
                raise _BadTrace(f"row {first_line + row}, column {name!r} is {cell!r}; it must be a number")
            values[row] = float(cell)
        return values
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise _BadTrace(f"row {first_line}, column {name!r} of type {column.type} must be numbers")
    return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)


def _whole(table: pa.Table, name: str, first_line: int) -> np.ndarray:
    values = _numbers(table, name, first_line)
    bad = np.flatnonzero(~(np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < 2.0**53)))
    if bad.size:
        raise _BadTrace(f"row {first_line + bad[0]}, column {name!r} is {values[bad[0]]:g}; it must be a whole number")
    return values.astype(np.int64)


def _names(table: pa.Table, name: str, first_line: int) -> tuple[tuple[str, ...], np.ndarray]:
    """Names in their order (numbers by their size), and the index of each row's."""
    column = table[name].combine_chunks().cast(pa.string())
    cells = column.to_pylist()
    for row, cell in enumerate(cells):
        if cell is None or not cell.strip():
            raise _BadTrace(f"row {first_line + row}, column {name!r} is empty; it must be a name")
    names, index = np.unique(np.array(cells), return_inverse=True)
    order = sorted(
        range(names.size), key=lambda i: (0, int(names[i]), "") if names[i].isdecimal() else (1, 0, names[i])
    )
    place = np.empty(names.size, int)
    place[order] = np.arange(names.size)
    return tuple(str(names[i]) for i in order), place[index]


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
