"""The comparison as a table: for the terminal, as Markdown, and as CSV."""

import csv
import io
import textwrap
from collections.abc import Sequence

from tabulate import tabulate

from sgdlab.results import facts
from sgdlab.results.summary import Group

COLUMNS = (
    "method",
    "workers",
    "test %",
    "train %",
    "time s",
    "speed-up",
    "target at s",
    "target at epoch",
    "staleness",
    "gap",
)

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


def rows(groups: Sequence[Group]) -> list[list[str]]:
    """One row for each group, in the order of `COLUMNS`.

    Accuracies are means over all runs; how many of them diverged stands beside the first one. The time to the target is
    a mean where all runs reached it, else how many did.
    """
    return [
        [
            group.title,
            str(group.num_workers),
            _accuracy(group, "test_accuracy") + _diverged(group),
            _accuracy(group, "train_accuracy"),
            _plain(group, "seconds", 0),
            _plain(group, "speedup", 2),
            _reached(group, "seconds_to_target", 0),
            _reached(group, "epochs_to_target", 1),
            _mean(group, "staleness", 1),
            _mean(group, "gap", 2),
        ]
        for group in groups
    ]


def caption(groups: Sequence[Group]) -> str:
    """What the table shows: seeds, length, units, target and cluster."""
    cluster = facts.about(groups).get("cluster")
    sentences = [
        f"Mean ± standard deviation over {facts.seeds(groups)}; {facts.gradients(groups)} a run.",
        f"Accuracies in %, after the last gradient; time in virtual seconds; target: {facts.target(groups)} test "
        "accuracy.",
        f"Cluster: {cluster}." if cluster else "",
        f"Gap: {GAP}.",
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def text(groups: Sequence[Group]) -> str:
    """The table for a terminal, with what it shows above it."""
    table = tabulate(rows(groups), headers=COLUMNS, tablefmt="simple", disable_numparse=True, colalign=_alignment())
    return f"{textwrap.fill(caption(groups), 120)}\n\n{table}"


def markdown(groups: Sequence[Group]) -> str:
    """The table as Markdown, with what it shows above it."""
    table = tabulate(rows(groups), headers=COLUMNS, tablefmt="github", disable_numparse=True, colalign=_alignment())
    return f"{caption(groups)}\n\n{table}\n"


def comma_separated(groups: Sequence[Group]) -> str:
    """Every number as CSV: mean and standard deviation over all seeds, empty where some seed has none."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    columns = [f"{field}_{kind}" for field in CSV_FIELDS for kind in ("mean", "std")]
    writer.writerow(["method", "protocol", "rule", "serial", "num_workers", "seeds", "diverged", *columns])
    for group in groups:
        values: list[object] = []
        for field in CSV_FIELDS:
            spread = group.spread(field)
            values += ["", ""] if spread is None else [repr(spread.mean), repr(spread.std)]
        names = [group.method, group.protocol, group.rule, int(group.serial)]
        writer.writerow([*names, group.num_workers, len(group.runs), group.num_diverged, *values])
    return output.getvalue()


def _alignment() -> tuple[str, ...]:
    """Numbers to the right, but where words follow them."""
    return tuple("left" if column in ("method", "test %") else "right" for column in COLUMNS)


def _accuracy(group: Group, name: str) -> str:
    spread = group.spread(name)
    return "-" if spread is None else f"{100 * spread.mean:.1f} ± {100 * spread.std:.1f}"


def _diverged(group: Group) -> str:
    lost, seeds = group.num_diverged, len(group.runs)
    several = f"{lost} of {seeds} " if lost < seeds else ""
    return f", {several}diverged" if lost else ""


def _plain(group: Group, name: str, digits: int) -> str:
    spread = group.spread(name)
    return "-" if spread is None else f"{spread.mean:,.{digits}f} ± {spread.std:,.{digits}f}"


def _mean(group: Group, name: str, digits: int) -> str:
    spread = group.spread(name)
    return "-" if spread is None else f"{spread.mean:.{digits}f}"


def _reached(group: Group, name: str, digits: int) -> str:
    reached, seeds = group.num_with(name), len(group.runs)
    if reached == seeds:
        return _plain(group, name, digits)
    return f"{reached} of {seeds}" if reached else "never"
