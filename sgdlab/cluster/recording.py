"""Recorded run-times, of a real cluster or of a schedule, and writing them to Parquet and CSV files."""

import csv
import dataclasses
import io
import math
import os
import pathlib
from typing import IO

import numpy as np

from sgdlab import files
from sgdlab.schedule import Schedule

_COLUMNS = ("worker", "step", "duration")


@dataclasses.dataclass(frozen=True, eq=False)
class Recording:
    """Recorded run-times, NaN where one is missing.

    Attributes:
      runtimes: float64[T, N], seconds; NaN where a worker is missing in a step.
      steps: int64[T], the recorder's step numbers, rising but not always consecutive.
      workers: names of the N workers.
    """

    runtimes: np.ndarray
    steps: np.ndarray
    workers: tuple[str, ...]

    @property
    def missing(self) -> int:
        """Number of missing run-times among the T x N."""
        return int(np.isnan(self.runtimes).sum())

    @property
    def gaps(self) -> int:
        """Number of steps between the first and the last that were not recorded."""
        return int(self.steps[-1] - self.steps[0] + 1 - self.steps.size)

    def complete(self) -> "Recording":
        """The steps in which no worker is missing.

        Raises:
          ValueError: where there is no such step.
        """
        whole = ~np.isnan(self.runtimes).any(axis=1)
        if not whole.any():
            raise ValueError(
                f"none of the {self.steps.size} recorded steps has run-times of all {len(self.workers)} workers"
            )
        return Recording(self.runtimes[whole], self.steps[whole], self.workers)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a long table, Parquet or CSV by the path's ending; missing run-times have a row without duration.

        Raises:
          ValueError: where the ending is neither.
        """
        path = pathlib.Path(path)
        writers = {".parquet": _write_parquet, ".csv": _write_csv}
        if path.suffix not in writers:
            raise ValueError(f"path={str(path)!r} must end in {' or '.join(writers)}")
        with files.replacing(path) as file:
            writers[path.suffix](self, file)

    def __str__(self) -> str:
        times = self.runtimes[~np.isnan(self.runtimes)]
        sampled = f", sampled: {self.gaps} between them were not recorded" if self.gaps else ""
        missing = f", {self.missing} run-times missing" if self.missing else ", none missing"
        shape = f"{self.steps.size} steps x {len(self.workers)} workers"
        return f"Recording: {shape}, mean {times.mean():.4g} s{sampled}{missing}"


def from_schedule(schedule: Schedule) -> Recording:
    """The run-times of a schedule: row t is each worker's t-th gradient.

    Gradients that were interrupted or are pending have no known run-time: they are missing. (A gradient that was
    dropped at the very instant of an update is taken as interrupted.)

    Args:
      schedule: of one block; with several blocks, the first arrival ends a gradient.

    Example:
      >>> from sgdlab import protocols
      >>> runtimes = np.array([[1.0, 3.0], [2.0, 1.0]])
      >>> from_schedule(protocols.synchronous(runtimes)).runtimes
      array([[1., 3.],
             [2., 1.]])
    """
    order = np.lexsort((schedule.started, schedule.worker))
    worker = schedule.worker[order]
    count = np.arange(worker.size) - np.searchsorted(worker, worker)  # each worker's own gradients, from 0
    duration = (schedule.arrived.min(axis=1) - schedule.started)[order]
    interrupted = schedule.dropped().all(axis=1) & np.isin(schedule.arrived, schedule.applied).all(axis=1)
    unknown = (interrupted | schedule.pending().all(axis=1))[order]
    runtimes = np.full((int(count.max(initial=-1)) + 1, schedule.num_workers), np.nan)
    runtimes[count[~unknown], worker[~unknown]] = duration[~unknown]
    names = tuple(str(i) for i in range(schedule.num_workers))
    return Recording(runtimes, np.arange(runtimes.shape[0]), names)


def _write_csv(recording: Recording, file: IO[bytes]) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for step, row in zip(recording.steps.tolist(), recording.runtimes.tolist(), strict=True):
        cells = ("" if math.isnan(time) else time for time in row)
        writer.writerows((worker, step, cell) for worker, cell in zip(recording.workers, cells, strict=True))
    text.detach()


def _write_parquet(recording: Recording, file: IO[bytes]) -> None:
    import pyarrow.parquet  # noqa: PLC0415 (it takes long to import, and few have Parquet files)

    steps, workers = recording.runtimes.shape
    columns = (
        pyarrow.array(list(recording.workers) * steps, pyarrow.string()),
        np.repeat(recording.steps, workers),
        pyarrow.array(recording.runtimes.ravel(), from_pandas=True),  # NaN becomes null
    )
    pyarrow.parquet.write_table(pyarrow.table(dict(zip(_COLUMNS, columns, strict=True))), file)
