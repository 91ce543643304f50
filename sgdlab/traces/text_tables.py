"""Tables of text: CSV, and JSON lines. PyArrow reads pieces of large files at once, where it finds nothing wrong."""

import csv
import dataclasses
import io
import itertools
import json
import pathlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np

from sgdlab.traces import columns
from sgdlab.traces.cells import MISSING, Cells
from sgdlab.traces.column_names import INDEX
from sgdlab.traces.columns import ColumnLayout
from sgdlab.traces.dialects import Dialect, dialect_of, layout_of
from sgdlab.traces.options import Options
from sgdlab.traces.problems import BadTrace, CheckedRows

LARGE = 4_000_000
"""Bytes from which on a file is read by PyArrow, which takes a while to import."""

_PIECE = 16_000_000
"""Bytes of a file that are read at once."""

_LEAST = 8_000
"""Bytes of a part that are tried at once, of a piece in which a line must be looked at by itself."""


@dataclasses.dataclass(frozen=True)
class Piece:
    """Whole lines of a file: their bytes, the number of the first, and whether none follow."""

    data: bytes
    line: int = 1
    last: bool = False

    @property
    def lines(self) -> int:
        """How many they are."""
        return self.data.count(b"\n") + (not self.data.endswith(b"\n"))


def _pieces(file: IO[bytes], size: int, *, quotes: bool, line: int = 1, last: bool = True) -> Iterator[Piece]:
    """A file in pieces, none of which ends within a line or within quotes, and all of which have text."""
    data = file.read(size)
    while True:
        data += file.readline()
        while quotes and data.count(b'"') % 2 and (more := file.read(size)):
            data += more + file.readline()
        following = file.read(size)
        if following and not following.strip(b" \t\r\n,;"):  # cells without text, which may be the end of the file
            data += following
            continue
        yield Piece(data, line, last=last and not following)
        if not following:
            return
        line += data.count(b"\n")
        data = following


def load_csv(path: pathlib.Path, file: str, options: Options, *, of_worker: bool) -> tuple[Cells, ColumnLayout]:
    """Reads the columns of a CSV file that are needed: see `sgdlab.traces.tables.Load`."""
    with path.open(encoding="utf-8-sig", newline="") as text:
        written = dialect_of(text)
    layout = layout_of(written, options, of_worker=of_worker)
    at_once = path.stat().st_size >= LARGE
    with path.open("rb") as lines:
        pieces = _pieces(lines, _PIECE, quotes=True)
        cells = Cells.joined([csv_cells(piece, file, written, layout, at_once=at_once) for piece in pieces])
    if cells.left_out:
        cells.notes += (f"lines that repeat the first one were left out: {cells.left_out}",)
    if INDEX in written.header:
        cells.notes += ("the first column, which has no name, was left out: it counts rows",)
    if written.comments:
        cells.notes += (f"lines above the header that begin with # were left out: {written.comments}",)
    return cells, layout


def csv_cells(piece: Piece, file: str, written: Dialect, layout: ColumnLayout, *, at_once: bool = True) -> Cells:
    """Reads the columns of a piece of a CSV file that are needed.

    Args:
      piece: whole lines.
      file: what messages call the file beside the row; "" where there is only one.
      written: how the file is written.
      layout: what its columns hold.
      at_once: whether PyArrow is tried.

    Raises:
      BadTrace: where there is a cell below a column without a name, or a line cannot be read.
    """
    if at_once and len(written.header) > 1 and not written.trailing:
        cells = _csv_at_once(piece, file, written, layout)
        if cells is not None:
            return cells
        size = max(len(piece.data) // 16, _LEAST)
        parts = list(_pieces(io.BytesIO(piece.data), size, quotes=True, line=piece.line, last=piece.last))
        if len(parts) > 1:
            return Cells.joined([csv_cells(part, file, written, layout) for part in parts])
    width = len(written.header) + written.trailing
    ragged: list[tuple[int, int]] = []
    numbers: list[int] = []
    lines: list[list[str]] = []
    repeats = 0
    for number, line in _filled(piece, written):
        if written.repeated(line):
            repeats += 1
        elif len(line) != width:
            ragged.append((number, len(line)))
        elif written.trailing and line[-1].strip():
            raise BadTrace(f"column {width} must have a name in the first line")
        else:
            numbers.append(number)
            lines.append(line)
    lengths = Counter(found for _, found in ragged)
    cells = Cells(CheckedRows(np.array(numbers, np.int64), file), left_out=repeats, lengths=lengths)
    for number, found in ragged:
        name = CheckedRows.name_of(number, file)
        message = f"{name} has {found} columns; it must have {len(written.header)}, as the first line"
        cells.rows.add_line("rows of another length", number, message)
    by_name = dict(zip(written.header, zip(*lines, strict=True) if lines else [()] * width, strict=False))
    cells.add(layout, by_name.__getitem__, comma=written.comma)
    return cells


def _filled(piece: Piece, written: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Numbered lines below the header, less blank ones; of a single column, a blank one is a missing run-time."""
    waiting: list[tuple[int, list[str]]] = []  # lines without text, which count if another follows
    single, before = len(written.header) == 1, piece.line - 1
    reader = csv.reader(io.StringIO(piece.data.decode("utf-8-sig"), newline=""), delimiter=written.separator)
    try:
        for line in reader:
            if before + reader.line_num < written.first or (not line and not single):
                continue
            if any(cell and not cell.isspace() for cell in line):
                yield from waiting
                waiting.clear()
                yield before + reader.line_num, line
            else:
                waiting.append((before + reader.line_num, line or [""]))
    except csv.Error as error:
        raise BadTrace(f"row {before + reader.line_num} cannot be read: {error}") from error
    if not piece.last:
        yield from waiting


def _csv_at_once(piece: Piece, file: str, written: Dialect, layout: ColumnLayout) -> Cells | None:
    """The columns of a piece, read by PyArrow; None where a line must be looked at by itself."""
    import pyarrow as pa  # noqa: PLC0415 (it takes long to import, and few have large files)
    import pyarrow.csv as pc  # noqa: PLC0415

    from sgdlab.traces import arrow  # noqa: PLC0415

    needed, skipped = layout.needed, max(written.first - piece.line, 0)
    types = {name: pa.dictionary(pa.int32(), pa.string()) for name in needed.names}
    types |= {name: pa.float64() for name in needed.numbers}
    missing = {word for name in MISSING for word in (name, name.upper(), name.title(), "NaN")}
    for decimal in (",", ".") if written.comma else (".",):
        try:
            table = pc.read_csv(
                pa.BufferReader(piece.data),
                read_options=pc.ReadOptions(column_names=written.header, skip_rows=skipped),
                parse_options=pc.ParseOptions(delimiter=written.separator),
                convert_options=pc.ConvertOptions(
                    column_types=types,
                    include_columns=list(itertools.chain(*needed)),
                    null_values=sorted(missing),
                    strings_can_be_null=False,
                    decimal_point=decimal,
                ),
            )
            found = arrow.cells(table, layout, file, first=piece.line + skipped)
        except (pa.ArrowInvalid, BadTrace):
            continue
        # Rows without text at the end of the file are no rows, and blank lines are none anywhere.
        blank = piece.last and all(np.isnan(times[-1:]).all() for times in found.numbers.values())
        return found if len(found.rows) == piece.lines - skipped and not blank else None
    return None


def load_json(path: pathlib.Path, file: str, options: Options, *, of_worker: bool) -> tuple[Cells, ColumnLayout]:
    """Reads the columns of JSON lines that are needed: see `sgdlab.traces.tables.Load`."""
    at_once = path.stat().st_size >= LARGE
    with path.open("rb") as lines:
        found = [(piece, json_rows(piece, at_once=at_once)) for piece in _pieces(lines, _PIECE, quotes=False)]
    keys = list(dict.fromkeys(key for _, rows in found for key in rows.column_names))
    if not keys and not any(rows.bad for _, rows in found):
        raise BadTrace("must have an object in each line")
    layout = columns.layout(keys, options, of_worker=of_worker)
    necessary = [layout.columns["step"], layout.columns["duration"]] if layout.kind == "long" else []
    cells = Cells.joined([json_cells(piece, file, layout, rows, necessary) for piece, rows in found])
    if cells.left_out:
        cells.notes += (f"lines without {' or '.join(map(repr, necessary))} were left out: {cells.left_out:,}",)
    return cells, layout


@dataclasses.dataclass(frozen=True)
class _Objects:
    """Objects in JSON, by the numbers of their lines.

    Attributes:
      objects: line -> what it holds.
      bad: line -> what is wrong with it.
      unfinished: whether the last line is still being written.
    """

    objects: dict[int, dict[str, Any]]
    bad: dict[int, str]
    unfinished: bool = False

    @property
    def column_names(self) -> list[str]:
        """The keys, as a table of PyArrow names its columns."""
        return list(dict.fromkeys(key for found in self.objects.values() for key in found))


def json_rows(piece: Piece, *, at_once: bool = True) -> Any:
    """Reads JSON lines: a table of PyArrow, or else what each line holds."""
    if at_once:
        import pyarrow as pa  # noqa: PLC0415 (it takes long to import, and few have large files)
        import pyarrow.json  # noqa: PLC0415

        try:
            table = pyarrow.json.read_json(pa.BufferReader(piece.data))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            table = None
        if table is not None and table.column_names and table.num_rows == piece.lines:
            return table
    return _objects(piece)


def _objects(piece: Piece) -> _Objects:
    found = _Objects({}, {})
    lines = io.TextIOWrapper(io.BytesIO(piece.data), encoding="utf-8-sig")
    for number, line in enumerate(lines, start=piece.line):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            if not line.endswith("\n"):
                return dataclasses.replace(found, unfinished=True)
            found.bad[number] = f"must be an object in JSON: {error}"
            continue
        if isinstance(value, dict):
            found.objects[number] = value
        else:
            found.bad[number] = "must be an object in JSON, as {...}"
    return found


def json_cells(piece: Piece, file: str, layout: ColumnLayout, rows: Any, necessary: Sequence[str] = ()) -> Cells:
    """Takes the columns that are needed out of JSON lines.

    Args:
      piece: the lines.
      file: what messages call the file beside the row; "" where there is only one.
      layout: what the keys hold.
      rows: what `json_rows` made of the lines.
      necessary: keys without which a line is left out.
    """
    if not isinstance(rows, _Objects):
        from sgdlab.traces import arrow  # noqa: PLC0415 (it imports PyArrow)

        # Null may stand for a key that a line lacks.
        lacks = {*itertools.chain(*layout.needed)} - {*rows.column_names}
        if not lacks and not any(rows[name].null_count for name in necessary):
            try:
                return arrow.cells(rows, layout, file, first=piece.line)
            except BadTrace:
                pass
        rows = _objects(piece)
    objects = {line: found for line, found in rows.objects.items() if all(key in found for key in necessary)}
    cells = Cells(CheckedRows(np.array([*objects], np.int64), file), left_out=len(rows.objects) - len(objects))
    if rows.unfinished:
        cells.notes = ("the last line is unfinished and was left out",)
    for line, message in rows.bad.items():
        cells.rows.add_line("lines that are no objects", line, f"{CheckedRows.name_of(line, file)} {message}")
    cells.add(layout, lambda name: [found.get(name) for found in objects.values()])
    return cells


def object_of(line: str | bytes) -> dict[str, Any] | None:
    """Return the object of JSON that a line is; None where it is none."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
