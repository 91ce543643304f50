"""Errors of a file: of the whole of it, or of single rows, of which all are reported at once."""

import heapq
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

MOST_SHOWN = 20
"""So many bad rows are shown; the others are counted."""

_place_of = operator.itemgetter(0, 1)


class BadTrace(ValueError):
    """A file that cannot be read; the message does not name the file, which `sgdlab.traces.read` puts in front."""


class CheckedRows:
    """The rows of a table, how messages name them, and which of them cannot be used.

    Messages name rows by their lines and the file, where there are several; `bad` tells which cannot be used, bool[R],
    and `kinds` how many, by what is wrong with them.

    Example:
      >>> rows = CheckedRows(range(2, 5))
      >>> rows.add("text cells", [1], lambda row: f"{rows.name(row)} is 'x'; it must be a number")
      >>> rows.left_out(skip=True)
      ['1 bad row was skipped: text cells (1)']
      >>> rows.left_out(skip=False)
      Traceback (most recent call last):
      ...
      sgdlab.traces.problems.BadTrace: row 3 is 'x'; it must be a number (--skip_bad_rows leaves it out)
    """

    def __init__(self, lines: Sequence[int] | np.ndarray, file: str = ""):
        self._parts: list[tuple[str, Sequence[int] | np.ndarray]] = [(file, lines)]
        self._begins = np.zeros(1, np.int64)
        self.bad = np.zeros(len(lines), bool)
        self.kinds: Counter[str] = Counter()
        self._shown: list[tuple[int, int, str]] = []  # number of the part, line, message

    def __len__(self) -> int:
        return self.bad.size

    @classmethod
    def joined(cls, tables: "Sequence[CheckedRows]") -> "CheckedRows":
        """Return the rows of several files, one after the other."""
        rows = cls([])
        rows._parts = []
        rows.bad = np.concatenate([table.bad for table in tables])
        for table in tables:
            rows.kinds += table.kinds
            rows._show((len(rows._parts) + part, line, message) for part, line, message in table._shown)
            rows._parts += table._parts
        rows._begins = np.cumsum([0, *(len(lines) for _, lines in rows._parts)])[:-1]
        return rows

    def at(self, rows: np.ndarray) -> "CheckedRows":
        """Return some of the rows, by their rising indices."""
        kept = CheckedRows([])
        ends = [*self._begins[1:].tolist(), len(self)]
        inside = [rows[(rows >= first) & (rows < end)] - first for first, end in zip(self._begins, ends, strict=True)]
        kept._parts = [(file, np.asarray(lines)[own]) for (file, lines), own in zip(self._parts, inside, strict=True)]
        kept._begins = np.cumsum([0, *map(len, inside)])[:-1]
        kept.bad, kept.kinds, kept._shown = self.bad[rows], self.kinds, self._shown
        return kept

    def name(self, row: int) -> str:
        """Name a row in a message."""
        part, line = self._place(row)
        return self.name_of(line, part)

    def both(self, one: int, other: int) -> str:
        """Name two rows in a message."""
        (part, first), (_, second) = self._place(one), self._place(other)
        return f"{self.name(one)}, {self.name(other)}" if self._parts[part][0] else f"rows {first}, {second}"

    def name_of(self, line: int, part: int = 0) -> str:
        """Name a line of the file in a message."""
        file = self._parts[part][0]
        return f"row {line} of {file}" if file else f"row {line}"

    def add(self, kind: str, rows: Sequence[int] | np.ndarray, message: Callable[[int], str]) -> None:
        """Marks rows as bad, for what `kind` says; the message of each names it, what is wrong, and the cure."""
        if not len(rows):
            return
        rows = np.asarray(rows, np.int64)
        self.kinds[kind] += int((~self.bad[rows]).sum())
        self.bad[rows] = True
        self._show((*self._place(row), message(row)) for row in rows[: MOST_SHOWN + 1].tolist())

    def add_line(self, kind: str, line: int, message: str) -> None:
        """Notes a line of the file that could not become a row."""
        self.kinds[kind] += 1
        self._show([(0, line, message)])

    @property
    def count(self) -> int:
        """Return the number of rows that cannot be used."""
        return self.kinds.total()

    def left_out(self, *, skip: bool) -> list[str]:
        """Return a sentence on the rows that are left out, if there are any.

        Raises:
          BadTrace: naming all rows that cannot be used, unless they are skipped.
        """
        if not self.count:
            return []
        by_kind = ", ".join(f"{kind} ({count:,})" for kind, count in self.kinds.most_common() if count)
        if skip:
            rows = "1 bad row was" if self.count == 1 else f"{self.count:,} bad rows were"
            return [f"{rows} skipped: {by_kind}"]
        lines = [message for _, _, message in self._shown[:MOST_SHOWN]]
        if len(lines) == 1:
            raise BadTrace(f"{lines[0]} (--skip_bad_rows leaves it out)")
        if len(self._shown) > MOST_SHOWN or self.count > len(lines):
            lines.append(f"... {self.count:,} in all: {by_kind}")
        rows, them = ("1 row", "it") if self.count == 1 else (f"{self.count:,} rows", "them")
        raise BadTrace("\n  ".join([f"{rows} cannot be used (--skip_bad_rows leaves {them} out):", *lines]))

    def _place(self, row: int) -> tuple[int, int]:
        part = int(np.searchsorted(self._begins, row, side="right")) - 1
        # Empty files have no rows; the last part that begins here has them.
        return part, int(self._parts[part][1][row - self._begins[part]])

    def _show(self, found: Iterable[tuple[int, int, str]]) -> None:
        self._shown = heapq.nsmallest(MOST_SHOWN + 1, [*self._shown, *found], key=_place_of)
