"""Shared by the commands of this folder: the directory of finished runs, and checks of flags."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from sgdlab.errors import UsageError
from sgdlab.jobs import provenance
from sgdlab.results.directory import OtherConfiguration, RunDirectory


def finished_parts(path: pathlib.Path, config: Mapping[str, Any]) -> RunDirectory:
    """The directory of the finished runs of one configuration, which the same command reads again.

    Args:
      path: the directory; it is made if it does not exist.
      config: configuration that all runs share.

    Raises:
      UsageError: if the directory holds results of another configuration, or cannot be written.
    """
    try:
        return RunDirectory(path, config, made=provenance.made_with())
    except OtherConfiguration as error:
        if (path / "config.json").is_file():
            raise UsageError(f"{path} holds results of other settings; name another --workdir") from error
        raise


def whole(flag: str, value: int, *, least: int = 1) -> int:
    """Returns the flag's value, a whole number of at least `least`.

    Raises:
      UsageError: if it is less than `least`.
    """
    if value < least:
        raise UsageError(f"--{flag}={value} must be a whole number of at least {least}")
    return value


def node_counts(values: Sequence[str]) -> list[int]:
    """Returns the numbers of nodes in --num_nodes, sorted and without duplicates.

    Raises:
      UsageError: if the list is empty, or a value is not a whole number of at least 2.

    Example:
      >>> node_counts(["16", "8"])
      [8, 16]
    """
    for value in values:
        if not value.strip().isdecimal() or int(value) < 2:
            raise UsageError(f"--num_nodes={value} must be whole numbers of at least 2, separated by commas")
    if not values:
        raise UsageError("--num_nodes= must be whole numbers of at least 2, separated by commas")
    return sorted({int(value) for value in values})
