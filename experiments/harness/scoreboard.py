"""The scoreboard: one page with every table, figure and bound of the papers, and every claim with its verdict."""

import base64
import collections
import dataclasses
import datetime
import json
import pathlib
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags
from tabulate import tabulate

import experiments
from experiments import papers
from experiments.harness import publishing
from experiments.harness.claims import FAILS, HOLDS, INCONCLUSIVE as OPEN, OUTSIDE
from experiments.harness.figures import SCALES, Figure, by_number, figures, is_apart
from sgdlab import files
from sgdlab.commands import launch
from sgdlab.results import pages
from sgdlab.runs import digests
from sgdlab.runs.sweep import DEFAULT_WORKDIR
from sgdlab.runs.work import digest_now

USAGE = """Writes the scoreboard: every table and figure of the papers, with its claims' verdicts and its picture.

    python -m experiments scoreboard --workdir=runs/papers

Writes scoreboard.md and scoreboard.html to the work directory. Of each figure the largest scale is shown that the work
directory has results of, and else the result that is stored in this repository.
"""

STORED = pathlib.Path(experiments.__path__[0]) / "results"
"""Results that the repository holds, so that the page is whole before anything was run."""

PAGE = "README.md"
"""The page of the stored results, with their pictures beside it."""

WORDS = {HOLDS: "holds", FAILS: "fails", OPEN: "open", OUTSIDE: "outside", "cannot be said at this size": "open"}
"""Verdict -> the word in colour."""


@dataclasses.dataclass(frozen=True)
class Result:
    """The newest result of a figure at its largest scale.

    Attributes:
      facts: what claims.json holds.
      picture: the PNG file; None where there is none.
      table: the CSV file; None where there is none.
    """

    facts: dict[str, Any]
    picture: pathlib.Path | None
    table: pathlib.Path | None = None

    @property
    def claims(self) -> list[dict[str, Any]]:
        """The claims, each with its verdict; the scale smoke only shows that a command works, and decides nothing."""
        if self.facts["scale"] == SCALES[0]:
            return [claim | {"verdict": OPEN} for claim in self.facts["claims"]]
        return self.facts["claims"]

    def changed(self, made: Figure) -> list[str]:
        """Return what of the code that made it has changed since: "figure", works, functions and parts, by name."""
        now = {publishing.FIGURE: digests.of_code(made.make)}
        stored = self.facts.get("code", {})
        return [name for name, digest in stored.items() if (now.get(name) or digest_now(name)) != digest]

    @property
    def scale(self) -> str:
        """Return the scale, with the arguments that differ from its own."""
        changed = "".join(f", {name}={value}" for name, value in self.facts["changed"].items())
        whole = " (the paper's size)" if self.facts.get("full_size") and self.facts["scale"] == "laptop" else ""
        return f"{self.facts['scale']}{whole}{changed}"

    @property
    def made_with(self) -> str:
        """Return the machine and the version of the code."""
        made = self.facts["made"]
        return f"{self.facts['hardware']}; sgdlab {made['version']}, commit {made['commit'] or 'unknown'}"

    def age(self, now: datetime.datetime) -> str:
        """Return how old it is, in words."""
        hours = (now - datetime.datetime.fromisoformat(self.facts["when"])).total_seconds() / 3600
        if hours < 24:
            return "today"
        return "a day old" if hours < 48 else f"{hours / 24:.0f} days old"


@dataclasses.dataclass(frozen=True)
class Row:
    """A table, figure or bound of a paper, or a claim that is shown in none of them.

    Attributes:
      number: such as "Figure 2".
      shows: what it shows.
      figure: the command that reproduces it; None: there is none yet.
      result: of the command; None: it has not been run.
      first: it is the first row of its command, which shows the claims and the picture.
    """

    number: str
    shows: str
    figure: Figure | None
    result: Result | None
    first: bool


Board = list[tuple[papers.Paper, list[Row]]]
"""The rows of each paper."""


def define_flags() -> None:
    """Defines the command's flag."""
    says = "Copies the results that are shown, and those of beyond, into the repository, experiments/results."
    flags.DEFINE_bool("store", False, says)


def main(argv: Sequence[str]) -> None:
    """Writes the page."""
    del argv
    path = launch.workdir(DEFAULT_WORKDIR)
    everything = figures(apart=flags.FLAGS.store)
    found = [made for made in everything if not is_apart(made.name)]
    by_paper = board(found, path)
    if flags.FLAGS.store:
        store(by_paper)
        store(board([made for made in everything if is_apart(made.name)], path))
        stored = [(paper, rows_of(paper, STORED, found)) for paper in papers.PAPERS]
        files.write_text(STORED / PAGE, as_markdown(stored, older=False))
    files.write_text(path / "scoreboard.html", as_html(by_paper))
    files.write_text(path / "scoreboard.md", as_markdown(by_paper, pictures="pictures/"))
    for row in (row for _, rows in by_paper for row in rows if row.first and row.result and row.result.picture):
        with files.replacing(path / "pictures" / f"{row.figure.name}.png") as file:
            file.write(pages.small_png(row.result.picture))
    print(f"{summary(by_paper)}\n\nWritten: {path}/scoreboard.html, .md")


def board(found: Sequence[Figure], path: pathlib.Path) -> Board:
    """Return the rows of the five papers, and of others that figures are of."""
    own = papers.others(made.paper for made in found)
    return [(paper, rows_of(paper, path, found)) for paper in (*papers.PAPERS, *own)]


def rows_of(paper: papers.Paper, path: pathlib.Path, found: Sequence[Figure]) -> list[Row]:
    """Return the rows of a paper, then what is checked besides."""
    rows, seen = [], set()
    for number, made in by_number(paper, found).items():
        result = find_result(made, path) if made else None
        rows.append(
            Row(number, paper.rows.get(number) or made.title, made, result, bool(made) and made.name not in seen)
        )
        seen.add(made.name if made else None)
    return rows


def find_result(made: Figure, path: pathlib.Path) -> Result | None:
    """Return the result of a figure at the largest scale, in a directory or else in the repository."""
    for scale in reversed(SCALES):
        folder = publishing.folder(path, made.name, scale)
        if (
            result := _read(folder / publishing.CLAIMS, folder / publishing.PICTURE, folder / publishing.TABLE)
        ) is not None:
            stored = stored_result(made.name)
            larger = stored and SCALES.index(stored.facts["scale"]) > SCALES.index(scale)
            return stored if larger else result
    return stored_result(made.name)


def stored_result(name: str) -> Result | None:
    """Return the result of a figure that the repository holds; None where there is none."""
    return _read(STORED / f"{name}.json", STORED / name, STORED / name)


def _read(claims: pathlib.Path, picture: pathlib.Path, table: pathlib.Path) -> Result | None:
    """Return a result of its files, whose names end in .json, .png and .csv."""
    try:
        facts = json.loads(claims.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    png, csv = (path.with_name(f"{path.name}.{kind}") for path, kind in ((picture, "png"), (table, "csv")))
    return Result(facts, png if facts["picture"] and png.exists() else None, csv if csv.exists() else None)


def store(by_paper: Board) -> None:
    """Copies the results that are shown into the repository: facts, tables, and pictures in few colours."""
    for row in (row for _, rows in by_paper for row in rows if row.first and row.result):
        name, result = row.figure.name, row.result
        text = json.dumps(result.facts, indent=1, ensure_ascii=False) + "\n"
        picture = pages.small_png(result.picture) if result.picture else None
        table = result.table and result.table.read_text(encoding="utf-8")
        files.write_text(STORED / f"{name}.json", text)
        if table is not None:
            files.write_text(STORED / f"{name}.csv", table)
        if picture is not None:
            with files.replacing(STORED / f"{name}.png") as file:
                file.write(picture)


def counted(rows: Sequence[Row]) -> dict[str, int]:
    """Return how many claims have each verdict."""
    found = collections.Counter(
        claim["verdict"] for row in rows if row.first and row.result for claim in row.result.claims
    )
    return {verdict: found[verdict] for verdict in (HOLDS, FAILS, OPEN)}


def summary(by_paper: Board) -> str:
    """Rows with a command, claims by verdict, and what a verdict says."""
    rows = [row for _, of_paper in by_paper for row in of_paper]
    tables = [row for paper, of_paper in by_paper for row in of_paper if row.number in paper.rows]
    made = sum(row.figure is not None for row in tables)
    counts = counted(rows)
    return (
        f"{made} of {len(tables)} tables, figures and bounds have a command. Of {sum(counts.values())} claims "
        f"{counts[HOLDS]} hold, {counts[FAILS]} fail, and {counts[OPEN]} cannot be said at this size. "
        "That a claim fails says that it did not hold at our scale, mostly a small one: the failure may be the paper's "
        "or our set-up's."
    )


def as_markdown(by_paper: Board, *, pictures: str = "", older: bool = True) -> str:
    """Return the page in Markdown, with pictures beside it.

    Args:
      by_paper: the rows.
      pictures: where the pictures are, relative to the page.
      older: whether results of older code are marked.
    """
    parts = [f"# What holds of five papers on distributed SGD\n\n{summary(by_paper)}\n"]
    for paper, rows in by_paper:
        table = [[row.number, row.shows, *_state(row, _date), *_counts(row)] for row in rows]
        headers = ["", "shows", "command", "scale", "made", HOLDS, FAILS, "open"]
        parts.append(f"## {paper.authors}: {paper.title} ({paper.source})\n")
        parts.append(tabulate(table, headers, "github", disable_numparse=True) + "\n")
        for row in rows:
            if not (row.first and row.result):
                continue
            parts.append(f"### {_heading(row)}\n")
            if row.result.picture:
                parts.append(f"![{row.figure.title}]({pictures}{row.figure.name}.png)\n")
            old = _older(row) if older else ""
            parts.append(f"Scale {row.result.scale}, on {row.result.made_with}.{f' {old}' if old else ''}\n")
            claims = [
                [c["verdict"], f"{c['says']} ({c['where']})", c["ours"], of_paper(c), publishing.opinion(c["because"])]
                for c in row.result.claims
            ]
            if claims:
                headers = ["verdict", "the paper says", "ours", "paper", "our opinion"]
                parts.append(tabulate(claims, headers, "github", disable_numparse=True).replace("\n\n", " ") + "\n")
    return "\n".join(parts)


def _date(result: Result) -> str:
    return result.facts["when"].partition("T")[0]


def as_html(by_paper: Board) -> str:
    """Return the page in HTML that refers to no other file."""
    now = datetime.datetime.now(datetime.UTC)
    sections = []
    for paper, rows in by_paper:
        sections.append(
            {
                "paper": paper,
                "anchor": re.sub(r"[^a-z0-9]+", "-", paper.authors.lower()),
                "short": re.sub(r" et al\.", "", paper.authors),
                "counts": _coloured(counted(rows)),
                "rows": [_html_row(row, now) for row in rows],
                "cards": [_card(row, now) for row in rows if row.first and row.result],
            }
        )
    everything = [row for _, rows in by_paper for row in rows]
    return pages.render(
        "experiments.harness",
        "scoreboard.html",
        title="What holds of five papers on distributed SGD",
        subtitle=summary(by_paper),
        counts=_coloured(counted(everything)),
        sections=sections,
    )


def _html_row(row: Row, now: datetime.datetime) -> dict[str, Any]:
    command, scale, age = _state(row, lambda result: result.age(now))
    claims = [] if row.result is None else row.result.claims
    marks = [{"word": WORDS[claim["verdict"]], "says": claim["says"]} for claim in claims]
    return {
        "number": row.number,
        "shows": row.shows,
        "command": command,
        "name": row.figure.name if row.figure else "",
        "scale": scale,
        "age": age,
        "marks": marks if row.first else [],
        "above": bool(row.figure) and not row.first,
        "older": bool(_older(row)),
    }


def _card(row: Row, now: datetime.datetime) -> dict[str, Any]:
    result = row.result
    source, size = None, (0, 0)
    if result.picture:
        content = pages.small_png(result.picture)
        source = f"data:image/png;base64,{base64.b64encode(content).decode()}"
        size = struct.unpack(">II", content[16:24])  # so that the page keeps its room before it is drawn
    return {
        "name": row.figure.name,
        "heading": _heading(row),
        "picture": source,
        "size": size,
        "made_with": result.made_with,
        "older": _older(row),
        "title": row.figure.title,
        "facts": result.facts,
        "age": result.age(now),
        "claims": [
            claim
            | {"word": WORDS[claim["verdict"]], "of_paper": of_paper(claim)}
            | {"opinion": publishing.opinion(claim["because"])}
            for claim in result.claims
        ],
    }


def _heading(row: Row) -> str:
    return f"{' and '.join(row.figure.numbers)}: {row.figure.title}"


def _state(row: Row, when: Callable[[Result], str]) -> tuple[str, str, str]:
    """Command, scale, and when it was made, as far as there are such."""
    if row.figure is None:
        return "no command yet", "", ""
    if row.result is None:
        return row.figure.name, "not run yet", ""
    return row.figure.name, row.result.scale, when(row.result)


def _older(row: Row) -> str:
    """Return whether the code that made a result has changed since, and what of it; "" where it has not."""
    changed = row.result.changed(row.figure) if row.figure and row.result else []
    return f"Made by older code: {', '.join(changed)} changed since." if changed else ""


def _counts(row: Row) -> list[int | str]:
    return list(counted([row]).values()) if row.first and row.result else ["", "", ""]


def _coloured(counts: dict[str, int]) -> list[dict[str, Any]]:
    return [{"word": WORDS[verdict], "verdict": verdict, "count": count} for verdict, count in counts.items()]


def of_paper(claim: dict[str, Any]) -> str:
    """Return what the paper measured, and whether its sentence holds for that."""
    on_paper = {None: "", True: f"{HOLDS} on its own numbers", False: f"{FAILS} on its own numbers"}[claim["on_paper"]]
    return "; ".join(text for text in (claim["paper"], on_paper) if text)
