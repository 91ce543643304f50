"""What the commands of this folder share: finished parts on disk, and numbers that a person gave."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from sgdlab.errors import UsageError
from sgdlab.jobs import provenance
from sgdlab.results.directory import OtherConfiguration, RunDirectory


def finished_parts(path: pathlib.Path, config: Mapping[str, Any]) -> RunDirectory:
    """A directory whose finished parts are found again by the same command.

    Args:
      path: made where it is missing.
      config: what all parts share.

    Raises:
      UsageError: where it holds results of other settings, or cannot be written.
    """
    try:
        return RunDirectory(path, config, made=provenance.made_with())
    except OtherConfiguration as error:
        if (path / "config.json").is_file():
            raise UsageError(f"{path} holds results of other settings; name another --workdir") from error
        raise


def whole(flag: str, value: int, *, least: int = 1) -> int:
    """A whole number of at least `least`; the flag that was wrong is named."""
    if value < least:
        raise UsageError(f"--{flag}={value} must be a whole number of at least {least}")
    return value


def node_counts(values: Sequence[str]) -> list[int]:
    """The numbers of nodes that a flag lists, in rising order.

    Example:
      >>> node_counts(["16", "8"])
      [8, 16]
    """
    for value in values:
        if not value.strip().isdecimal() or int(value) < 2:
            raise UsageError(f"--num_nodes={value} must be whole numbers of at least 2, separated by commas")
    if not values:
        raise UsageError("--num_nodes= must be at least one whole number")
    return sorted({int(value) for value in values})
