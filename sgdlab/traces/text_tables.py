"""Tables of text, CSV and JSON lines, in pieces: PyArrow reads those in which it finds nothing odd, at once."""

import csv
import dataclasses
import gzip
import io
import itertools
import json
import os
import pathlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json

from sgdlab.traces import columns, paths
from sgdlab.traces.cells import MISSING, Cells, number
from sgdlab.traces.column_names import INDEX
from sgdlab.traces.columns import ColumnLayout
from sgdlab.traces.options import Options
from sgdlab.traces.problems import BadTrace, CheckedRows

_PIECE = 16_000_000
"""Bytes of a file that are read at once."""

_LEAST = 8_000
"""Bytes of a part that are tried at once, of a piece in which a line must be looked at by itself."""


_TYPES = {"name": pa.dictionary(pa.int32(), pa.string()), "number": pa.float64(), "begin": pa.string()}
"""Types of PyArrow's columns, of which all others are recognised; it would read 0x1 as a number, and so as a begin."""


@dataclasses.dataclass(frozen=True)
class Piece:
    """Whole lines of a file."""

    data: bytes
    line: int = 1  # number of the first
    file: str = ""  # what messages call the file beside the line; "" where there is only one

    @property
    def lines(self) -> int:
        """Return their number."""
        return self.data.count(b"\n") + (not self.data.endswith(b"\n"))


def _opened(path: pathlib.Path) -> IO[bytes]:
    """Opens a file of text, which may be compressed."""
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else pathlib.Path.open
    return opened(path, "rb")


def _text_end(lines: IO[bytes]) -> int:
    """Return where the last line with text ends; behind it there may be cells without any."""
    end = lines.seek(0, os.SEEK_END)
    while end:
        begin = max(end - _LEAST, 0)
        lines.seek(begin)
        if text := lines.read(end - begin).rstrip(b' \t\r\n,;"'):
            lines.seek(begin + len(text))
            lines.readline()
            return lines.tell()
        end = begin
    return 0


def _pieces(lines: IO[bytes], file: str, size: int, end: int, *, quotes: bool, line: int = 1) -> Iterator[Piece]:
    """Lines up to where they end, in pieces, none of which ends within a line or within quotes."""
    lines.seek(0)
    while data := lines.read(min(size, end - lines.tell())):
        if not data.endswith(b"\n"):
            data += lines.readline()
        while quotes and data.count(b'"') % 2 and (more := lines.read(min(size, end - lines.tell()))):
            data += more if more.endswith(b"\n") else more + lines.readline()
        yield Piece(data, line, file)
        line += data.count(b"\n")


@dataclasses.dataclass(frozen=True)
class Dialect:
    """Says how a CSV file is written.

    Attributes:
      header: names of the columns; their numbers from 0 where the first line holds compute times.
      separator: of the cells.
      comma: whether decimals stand behind a comma.
      first: the number of the first line below the header, from 1.
      named: whether the first line names the columns.
      trailing: whether every line ends in a separator, behind which nothing may stand.
      comments: how many lines above the header begin with #.
    """

    header: tuple[str, ...]
    separator: str
    comma: bool
    first: int
    named: bool = True
    trailing: bool = False
    comments: int = 0

    def repeated(self, cells: Sequence[str]) -> bool:
        """Tell whether a line is the header again, as where a program that was started again adds to its file.

        Example:
          >>> dialect_of(["rank,step,time"]).repeated(["rank", "step", "time"])
          True
        """
        if not self.named or not cells or (cells[0].strip() or INDEX) != self.header[0]:
            return False
        names = [cell.strip() for cell in cells]
        names = names[: len(self.header)] if self.trailing else names
        return names[1:] == [*self.header[1:]]

    def layout(self, options: Options, *, of_worker: bool) -> ColumnLayout:
        """Say what the columns of a file hold: see `sgdlab.traces.columns.layout`.

        Raises:
          BadTrace: where that cannot be recognised, or where columns without names are to be found by name.
        """
        if self.named:
            return columns.layout(self.header, options, of_worker=of_worker)
        number_of = len(self.header)
        remark = f"the first line has no names: {number_of} column{'s' * (number_of > 1)} were read as workers"
        return ColumnLayout.without_names(number_of, options, remark)


def dialect_of(lines: Iterable[str]) -> Dialect:
    """Recognises how a file is written, by its first lines.

    Raises:
      BadTrace: where columns have no names, or two have one.

    Example:
      >>> found = dialect_of(["rank;step;seconds", "0;0;1,5"])
      >>> found.header, found.separator, found.comma
      (('rank', 'step', 'seconds'), ';', True)
    """
    lines, skipped, comments = iter(lines), 0, 0
    first = next(lines, "")
    while first and (not first.strip(" \r\n") or first.startswith("#")):
        comments += first.startswith("#")
        skipped, first = skipped + 1, next(lines, "")
    bare = re.sub(r'"[^"]*"', "", first)
    separator = ";" if ";" in bare else "\t" if bare.count("\t") > bare.count(",") else ","
    reader = csv.reader(itertools.chain([first], lines), delimiter=separator)
    try:
        header = [cell.strip() for cell in next((line for line in reader if any(line)), [])]
    except csv.Error as error:
        raise BadTrace(f"row {skipped + reader.line_num} cannot be read: {error}") from error
    last = skipped + reader.line_num
    comma = separator == ";"
    times = [_is_time(cell, comma=comma) for cell in header]
    if any(times):
        if not all(time or cell.lower() in MISSING for time, cell in zip(times, header, strict=True)):
            shown = separator.join(header[:10])
            raise BadTrace(f"row {last} is {shown}: the first line must name the columns, as in rank,step,time")
        header = [str(index) for index in range(len(header))]
        return Dialect(tuple(header), separator, comma, last, named=False, comments=comments)
    trailing = len(header) > 1 and not header[-1]
    header = header[:-1] if trailing else header
    if len(header) > 1 and not header[0]:
        below = next(reader, ["0"])
        if below and below[0].strip().isdecimal():  # it counts rows
            header[0] = INDEX
    for index, name in enumerate(header):
        if not name:
            raise BadTrace(f"column {index + 1} must have a name in the first line")
        if header.count(name) > 1:
            raise BadTrace(f"column {name!r} must not stand twice")
    return Dialect(tuple(header), separator, comma, last + 1, trailing=trailing, comments=comments)


def _is_time(cell: str, *, comma: bool) -> bool:
    """Return True if a cell of the first line is a number with a fraction or an exponent, which names no worker."""
    if cell.isdecimal() or cell.lower() in set(MISSING) - {"nan"}:
        return False
    return number(cell, comma=comma) is not None


def load_csv(path: pathlib.Path, file: str, options: Options, *, of_worker: bool) -> Cells:
    """Reads the columns of a CSV file that are needed: see `sgdlab.traces.tables.Load`."""
    with _opened(path) as lines:
        text = io.TextIOWrapper(lines, encoding="utf-8-sig", newline="")
        written = dialect_of(text)
        text.detach()  # else it closes the file
        layout = written.layout(options, of_worker=of_worker)
        pieces = _pieces(lines, file, _PIECE, _text_end(lines), quotes=True)
        cells = Cells.joined([csv_cells(piece, written, layout) for piece in pieces])
    if INDEX in written.header:
        cells.notes += ("the first column, which has no name, was left out: it counts rows",)
    if written.comments:
        cells.notes += (f"lines above the header that begin with # were left out: {written.comments}",)
    return cells


def csv_cells(piece: Piece, written: Dialect, layout: ColumnLayout) -> Cells:
    """Reads the columns of a piece of a CSV file that are needed.

    Raises:
      BadTrace: where there is a cell below a column without a name, or a line cannot be read.
    """
    if len(written.header) > 1 and not written.trailing:
        if (cells := _csv_at_once(piece, written, layout)) is not None:
            return cells
        size = max(len(piece.data) // 16, _LEAST)
        parts = list(_pieces(io.BytesIO(piece.data), piece.file, size, len(piece.data), quotes=True, line=piece.line))
        if len(parts) > 1:
            return Cells.joined([csv_cells(part, written, layout) for part in parts])
    return _csv_by_line(piece, written, layout)


def _csv_at_once(piece: Piece, written: Dialect, layout: ColumnLayout) -> Cells | None:
    """The columns of a piece, read by PyArrow; None where a line must be looked at by itself."""
    skipped = max(written.first - piece.line, 0)
    needed = layout.needed
    types = {column: _TYPES[kind] for column, kind in needed.items() if kind in _TYPES}
    missing = {word for name in MISSING for word in (name, name.upper(), name.title(), "NaN")}
    for decimal in (",", ".") if written.comma else (".",):
        try:
            table = pyarrow.csv.read_csv(
                pa.BufferReader(piece.data),
                read_options=pyarrow.csv.ReadOptions(column_names=written.header, skip_rows=skipped),
                parse_options=pyarrow.csv.ParseOptions(delimiter=written.separator),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=types,
                    include_columns=list(needed),
                    null_values=sorted(missing),
                    strings_can_be_null=False,
                    decimal_point=decimal,
                ),
            )
            first = piece.line + skipped
            cells = Cells.of(table, layout, CheckedRows(range(first, first + table.num_rows), piece.file))
        except (pa.ArrowInvalid, BadTrace):
            continue
        return cells if table.num_rows == piece.lines - skipped else None  # there are blank lines
    return None


def _csv_by_line(piece: Piece, written: Dialect, layout: ColumnLayout) -> Cells:
    width, single = len(written.header) + written.trailing, len(written.header) == 1
    good: dict[int, list[str]] = {}
    ragged: dict[int, int] = {}
    repeats, before = 0, piece.line - 1
    reader = csv.reader(io.StringIO(piece.data.decode("utf-8-sig"), newline=""), delimiter=written.separator)
    try:
        for line in reader:
            number_of = before + reader.line_num
            if number_of < written.first or not (line or single):
                continue
            if written.repeated(line):
                repeats += 1
            elif len(line or [""]) != width:
                ragged[number_of] = len(line)
            elif written.trailing and line[-1].strip():
                raise BadTrace(f"column {width} must have a name in the first line")
            else:
                good[number_of] = line or [""]  # of a single column, a blank line is a missing compute time
    except csv.Error as error:
        raise BadTrace(f"row {before + reader.line_num} cannot be read: {error}") from error
    by_name = dict(zip(written.header, zip(*good.values(), strict=True) if good else [()] * width, strict=False))
    cells = Cells.of(by_name, layout, CheckedRows(np.array([*good], np.int64), piece.file), comma=written.comma)
    cells.left_out += Counter({"lines that repeat the first one": repeats})
    for line, found in ragged.items():
        message = (
            f"{cells.rows.name_of(line)} has {found} columns; it must have {len(written.header)}, as the first line"
        )
        cells.rows.add_line(f"rows with {found} columns, not {width}", line, message)
    return cells


def load_json(path: pathlib.Path, file: str, options: Options, *, of_worker: bool) -> Cells:
    """Reads the columns of JSON lines that are needed: see `sgdlab.traces.tables.Load`."""
    with _opened(path) as lines:
        pieces = _pieces(lines, file, _PIECE, _text_end(lines), quotes=False)
        found = [(piece, json_rows(piece)) for piece in map(_below_header, pieces)]
    keys = dict.fromkeys(itertools.chain.from_iterable(map(_keys, (rows for _, rows in found))))
    if not keys and not any(any(rows.values()) for _, rows in found):
        raise BadTrace("must have an object in each line")
    layout = columns.layout(list(keys), options, of_worker=of_worker)
    necessary = [layout.columns["step"], layout.columns["duration"]] if layout.kind == "long" else []
    return Cells.joined([json_cells(piece, layout, rows, necessary) for piece, rows in found])


_OF_RECORDER = {"unfinished_step", "profile"}
"""Keys of lines of sgdlab-record that are no rows, and need not be said."""

RECORDED, _NEWEST = b'{"sgdlab_record": ', 1
"""Begin of a file of sgdlab-record, and the newest number of its format that is known."""


def has_no_rows(file: pathlib.Path) -> bool:
    """Tell whether a file is empty, or sgdlab-record has written no step yet."""
    with _opened(file) as lines:
        first = lines.read(1 << 16)
    return not first or (first.startswith(RECORDED) and b'"phase": ' not in first and len(first) < 1 << 16)


def _below_header(piece: Piece) -> Piece:
    """Return the lines below the header of sgdlab-record."""
    if piece.line != 1 or not piece.data.startswith(RECORDED):
        return piece
    header, _, below = piece.data.partition(b"\n")
    check_recorded(header)
    return Piece(below, 2, piece.file)


def check_recorded(line: bytes, file: str = "") -> None:
    """Refuse the header of sgdlab-record, which has the number of its format, where that is newer than is known."""
    if line.startswith(RECORDED):
        number = (paths.object_of(line) or {}).get("sgdlab_record")
        if not isinstance(number, int) or number > _NEWEST:
            newest = f"this sgdlab reads up to {_NEWEST}: install a newer one"
            raise BadTrace(f"{file}is of format {number} of sgdlab-record; {newest}")


_UNFINISHED = ""
_Lines = dict[int, dict[str, Any] | str]
"""Line -> the object that it is, or what is wrong with it."""


def json_rows(piece: Piece) -> pa.Table | _Lines:
    """Reads JSON lines: a table of PyArrow, or else what each line holds."""
    try:
        table = pyarrow.json.read_json(pa.BufferReader(piece.data))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return _json_by_line(piece)
    return table if table.column_names and table.num_rows == piece.lines else _json_by_line(piece)


def _json_by_line(piece: Piece) -> _Lines:
    found: _Lines = {}
    for line, text in enumerate(io.TextIOWrapper(io.BytesIO(piece.data), encoding="utf-8-sig"), start=piece.line):
        if not text.strip():
            continue
        try:
            value = json.loads(text)
            found[line] = value if isinstance(value, dict) else "must be an object in JSON, as {...}"
        except ValueError as error:
            found[line] = f"must be an object in JSON: {error}" if text.endswith("\n") else _UNFINISHED
    return found


def _keys(rows: pa.Table | _Lines) -> Iterable[str]:
    if isinstance(rows, pa.Table):
        return rows.column_names
    return itertools.chain.from_iterable(found for found in rows.values() if isinstance(found, dict))


def json_cells(piece: Piece, layout: ColumnLayout, rows: pa.Table | _Lines, necessary: Sequence[str] = ()) -> Cells:
    """Takes the columns that are needed out of what `json_rows` made of a piece, less lines without necessary keys."""
    needed = layout.needed
    if isinstance(rows, pa.Table):
        # Null may stand for a key that a line lacks.
        if needed.keys() <= {*rows.column_names} and not any(rows[name].null_count for name in necessary):
            try:
                return Cells.of(rows, layout, CheckedRows(range(piece.line, piece.line + rows.num_rows), piece.file))
            except BadTrace:
                pass
        rows = _json_by_line(piece)
    objects = {line: found for line, found in rows.items() if isinstance(found, dict)}
    kept = {line: found for line, found in objects.items() if all(key in found for key in necessary)}
    table = {name: [found.get(name) for found in kept.values()] for name in needed}
    cells = Cells.of(table, layout, CheckedRows(np.array([*kept], np.int64), piece.file))
    others = sum(line not in kept and _OF_RECORDER.isdisjoint(found) for line, found in objects.items())
    cells.left_out += Counter({f"lines without {' or '.join(map(repr, necessary))}": others})
    for line, found in rows.items():
        if found == _UNFINISHED:
            cells.notes += ("the last line is unfinished and was left out",)
        elif isinstance(found, str):
            cells.rows.add_line("lines that are no object of JSON", line, f"{cells.rows.name_of(line)} {found}")
    return cells
