"""A ledger of runs: one row of a CSV file for each, so that long computations go on anywhere."""

import csv
import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sgdlab import files
from sgdlab.report.table import in_csv
from sgdlab.results.metric import Metric
from sgdlab.results.records import Records, as_stored

COLUMNS = (
    "key", "stage", "method", "num_workers", "trial", "seed", "settings", "seconds_to_target", "metric", "test_loss",
    "diverged", "seconds", "whole_seconds", "gradients", "compute_seconds",
)  # fmt: skip
"""Of a row: the hash of all settings, what the run was for, what was varied, and what came of it.

`settings` are the entries that a trial sets, as JSON; `metric` is that of the test set, such as the accuracy;
`whole_seconds` is when the run would have ended, had it not reached its target or diverged before.
"""

NAMES = ("method", "num_workers", "stage", "trial", "seed")
"""Columns of which one run of a configuration has each combination once."""

Row = dict[str, Any]


@dataclasses.dataclass
class RunLedger:
    """The rows of a file, by the hash of their settings.

    Example:
      >>> ledger = RunLedger.read(None)
      >>> ledger.add([row_of("1f", [{"kind": "run"}, {"seconds_to_target": 12.5, "test_accuracy": 0.96}], seed=3)])
      >>> ledger.rows["1f"]["seconds_to_target"], ledger.rows["1f"]["seed"]
      (12.5, 3)
    """

    path: pathlib.Path | None  # of the CSV file; None: the rows are held in memory alone
    rows: dict[str, Row]  # by key

    @classmethod
    def read(cls, path: pathlib.Path | None) -> "RunLedger":
        """Read a file, or raise a `ValueError` where it is no such file; one that is not there has no rows."""
        if path is None or not path.exists():
            return cls(path, {})
        if not path.is_file():
            raise ValueError(f"ledger={path} must be a CSV file")
        rows: dict[str, Row] = {}
        with path.open(encoding="utf-8-sig", newline="") as opened:
            reader = csv.DictReader(opened)
            if tuple(reader.fieldnames or ()) != COLUMNS:
                raise ValueError(f"ledger={path} must be a ledger of runs, with the columns {', '.join(COLUMNS)}")
            for row in reader:
                try:
                    rows[row["key"]] = _read(row)
                except (TypeError, ValueError) as error:
                    raise ValueError(f"ledger={path}, line {reader.line_num} cannot be read: {error}") from error
        return cls(path, rows)

    @functools.cached_property
    def named(self) -> dict[tuple[Any, ...], list[Row]]:
        """Return the rows by `NAMES`; several where the configuration has changed between them."""
        found: dict[tuple[Any, ...], list[Row]] = {}
        for row in self.rows.values():
            found.setdefault(tuple(row[name] for name in NAMES), []).append(row)
        return found

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows, and write the file anew, whole or not at all."""
        before = len(self.rows)
        vars(self).pop("named", None)
        self.rows |= {row["key"]: row for row in rows}
        if self.path is None or len(self.rows) == before:
            return
        files.write_text(self.path, in_csv(map(_written, self.rows.values()), COLUMNS))


def row_of(key: str, records: Records, **facts: Any) -> Row:
    """Return the row of a finished run: what its last record says, and what it was for."""
    last, metric = records[-1], Metric.of(records[0])
    found = {name: last.get(name) for name in COLUMNS}
    return found | {"key": key, "metric": last.get(metric.test), **as_stored(facts)}


def _written(row: Mapping[str, Any]) -> Row:
    """Return a row for its file; numbers with seven digits, which is more than any of them means."""
    shown = {name: f"{value:.7g}" if isinstance(value, float) else value for name, value in row.items()}
    diverged = row.get("diverged")
    return shown | {
        "settings": json.dumps(row.get("settings") or {}, sort_keys=True),
        "diverged": None if diverged is None else int(diverged),
    }


_WHOLE = lambda text: int(float(text))
_READ: dict[str, Callable[[str], Any]] = {
    "key": str, "stage": str, "method": str, "settings": json.loads, "diverged": lambda text: text == "1",
    "num_workers": _WHOLE, "trial": _WHOLE, "seed": _WHOLE, "gradients": _WHOLE,
}  # fmt: skip
"""Of the columns that are no real numbers: what a text stands for."""


def _read(row: Mapping[str, str]) -> Row:
    """Return a row of texts as values; an empty text is None."""
    return {name: None if text == "" else _READ.get(name, float)(text) for name, text in row.items()}
