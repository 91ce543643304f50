"""The certificates of the runs' schedules as a table: how far gradients are from their use, and whose are used."""

import statistics
from collections.abc import Sequence
from typing import Any

from sgdlab.report.table import Table, in_csv
from sgdlab.results.summary import Group, compared
from sgdlab.results.table import EFFECTIVE_WORKERS

COLUMNS = {
    "method": "whom the server waits for, and what it does with a gradient",
    "workers": "workers that compute gradients",
    "R": "largest distance in the computation tree (Birch SGD) of the server's point and of that at which a gradient "
    "was computed; with the same data for all workers, plain SGD needs at most 4 (R + 1) L Δ / ε + 8 σ² L Δ / ε² "
    "gradients",
    "staleness": "updates between the reading of the parameters and the use of the gradient: the mean",
    "largest": "the same of the stalest gradient",
    "in flight": "gradients under way at a time: the mean",
    "most": "the same at most (the concurrency)",
    "effective workers": EFFECTIVE_WORKERS,
    "least used": "share of the worker with the fewest used gradients, over an equal one (1: all are used alike)",
}
"""Headings, with their meaning."""

_FIELDS = {
    "tree_distance": max,
    "staleness": statistics.fmean,
    "largest_staleness": max,
    "in_flight": statistics.fmean,
    "most_in_flight": max,
    "effective_workers": statistics.fmean,
    "least_share": statistics.fmean,
}
"""Entries of the summaries -> what is shown of several seeds."""

_DIGITS = (0, 1, 0, 1, 0, 1, 2)


def certified(groups: Sequence[Group]) -> list[Group]:
    """The methods whose runs have a certificate: those of earlier versions have none."""
    return [g for g in compared(groups) if all(s.get("least_share") is not None for s in g.summaries)]


def table(groups: Sequence[Group]) -> Table:
    """A row for each method and number of workers; of several seeds, means and largest."""
    rows = [
        [
            group.title,
            str(group.num_workers),
            *(
                "-" if value is None else f"{value:,.{digits}f}"
                for value, digits in zip(_values(group), _DIGITS, strict=True)
            ),
        ]
        for group in certified(groups)
    ]
    return Table(COLUMNS, rows, obvious=("method", "workers"))


def comma_separated(groups: Sequence[Group]) -> str:
    """The same as CSV, in full precision."""
    names = ("method", "num_workers", *_FIELDS)
    found = ((group.method, group.num_workers, *_values(group)) for group in certified(groups))
    return in_csv((dict(zip(names, row, strict=True)) for row in found), names)


def _values(group: Group) -> list[float | None]:
    found = []
    for name, put_together in _FIELDS.items():
        values: list[Any] = [summary.get(name) for summary in group.summaries]
        found.append(None if None in values else put_together(values))
    return found
