"""`Table`: one table for the terminal and as Markdown, with what its columns mean and notes below; and rows as CSV.

A `Column` says once what stands above its cells, what that means, what the cells are, and their name in a CSV file.
"""

import csv
import dataclasses
import io
import itertools
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from tabulate import tabulate

WIDTH = 120
"""Columns of a terminal; tables there are no wider, where their cells let them."""

_NARROWEST = 10
_WIDEST_HEADING = 10
"""In the terminal; wider ones take several lines."""


class Number(str):
    """A cell with the number that rows are sorted by, where it is not only read."""

    value: float

    def __new__(cls, text: str, value: float) -> Self:
        """Return the text, with its number."""
        made = super().__new__(cls, text)
        made.value = value
        return made


class Column(NamedTuple):
    """A column of a table."""

    heading: str  # what stands above the cells
    cell: Callable[[Any], str]  # of whatever a row is about, the text, or a `Number`
    meaning: str = ""  # the heading in a sentence, with the unit; "" where nothing is to be said
    name: str = ""  # of the number in a CSV file; "" where it is in none


def numbers(columns: Iterable[Column], about: Any) -> dict[str, float | None]:
    """Return name -> number of the columns that have a name, of one row; None where its cell has no number."""
    return {column.name: getattr(column.cell(about), "value", None) for column in columns if column.name}


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    r"""Cells under headings, with the meaning of the columns and notes below.

    Example:
      >>> table = Table({"method": "", "s": "seconds"}, [["Rounds", "7.5"]], ["One seed."], obvious=["method"])
      >>> print(table.text())
      method    s
      ------  ---
      Rounds  7.5
      <BLANKLINE>
      s  seconds
      One seed.
      >>> table.markdown().splitlines()[-3:]
      ['* **s**: seconds', '', 'One seed.']
    """

    columns: Mapping[str, str]  # heading -> meaning; "" where nothing is to be said
    rows: Sequence[Sequence[str]]  # the texts of the cells, a row each
    notes: Sequence[str] = ()  # sentences on the whole table
    obvious: Collection[str] = ()  # headings whose meaning is not said
    left: int = 1  # so many of the first columns are aligned to the left, the others to the right
    kinds: Sequence[str] = ()  # of the rows, for the style of a page; empty, or one each
    # of the rows, in a last column of a page: their starts and widths, in percent; empty, or one each
    bars: Sequence[tuple[str, str]] = ()

    @classmethod
    def of(cls, columns: Sequence[Column], about: Iterable[Any], notes: Sequence[str] = (), **others: Any) -> "Table":
        """Return the table that has a row for each thing, and the other attributes as they are given.

        Example:
          >>> Table.of([Column("n", str), Column("squared", lambda n: str(n * n))], [2, 3]).rows
          [['2', '4'], ['3', '9']]
        """
        rows = [[column.cell(one) for column in columns] for one in about]
        return cls({column.heading: column.meaning for column in columns}, rows, notes, **others)

    @property
    def meanings(self) -> dict[str, str]:
        """Return what is said of the columns below the cells: heading -> meaning."""
        return {
            heading: meaning for heading, meaning in self.columns.items() if meaning and heading not in self.obvious
        }

    def without(self, headings: Collection[str]) -> "Table":
        """Return the table without some of its columns."""
        kept = [index for index, heading in enumerate(self.columns) if heading not in headings]
        columns = {name: meaning for name, meaning in self.columns.items() if name not in headings}
        rows = [[row[index] for index in kept] for row in self.rows]
        return dataclasses.replace(self, columns=columns, rows=rows, left=sum(index < self.left for index in kept))

    def grid(self) -> str:
        """Return the cells for a terminal of `WIDTH` columns; headings are wrapped, and so is the widest column."""
        head, *rows = [list(row) for row in (map(_in_lines, self.columns), *self.rows)]
        widths = _widths([head, *rows])
        widest = widths.index(max(widths[: self.left]))
        room = max(WIDTH - sum(width + 2 for width in widths) + widths[widest] + 2, _NARROWEST)
        for row in rows:
            row[widest] = textwrap.fill(row[widest], room)
        widths = _widths([head, *rows])
        formats = [f"{'<' if index < self.left else '>'}{width}" for index, width in enumerate(widths)]
        rule = "  ".join("-" * width for width in widths)
        return "\n".join([*_lines(head, formats), rule, *(line for row in rows for line in _lines(row, formats))])

    def text(self) -> str:
        """Return the table for a terminal, with meanings and notes below."""
        said = self.meanings
        indent = max(map(len, said), default=0) + 2
        below = [
            textwrap.fill(f"{heading:<{indent}}{meaning}", WIDTH, subsequent_indent=" " * indent)
            for heading, meaning in said.items()
        ]
        notes = [textwrap.fill(note, WIDTH) for note in self.notes]
        return "\n".join([self.grid(), "", *below, *notes])

    def markdown(self) -> str:
        """Return the table in GitHub's Markdown, with meanings and notes below."""
        listed = [f"* **{heading}**: {meaning}" for heading, meaning in self.meanings.items()]
        return "\n".join([self.markdown_grid(), "", *listed, "", *self.notes]).rstrip() + "\n"

    def markdown_grid(self) -> str:
        """Return the cells alone in GitHub's Markdown."""
        align = ["left" if index < self.left else "right" for index in range(len(self.columns))]
        return tabulate(self.rows, headers=list(self.columns), tablefmt="github", disable_numparse=True, colalign=align)


def in_csv(rows: Iterable[Mapping[str, object]], names: Sequence[str] = ()) -> str:
    r"""Return rows as CSV, with numbers in full precision; None is an empty cell, and so is what a row lacks.

    Columns are the `names`, by default those of the first row.

    Example:
      >>> in_csv([{"worker": "a", "seconds": 0.1}, {"worker": "b", "seconds": None}])
      'worker,seconds\na,0.1\nb,\n'
    """
    rows, output = list(rows), io.StringIO()
    writer = csv.DictWriter(output, names or list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return output.getvalue()


def _in_lines(heading: str) -> str:
    r"""Return a heading for the terminal.

    Example:
      >>> _in_lines("seconds to 95 %"), _in_lines("interrupted: share")
      ('seconds\nto 95 %', 'interrupted:\nshare')
    """
    lines = heading.replace(": ", ":\n").replace(" to ", "\nto ").replace("x sync. ", "x sync.\n").split("\n")
    return "\n".join(textwrap.fill(line, _WIDEST_HEADING, break_long_words=False) for line in lines)


def _lines(row: Sequence[str], formats: Sequence[str]) -> list[str]:
    """Return a row as lines; cells have one or more."""
    lines = itertools.zip_longest(*(cell.split("\n") for cell in row), fillvalue="")
    return ["  ".join(map(format, line, formats)).rstrip() for line in lines]


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(line) for cell in column for line in cell.split("\n")) for column in zip(*rows, strict=True)]
