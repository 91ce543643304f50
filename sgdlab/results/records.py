"""The records of a run, and the metrics file that they are the lines of."""

import json
import math
import pathlib
from collections.abc import Mapping
from typing import Any

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
    return json.dumps(_without_nan(record), allow_nan=False)


def as_stored(entries: Mapping[str, Any]) -> dict[str, Any]:
    """As it is read back: tuples are lists, NaN and infinity are None."""
    return json.loads(json.dumps(_without_nan(entries)))


def _without_nan(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, Mapping):
        return {key: _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
