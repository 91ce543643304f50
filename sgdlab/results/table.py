"""The comparison as a table: for the terminal, as Markdown, as CSV, and cell by cell for a page."""

import csv
import io
import itertools
import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tabulate import tabulate

from sgdlab.results import facts
from sgdlab.results.summary import Group

WIDTH = 120
"""Columns of a terminal; the table there is no wider."""

SPEEDUP = "x sync. SGD"

GAP = (
    "distance between the server's parameters and those the gradient was computed on, over the largest learning rate "
    "times the mean gradient norm so far, plus 1 (Barkai et al. 2020, Definition 1)"
)
"""What the column of that name is."""

CSV_FIELDS = (
    "test_accuracy",
    "train_accuracy",
    "average_accuracy",
    "node_accuracy",
    "worst_accuracy",
    "center_accuracy",
    "consensus",
    "test_loss",
    "train_loss",
    "seconds",
    "speedup",
    "seconds_to_target",
    "epochs_to_target",
    "staleness",
    "gap",
    "gradients",
    "updates",
    "dropped",
    "idle_share",
    "wasted_share",
)

_UNEQUAL = 0.1
"""Deviation of a single worker's seconds, over their mean, from which on the notes say where it comes from."""

_NARROWEST_TITLE = 12


class Cell(NamedTuple):
    """One cell: what a reader sees, and the number that rows are sorted by (None: after all that have one)."""

    text: str
    value: float | None = None


def columns(groups: Sequence[Group]) -> dict[str, str]:
    """Headings, with what stands below them in a sentence; the text for the terminal, Markdown and the page alike.

    Args:
      groups: the rows.

    Returns:
      Heading -> definition with its unit, in the order of `cells`. `diverged` is a column only where some run did.
    """
    target = facts.target(groups)
    found = {
        "method": "whom the server waits for, and what it does with a gradient",
        "workers": "workers that compute gradients",
        "test %": "accuracy on the test set after the last gradient",
        "train %": "the same on the training set",
        "diverged": "runs that ended no better than guessing after their loss had blown up; the means include them",
        "seconds": "virtual seconds of a whole run",
        SPEEDUP: "used gradients per virtual second, over those of synchronous SGD with the same workers",
        f"seconds to {target}": f"virtual seconds until {target} test accuracy; a mean where all seeds reach it",
        f"epochs to {target}": "the same in epochs of used gradients",
        "staleness": "updates between the reading of the parameters and the use of the gradient (delay - 1; fresh: 0)",
        "gap": GAP,
    }
    if not any(group.num_diverged for group in groups):
        del found["diverged"]
    return found


def definitions(groups: Sequence[Group]) -> dict[str, str]:
    """What stands below a table: `columns`, less those that explain themselves."""
    return {heading: text for heading, text in columns(groups).items() if heading not in ("method", "workers")}


def cells(groups: Sequence[Group]) -> list[list[Cell]]:
    """One row for each group, in the order of `columns`.

    Accuracies are means over all runs, those that diverged included. The time to the target is a mean where all runs
    reached it, else how many did.
    """
    some_diverged = any(group.num_diverged for group in groups)
    return [
        [
            Cell(group.title),
            Cell(str(group.num_workers), group.num_workers),
            _number(group, "test_accuracy", 1, scale=100),
            _number(group, "train_accuracy", 1, scale=100),
            *([Cell(_diverged(group), group.num_diverged / len(group.runs))] if some_diverged else []),
            _number(group, "seconds", 0),
            _number(group, "speedup", 2),
            _to_target(group, "seconds_to_target", 0),
            _to_target(group, "epochs_to_target", 1),
            _number(group, "staleness", 1, spread=False),
            _number(group, "gap", 2, spread=False),
        ]
        for group in groups
    ]


def rows(groups: Sequence[Group]) -> list[list[str]]:
    """The texts of `cells`."""
    return [[cell.text for cell in row] for row in cells(groups)]


def notes(groups: Sequence[Group]) -> list[str]:
    """What is true of the whole table: seeds, length, cluster, and why a single worker's seconds vary if they do."""
    cluster = facts.about(groups).get("cluster")
    several = any(len(group.runs) > 1 for group in groups)
    seeds = f"Mean ± standard deviation over {facts.seeds(groups)}" if several else "One seed"
    found = [f"{seeds}; {facts.gradients(groups)} a run."]
    found += [f"Cluster: {cluster}."] if cluster else []
    alone = [spread for group in groups if group.serial and (spread := group.spread("seconds"))]
    unequal = max((spread.std / spread.mean for spread in alone if spread.mean), default=0.0)
    if unequal > _UNEQUAL:
        found.append(
            f"The seconds of a single worker vary by {100 * unequal:.0f} % between seeds, since each seed draws the "
            "machine that it runs on; the other methods average over the machines of all workers."
        )
    return found


def text(groups: Sequence[Group]) -> str:
    """The table for a terminal of 120 columns, with units and definitions below.

    Accuracy on the training set and the seconds of a whole run are left to `markdown` and `comma_separated`.
    """
    headings = list(columns(groups))
    indices = [index for index, heading in enumerate(headings) if heading not in ("train %", "seconds")]
    shown = [headings[index] for index in indices]
    heads = [heading.replace(" to ", "\nto ").replace("x sync. ", "x sync.\n") for heading in shown]
    found = [[row[index] for index in indices] for row in rows(groups)]
    taken = sum(
        max(len(cell) for cell in (*heads[index].split("\n"), *(row[index] for row in found))) + 2
        for index in range(1, len(shown))
    )
    width = max(WIDTH - taken, _NARROWEST_TITLE)
    meanings = {heading: meaning for heading, meaning in definitions(groups).items() if heading in shown}
    lines = _lines([heads, *([textwrap.fill(row[0], width), *row[1:]] for row in found)])
    return "\n".join([*lines, "", _below(meanings), *(textwrap.fill(note, WIDTH) for note in notes(groups))])


def markdown(groups: Sequence[Group]) -> str:
    """The table as Markdown, with units and definitions below."""
    headings = list(columns(groups))
    table = tabulate(
        rows(groups),
        headers=headings,
        tablefmt="github",
        disable_numparse=True,
        colalign=_alignment(len(headings)),
    )
    listed = [f"* **{heading}**: {meaning}" for heading, meaning in definitions(groups).items()]
    return "\n".join([table, "", *listed, "", *notes(groups)]).rstrip() + "\n"


def comma_separated(groups: Sequence[Group]) -> str:
    """Every number as CSV: mean and standard deviation over all seeds, empty where some seed has none."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    names = [f"{field}_{kind}" for field in CSV_FIELDS for kind in ("mean", "std")]
    writer.writerow(["method", "protocol", "rule", "serial", "num_workers", "seeds", "diverged", *names])
    for group in groups:
        values: list[object] = []
        for field in CSV_FIELDS:
            spread = group.spread(field)
            values += ["", ""] if spread is None else [repr(spread.mean), repr(spread.std)]
        identity = [group.method, group.protocol, group.rule, int(group.serial)]
        writer.writerow([*identity, group.num_workers, len(group.runs), group.num_diverged, *values])
    return output.getvalue()


def _alignment(count: int) -> tuple[str, ...]:
    return ("left",) + ("right",) * (count - 1)


def _lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells of one or more lines each, the first row being the headings; the first column to the left."""
    cells = [[cell.split("\n") for cell in row] for row in rows]
    widths = [max(len(line) for cell in column for line in cell) for column in zip(*cells, strict=True)]
    found = []
    for row in cells:
        for parts in itertools.zip_longest(*row, fillvalue=""):
            first, *others = zip(parts, widths, strict=True)
            found.append("  ".join([first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)]).rstrip())
        if row is cells[0]:
            found.append("  ".join("-" * width for width in widths))
    return found


def _below(meanings: Mapping[str, str]) -> str:
    """A line for each heading, the definitions below one another."""
    width = max(map(len, meanings)) + 2
    return "\n".join(
        textwrap.fill(meaning, WIDTH, initial_indent=heading.ljust(width), subsequent_indent=" " * width)
        for heading, meaning in meanings.items()
    )


def _diverged(group: Group) -> str:
    lost, seeds = group.num_diverged, len(group.runs)
    return f"{lost} of {seeds}" if lost else ""


def _number(group: Group, name: str, digits: int, *, scale: float = 1, spread: bool = True) -> Cell:
    found = group.spread(name)
    if found is None:
        return Cell("-")
    mean, deviation = f"{scale * found.mean:,.{digits}f}", f"{scale * found.std:,.{digits}f}"
    # One run has no deviation.
    return Cell(f"{mean} ± {deviation}" if spread and len(group.runs) > 1 else mean, scale * found.mean)


def _to_target(group: Group, name: str, digits: int) -> Cell:
    """A mean, or how many runs have one: that is said once, with the seconds."""
    reached, seeds = group.num_with(name), len(group.runs)
    if reached == seeds:
        return _number(group, name, digits)
    if name != "seconds_to_target":
        return Cell("-")
    return Cell(f"reached by {reached} of {seeds}" if reached else "never")
