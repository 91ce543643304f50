"""A directory of runs: its configuration and one metrics file per finished run. A file that is there is whole."""

import json
import math
import pathlib
from collections.abc import Mapping
from typing import Any

from sgdlab import files
from sgdlab.errors import UsageError


class OtherConfiguration(UsageError):
    """A directory already holds runs of another configuration."""


class RunDirectory:
    """The metrics files of one configuration.

    Args:
      path: the directory; made where it is missing.
      config: what all its runs share.

    Raises:
      OtherConfiguration: where the directory holds another configuration, or files that are not ours; it names the
        first entry that differs.

    Example:
      >>> import tempfile
      >>> directory = RunDirectory(tempfile.mkdtemp(), {"epochs": 2})
      >>> directory.write("gap_aware-n8-seed0", [{"kind": "summary", "test_accuracy": 0.5}])
      >>> directory.read("gap_aware-n8-seed0")
      [{'kind': 'summary', 'test_accuracy': 0.5}]
    """

    def __init__(self, path: str | pathlib.Path, config: Mapping[str, Any]):
        self.path = pathlib.Path(path)
        config = json.loads(json.dumps(config))  # tuples become lists, as in the file
        file = self.path / "config.json"
        if file.exists():
            _refuse_other(self.path, _flat(_stored(file)), _flat(config))
            return
        if self.path.exists() and not self.path.is_dir():
            raise OtherConfiguration(f"--workdir={path} is a file; name a directory")
        if self.path.is_dir() and not all(files.is_unfinished(found) for found in self.path.iterdir()):
            raise OtherConfiguration(f"--workdir={path} holds files but no config.json; name a new or empty directory")
        try:
            files.write_text(file, json.dumps(config, indent=2) + "\n")
        except OSError as error:
            raise OtherConfiguration(f"--workdir={path} must be a directory that can be written: {error}") from error

    def metrics_path(self, name: str) -> pathlib.Path:
        """Where the metrics of a run are."""
        return self.path / "metrics" / f"{name}.jsonl"

    def write(self, name: str, records: list[dict[str, Any]]) -> None:
        """Writes a finished run, one record a line, whole or not at all."""
        lines = (json.dumps(_without_nan(record), allow_nan=False) for record in records)
        files.write_text(self.metrics_path(name), "\n".join(lines) + "\n")

    def read(self, name: str) -> list[dict[str, Any]] | None:
        """The records of a finished run; None where it has not finished."""
        path = self.metrics_path(name)
        if not path.exists():
            return None
        try:
            records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        except ValueError:
            return None
        return records if records and records[-1].get("kind") == "summary" else None


def _stored(file: pathlib.Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise OtherConfiguration(
            f"--workdir={file.parent} holds a config.json that is not one of ours: {error}"
        ) from None


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in config.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat


def _refuse_other(path: pathlib.Path, stored: dict[str, Any], given: dict[str, Any]) -> None:
    if stored.keys() != given.keys():
        raise OtherConfiguration(f"--workdir={path} holds runs of another kind; name another directory")
    for name, new in sorted(given.items()):
        old = stored[name]
        if old != new:
            raise OtherConfiguration(
                f"--workdir={path} holds runs with config.{name}={old}, not {new}; name another directory, or set "
                f"--config.{name}={old}"
            )


def _without_nan(record: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN and no infinity: they become null."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
