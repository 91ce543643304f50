"""Writes recordings as long tables: Parquet, CSV and JSON lines."""

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from sgdlab.traces.recording import Recording
from sgdlab.traces.step_tables import WHOLE

if TYPE_CHECKING:
    import pyarrow as pa

_START = "start_s"
"""The column's name holds its unit, so that no clock is mistaken for one of another unit."""

_LARGE = 200_000
"""Rows from which on a file is written by PyArrow, which takes a while to import."""

_BLOCK = 2_000_000
"""Rows that are written at once."""


def _phases(recording: Recording) -> dict[str, np.ndarray]:
    """The phases that rows have; one of no name if there are none."""
    if not recording.phases and not recording.communication:
        return {"": recording.runtimes}
    return {**(recording.phases or {WHOLE: recording.runtimes}), **recording.communication}


def _header(recording: Recording) -> list[str]:
    extra = {
        "phase": bool(recording.phases or recording.communication),
        "node": bool(recording.nodes),
        _START: recording.began is not None,
    }
    return ["worker", "step", "duration", *(name for name, there in extra.items() if there)]


def _rows(recording: Recording) -> Iterator[list[Any]]:
    """A row for each step, worker and phase; None where a time is missing."""
    header, phases = _header(recording), _phases(recording)
    nodes = recording.nodes or ("",) * len(recording.workers)
    for index, step in enumerate(recording.steps.tolist()):
        began = _known(recording.began[index]) if recording.began is not None else None
        times = [(phase, times[index].tolist()) for phase, times in phases.items()]
        for position, (worker, node) in enumerate(zip(recording.workers, nodes, strict=True)):
            for phase, row in times:
                cells = {"phase": phase, "node": node, _START: began}
                yield [worker, step, _known(row[position]), *(cells[name] for name in header[3:])]


def _known(time: float) -> float | None:
    return None if math.isnan(time) else float(time)


def _write_csv(recording: Recording, file: IO[bytes]) -> None:
    if recording.runtimes.size * len(_phases(recording)) >= _LARGE:
        import pyarrow.csv  # noqa: PLC0415 (it takes long to import, and few have large files)

        with pyarrow.csv.CSVWriter(file, _table(recording, slice(0, 0)).schema) as writer:
            for steps in _blocks(recording):
                writer.write_table(_table(recording, steps))
        return
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_header(recording))
    writer.writerows(_rows(recording))
    text.detach()


def _write_json_lines(recording: Recording, file: IO[bytes]) -> None:
    header = _header(recording)
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    text.writelines(json.dumps(dict(zip(header, row, strict=True))) + "\n" for row in _rows(recording))
    text.detach()


def _write_parquet(recording: Recording, file: IO[bytes]) -> None:
    import pyarrow.parquet  # noqa: PLC0415 (it takes long to import, and few have Parquet files)

    with pyarrow.parquet.ParquetWriter(file, _table(recording, slice(0, 0)).schema) as writer:
        for steps in _blocks(recording):
            writer.write_table(_table(recording, steps))


def _blocks(recording: Recording) -> Iterator[slice]:
    """Steps that are written at once."""
    steps, workers = recording.runtimes.shape
    size = max(_BLOCK // max(workers * len(_phases(recording)), 1), 1)
    return (slice(first, min(first + size, steps)) for first in range(0, steps, size))


def _table(recording: Recording, steps: slice) -> "pa.Table":
    """The rows of some steps as a table of PyArrow."""
    import pyarrow as pa  # noqa: PLC0415

    phases, numbers = _phases(recording), recording.steps[steps]
    shape = (numbers.size, len(recording.workers), len(phases))

    def names(values: Sequence[str], index: np.ndarray) -> pa.Array:
        codes = np.broadcast_to(index, shape).astype(np.int32).ravel()
        return pa.DictionaryArray.from_arrays(codes, pa.array(values, pa.string()))

    def times(values: np.ndarray) -> pa.Array:
        return pa.array(np.broadcast_to(values, shape).ravel(), from_pandas=True)  # NaN becomes null

    workers, node_of = np.arange(shape[1])[:, None], list(dict.fromkeys(recording.nodes))
    columns = {
        "worker": names(recording.workers, workers),
        "step": pa.array(np.broadcast_to(numbers[:, None, None], shape).ravel()),
        "duration": times(np.stack([values[steps] for values in phases.values()], axis=2)),
        "phase": names(list(phases), np.arange(shape[2])),
    }
    if recording.nodes:
        columns["node"] = names(node_of, np.array([node_of.index(node) for node in recording.nodes])[:, None])
    if recording.began is not None:
        columns[_START] = times(recording.began[steps, None, None])
    return pa.table({name: columns[name] for name in _header(recording)})


WRITERS: dict[str, Callable[[Recording, IO[bytes]], None]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".jsonl": _write_json_lines,
}
"""How a recording is written, by the ending of the file's name."""
