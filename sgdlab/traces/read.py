"""Reads a file of recorded times, or a directory or a glob of one file a worker, in a format that is recognised."""

import dataclasses
import os
import pathlib
import zipfile
import zlib
from typing import Any

import numpy as np

from sgdlab.errors import with_place
from sgdlab.registry import Part
from sgdlab.report.words import ordinal
from sgdlab.traces import paths
from sgdlab.traces.family import TRACES
from sgdlab.traces.joining import joined
from sgdlab.traces.options import Options
from sgdlab.traces.problems import BadTrace
from sgdlab.traces.recording import Recording

DEFAULT = Options()

_SHORTEST, _LONGEST = 1e-6, 86_400.0
"""A usual compute time below or above, in seconds, is likely to be in another unit."""

_LEAST_STEPS_OF_A_CLOCK = 8

_REGULAR = 0.9
"""Share of the distances between recorded steps that are alike where every n-th step was recorded."""


def read(path: str | os.PathLike[str], options: Options = DEFAULT, *, name: str = "path") -> Recording:
    r"""Reads recorded compute times.

    Args:
      path: of a file, of a directory that holds one file for each worker, or a pattern such as `logs/rank*.csv`.
      options: what cannot be recognised; by default all is.
      name: of the argument that holds the path, for errors.

    Raises:
      ValueError: where the file has none of the formats, or values are impossible: it names every bad row, and its
        cure. It begins with the path, which is not repeated.
      FileNotFoundError: where there is no file.

    Example:
      >>> import tempfile
      >>> file = pathlib.Path(tempfile.mkdtemp()) / "trace.csv"
      >>> _ = file.write_text("rank,iteration,time_ms\n0,7,1500\n1,7,2500\n0,8,1000\n")
      >>> recording = read(file)
      >>> recording.runtimes
      array([[1.5, 2.5],
             [1. , nan]])
      >>> print(*recording.notes)
      column 'rank' was read as the worker; column 'iteration' was read as the step; column 'time_ms' was read as the
      duration; the durations were read as milliseconds
    """
    path = pathlib.Path(path)
    argument = f"{name}={path}" if name.startswith("-") else f"{name}={str(path)!r}"
    part = _format(path, options, argument)
    try:
        if not part.is_foreign and path.is_file() and not path.stat().st_size:
            raise BadTrace("it is empty")
        recording = _made(part, path, options)
        if np.isnan(recording.runtimes).all():
            raise BadTrace("must have compute times; all are missing")
    except BadTrace as error:
        raise ValueError(f"{argument}: {error}") from None
    except UnicodeDecodeError as error:
        cure = "it must be UTF-8, as iconv -f UTF-16 -t UTF-8 writes it"
        where = _culprit(part, path, options, error)
        raise ValueError(f"{argument}{where} cannot be read as {part.title}: {cure} ({error})") from error
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        where = _culprit(part, path, options, error)
        raise ValueError(f"{argument}{where} cannot be read as {part.title}: {error}") from error
    nodes = recording.nodes
    if options.workers_per_node is not None:
        nodes = tuple(f"node {index // options.workers_per_node}" for index in range(len(recording.workers)))
    return dataclasses.replace(recording, nodes=nodes, notes=(*recording.notes, *_doubts(recording)))


def _made(part: Part, path: pathlib.Path, options: Options) -> Recording:
    """Return what a reader makes of a path; a user's reader is given each file, unless it reads them itself."""
    read_together = _reads_whole(part, path)
    files = [path] if read_together else paths.files(path, part.facts.endings)
    if not files:
        raise BadTrace(
            f"it holds no file that ends in {', '.join(part.facts.endings)}; a reader that takes directories itself "
            f"is registered with whole=True ({part.where})"
        )
    found = {}
    for file in files:
        where = "" if read_together or file == path else f"{file.name}: "
        try:
            made = _read_by(part, file, options)
        except (BadTrace, UnicodeDecodeError):
            raise
        except ValueError as error:
            raise BadTrace(f"{where}{with_place(error)}") from error
        if not isinstance(made, Recording):
            what, hint = ("None", "is `return` missing? ") if made is None else (f"a {type(made).__name__}", "")
            raise BadTrace(f"{where}its reader returned {what}, and no Recording: {hint}({part.where})")
        found[file.name] = made
    return joined(found)


def _read_by(part: Part, path: pathlib.Path, options: Options) -> Any:
    return part.make(path=path, **({"options": options} if "options" in part.given else {}))


def _culprit(part: Part, path: pathlib.Path, options: Options, error: Exception) -> str:
    """Return ": " and the first of several files that fails alike alone; "" where that is not known."""
    for file in [] if path.is_file() else paths.files(path, part.facts.endings):
        try:
            _read_by(part, file, options)
        except type(error):
            return f": {file.name}"
        except Exception:
            continue
    return ""


def _reads_whole(part: Part, path: pathlib.Path) -> bool:
    """Return whether a reader takes a directory or a pattern itself: as it says, or as it recognises the directory."""
    if part.facts.whole is not None or not part.is_foreign:
        return part.facts.whole is not False
    recognises = part.facts.recognises
    if not path.is_dir() or recognises is None:
        return path.is_dir() and not part.facts.endings
    try:
        return bool(recognises(path))
    except OSError:  # it opens what it is given, and looks at files alone
        return False


def _format(path: pathlib.Path, options: Options, argument: str) -> Part:
    if options.format is not None and options.format not in TRACES:
        raise ValueError(f"--trace_format={options.format} {TRACES.right(options.format)}")
    endings = tuple(dict.fromkeys(ending for part in TRACES.values() for ending in part.facts.endings))
    if not (any(path.iterdir()) if path.is_dir() else paths.files(path, ())):
        raise FileNotFoundError(f"{argument} must be a file, a directory of one file a worker, or a pattern of files")
    if options.format is not None:
        return TRACES[options.format]
    # Of a file the ending says it at once; in a directory there may be others beside a profile.
    by_ending = [part for part in TRACES.values() if part.facts.recognises is None]
    by_content = [part for part in TRACES.values() if part.facts.recognises is not None]
    for part in [*by_content, *by_ending] if path.is_dir() else [*by_ending, *by_content]:
        recognises, files = part.facts.recognises, paths.files(path, part.facts.endings)
        if recognises is not None:
            if (
                (files or path.is_dir()) and recognises(path)
                if _reads_whole(part, path)
                else files and all(map(recognises, files))
            ):
                return part
        elif files and all(file.name.lower().endswith(part.facts.endings) for file in files):
            return part
    loose = paths.files(path, paths.LOOSE)
    if loose and all(file.name.lower().endswith(paths.LOOSE) for file in loose):
        kinds = {_begins_with_object(file) for file in loose}
        if kinds == {True}:
            return TRACES["json_lines"]
        if kinds == {False} and not any(file.name.lower().endswith(".json") for file in loose):
            return TRACES["csv"]
    if path.suffix.lower() == ".npz":  # of no live run
        return TRACES["npy"]
    what = "hold files that end" if path.is_dir() else "end"
    formats = ", ".join(TRACES)
    raise ValueError(f"{argument} must {what} in {', '.join(endings)}, or --trace_format say what it is: {formats}")


def _begins_with_object(file: pathlib.Path) -> bool:
    """Return whether the first line with text is an object of JSON."""
    with file.open("rb") as lines:
        first = next((line for line in lines if line.strip()), b"")
    return paths.object_of(first) is not None


def _doubts(recording: Recording) -> list[str]:
    """Say which steps were recorded, and what looks as if the file was misread."""
    times, doubts = recording.runtimes, []
    distances = np.diff(recording.steps[~np.isnan(times).all(axis=1)])
    usual = int(np.median(distances)) if distances.size else 1
    if usual > 1 and (distances == usual).mean() >= _REGULAR:
        doubts.append(f"every {ordinal(usual)} step was recorded")
    seconds = float(np.nanmedian(times[:: max(times.shape[0] // 1_000, 1)]))  # NaN fails every comparison
    if seconds > _LONGEST or seconds < _SHORTEST:
        doubts.append(f"the usual time is {seconds:.3g} s: is it in seconds? --unit=ms, us or ns says otherwise")
    if len(times) >= _LEAST_STEPS_OF_A_CLOCK and (np.diff(times, axis=0) > 0).all():
        doubts.append("every compute time is longer than the one before it: are they times since the start of the run?")
    return doubts
