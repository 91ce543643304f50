"""Readers of files of recorded run-times: CSV, Parquet and NumPy's own format."""

import csv
import os
import pathlib
import zipfile
from typing import Any

import numpy as np

from sgdlab.cluster.recording import Recording
from sgdlab.cluster.tables import LONG, OPERATIONS, BadTrace, Table, by_columns, is_number, wide


def read(name: str, path: str | os.PathLike[str]) -> Recording:
    """Reads a file of recorded run-times in a format that `sgdlab.cluster.recorded` describes.

    Args:
      name: of the argument that holds the path, for errors.
      path: of the file; its ending gives the format.

    Raises:
      ValueError: where the file has none of the formats, or a value is impossible; it names row and column.
      FileNotFoundError: where there is no file.
    """
    path, readers = pathlib.Path(path), {".parquet": _parquet, ".csv": _csv, ".npy": _npy}
    argument, ending = f"{name}={str(path)!r}", path.suffix.lower()
    if not path.is_file():
        raise FileNotFoundError(f"{argument} must be a file")
    if ending not in readers:
        raise ValueError(f"{argument} must end in {', '.join(readers)}")
    try:
        return readers[ending](path)
    except BadTrace as error:
        raise ValueError(f"{argument}: {error}") from None
    except (OSError, EOFError, UnicodeDecodeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{argument} cannot be read as {ending}: {error}") from error


def _npy(path: pathlib.Path) -> Recording:
    try:
        array = np.load(path, allow_pickle=False)
    except ValueError as error:
        raise BadTrace(f"must be an array of numbers: {error}") from error
    if not isinstance(array, np.ndarray) or array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "fiu":
        shape = getattr(array, "shape", None)
        raise BadTrace(f"an array of shape {shape} must be numbers of shape [steps, workers]")
    rows = np.arange(len(array))
    return wide(array.astype(np.float64), rows, [str(i) for i in range(array.shape[1])], rows)


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
            raise BadTrace(f"row {reader.line_num} cannot be read: {error}") from error
    if any(is_number(cell) and not cell.isdecimal() for cell in header):  # run-times, not names
        rows, cells = [1, *rows], [header, *cells]
        header = [str(i) for i in range(len(header))]
    rows, cells = _without_blanks(rows, cells, len(header))
    for row, line in zip(rows, cells, strict=True):
        if len(line) != len(header):
            raise BadTrace(f"row {row} has {len(line)} columns; it must have {len(header)}, as the first line")
    if header and not header[-1] and all(not line[-1].strip() for line in cells):  # every line ends in a comma
        header, cells = header[:-1], [line[:-1] for line in cells]
    for index, name in enumerate(header):
        if not name:
            raise BadTrace(f"column {index + 1} must have a name in the first line")
        if header.count(name) > 1:
            raise BadTrace(f"column {name!r} must not stand twice")
    columns = [list(column) for column in zip(*cells, strict=True)] or [[] for _ in header]
    return by_columns(Table(dict(zip(header, columns, strict=True)), np.array(rows, int)))


def _without_blanks(rows: list[int], cells: list[list[str]], width: int) -> tuple[list[int], list[list[str]]]:
    """Drops blank lines; with a single worker, a blank line between others is a missing run-time."""
    while cells and not any(cell.strip() for cell in cells[-1]):
        rows, cells = rows[:-1], cells[:-1]
    if width == 1:
        return rows, [line or [""] for line in cells]
    filled = [index for index, line in enumerate(cells) if line]
    return [rows[index] for index in filled], [cells[index] for index in filled]


def _parquet(path: pathlib.Path) -> Recording:
    import pyarrow.parquet  # noqa: PLC0415 (it takes long to import, and few have Parquet files)

    try:
        table = pyarrow.parquet.read_table(path)
        columns = {name: _parquet_column(name, table[name].combine_chunks()) for name in table.column_names}
    except pyarrow.ArrowException as error:
        raise OSError(str(error)) from error
    columns = {name: column for name, column in columns.items() if column is not None}
    if not columns:
        raise BadTrace("must have columns of numbers")
    return by_columns(Table(columns, np.arange(1, table.num_rows + 1)))


def _parquet_column(name: str, column: Any) -> np.ndarray | list[str | None] | None:
    """A column of numbers or text; None if it is neither and not one that is read."""
    import pyarrow as pa  # noqa: PLC0415

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.string()).to_pylist()
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind):
        return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
    if name.lower() in {*LONG, *OPERATIONS}:
        raise BadTrace(f"row 1, column {name!r} of type {column.type} must be numbers")
    return None
