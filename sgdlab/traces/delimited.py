"""CSV files: tables separated by commas, semicolons or tabs."""

import csv
import dataclasses
import io
import itertools
import pathlib
import re
from collections.abc import Iterable, Iterator

import numpy as np

from sgdlab.registry import TRACES
from sgdlab.traces import columns, tables
from sgdlab.traces.cells import MISSING, Cells, Names, number
from sgdlab.traces.columns import Layout
from sgdlab.traces.options import Options
from sgdlab.traces.problems import BadTrace, Rows
from sgdlab.traces.recording import Recording

LARGE = 4_000_000
"""Bytes from which on a file is read by PyArrow, which takes a while to import."""

_PIECE = 4_000_000
"""Bytes of a file that are read at once."""


@dataclasses.dataclass(frozen=True)
class Dialect:
    """How a file is written.

    Attributes:
      header: names of the columns; their numbers from 0 where the first line holds run-times.
      separator: of the cells.
      comma: whether decimals stand behind a comma.
      first: the number of the first line below the header, from 1.
      named: whether the first line names the columns.
      trailing: whether every line ends in a separator, behind which nothing may stand.
    """

    header: tuple[str, ...]
    separator: str
    comma: bool
    first: int
    named: bool = True
    trailing: bool = False


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
    return tables.read(path, TRACES["csv"].facts["endings"], options, load)


def dialect(path: pathlib.Path) -> Dialect:
    r"""Recognises how a file is written, by its first lines.

    Raises:
      BadTrace: where columns have no names, or two have one.

    Example:
      >>> import tempfile
      >>> file = pathlib.Path(tempfile.mkdtemp()) / "trace.csv"
      >>> _ = file.write_text("rank;step;seconds\n0;0;1,5\n")
      >>> found = dialect(file)
      >>> found.header, found.separator, found.comma
      (('rank', 'step', 'seconds'), ';', True)
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        return dialect_of(file)


def dialect_of(lines: Iterable[str]) -> Dialect:
    """Recognises how a file is written, by its first lines: see `dialect`."""
    lines, skipped = iter(lines), 0
    first = next(lines, "")
    while first and not first.strip(" \r\n"):
        skipped, first = skipped + 1, next(lines, "")
    separator = _separator(first)
    reader = csv.reader(itertools.chain([first], lines), delimiter=separator)
    try:
        header = [cell.strip() for cell in next((line for line in reader if any(line)), [])]
    except csv.Error as error:
        raise BadTrace(f"row {skipped + reader.line_num} cannot be read: {error}") from error
    last = skipped + reader.line_num
    comma = separator == ";"
    if any(_is_time(cell, comma=comma) for cell in header):
        header = [str(index) for index in range(len(header))]
        return Dialect(tuple(header), separator, comma, last, named=False)
    trailing = len(header) > 1 and not header[-1]
    header = header[:-1] if trailing else header
    for index, name in enumerate(header):
        if not name:
            raise BadTrace(f"column {index + 1} must have a name in the first line")
        if header.count(name) > 1:
            raise BadTrace(f"column {name!r} must not stand twice")
    return Dialect(tuple(header), separator, comma, last + 1, trailing=trailing)


def load(path: pathlib.Path, file: str, options: Options, *, of_worker: bool, exact: bool) -> tuple[Cells, Layout]:
    """Reads the columns of a file that are needed: see `sgdlab.traces.tables.Load`."""
    del exact  # it always is
    written = dialect(path)
    layout = (
        columns.layout(written.header, options, of_worker=of_worker) if written.named else _unnamed(written, options)
    )
    at_once = len(written.header) > 1 and not written.trailing and path.stat().st_size >= LARGE
    found = []
    for piece in _pieces(path):
        cells = _by_pyarrow(piece, file, written, layout) if at_once else None
        found.append(cells or _by_line(piece, file, written, layout))
    return Cells.joined(found), layout


def _unnamed(written: Dialect, options: Options) -> Layout:
    """The layout of a file whose first line holds run-times.

    Raises:
      BadTrace: where columns are to be found by name.
    """
    if options.columns:
        raise BadTrace(
            f"--columns={','.join(options.columns)} cannot be found: the first line holds numbers, not names"
        )
    return Layout("wide", workers=written.header, unit=options.unit or "s")


def _is_time(cell: str, *, comma: bool) -> bool:
    """Whether a cell of the first line is a number with a fraction or an exponent, which names no worker."""
    if cell.isdecimal() or cell.lower() in set(MISSING) - {"nan"}:
        return False
    return number(cell, comma=comma) is not None


def _separator(line: str) -> str:
    """What separates the cells of a file's first line."""
    bare = re.sub(r'"[^"]*"', "", line)
    if ";" in bare:
        return ";"
    return "\t" if bare.count("\t") > bare.count(",") else ","


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


def _by_line(piece: _Piece, file: str, written: Dialect, layout: Layout) -> Cells:
    """The columns of a piece, line by line.

    Raises:
      BadTrace: where there is a cell below a column without a name, or a line cannot be read.
    """
    width = len(written.header) + written.trailing
    ragged: list[tuple[int, int]] = []
    numbers: list[int] = []
    lines: list[list[str]] = []
    for number_of_line, line in _filled(piece, written):
        if len(line) != width:
            ragged.append((number_of_line, len(line)))
        elif written.trailing and line[-1].strip():
            raise BadTrace(f"column {width} must have a name in the first line")
        else:
            numbers.append(number_of_line)
            lines.append(line)
    cells = Cells(Rows(np.array(numbers, np.int64), file))
    for number_of_line, found in ragged:
        name = Rows.name_of(number_of_line, file)
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


def _by_pyarrow(piece: _Piece, file: str, written: Dialect, layout: Layout) -> Cells | None:
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
