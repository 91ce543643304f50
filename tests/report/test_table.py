"""Tables stay within a terminal, align as they say, and lose no cell, in the terminal, as Markdown and as CSV."""

import csv
import io

import pytest

from sgdlab.report.table import WIDTH, Table, in_csv

NAMES = ["Ringmaster", "A method whose title is longer than that of all others, which has to be wrapped"]


@pytest.fixture
def table():
    columns = {"method": "", "setting": "of its entry", **{f"virtual seconds to {n} %": f"to {n}" for n in range(6)}}
    rows = [[name, f"b = {i}", *(f"{1000 * i + n:,.3f}" for n in range(6))] for i, name in enumerate(NAMES)]
    return Table(columns, rows, ["A note that is too long for one line. " * 5], left=2)


def test_the_terminals_is_not_too_wide_and_has_every_word(table):
    text = table.text()
    assert max(map(len, text.splitlines())) <= WIDTH
    for word in " ".join([*table.columns, *table.columns.values(), *NAMES, *table.notes]).split():
        assert word in text
    for row in table.rows:
        assert any(all(cell in line for cell in row[1:]) for line in text.splitlines())


def test_columns_to_the_left_begin_and_those_to_the_right_end_in_one_place(table):
    head = next(line for line in table.grid().splitlines() if set(line) == {"-", " "})
    ends = [end for end in range(1, len(head) + 1) if head[end - 1] == "-" and head[end : end + 1] in ("", " ")]
    starts = [start for start in range(len(head)) if head[start] == "-" and (start == 0 or head[start - 1] == " ")]
    for row in table.rows:
        line = next(line for line in table.grid().splitlines() if row[2] in line)
        assert line[starts[1] :].startswith(row[1])
        assert [line[:end].endswith(cell) for end, cell in zip(ends[2:], row[2:], strict=True)] == [True] * 6


def test_a_column_that_is_left_out_leaves_the_others_as_they_are(table):
    lines = table.without(["setting"]).grid().splitlines()
    assert not any("b = 0" in line or "setting" in line for line in lines)
    row = next(line for line in lines if line.startswith("Ringmaster"))
    assert row.split() == [NAMES[0], *table.rows[0][2:]]
    assert "setting" not in table.without(["setting"]).text()


def test_markdown_is_aligned_too_and_says_what_columns_mean(table):
    lines = table.markdown().splitlines()
    for row, line in zip(table.rows, lines[2:], strict=False):
        assert [cell.strip() for cell in line.strip("|").split("|")] == row
        assert line.split("|")[2].startswith(f" {row[1]}  ")
        assert line.split("|")[3].endswith(f"  {row[2]} ")
    assert "* **setting**: of its entry" in lines
    assert not any(line.startswith("* **method**") for line in lines)


def test_csv_has_full_precision_and_empty_cells():
    rows = [{"a": 1 / 3, "b": None}, {"a": float("inf"), "b": 'two, "words"'}]
    first, second = csv.DictReader(io.StringIO(in_csv(rows)))
    assert (float(first["a"]), first["b"]) == (1 / 3, "")
    assert (second["a"], second["b"]) == ("inf", 'two, "words"')
    assert in_csv([], ["a", "b"]) == "a,b\n"
