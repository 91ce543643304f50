"""Parquet files."""

import pathlib

from sgdlab.traces import columns, tables
from sgdlab.traces.cells import Cells
from sgdlab.traces.column_names import is_start
from sgdlab.traces.columns import ColumnLayout
from sgdlab.traces.family import TRACES
from sgdlab.traces.options import Options
from sgdlab.traces.problems import BadTrace
from sgdlab.traces.recording import Recording


@TRACES.register("parquet", title="Parquet", source="https://parquet.apache.org/docs", endings=(".parquet",))
def parquet(*, path: pathlib.Path, options: Options) -> Recording:
    """Reads a Parquet file, whose rows messages number from 1.

    Raises:
      BadTrace: where it cannot be used.
    """
    return tables.read(path, TRACES["parquet"].facts.endings, options, load)


def load(
    path: pathlib.Path, file: str, options: Options, *, of_worker: bool, exact: bool
) -> tuple[Cells, ColumnLayout]:
    """Reads the columns of a file that are needed: see `sgdlab.traces.tables.Load`."""
    del exact  # it always is
    import pyarrow.parquet  # noqa: PLC0415 (it takes long to import, and few have Parquet files)

    from sgdlab.traces import arrow  # noqa: PLC0415

    try:
        schema = pyarrow.parquet.read_schema(path)
        known = {*columns.PARTS, *columns.OPERATIONS}
        named = {name.partition("=")[2].strip() or name.strip() for name in options.columns}
        names = [
            name
            for name in schema.names
            if arrow.is_readable(schema.field(name).type) or name.lower() in known | named or is_start(name)
        ]
        if not names:
            raise BadTrace("must have columns of numbers")
        layout = columns.layout(names, options, of_worker=of_worker)
        needed = tables.needed(layout)
        wanted = [*needed.names, *needed.numbers, *needed.starts]
        return arrow.cells(pyarrow.parquet.read_table(path, columns=wanted), layout, file), layout
    except pyarrow.ArrowException as error:
        raise OSError(str(error)) from error
