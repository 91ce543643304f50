"""Cells of a table: the columns that are read, as numbers or as names."""

import dataclasses
import datetime
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sgdlab.traces import paths
from sgdlab.traces.columns import ColumnLayout
from sgdlab.traces.problems import BadTrace, CheckedRows

MISSING = ("", "na", "nan", "null", "none")
"""Texts of a cell of numbers that is missing, whatever their capitals."""

_A_DATE = "it must be a date, as in other rows, or the cell empty if it is missing"

IMPOSSIBLE = "a compute time must be positive and finite, or its cell empty if it is missing"

_LARGEST_WHOLE = 2.0**53
"""Not all whole numbers above are float64."""

_NO_DATE = np.datetime64("NaT", "us")

_ONE_TEXT = re.compile(r"([^\W\d][^\d.,]*)([0-9]+)")
"""A text without digits, and a whole number."""

Column = pa.ChunkedArray | Sequence[Any]
"""Cells of PyArrow, or texts, numbers, None where one is missing, or what else JSON has."""


@dataclasses.dataclass(frozen=True)
class Names:
    """A column of names.

    Attributes:
      values: the distinct names.
      codes: int[R], which of them each row has; -1 where its cell is empty.
    """

    values: tuple[str, ...]
    codes: np.ndarray

    @classmethod
    def of(cls, name: str, column: Column) -> "Names":
        """Return the names in the cells of a column."""
        if not isinstance(column, pa.ChunkedArray):
            column = pa.chunked_array([pa.array([text_of(cell) for cell in column], pa.string())])
        if not (_is_text(column.type) or _is_number(column.type)):
            raise BadTrace(f"row 1, column {name!r} of type {column.type} must be names or numbers")
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        whole: Any = column.unify_dictionaries().combine_chunks()
        codes = np.array(whole.indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
        return cls.coded([text_of(value) for value in whole.dictionary.to_pylist()], codes)

    @classmethod
    def coded(cls, texts: Sequence[str], codes: np.ndarray) -> "Names":
        """Return the names that codes stand for; texts may be empty, and may stand for one name."""
        index: dict[str, int] = {}
        renamed = [index.setdefault(text, len(index)) if (text := raw.strip()) else -1 for raw in texts]
        if renamed == list(range(len(texts))):
            return cls(tuple(index), codes)
        return cls(tuple(index), np.array([*renamed, -1], np.int32)[codes])  # code -1 is the last

    @classmethod
    def joined(cls, columns: "Sequence[Names]") -> "Names":
        """Return the columns of several files, one after the other."""
        texts = [text for column in columns for text in column.values]
        begins = np.cumsum([0, *(len(column.values) for column in columns)])
        codes = [
            np.where(column.codes < 0, -1, column.codes + first)
            for column, first in zip(columns, begins[:-1], strict=True)
        ]
        return cls.coded(texts, np.concatenate(codes))


@dataclasses.dataclass
class Cells:
    """The columns of a table that are read.

    Attributes:
      layout: what they hold.
      rows: how messages name the rows, and which of them cannot be used.
      names: column -> its names.
      numbers: column -> float64[R], NaN where a cell is empty or no number; begins may be dates, datetime64[R].
      notes: what was decided, in sentences.
      left_out: how many lines were left out, by what they are: they name the columns again, or are of another kind.
    """

    layout: ColumnLayout
    rows: CheckedRows
    names: dict[str, Names] = dataclasses.field(default_factory=dict)
    numbers: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    left_out: Counter[str] = dataclasses.field(default_factory=Counter)

    @classmethod
    def of(
        cls,
        table: pa.Table | Mapping[str, Sequence[Any]],
        layout: ColumnLayout,
        rows: CheckedRows,
        *,
        comma: bool = False,
    ) -> "Cells":
        """Return the columns of a table that are needed; in texts, a comma may stand before decimals.

        Raises:
          BadTrace: where a column of PyArrow is of another type.
        """
        found = cls(layout, rows)
        for column, kind in layout.needed.items():
            if kind == "name":
                found.names[column] = Names.of(column, table[column])
            else:
                found._add(column, table[column], kind, comma=comma)
        return found

    @classmethod
    def joined(cls, tables: "Sequence[Cells]") -> "Cells":
        """Return the rows of several tables, one after the other; columns that one of them lacks are left out."""
        if len(tables) == 1:
            return tables[0]
        whole = cls(tables[0].layout, CheckedRows.joined([table.rows for table in tables]))
        whole.left_out = sum((table.left_out for table in tables), Counter())
        whole.notes = tuple(dict.fromkeys(note for table in tables for note in table.notes))
        for column in tables[0].names:
            if all(column in table.names for table in tables):
                whole.names[column] = Names.joined([table.names[column] for table in tables])
        for column in tables[0].numbers:
            if all(column in table.numbers for table in tables):
                if (values := _joined([table.numbers[column] for table in tables])) is not None:
                    whole.numbers[column] = values
                else:
                    whole.notes += (f"column {column!r} was left out: it holds both numbers and dates",)
        return whole

    @property
    def said(self) -> tuple[str, ...]:
        """Return the notes, and which lines were left out."""
        return (*self.notes, *(f"{what} were left out: {count:,}" for what, count in self.left_out.items()))

    def at(self, rows: np.ndarray) -> "Cells":
        """Return some of the rows, by their rising indices."""
        names = {column: Names(names.values, names.codes[rows]) for column, names in self.names.items()}
        numbers = {column: values[rows] for column, values in self.numbers.items()}
        return dataclasses.replace(self, rows=self.rows.at(rows), names=names, numbers=numbers)

    def _add(self, column: str, cells: Column, kind: str, *, comma: bool) -> None:
        """Adds a column of numbers or dates; rows with other cells are bad, or a column of starts is left out."""
        dates, necessary = kind != "number", kind != "start"
        if isinstance(cells, pa.ChunkedArray):
            if _is_number(cells.type):
                self.numbers[column] = _float64(cells)
                return
            if dates and pa.types.is_timestamp(cells.type):
                self.numbers[column] = cells.cast(pa.timestamp("ns")).to_numpy()
                return
            if necessary and not (_is_text(cells.type) or (dates and pa.types.is_date(cells.type))):
                raise BadTrace(f"row 1, column {column!r} of type {cells.type} must be numbers{' or dates' * dates}")
            cells = cells.to_pylist()
        values: list[Any] = [number(cell, comma=comma) for cell in cells]
        if dates := dates and all(value is None or math.isnan(value) for value in values):
            moments = [_date(cell) for cell in cells]
            if dates := any(moment is not None and not np.isnat(moment) for moment in moments):
                values = moments
        unread = [row for row, value in enumerate(values) if value is None]
        if unread and not necessary:
            self.notes += (f"column {column!r} was left out: it holds neither numbers nor dates",)
            return
        missing = _NO_DATE if dates else math.nan
        self.numbers[column] = np.array([missing if value is None else value for value in values])
        self._add_unread(column, unread, cells.__getitem__, dates)

    def _add_unread(
        self, column: str, rows: Sequence[int] | np.ndarray, cell: Callable[[int], Any], dates: bool = False
    ) -> None:
        """Marks rows whose cell in a column is no number, or no date, as bad."""
        kind, cure = ("dates", lambda _: _A_DATE) if dates else ("numbers", _cure)
        self.rows.add(
            f"cells that are no {kind}",
            rows,
            lambda row: f"{self.rows.name(row)}, column {column!r} is {cell(row)!r}; {cure(cell(row))}",
        )

    def number_ranks(self, column: str) -> None:
        """Reads names as numbers, before which one text may stand in all of the column; rows with another are bad.

        Example:
          >>> cells = Cells(ColumnLayout("operations"), CheckedRows(range(2)))
          >>> cells.names["dp_rank"] = Names(("dp3", "dp10"), np.array([1, 0]))
          >>> cells.number_ranks("dp_rank")
          >>> cells.numbers["dp_rank"]
          array([10.,  3.])
        """
        names = self.names[column]
        found = {name: number(name.removesuffix(",0")) for name in names.values}  # "3,0" as spreadsheets write it
        known = [name for name, value in found.items() if value is None or not math.isnan(value)]
        behind = [_ONE_TEXT.fullmatch(name) for name in known]
        if all(behind) and len({match[1] for match in behind if match}) == 1:
            found |= {name: float(match[2]) for name, match in zip(known, behind, strict=True) if match}
        unread = [code for code, value in enumerate(found.values()) if value is None]
        values = [math.nan if value is None else value for value in found.values()]
        self.numbers[column] = np.array([*values, math.nan])[names.codes]  # code -1 is the last
        rows = np.flatnonzero(np.isin(names.codes, unread))
        self._add_unread(column, rows, lambda row: names.values[names.codes[row]])

    def wholes(self, column: str) -> np.ndarray:
        """Return a column as float64 without fractions; rows with another number are bad."""
        values = self.numbers[column]
        with np.errstate(invalid="ignore"):
            whole = (np.abs(values) < _LARGEST_WHOLE) & (values == np.floor(values))
        told = self.rows.bad & np.isnan(values)  # a text that is no number
        self.add_bad("steps that are no whole number", column, ~whole & ~told, "it must be a whole number below 2^53")
        return values

    def named(self, column: str) -> Names:
        """Return a column of names; rows without one are bad."""
        names, message = self.names[column], f"column {column!r} is empty; it must be a name"
        empty = np.flatnonzero(names.codes < 0)
        self.rows.add("rows without a name", empty, lambda row: f"{self.rows.name(row)}, {message}")
        return names

    def durations(self, column: str, *, zero: bool = True) -> np.ndarray:
        """Return a column of durations, NaN where one is missing; rows with another number are bad."""
        values = self.numbers[column]
        with np.errstate(invalid="ignore"):
            fine = np.isnan(values) | (np.isfinite(values) & ((values >= 0) if zero else (values > 0)))
        self.add_bad("compute times that are not positive and finite", column, ~fine, IMPOSSIBLE)
        return values

    def add_bad(self, kind: str, column: str, bad: np.ndarray, right: str) -> None:
        """Marks rows whose number is impossible."""
        values, where = self.numbers[column], f"column {column!r}"
        self.rows.add(
            kind, np.flatnonzero(bad), lambda row: f"{self.rows.name(row)}, {where} is {values[row]:g}; {right}"
        )


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_number(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)


def is_plain(kind: pa.DataType) -> bool:
    """Tell whether a column of that type holds texts or numbers."""
    return _is_text(kind) or _is_number(kind)


def _float64(column: pa.ChunkedArray) -> np.ndarray:
    """A column of numbers as float64 with its own memory, NaN where a cell is null."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return np.array(column.cast(pa.float64(), safe=False).to_numpy(), np.float64)


def number(cell: Any, *, comma: bool = False) -> float | None:
    """Return a cell as a number: NaN where it is empty, None where it is something else.

    Example:
      >>> number(" 1e-3"), number("NA"), number("1_000"), number("1,5", comma=True), number(True)
      (0.001, nan, None, 1.5, None)
    """
    if isinstance(cell, str):
        try:
            value = float(cell)
        except ValueError:
            if cell.strip().lower() in MISSING:
                return math.nan
            return number(cell.replace(",", ".")) if comma and cell.count(",") == 1 else None
        return None if "_" in cell else value
    if cell is None:
        return math.nan
    return float(cell) if isinstance(cell, int | float) and not isinstance(cell, bool) else None


def _cure(cell: Any) -> str:
    """Say how a cell that is no number is to be written."""
    text = str(cell).strip()
    if match := re.fullmatch(r"([0-9.eE+-]+)\s*(s|sec|ms|us|µs|μs|ns)", text):
        return f"it must be {match[1]} alone, and its unit in the column's name (time_{match[2]}) or in --unit"
    if re.fullmatch(r"[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?", text):
        return f"it must be {text.replace(',', '')}, without separators of thousands"
    return "it must be a number, or the cell empty if it is missing"


def text_of(cell: Any) -> str:
    """Return a cell as a name: empty where it is missing.

    Example:
      >>> text_of(3), text_of(3.0), text_of(None), text_of("a"), text_of([1])
      ('3', '3', '', 'a', '[1]')
    """
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell) if isinstance(cell, str | int | float) else json.dumps(cell)


def _date(cell: Any) -> np.datetime64 | None:
    """A date to the microsecond, UTC unless it says otherwise: NaT where the cell is empty, None where it is none."""
    if cell is None or (isinstance(cell, str) and cell.strip().lower() in MISSING):
        return _NO_DATE
    try:
        date = datetime.datetime.fromisoformat(str(cell).strip())
        return np.datetime64(date.astimezone(datetime.UTC).replace(tzinfo=None) if date.tzinfo else date, "us")
    except (ValueError, OverflowError):
        return None


def are_dates(begins: np.ndarray) -> bool:
    """Tell whether begins are dates, and not numbers."""
    return begins.dtype.kind == "M"


def seconds_since(dates: np.ndarray, zero: np.datetime64) -> np.ndarray:
    """Return the seconds of dates since one, float64[R]; NaN where one is missing.

    Example:
      >>> dates = np.array(["2026-01-02T03:04:05.678", "NaT"], "datetime64[us]")
      >>> seconds_since(dates, np.datetime64("2026-01-02T03:04"))
      array([5.678,   nan])
    """
    return (dates - zero) / np.timedelta64(1, "s")


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray | None:
    """A column of several tables; None where some have numbers there and others dates."""
    if any(map(are_dates, parts)):
        # Where none is known, numbers cannot be told from dates.
        parts = [np.full(part.size, _NO_DATE) if np.isnan(part).all() else part for part in parts]
        if not all(map(are_dates, parts)):
            return None
    return np.concatenate(parts)


def ordered(names: Names) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the sorted names, digits in them by value, and each row's index among them.

    Example:
      >>> ordered(Names(("w10", "w9"), np.array([0, 1, 1])))
      (('w9', 'w10'), array([1, 0, 0]))
    """
    in_order = sorted(names.values, key=paths.in_order)
    place = {name: index for index, name in enumerate(in_order)}
    # Rows without a name, of code -1, are given any index.
    return tuple(in_order), np.array([*(place[name] for name in names.values), 0], np.int64)[names.codes]


def indexed(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct whole numbers, rising, and each row's index among them: as `np.unique`, without sorting.

    Args:
      values: float64[R], whole numbers.

    Example:
      >>> indexed(np.array([7.0, 5.0, 7.0]))
      (array([5, 7]), array([1, 0, 1]))
    """
    encoded: Any = pa.array(values.astype(np.int64)).dictionary_encode()
    distinct = encoded.dictionary.to_numpy()
    order = np.argsort(distinct)
    return distinct[order], np.argsort(order)[encoded.indices.to_numpy()]
