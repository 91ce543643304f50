"""Tables in one of three forms, of four formats: the columns that are needed, and what they make."""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from sgdlab.traces import columns, operations, paths, step_tables, text_tables
from sgdlab.traces.cells import Cells, Names, is_plain
from sgdlab.traces.column_names import is_start, unit_of
from sgdlab.traces.columns import NECESSARY, ColumnLayout
from sgdlab.traces.family import TRACES
from sgdlab.traces.options import Options
from sgdlab.traces.problems import BadTrace, CheckedRows
from sgdlab.traces.recording import Recording

_FILE = "the file's name"
"""The column of workers that files for each worker lack."""

_LONG = 100.0
"""A usual compute time above, in seconds, may well be in milliseconds, where its column is called `time` alone."""

Load = Callable[..., Cells]
"""`(path, file, options, *, of_worker)` -> the columns of a file that are needed.

`file` is what messages call it beside the row, "" where there is only one; with `of_worker`, a table without a column
of workers is that of a single one.
"""

_BUILDERS: dict[str, Callable[..., Recording]] = {
    "long": step_tables.build_long,
    "operations": operations.build_operations,
    "wide": step_tables.build_wide,
}


def build(cells: Cells, *, skip: bool) -> Recording:
    """Build the recording that the columns of a table make.

    Raises:
      BadTrace: naming all rows that cannot be used, unless they are to be left out.
    """
    if not len(cells.rows) and (skip or not cells.rows.count):
        raise BadTrace("must have rows below its header")
    layout = cells.layout
    if "phase" in layout.guessed and (cells.names[layout.columns["phase"]].codes < 0).all():
        cells.layout = layout.without("phase")  # lines of another kind have it
    return _BUILDERS[layout.kind](cells, skip=skip)


def _read(kind: str, path: pathlib.Path, options: Options, load: Load) -> Recording:
    """Reads a file, or one for each worker in a directory or of a pattern."""
    files = paths.files(path, TRACES[kind].facts.endings) or paths.files(path, paths.LOOSE)
    cells = _loaded(files, options, load)
    pa.default_memory_pool().release_unused()  # else it keeps what large files took
    recording = build(cells, skip=options.skip_bad_rows)
    if doubt := _doubt(cells.layout, recording.runtimes, options):
        recording = dataclasses.replace(recording, notes=(*recording.notes, doubt))
    return recording


def _doubt(layout: ColumnLayout, times: np.ndarray, options: Options) -> str:
    """Say that times may be milliseconds, where they are long, and nobody has said that they are seconds."""
    column = layout.columns.get("duration", "")
    if "duration" not in layout.guessed or options.unit is not None or unit_of(column) is not None:
        return ""
    some = times[:: max(len(times) // 1_000, 1)]
    usual = float(np.nanmedian(some)) if np.isfinite(some).any() else 0.0
    if usual <= _LONG:
        return ""
    return f"column {column!r} names no unit: its usual value {usual:.3g} is read as seconds; --unit=ms says otherwise"


def _loaded(files: Sequence[pathlib.Path], options: Options, load: Load) -> Cells:
    """The tables of all files as one."""
    if len(files) == 1:
        try:
            return load(files[0], "", options, of_worker=False)
        except BadTrace:
            if paths.number_behind_rank(files[0]) is None:
                raise
    found: dict[str, Cells] = {}
    empty = [file.name for file in files if text_tables.has_no_rows(file)]
    for file, worker in paths.workers(files).items():
        if file.name in empty:
            continue
        cells = found[file.name] = load(file, file.name * (len(files) > 1), options, of_worker=True)
        layout = cells.layout
        if layout.kind == "wide":
            raise BadTrace(
                f"{file.name} has a column for each worker; one file for each worker must have a row for each step"
            )
        if layout.local is not None and "phase" not in layout.columns and _repeats(cells):  # the file is of a machine
            named = (*options.columns, f"worker={layout.local}")
            return _loaded(files, dataclasses.replace(options, columns=named), load)
        if "worker" not in layout.columns and layout.kind == "long":
            cells.layout = dataclasses.replace(layout, columns={"worker": _FILE, **layout.columns})
            cells.names[_FILE] = Names((worker,), np.zeros(len(cells.rows), np.int64))
    if not found:
        raise BadTrace("must hold files with rows; all are empty")
    first = _check_alike(found)
    cells = Cells.joined(_last_recorded(found))
    there = {part: column for part, column in first.columns.items() if column in cells.names or column in cells.numbers}
    cells.layout = dataclasses.replace(first, columns=there)
    if _FILE in there.values():
        cells.notes += ("workers were named by their files",)
    if empty:
        cells.notes += (f"empty files were left out: {', '.join(empty)}",)
    return cells


def _check_alike(found: Mapping[str, Cells]) -> ColumnLayout:
    """Return the layout of the first table, which all have."""
    name, first = next((name, cells.layout) for name, cells in found.items())
    for other, cells in found.items():
        if _named(cells.layout) != _named(first) or cells.layout.parts != first.parts:
            raise BadTrace(f"{other} has other columns than {name}: {_named(cells.layout)} and {_named(first)}")
    return first


def _repeats(cells: Cells) -> bool:
    """Tell whether a step has several rows in most of a table."""
    step = cells.numbers[cells.layout.columns["step"]]
    return 2 * np.unique(step).size <= step.size


def _last_recorded(found: Mapping[str, Cells]) -> list[Cells]:
    """The tables of files, less steps that a later file of the same series has again: the job was started again."""
    of_series: dict[str, list[str]] = {}
    for name in found:
        of_series.setdefault(paths.series(pathlib.Path(name)), []).append(name)
    kept = dict(found)
    places = _places(found)
    for names in of_series.values():
        again = np.inf
        for name in reversed(names):
            step = places[name]
            rows = np.flatnonzero(~(step >= again))
            if rows.size < step.size:
                kept[name] = found[name].at(rows)
                kept[name].notes += ("steps that were recorded again, after the job was started again, count once",)
            again = min(again, np.nanmin(step, initial=np.inf))
    return list(kept.values())


def _places(found: Mapping[str, Cells]) -> dict[str, np.ndarray]:
    """The step of each row of tables, counted over epochs where they are numbered, float64[R]."""
    places = {name: cells.numbers[cells.layout.columns["step"]] for name, cells in found.items()}
    steps = 1 + int(max(np.nanmax(step, initial=0) for step in places.values()))
    for name, cells in found.items():
        epoch = cells.names.get(cells.layout.columns.get("epoch", ""))
        if epoch is not None:
            whole = all(map(str.isdecimal, epoch.values))  # else files do not say which epoch comes first
            places[name] = step_tables.over_epochs(places[name], epoch, steps) if whole else places[name] * np.nan
    return places


def _named(layout: ColumnLayout) -> str:
    return ", ".join(f"{part}={layout.columns[part]}" for part in (*NECESSARY, "phase") if part in layout.columns)


@TRACES.register("parquet", title="Parquet", source="https://parquet.apache.org/docs", endings=(".parquet",))
def parquet(*, path: pathlib.Path, options: Options) -> Recording:
    """Reads a Parquet file, whose rows messages number from 1."""
    return _read("parquet", path, options, _load_parquet)


def _load_parquet(path: pathlib.Path, file: str, options: Options, *, of_worker: bool) -> Cells:
    try:
        schema = pyarrow.parquet.read_schema(path)
        spans = {name for name in schema.names if pa.types.is_duration(schema.field(name).type)}
        known = {*columns.PARTS, *columns.OPERATIONS}
        known |= {name.partition("=")[2].strip() or name.strip() for name in options.columns}
        names = [
            name
            for name in schema.names
            if name in spans or is_plain(_usual(schema.field(name).type)) or name.lower() in known or is_start(name)
        ]
        if not names:
            raise BadTrace("must have columns of numbers")
        layout = columns.layout(names, options, of_worker=of_worker)
        table = pyarrow.parquet.read_table(path, columns=list(layout.needed))
        for place, name in enumerate(table.column_names):
            if (usual := _usual(table[name].type)) != table[name].type:
                table = table.set_column(place, name, table[name].cast(usual))
        for name in spans & {*layout.needed}:  # their unit is known, whatever their name says
            nanoseconds = table[name].cast(pa.duration("ns")).cast(pa.int64()).cast(pa.float64(), safe=False)
            in_unit = pa.array(nanoseconds.to_numpy() * (layout.per_second / 1e9))
            table = table.set_column(table.column_names.index(name), name, in_unit)
        return Cells.of(table, layout, CheckedRows(range(1, table.num_rows + 1), file))
    except pa.ArrowException as error:
        raise OSError(str(error)) from error


def _usual(kind: pa.DataType) -> pa.DataType:
    """Return the type of numbers or texts that columns of another such type are read as: decimals, views of texts."""
    if pa.types.is_decimal(kind):
        return pa.float64()
    return pa.string() if pa.types.is_string_view(kind) else kind


@TRACES.register(
    "csv",
    title="CSV",
    source="RFC 4180, https://www.rfc-editor.org/rfc/rfc4180; with semicolons or tabs as spreadsheets write it",
    endings=(".csv", ".tsv", ".csv.gz", ".tsv.gz"),
)
def delimited(*, path: pathlib.Path, options: Options) -> Recording:
    """Reads a file of cells separated by commas, semicolons or tabs, or those of a directory or pattern."""
    return _read("csv", path, options, text_tables.load_csv)


@TRACES.register(
    "npy",
    title="NumPy array",
    source="https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html",
    endings=(".npy",),
)
def npy(*, path: pathlib.Path, options: Options) -> Recording:
    """Reads an array [steps, workers] of numbers, whose rows messages number from 0; nothing is unpickled.

    A file that ends in .npz holds it alone.
    """
    try:
        if path.suffix.lower() == ".npz":
            with np.load(path, allow_pickle=False) as found:
                if len(found.files) != 1:
                    raise BadTrace(
                        "must hold one array, of shape [steps, workers], or be the recording of a run of `sgdlab "
                        f"live`; it holds {', '.join(found.files) or 'none'}"
                    )
                array = found[found.files[0]]
        else:
            with path.open("rb") as file:
                array = np.lib.format.read_array(file, allow_pickle=False)
    except BadTrace:
        raise
    except ValueError as error:
        raise BadTrace(f"must be an array of numbers, as numpy.save or numpy.savez writes it: {error}") from error
    if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "fiu":
        raise BadTrace(f"an array of shape {array.shape} must be numbers of shape [steps, workers]")
    layout = ColumnLayout.without_names(array.shape[1], options)
    numbers = dict(zip(layout.workers, array.astype(np.float64).T, strict=True))
    return build(Cells(layout, CheckedRows(range(len(array))), numbers=numbers), skip=options.skip_bad_rows)


@TRACES.register(
    "json_lines",
    title="JSON lines",
    source="https://jsonlines.org",
    endings=(".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz"),
)
def json_lines(*, path: pathlib.Path, options: Options) -> Recording:
    """Reads a file of JSON lines, or those of a directory or pattern, one for each worker.

    Keys are what the columns of a CSV file are; those that a line lacks are empty there. Lines without the
    keys of the step and the duration are of another kind, and are left out. So is a last line that is still being
    written.
    """
    return _read("json_lines", path, options, text_tables.load_json)
