"""How a CSV file is written: what separates its cells, the decimals of its numbers, and the names of its columns."""

import csv
import dataclasses
import itertools
import re
from collections.abc import Iterable, Sequence

from sgdlab.traces import columns
from sgdlab.traces.cells import MISSING, number
from sgdlab.traces.column_names import INDEX
from sgdlab.traces.columns import ColumnLayout
from sgdlab.traces.options import Options
from sgdlab.traces.problems import BadTrace


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
    separator = _separator(first)
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


def layout_of(written: Dialect, options: Options, *, of_worker: bool) -> ColumnLayout:
    """Say what the columns of a file hold: see `sgdlab.traces.columns.layout`.

    Raises:
      BadTrace: where that cannot be recognised, or where columns without names are to be found by name.
    """
    if written.named:
        return columns.layout(written.header, options, of_worker=of_worker)
    if options.columns:
        raise BadTrace(
            f"--columns={','.join(options.columns)} cannot be found: the first line holds numbers, not names"
        )
    number_of = len(written.header)
    remark = f"the first line has no names: {number_of} column{'s' * (number_of > 1)} were read as workers"
    return ColumnLayout("wide", workers=written.header, unit=options.unit or "s", remarks=(remark,))


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
