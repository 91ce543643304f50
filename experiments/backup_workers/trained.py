"""Trains the runs of one configuration over numbers of workers and seeds; finished runs are read from disk."""

import pathlib
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from sgdlab.errors import UsageError
from sgdlab.jobs import compare, provenance
from sgdlab.results.directory import OtherConfiguration, RunDirectory


def finished(config: ConfigDict, cells: Sequence[compare.Cell], path: pathlib.Path) -> list[list[dict[str, Any]]]:
    """Trains the cells that have not finished yet, and returns the records of all of them.

    Args:
      config: configuration of all cells, except for the entries that a cell sets.
      cells: the runs.
      path: directory of the runs of this configuration.

    Returns:
      The records of each cell's metrics file, in the order of `cells`.

    Raises:
      UsageError: if the configuration is impossible, or the directory holds runs of another configuration.
    """
    compare.check(config, cells)
    try:
        directory = RunDirectory(path, compare.shared_config(config, cells), made=provenance.made_with())
        compare.run_all(config, cells, directory)
    except OtherConfiguration as error:
        raise UsageError(f"{str(error).split(';')[0]}; name another --workdir") from error
    by_cell = [compare.read(config, cell, directory) for cell in cells]
    return [records for records in by_cell if records is not None]
