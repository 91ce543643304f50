"""Recordings of this project's own live runs, and the logs of those that were stopped or crashed."""

import pathlib
import zipfile

import numpy as np

from sgdlab.traces.family import TRACES
from sgdlab.traces.options import Options
from sgdlab.traces.problems import BadTrace
from sgdlab.traces.recording import Recording

_LOG = "log.jsonl"


def recognises(path: pathlib.Path) -> bool:
    """Return if a path is a recording, the directory of a log, or the work directory of a run."""
    if path.is_dir():
        return (path / _LOG).is_file() or (path / "recording.npz").is_file()
    try:
        with zipfile.ZipFile(path) as file:
            return {"config.npy", "ticket.npy"} <= set(file.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


@TRACES.register(
    "live_run", title="a run of `sgdlab live`", source="docs/live.md", endings=(".npz",), recognises=recognises
)
def live_run(*, path: pathlib.Path, options: Options) -> Recording:
    """Read the recording of a live run: row t holds each worker's t-th gradient, as long as the server waited for it.

    A gradient that was interrupted or lost is missing. What was sent is part of the time.

    Raises:
      BadTrace: where it cannot be read.
    """
    if options.columns or options.unit:
        raise BadTrace("--columns and --unit must be left out: a live run's times are known")
    path = path / "recording.npz" if (path / "recording.npz").is_file() else path
    # These import JAX, which few who read traces need.
    if path.is_dir():
        from sgdlab.runs.recorded import load  # noqa: PLC0415
    else:
        from sgdlab.live.recording import LiveRecording  # noqa: PLC0415

        load = LiveRecording.load
    try:
        times = load(path).runtimes()
    except ValueError as error:
        raise BadTrace(str(error).removeprefix(f"path={str(path)!r} ")) from error
    if not np.isfinite(times).any():
        raise BadTrace("must have compute times; no gradient has come")
    names = tuple(f"worker {number}" for number in range(times.shape[1]))
    note = "row t holds each worker's t-th gradient, from when it was begun to when it was there"
    return Recording(times, np.arange(len(times)), names, notes=(note,))
