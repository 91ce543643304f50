"""The measured figures of earlier commits: rows of a stored table, and a page that draws them.

    python -m experiments.benchmarks schedule replay --store   # appends its figures to the table
    python -m experiments.benchmarks history                   # draws all of them: runs/benchmarks/history.html

Figures are compared on one machine and jax alone: each pair of them is a line of its own.
"""

import csv
import datetime
import io
import pathlib
from collections.abc import Sequence

import jax

from experiments.benchmarks.timing import Figure
from experiments.harness import publishing
from experiments.harness.pictures import canvas
from sgdlab import files
from sgdlab.report import pages
from sgdlab.report.table import in_csv
from sgdlab.runs import digests

TABLE = pathlib.Path(__file__).parents[1] / "results/benchmarks.csv"
PAGE = pathlib.Path("runs/benchmarks/history.html")
COLUMNS = ("when", "commit", "machine", "jax", "suite", "name", "value", "unit", "goal")
_WIDTH, _HEIGHT = 9.0, 2.0
"""Inches of the picture of one figure."""


def commit() -> str | None:
    """Return the commit of this checkout; None where files of code differ from it, or there is none."""
    found = digests.made_with()["commit"]
    return None if found is None or found.endswith("+") else found


def rows_of(suite: str, figures: Sequence[Figure], made_by: str) -> list[dict[str, str]]:
    """Return the rows of the figures of a suite that have a goal or are ratios, by a commit, on this machine."""
    known = {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        "commit": made_by,
        "machine": publishing.this_machine(),
        "jax": jax.__version__,
        "suite": suite,
    }
    kept = [figure for figure in figures if figure.goal or figure.unit == "x"]
    return [{**known, "name": f.name, "value": f"{f.value:.4g}", "unit": f.unit, "goal": f.goal} for f in kept]


def read(path: pathlib.Path = TABLE) -> list[dict[str, str]]:
    """Return the rows of the table; none, if there is no table yet."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def append(rows: Sequence[dict[str, str]], path: pathlib.Path = TABLE) -> None:
    """Add rows to the table, which is replaced as a whole."""
    files.write_text(path, in_csv([*read(path), *rows], COLUMNS))


def draw(rows: Sequence[dict[str, str]], path: pathlib.Path = PAGE) -> pathlib.Path:
    """Write a page with a picture of each figure, value by commit, and a line for each machine and jax.

    Raises:
      ValueError: where there are no rows.
    """
    if not rows:
        raise ValueError(f"{TABLE.name} has no rows yet: python -m experiments.benchmarks SUITE --store adds some")
    by_figure: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        by_figure.setdefault((row["suite"], row["name"]), []).append(row)
    sections = [{"suite": suite, "name": name, **_section(found)} for (suite, name), found in by_figure.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(
        path,
        pages.render(
            "experiments.benchmarks",
            "history.html",
            title="Measured figures by commit",
            subtitle=f"{len(rows)} measurements of {len(by_figure)} figures",
            sections=sections,
        ),
    )
    return path


def _section(rows: Sequence[dict[str, str]]) -> dict[str, str]:
    """Return the picture of one figure, and its newest value in words."""
    commits, goal = list(dict.fromkeys(row["commit"] for row in rows)), rows[-1]["goal"]
    drawn, panels = canvas(width=_WIDTH, height=_HEIGHT)
    axes = panels[0, 0]
    for where in dict.fromkeys((row["machine"], row["jax"]) for row in rows):
        own = [row for row in rows if (row["machine"], row["jax"]) == where]
        places = [commits.index(row["commit"]) for row in own]
        axes.plot(places, [float(row["value"]) for row in own], "o-", label=f"{where[0]}, jax {where[1]}")
    if goal:
        axes.axhline(float(goal.split()[-1]), color="0.6", linestyle="--", linewidth=1)
    axes.set_xticks(range(len(commits)), commits, rotation=30, fontsize=9)
    axes.set_ylabel(rows[-1]["unit"] or "share")
    drawn.legend(loc="outside right center")
    picture = io.StringIO()
    drawn.savefig(picture, format="svg")
    newest = rows[-1]
    said = f"{newest['value']} {newest['unit']}".strip() + (f", goal {goal}" if goal else "")
    return {"newest": f"{said}; {newest['machine']}, {newest['when'][:10]}", "svg": picture.getvalue()}
