"""Tables of PyArrow as cells, and Parquet files, which it reads."""

import itertools
import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from sgdlab.traces import columns
from sgdlab.traces.cells import Cells, Names, text_of
from sgdlab.traces.column_names import is_start
from sgdlab.traces.columns import ColumnLayout
from sgdlab.traces.options import Options
from sgdlab.traces.problems import BadTrace, CheckedRows


def load_parquet(path: pathlib.Path, file: str, options: Options, *, of_worker: bool) -> tuple[Cells, ColumnLayout]:
    """Reads the columns of a Parquet file that are needed: see `sgdlab.traces.tables.Load`."""
    try:
        schema = pyarrow.parquet.read_schema(path)
        known = {*columns.PARTS, *columns.OPERATIONS}
        named = {name.partition("=")[2].strip() or name.strip() for name in options.columns}
        names = [
            name
            for name in schema.names
            if _is_text(kind := schema.field(name).type)
            or _is_number(kind)
            or name.lower() in known | named
            or is_start(name)
        ]
        if not names:
            raise BadTrace("must have columns of numbers")
        layout = columns.layout(names, options, of_worker=of_worker)
        wanted = list(itertools.chain(*layout.needed))
        return cells(pyarrow.parquet.read_table(path, columns=wanted), layout, file), layout
    except pa.ArrowException as error:
        raise OSError(str(error)) from error


def cells(table: pa.Table, layout: ColumnLayout, file: str = "", *, first: int = 1) -> Cells:
    """Return the columns of a table that are needed.

    Messages number rows from `first` on, and name the file if it has a name.

    Raises:
      BadTrace: where a column is of another type.
    """
    found = Cells(CheckedRows(range(first, first + table.num_rows), file))
    for name in layout.needed.names:
        found.names[name] = _names(name, table[name])
    for name in layout.needed.numbers:
        if (numbers := _numbers(table[name])) is not None:
            found.numbers[name] = numbers
        elif _is_text(table[name].type):
            found.add_numbers(name, _decoded(table[name]).to_pylist())
        else:
            raise BadTrace(f"row 1, column {name!r} of type {table[name].type} must be numbers")
    for name in layout.needed.starts:
        if (numbers := _numbers(table[name])) is not None:
            found.numbers[name] = numbers
        elif pa.types.is_timestamp(table[name].type):
            seconds = table[name].cast(pa.timestamp("ns")).cast(pa.int64()).cast(pa.float64(), safe=False)
            found.numbers[name] = _float64(seconds) / 1e9
        else:
            found.add_starts(name, table[name].to_pylist())
    return found


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_number(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _numbers(column: pa.ChunkedArray) -> np.ndarray | None:
    if not _is_number(column.type):
        return None
    return _float64(_decoded(column).cast(pa.float64(), safe=False))


def _float64(column: pa.ChunkedArray) -> np.ndarray:
    """A column of float64 with its own memory, NaN where a cell is null."""
    return np.array(column.to_numpy(), np.float64)


def _names(name: str, column: pa.ChunkedArray) -> Names:
    if not (_is_text(column.type) or _is_number(column.type)):
        raise BadTrace(f"row 1, column {name!r} of type {column.type} must be names or numbers")
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    whole: Any = column.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # a table without rows
        whole = whole.chunk(0) if whole.num_chunks else pa.DictionaryArray.from_arrays([], pa.array([], pa.string()))
    codes = np.array(whole.indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
    return Names.coded([text_of(value) for value in whole.dictionary.to_pylist()], codes)
