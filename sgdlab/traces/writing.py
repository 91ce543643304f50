"""Writes recordings as long tables: Parquet, CSV and JSON lines."""

import io
import json
from collections.abc import Callable, Iterator, Sequence
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from sgdlab.traces.recording import Recording
from sgdlab.traces.step_tables import WHOLE

_START = "start_s"
"""The column's name holds its unit, so that no clock is mistaken for one of another unit."""

_BLOCK = 2_000_000
"""Rows that are written at once."""


def _tables(recording: Recording) -> Iterator[pa.Table]:
    """A row for each step, worker and phase, null where a time is missing: an empty table, then some steps at once."""
    phases = {**(recording.phases or {WHOLE: recording.runtimes}), **recording.communication}
    size = max(_BLOCK // max(len(recording.workers) * len(phases), 1), 1)
    blocks = [slice(0, 0), *(slice(first, first + size) for first in range(0, recording.steps.size, size))]
    node_of, has_phases = list(dict.fromkeys(recording.nodes)), bool(recording.phases or recording.communication)
    for steps in blocks:
        numbers = recording.steps[steps]
        shape = (numbers.size, len(recording.workers), len(phases))

        def column(values: np.ndarray, shape: tuple[int, ...] = shape) -> pa.Array:
            return pa.array(np.broadcast_to(values, shape).ravel(), from_pandas=True)  # NaN becomes null

        def names(values: Sequence[str], index: np.ndarray, shape: tuple[int, ...] = shape) -> pa.Array:
            codes = np.broadcast_to(index, shape).astype(np.int32).ravel()
            return pa.DictionaryArray.from_arrays(codes, pa.array(values, pa.string()))

        columns = {
            "worker": names(recording.workers, np.arange(shape[1])[:, None]),
            "step": column(numbers[:, None, None]),
            "duration": column(np.stack([values[steps] for values in phases.values()], axis=2)),
        }
        if has_phases:
            columns["phase"] = names(list(phases), np.arange(shape[2]))
        if recording.nodes:
            columns["node"] = names(node_of, np.array([node_of.index(node) for node in recording.nodes])[:, None])
        if recording.began is not None:
            columns[_START] = column(recording.began[steps, None, None])
        yield pa.table(columns)


def _write_json_lines(recording: Recording, file: IO[bytes]) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    for table in _tables(recording):
        text.writelines(json.dumps(row) + "\n" for row in table.to_pylist())
    text.detach()


def _write_at_once(
    writer: type[pyarrow.csv.CSVWriter] | type[pyarrow.parquet.ParquetWriter],
) -> Callable[[Recording, IO[bytes]], None]:
    def write(recording: Recording, file: IO[bytes]) -> None:
        tables = _tables(recording)
        with writer(file, next(tables).schema) as to:
            for table in tables:
                to.write_table(table)

    return write


WRITERS: dict[str, Callable[[Recording, IO[bytes]], None]] = {
    ".parquet": _write_at_once(pyarrow.parquet.ParquetWriter),
    ".csv": _write_at_once(pyarrow.csv.CSVWriter),
    ".jsonl": _write_json_lines,
}
"""Writers of a recording, by the ending of the file's name."""
