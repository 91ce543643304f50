"""Run-times from tables of three forms: long, wide, and one row per operation."""

import dataclasses
import itertools
import re
from collections.abc import Sequence

import numpy as np

from sgdlab.cluster.recording import Recording

LONG = ("worker", "step", "duration")
"""Columns of a long table; `start` and `phase` are optional."""

OPERATIONS = ("dp_rank", "stage", "step", "optype", "duration")
"""Columns of a table of operations."""

_COMPUTE = "-compute"
_MISSING = ("", "na", "nan", "null", "none")
_MOST_WHOLE = 2.0**53
"""Not all whole numbers above are float64."""


class BadTrace(ValueError):
    """A table with impossible values, or in none of the forms; the message names row and column."""


@dataclasses.dataclass(frozen=True)
class Table:
    """Columns by name, as numbers or as text, and the number by which messages name each row."""

    columns: dict[str, np.ndarray | list[str | None]]
    rows: np.ndarray

    def find(self, names: Sequence[str]) -> dict[str, str]:
        """The columns with these names, whatever their capitals."""
        known = {column.lower(): column for column in self.columns}
        return {name: known[name] for name in names if name in known}

    def numbers(self, name: str) -> np.ndarray:
        """A column as float64, NaN where a cell is empty."""
        column = self.columns[name]
        if isinstance(column, np.ndarray):
            return column
        values = np.full(len(column), np.nan)
        for index, cell in enumerate(column):
            if cell is None or cell.strip().lower() in _MISSING:
                continue
            if not is_number(cell):
                raise BadTrace(f"row {self.rows[index]}, column {name!r} is {cell!r}; it must be a number")
            values[index] = float(cell)
        return values

    def wholes(self, name: str) -> np.ndarray:
        """A column as int64."""
        values = self.numbers(name)
        bad = np.flatnonzero(~(np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < _MOST_WHOLE)))
        if bad.size:
            where = f"row {self.rows[bad[0]]}, column {name!r}"
            raise BadTrace(f"{where} is {values[bad[0]]:g}; it must be a whole number below 2^53")
        return values.astype(np.int64)

    def texts(self, name: str) -> list[str]:
        """A column of names."""
        column = self.columns[name]
        if isinstance(column, np.ndarray):
            column = [f"{value:g}" if not np.isnan(value) else None for value in column]
        for index, cell in enumerate(column):
            if cell is None or not cell.strip():
                raise BadTrace(f"row {self.rows[index]}, column {name!r} is empty; it must be a name")
        return [cell.strip() for cell in column]


def by_columns(table: Table) -> Recording:
    """Run-times of a table whose form is found by its columns.

    Raises:
      BadTrace: where it has none of the forms, or a value is impossible.
    """
    if table.rows.size == 0:
        raise BadTrace("must have rows below its header")
    if len(operations := table.find(OPERATIONS)) == len(OPERATIONS):
        return _operations(table, operations)
    if len(long := table.find(LONG)) == len(LONG):
        return _long(table, long)
    if part := sorted(table.find([name for name in {*LONG, *OPERATIONS} if name != "step"])):
        missing = [name for name in LONG if name not in long]
        raise BadTrace(f"column {part[0]!r} must come with {', '.join(missing)}: {', '.join(LONG)} make a long table")
    steps = np.arange(table.rows.size)
    if step := table.find(["step"]).get("step"):
        steps = table.wholes(step)
        if repeated := [i for i, (a, b) in enumerate(itertools.pairwise(steps), 1) if b <= a]:
            raise BadTrace(f"row {table.rows[repeated[0]]}, column 'step' must rise, not be {steps[repeated[0]]}")
    names = [name for name in table.columns if name != step]
    if not names:
        raise BadTrace("must have a column for each worker")
    return wide(np.stack([table.numbers(name) for name in names], axis=1), steps, names, table.rows)


def wide(values: np.ndarray, steps: np.ndarray, names: Sequence[str], rows: np.ndarray) -> Recording:
    """Run-times float64[T, N], one row per step and one column per worker; `rows` are the numbers that messages name.

    Raises:
      BadTrace: where a run-time is impossible, or all are missing.
    """
    bad = np.argwhere(~np.isnan(values) & ~((values > 0) & np.isfinite(values)))
    if bad.size:
        row, column = bad[0]
        where = f"row {rows[row]}, column {names[column]!r}"
        raise BadTrace(f"{where} is {values[row, column]:g}; a run-time must be positive and finite")
    if np.isnan(values).all():
        raise BadTrace("must have run-times; all are missing")
    return Recording(values, steps, tuple(names))


def _long(table: Table, columns: dict[str, str]) -> Recording:
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
        raise BadTrace(
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
        problem = f"adds up to {total:g}" if phase_column else f"is {total:g}"
        raise BadTrace(f"row {table.rows[bad[0]]}, column 'duration' {problem}; a run-time must be positive and finite")
    return wide(np.where(seen, runtimes, np.nan), steps, workers, steps)


def _operations(table: Table, columns: dict[str, str]) -> Recording:
    kinds = table.columns[columns["optype"]]
    rows = np.flatnonzero([isinstance(kind, str) and kind.strip().endswith(_COMPUTE) for kind in kinds])
    if rows.size == 0:
        raise BadTrace(f"column 'optype' must have operations that end in {_COMPUTE!r}")
    duration = table.numbers(columns["duration"])[rows]
    _check_durations(duration, table.rows[rows])
    indices = {
        name: np.unique(table.wholes(columns[name])[rows], return_inverse=True) for name in ("step", "dp_rank", "stage")
    }
    busy = np.zeros([names.size for names, _ in indices.values()])
    np.add.at(busy, tuple(index for _, index in indices.values()), duration)
    slowest = busy.max(axis=2)  # a NaN among a stage's operations makes the step unknown
    steps, workers = indices["step"][0], [str(rank) for rank in indices["dp_rank"][0]]
    return wide(np.where(slowest == 0, np.nan, slowest), steps, workers, steps)


def _check_durations(duration: np.ndarray, rows: np.ndarray) -> None:
    bad = np.flatnonzero(~np.isnan(duration) & ~((duration >= 0) & np.isfinite(duration)))
    if bad.size:
        where = f"row {rows[bad[0]]}, column 'duration'"
        raise BadTrace(f"{where} is {duration[bad[0]]:g}; a run-time must be positive and finite")


def _ordered(cells: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """The sorted names among cells, digits in them by value, and each cell's index among the names."""
    # Every second part is digits, which are ordered by value: w2 before w10.
    parts = {name: re.split(r"([0-9]+)", name) for name in set(cells)}
    size = {
        name: [(len(part.lstrip("0")) if position % 2 else 0, part) for position, part in enumerate(split)]
        for name, split in parts.items()
    }
    names = sorted(size, key=size.__getitem__)
    index = {name: i for i, name in enumerate(names)}
    return tuple(names), np.array([index[cell] for cell in cells])


def is_number(cell: str) -> bool:
    """Whether a cell is a number as other programs write it.

    Example:
      >>> is_number("1e-3"), is_number("1_000")
      (True, False)
    """
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell
