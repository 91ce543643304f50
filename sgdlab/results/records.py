"""The records of a run, and the metrics file that they are the lines of."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

from sgdlab.report.finite import finite

Records = list[dict[str, Any]]
"""The records of one run: what it was (`"kind": "run"`), its evaluations, and its summary."""


def read_records(file: pathlib.Path) -> Records | None:
    """The records of a metrics file; None where it is missing, or does not end with a summary."""
    try:
        records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    whole = all(isinstance(record, dict) for record in records) and records
    return records if whole and records[-1].get("kind") == "summary" else None


def line_of(record: Mapping[str, Any]) -> str:
    """A record as a line of JSON; NaN and infinity are null."""
    return json.dumps(finite(record), allow_nan=False)


def as_stored(entries: Mapping[str, Any]) -> dict[str, Any]:
    """As it is read back: tuples are lists, NaN and infinity are None."""
    return json.loads(json.dumps(finite(entries)))
