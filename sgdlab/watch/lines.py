"""Whole lines of a text as columns: CSV and JSON lines."""

import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sgdlab.traces.cells import Names
from sgdlab.traces.dialects import Dialect

_MISSING = ("", "NA", "NaN", "nan", "null", "None", "N/A", "n/a")


class Lines:
    """Reads columns; rows in which a number is none are left out.

    Args:
      numbers: names of the columns that hold numbers.
      texts: of those that hold names.
      bad: where lines that were left out are counted, by what was wrong with them.
      dialect: how CSV is written; None of JSON.
      first: the first object of JSON, which tells what is a number.
    """

    def __init__(
        self,
        numbers: Sequence[str],
        texts: Sequence[str],
        bad: Counter[str],
        *,
        dialect: Dialect | None = None,
        first: Mapping[str, Any] | None = None,
    ):
        self._numbers, self._texts, self.bad = numbers, texts, bad
        self.dialect: Any = dialect
        self._first = first or {}

    def csv(self, data: bytes) -> dict[str, Any]:
        """Columns of numbers float64[R]; of names, the different ones and indices among them."""
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
            self.bad.clear()
            self.bad.update(before)
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
                column, is_number = _from_text(column, comma=self.dialect is not None and self.dialect.comma)
                self.bad["cells that are no numbers"] += int((~is_number & good).sum())
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

    def json(self, data: bytes) -> dict[str, Any]:
        """The same, of JSON lines."""
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
            record = object_of(line.decode("utf-8", "replace"))
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


def object_of(line: str) -> dict[str, Any] | None:
    """An object of JSON; None where a line is none."""
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
