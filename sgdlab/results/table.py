"""The comparison as a table: for the terminal, as Markdown, and as CSV."""

import csv
import io

from tabulate import tabulate

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


def rows(groups: list[Group]) -> list[list[str]]:
    """One row for each group, in the order of `COLUMNS`; a diverged group says so where its accuracy would stand."""
    return [
        [
            group.title,
            str(group.num_workers),
            _accuracy(group, "test_accuracy"),
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


def text(groups: list[Group]) -> str:
    """The table for a terminal."""
    return tabulate(rows(groups), headers=COLUMNS, tablefmt="simple", disable_numparse=True, colalign=_alignment())


def markdown(groups: list[Group], caption: str) -> str:
    """The table as Markdown, with what it shows above it."""
    table = tabulate(rows(groups), headers=COLUMNS, tablefmt="github", disable_numparse=True, colalign=_alignment())
    return f"{caption}\n\n{table}\n"


def comma_separated(groups: list[Group]) -> str:
    """Every number as CSV: mean and standard deviation over the seeds, empty where some seed has none."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    columns = [f"{field}_{kind}" for field in CSV_FIELDS for kind in ("mean", "std")]
    writer.writerow(["method", "baseline", "num_workers", "seeds", "diverged", *columns])
    for group in groups:
        values: list[object] = []
        for field in CSV_FIELDS:
            spread = group.spread(field)
            values += ["", ""] if spread is None else [repr(spread.mean), repr(spread.std)]
        head = [group.method, int(group.baseline), group.num_workers, len(group.runs), group.num_diverged]
        writer.writerow([*head, *values])
    return output.getvalue()


def _alignment() -> tuple[str, ...]:
    return ("left", *["right"] * (len(COLUMNS) - 1))


def _accuracy(group: Group, name: str) -> str:
    if group.num_diverged:
        several = f" ({group.num_diverged} of {len(group.runs)})" if len(group.runs) > 1 else ""
        return f"diverged{several}"
    spread = group.spread(name)
    return f"{100 * spread.mean:.1f} ± {100 * spread.std:.1f}"


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
