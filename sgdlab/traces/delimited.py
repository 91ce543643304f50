"""CSV files: tables separated by commas, semicolons or tabs."""

import csv
import dataclasses
import io
import pathlib
from collections.abc import Iterator

import numpy as np

from sgdlab.traces import tables
from sgdlab.traces.cells import MISSING, Cells, Names
from sgdlab.traces.columns import ColumnLayout
from sgdlab.traces.dialects import Dialect, dialect, dialect_of, layout_of
from sgdlab.traces.family import TRACES
from sgdlab.traces.options import Options
from sgdlab.traces.problems import BadTrace, CheckedRows
from sgdlab.traces.recording import Recording
from sgdlab.traces.wide_columns import INDEX

__all__ = ["Dialect", "delimited", "dialect", "dialect_of", "layout_of", "load"]

LARGE = 4_000_000
"""Bytes from which on a file is read by PyArrow, which takes a while to import."""

_PIECE = 4_000_000
"""Bytes of a file that are read at once."""


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
    return tables.read(path, TRACES["csv"].facts.endings, options, load)


def load(
    path: pathlib.Path, file: str, options: Options, *, of_worker: bool, exact: bool
) -> tuple[Cells, ColumnLayout]:
    """Reads the columns of a file that are needed: see `sgdlab.traces.tables.Load`."""
    del exact  # it always is
    written = dialect(path)
    layout = layout_of(written, options, of_worker=of_worker)
    at_once = len(written.header) > 1 and not written.trailing and path.stat().st_size >= LARGE
    found = []
    for piece in _pieces(path):
        cells = _by_pyarrow(piece, file, written, layout) if at_once else None
        found.append(cells or _by_line(piece, file, written, layout))
    cells = Cells.joined(found)
    if repeats := sum(piece.repeats for piece in found):
        cells.notes += (f"lines that repeat the first one were left out: {repeats}",)
    if INDEX in written.header:
        cells.notes += ("the first column, which has no name, was left out: it counts rows",)
    if written.comments:
        cells.notes += (f"lines above the header that begin with # were left out: {written.comments}",)
    return cells, layout


@dataclasses.dataclass(frozen=True)
class _Piece:
    """Whole lines of a file: their bytes, the number of the first, and whether none follow."""

    data: bytes
    line: int
    last: bool

    def skipped(self, written: Dialect) -> int:
        """How many of its lines stand above the first row."""
        return max(written.first - self.line, 0)


def _pieces(path: pathlib.Path) -> Iterator[_Piece]:
    """A file in pieces, none of which ends within a line, or within quotes."""
    line = 1
    with path.open("rb") as file:
        data = file.read(_PIECE)
        while True:
            data += file.readline()
            while data.count(b'"') % 2 and (more := file.read(_PIECE)):
                data += more + file.readline()
            following = file.read(_PIECE)
            yield _Piece(data, line, last=not following)
            if not following:
                return
            line += data.count(b"\n")
            data = following


def _by_line(piece: _Piece, file: str, written: Dialect, layout: ColumnLayout) -> Cells:
    """The columns of a piece, line by line.

    Raises:
      BadTrace: where there is a cell below a column without a name, or a line cannot be read.
    """
    width = len(written.header) + written.trailing
    ragged: list[tuple[int, int]] = []
    numbers: list[int] = []
    lines: list[list[str]] = []
    repeats = 0
    for number_of_line, line in _filled(piece, written):
        if written.repeated(line):
            repeats += 1
        elif len(line) != width:
            ragged.append((number_of_line, len(line)))
        elif written.trailing and line[-1].strip():
            raise BadTrace(f"column {width} must have a name in the first line")
        else:
            numbers.append(number_of_line)
            lines.append(line)
    cells = Cells(CheckedRows(np.array(numbers, np.int64), file), repeats=repeats)
    for number_of_line, found in ragged:
        name = CheckedRows.name_of(number_of_line, file)
        message = f"{name} has {found} columns; it must have {len(written.header)}, as the first line"
        cells.rows.add_line("rows of another length", number_of_line, message)
    by_name = dict(zip(written.header, zip(*lines, strict=True) if lines else [()] * width, strict=False))
    needed = tables.needed(layout)
    for name in needed.names:
        cells.names[name] = Names.of(by_name[name])
    for name in needed.numbers:
        cells.add_numbers(name, by_name[name], comma=written.comma)
    for name in needed.starts:
        cells.add_starts(name, by_name[name], comma=written.comma)
    return cells


def _filled(piece: _Piece, written: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Numbered lines below the header, less blank ones; of a single column, a blank one is a missing run-time.

    Raises:
      BadTrace: where a line cannot be read.
    """
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


def _by_pyarrow(piece: _Piece, file: str, written: Dialect, layout: ColumnLayout) -> Cells | None:
    """The same columns, read by PyArrow; None where a line must be looked at by itself."""
    import pyarrow as pa  # noqa: PLC0415 (it takes long to import, and few have large files)
    import pyarrow.csv as pc  # noqa: PLC0415

    from sgdlab.traces import arrow  # noqa: PLC0415

    needed = tables.needed(layout)
    types = {name: pa.dictionary(pa.int32(), pa.string()) for name in needed.names}
    types |= {name: pa.float64() for name in needed.numbers}
    missing = {word for name in MISSING for word in (name, name.upper(), name.title(), "NaN")}
    for decimal in (",", ".") if written.comma else (".",):
        try:
            table = pc.read_csv(
                pa.BufferReader(piece.data),
                read_options=pc.ReadOptions(column_names=written.header, skip_rows=piece.skipped(written)),
                parse_options=pc.ParseOptions(delimiter=written.separator),
                convert_options=pc.ConvertOptions(
                    column_types=types,
                    include_columns=[*needed.names, *needed.numbers, *needed.starts],
                    null_values=sorted(missing),
                    strings_can_be_null=False,
                    decimal_point=decimal,
                ),
            )
            first = piece.line + piece.skipped(written)
            found = arrow.cells(table, layout, file, first=first)
        except (pa.ArrowInvalid, BadTrace):
            continue
        lines = piece.data.count(b"\n") + (not piece.data.endswith(b"\n")) - piece.skipped(written)
        # Rows without text at the end of the file are no rows, and blank lines are none anywhere.
        blank = piece.last and all(np.isnan(times[-1:]).all() for times in found.numbers.values())
        return found if len(found.rows) == lines and not blank else None
    return None
