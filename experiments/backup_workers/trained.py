"""Runs of one configuration over workers and seeds: what is missing is trained, what is there is read."""

import pathlib
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from sgdlab.errors import UsageError
from sgdlab.jobs import compare, provenance
from sgdlab.results.directory import OtherConfiguration, RunDirectory


def finished(config: ConfigDict, cells: Sequence[compare.Cell], path: pathlib.Path) -> list[list[dict[str, Any]]]:
    """Trains the cells that have not finished yet, and returns the records of all.

    Args:
      config: of all cells, but for what a cell sets.
      cells: the runs.
      path: their directory, of this configuration alone.

    Returns:
      The records of each cell's metrics file, in the order of `cells`.

    Raises:
      UsageError: where the configuration is impossible, or the directory holds runs of another one.
    """
    compare.check(config, cells)
    try:
        directory = RunDirectory(path, compare.shared_config(config, cells), made=provenance.made_with())
        compare.run_all(config, cells, directory)
    except OtherConfiguration as error:
        raise UsageError(f"{str(error).split(';')[0]}; name another --workdir") from error
    records = [compare.read(config, cell, directory) for cell in cells]
    return [found for found in records if found is not None]
