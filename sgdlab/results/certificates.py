"""The certificates of the runs' schedules as a table: how far gradients are from their use, and whose are used."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from sgdlab.report.table import Column, Number, Table, in_csv, numbers
from sgdlab.results.summary import Group, compared
from sgdlab.results.table import EFFECTIVE_WORKERS, METHOD, OBVIOUS, WORKERS


def _entry(
    name: str, put_together: Callable[[Sequence[Any]], float], digits: int, heading: str, meaning: str
) -> Column:
    """Return the column of an entry of the summaries, of which something is shown of several seeds."""

    def cell(group: Group) -> str:
        values = [summary.get(name) for summary in group.summaries]
        if None in values:
            return "-"
        value = put_together(values)
        return Number(f"{value:,.{digits}f}", value)

    return Column(heading, cell, meaning, name)


COLUMNS = (
    METHOD,
    WORKERS,
    _entry(
        "tree_distance", max, 0, "R",
        "largest distance in the computation tree (Birch SGD) between the server's parameters and those that a "
        "gradient was computed on; with the same data for all workers, plain SGD needs at most "
        "4 (R + 1) L Δ / ε + 8 σ² L Δ / ε² gradients",
    ),
    _entry(
        "staleness", statistics.fmean, 1, "staleness",
        "updates between the reading of the parameters and the use of the gradient: the mean",
    ),
    _entry("largest_staleness", max, 0, "largest", "staleness of the stalest gradient"),
    _entry("in_flight", statistics.fmean, 1, "in flight", "gradients under way at a time: the mean"),
    _entry("most_in_flight", max, 0, "most", "largest number of gradients under way at a time (the concurrency)"),
    _entry("effective_workers", statistics.fmean, 1, "effective workers", EFFECTIVE_WORKERS),
    _entry(
        "least_share", statistics.fmean, 2, "least used",
        "share of the worker with the fewest used gradients, times N (1: all are used alike)",
    ),
)  # fmt: skip


def certified(groups: Sequence[Group]) -> list[Group]:
    """The methods whose runs have a certificate: those of earlier versions have none."""
    return [g for g in compared(groups) if all(s.get("least_share") is not None for s in g.summaries)]


def table(groups: Sequence[Group]) -> Table:
    """A row for each method and number of workers; of several seeds, means and largest."""
    return Table.of(COLUMNS, certified(groups), obvious=OBVIOUS)


def comma_separated(groups: Sequence[Group]) -> str:
    """The same as CSV, in full precision."""
    return in_csv({"method": group.method} | numbers(COLUMNS, group) for group in certified(groups))
