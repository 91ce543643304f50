"""JSON lines: an object a line, as loops write them, in one file or in one for each worker."""

import json
import pathlib
from typing import Any

import numpy as np

from sgdlab.traces import columns, tables
from sgdlab.traces.cells import Cells, Names
from sgdlab.traces.columns import ColumnLayout
from sgdlab.traces.family import TRACES
from sgdlab.traces.options import Options
from sgdlab.traces.problems import BadTrace, CheckedRows
from sgdlab.traces.recording import Recording

LARGE = 4_000_000
"""Bytes from which on a file is read by PyArrow, which takes a while to import."""


@TRACES.register("json_lines", title="JSON lines", source="https://jsonlines.org", endings=(".jsonl", ".ndjson"))
def json_lines(*, path: pathlib.Path, options: Options) -> Recording:
    """Reads a file of JSON lines, or those of a directory or pattern, one for each worker.

    Keys are what the columns of a CSV file are; those that a line lacks are empty there. Lines without the
    keys of the step and the duration are of another kind, and are left out. So is a last line that is still being
    written.

    Raises:
      BadTrace: where it cannot be used.
    """
    return tables.read(path, TRACES["json_lines"].facts.endings, options, load)


def load(
    path: pathlib.Path, file: str, options: Options, *, of_worker: bool, exact: bool
) -> tuple[Cells, ColumnLayout]:
    """Reads the columns of a file that are needed: see `sgdlab.traces.tables.Load`."""
    if not exact and path.stat().st_size >= LARGE and (found := _by_pyarrow(path, options, of_worker=of_worker)):
        return found
    numbers, objects, bad, unfinished = _objects(path)
    keys = list(dict.fromkeys(key for found in objects for key in found))
    if not keys and not bad:
        raise BadTrace("must have an object in each line")
    layout = columns.layout(keys, options, of_worker=of_worker)
    notes = ("the last line is unfinished and was left out",) if unfinished else ()
    if layout.kind == "long":
        necessary = [layout.columns["step"], layout.columns["duration"]]
        kept = [index for index, found in enumerate(objects) if all(key in found for key in necessary)]
        if len(kept) < len(objects):
            notes += (f"lines without {' or '.join(map(repr, necessary))} were left out: {len(objects) - len(kept):,}",)
            numbers, objects = [numbers[index] for index in kept], [objects[index] for index in kept]
    cells = Cells(CheckedRows(np.array(numbers, np.int64), file), notes=notes)
    for line, message in bad:
        cells.rows.add_line("lines that are no objects", line, f"{CheckedRows.name_of(line, file)} {message}")
    needed = tables.needed(layout)
    for name in needed.names:
        cells.names[name] = Names.of([_plain(found.get(name)) for found in objects])
    for name in needed.numbers:
        cells.add_numbers(name, [found.get(name) for found in objects])
    for name in needed.starts:
        cells.add_starts(name, [found.get(name) for found in objects])
    return cells, layout


def _objects(path: pathlib.Path) -> tuple[list[int], list[dict[str, Any]], list[tuple[int, str]], bool]:
    """The objects and the numbers of their lines, lines that are none, and whether the last is unfinished."""
    numbers: list[int] = []
    objects: list[dict[str, Any]] = []
    bad: list[tuple[int, str]] = []
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                found = json.loads(line)
            except ValueError as error:
                if not line.endswith("\n"):
                    return numbers, objects, bad, True
                bad.append((number, f"must be an object in JSON: {error}"))
                continue
            if isinstance(found, dict):
                numbers.append(number)
                objects.append(found)
            else:
                bad.append((number, "must be an object in JSON, as {...}"))
    return numbers, objects, bad, False


def _plain(value: Any) -> Any:
    """A name, as it is or as JSON writes it."""
    return value if value is None or isinstance(value, str | int | float) else json.dumps(value)


def _by_pyarrow(path: pathlib.Path, options: Options, *, of_worker: bool) -> tuple[Cells, ColumnLayout] | None:
    """The same columns, read by PyArrow; None where it finds a line that it cannot read."""
    import pyarrow as pa  # noqa: PLC0415 (it takes long to import, and few have large files)
    import pyarrow.json  # noqa: PLC0415

    from sgdlab.traces import arrow  # noqa: PLC0415

    try:
        table = pyarrow.json.read_json(path)
        layout = columns.layout(table.column_names, options, of_worker=of_worker)
        # Null may stand for a key that a line lacks, which would tell lines of another kind.
        if any(table[name].null_count for name in layout.columns.values()):
            return None
        return arrow.cells(table, layout, exact=False), layout
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, BadTrace):
        return None
