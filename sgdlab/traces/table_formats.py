"""Formats of tables: Parquet, CSV, arrays of NumPy, and JSON lines."""

import pathlib

import numpy as np

from sgdlab.traces import tables, text_tables
from sgdlab.traces.cells import Cells
from sgdlab.traces.columns import ColumnLayout
from sgdlab.traces.family import TRACES
from sgdlab.traces.options import Options
from sgdlab.traces.problems import BadTrace, CheckedRows
from sgdlab.traces.recording import Recording


@TRACES.register("parquet", title="Parquet", source="https://parquet.apache.org/docs", endings=(".parquet",))
def parquet(*, path: pathlib.Path, options: Options) -> Recording:
    """Reads a Parquet file, whose rows messages number from 1.

    Raises:
      BadTrace: where it cannot be used.
    """
    from sgdlab.traces import arrow  # noqa: PLC0415 (PyArrow takes long to import, and few have Parquet files)

    return tables.read(path, TRACES["parquet"].facts.endings, options, arrow.load_parquet)


@TRACES.register(
    "csv",
    title="CSV",
    source="RFC 4180, https://www.rfc-editor.org/rfc/rfc4180; with semicolons or tabs as spreadsheets write it",
    endings=(".csv", ".tsv"),
)
def delimited(*, path: pathlib.Path, options: Options) -> Recording:
    """Reads a file of cells separated by commas, semicolons or tabs, or those of a directory or pattern.

    Raises:
      BadTrace: where it cannot be used.
    """
    return tables.read(path, TRACES["csv"].facts.endings, options, text_tables.load_csv)


@TRACES.register(
    "npy",
    title="NumPy array",
    source="https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html",
    endings=(".npy",),
)
def npy(*, path: pathlib.Path, options: Options) -> Recording:
    """Reads an array [steps, workers] of numbers, whose rows messages number from 0; nothing is unpickled.

    Raises:
      BadTrace: where it cannot be used.
    """
    if options.columns:
        raise BadTrace(f"--columns={','.join(options.columns)} cannot be found: an array's columns have no names")
    try:
        with path.open("rb") as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
    except ValueError as error:
        raise BadTrace(f"must be an array of numbers, as numpy.save writes it: {error}") from error
    if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "fiu":
        raise BadTrace(f"an array of shape {array.shape} must be numbers of shape [steps, workers]")
    names = tuple(str(index) for index in range(array.shape[1]))
    cells = Cells(CheckedRows(range(len(array))), numbers=dict(zip(names, array.astype(np.float64).T, strict=True)))
    layout = ColumnLayout("wide", workers=names, unit=options.unit or "s")
    return tables.build(cells, layout, skip=options.skip_bad_rows)


@TRACES.register("json_lines", title="JSON lines", source="https://jsonlines.org", endings=(".jsonl", ".ndjson"))
def json_lines(*, path: pathlib.Path, options: Options) -> Recording:
    """Reads a file of JSON lines, or those of a directory or pattern, one for each worker.

    Keys are what the columns of a CSV file are; those that a line lacks are empty there. Lines without the
    keys of the step and the duration are of another kind, and are left out. So is a last line that is still being
    written.

    Raises:
      BadTrace: where it cannot be used.
    """
    return tables.read(path, TRACES["json_lines"].facts.endings, options, text_tables.load_json)
