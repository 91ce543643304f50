"""The history of benchmarks: rows are appended to a table, and a page draws each figure by commit."""

import re

import pytest

from experiments.benchmarks import __main__ as command
from experiments.benchmarks import history
from experiments.benchmarks.timing import Figure, at_least


def test_figures_become_rows_that_are_appended_and_drawn(tmp_path):
    table, page = tmp_path / "benchmarks.csv", tmp_path / "pages/history.html"
    with pytest.raises(ValueError, match="has no rows yet"):
        history.draw(history.read(table), page)
    figures = [at_least("wave over event", 1.25, "x", 1.0), Figure("seconds", 3.0, "s"), Figure("share", 0.5, "x")]
    for commit in ("abc1234", "def5678"):
        history.append(history.rows_of("wave", figures, commit), table)
    rows = history.read(table)
    assert [(row["commit"], row["name"], row["value"]) for row in rows] == [
        ("abc1234", "wave over event", "1.25"),
        ("abc1234", "share", "0.5"),
        ("def5678", "wave over event", "1.25"),
        ("def5678", "share", "0.5"),
    ]
    text = history.draw(rows, page).read_text("utf-8")
    assert re.findall(r"<h2>(.*?) <span", text) == ["wave over event", "share"]
    assert text.count("<svg") == 2
    assert "1.25 x, goal &gt;= 1" in text
    assert "def5678" in text


def test_a_tree_that_is_not_committed_is_not_stored(monkeypatch, capsys):
    monkeypatch.setattr(history, "commit", lambda: None)
    with pytest.raises(SystemExit) as error:
        command.main(["schedule", "--store"])
    assert error.value.code == 2
    assert "--store needs a committed tree" in capsys.readouterr().err
