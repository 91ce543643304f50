"""Recordings of several files, and steps of single workers, put together to one recording."""

import dataclasses
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from sgdlab.traces import paths
from sgdlab.traces.options import Options
from sgdlab.traces.problems import BadTrace
from sgdlab.traces.recording import Recording


def joined(recordings: Mapping[str, Recording]) -> Recording:
    """Return one recording of the steps and the workers of all, given by the names of their files.

    Rows are in the order of the steps, and workers in the order of the files. What one file alone has, such as a phase,
    is missing (NaN) for the workers of the others; nodes, and when steps began, are kept where all files have them.
    Sizes of messages are not kept: a message is that of all workers, and its least time of no single file.

    Raises:
      BadTrace: where two files have a compute time of the same worker in the same step.

    Example:
      >>> first = Recording(np.array([[1.0], [2.0]]), np.array([0, 1]), ("0",))
      >>> second = Recording(np.array([[3.0], [4.0]]), np.array([1, 2]), ("1",))
      >>> joined({"rank0.log": first, "rank1.log": second}).runtimes
      array([[ 1., nan],
             [ 2.,  3.],
             [nan,  4.]])
    """
    found = list(recordings.values())
    if len(found) == 1:
        return found[0]
    steps = np.unique(np.concatenate([each.steps for each in found]))
    workers = tuple(dict.fromkeys(worker for each in found for worker in each.workers))
    number_of = {worker: index for index, worker in enumerate(workers)}
    places = [
        np.ix_(np.searchsorted(steps, each.steps), [number_of[worker] for worker in each.workers]) for each in found
    ]
    owner = np.full((steps.size, len(workers)), -1)
    for number, (each, place) in enumerate(zip(found, places, strict=True)):
        twice = ~np.isnan(each.runtimes) & (owner[place] >= 0)
        if twice.any():
            row, column = np.argwhere(twice)[0]
            other = list(recordings)[owner[place][row, column]]
            raise BadTrace(
                f"{list(recordings)[number]} and {other} both have a time of worker {each.workers[column]} in step "
                f"{each.steps[row]}; each must be in one file"
            )
        owner[place] = np.where(np.isnan(each.runtimes), owner[place], number)

    def filled(tables: Sequence[np.ndarray | None]) -> np.ndarray:
        whole = np.full(owner.shape, np.nan)
        for table, place in zip(tables, places, strict=True):
            if table is not None:
                whole[place] = np.where(np.isnan(table), whole[place], table)
        return whole

    def named(field: str) -> dict[str, np.ndarray]:
        names = dict.fromkeys(name for each in found for name in getattr(each, field))
        return {name: filled([getattr(each, field).get(name) for each in found]) for name in names}

    nodes = {worker: node for each in found for worker, node in zip(each.workers, each.nodes, strict=False)}
    return Recording(
        filled([each.runtimes for each in found]),
        steps,
        workers,
        nodes=tuple(nodes[worker] for worker in workers) if set(nodes) == set(workers) else (),
        phases=named("phases"),
        communication=named("communication"),
        began=_began(found, steps),
        notes=tuple(dict.fromkeys(note for each in found for note in each.notes)),
    )


def _began(recordings: Sequence[Recording], steps: np.ndarray) -> np.ndarray | None:
    """When the first worker began each step; None where a file does not say so."""
    if any(each.began is None for each in recordings):
        return None
    began = np.full(steps.size, np.nan)
    for each in recordings:
        rows = np.searchsorted(steps, each.steps)
        began[rows] = np.fmin(began[rows], each.began)
    return began


_Made = TypeVar("_Made")
_LAST_NUMBER = re.compile(r"([0-9]+)(?!.*[0-9])")


@dataclasses.dataclass(frozen=True, eq=False)
class WorkerSteps:
    """The steps that one worker has recorded.

    Attributes:
      worker: its name.
      steps: int64[K], in any order.
      own: float64[K], seconds of its own work in each.
      communication: collective -> float64[K], seconds.
      phases: name -> float64[K], seconds, which add up to its own work; empty if unknown.
      began: float64[K], seconds of its clock; NaN where unknown.
      node: its machine; empty if unknown.
    """

    worker: str
    steps: np.ndarray
    own: np.ndarray
    communication: Mapping[str, np.ndarray]
    phases: Mapping[str, np.ndarray]
    began: np.ndarray
    node: str = ""


def each(
    found: Sequence[pathlib.Path], options: Options, notes: list[str], read: Callable[[pathlib.Path], _Made]
) -> list[_Made]:
    """Return what is made of each file; where bad rows are skipped, files that cannot be used are noted.

    Raises:
      BadTrace: that names a file which cannot be used, or where there is none that can.
    """
    made = []
    for file in found:
        try:
            made.append(read(file))
        except BadTrace as error:
            if not options.skip_bad_rows:
                raise BadTrace(f"{file.name} {error}") from error
            notes.append(f"{file.name} was left out: it {error}.")
    if not made:
        raise BadTrace("must have a file that can be used")
    return made


def rank_in(path: pathlib.Path) -> str | None:
    """Return the rank that a file's name tells: the number behind "rank" and the like, or else the last one in it.

    Example:
      >>> rank_in(pathlib.Path("job7_rank12.pt.trace.json.gz")), rank_in(pathlib.Path("dump_3"))
      ('12', '3')
    """
    found = _LAST_NUMBER.search(path.name)
    return paths.number_behind_rank(path) or (str(int(found.group(1))) if found else None)


def together(parts: Sequence[WorkerSteps], notes: Sequence[str] = ()) -> Recording:
    """Return the recording of several workers; a step that a worker has not recorded is missing.

    Several parts of one worker, such as one file for each time that a profiler was on, are joined.

    Raises:
      BadTrace: where no worker has recorded a step.
    """
    workers = sorted({part.worker for part in parts}, key=paths.in_order)
    every = [part.steps for part in parts]
    steps = np.unique(np.concatenate(every)) if every else np.empty(0, np.int64)
    if steps.size == 0:
        raise BadTrace("must hold steps; none was found")
    shape, notes = (steps.size, len(workers)), list(notes)
    place = np.concatenate(
        [np.searchsorted(steps, part.steps) * len(workers) + workers.index(part.worker) for part in parts]
    )
    own, began = (np.concatenate([getattr(part, name) for part in parts]) for name in ("own", "began"))
    seen, first = np.unique(place, return_index=True)
    used = first[np.isfinite(own[first]) & (own[first] > 0)]

    def spread(values: np.ndarray) -> np.ndarray:
        whole = np.full(shape, np.nan)
        whole.ravel()[place[used]] = values[used]
        return whole

    def named(kind: str) -> dict[str, np.ndarray]:
        names = sorted({name for part in parts for name in getattr(part, kind)}, key=paths.in_order)
        return {
            name: spread(np.concatenate([getattr(part, kind).get(name, np.zeros(part.steps.size)) for part in parts]))
            for name in names
        }

    runtimes, began = spread(own), spread(began)
    if not np.isfinite(runtimes).any():
        raise BadTrace("must hold steps in which a worker did work of its own; there is none")
    if again := place.size - seen.size:
        notes.append(f"{again} steps of a worker were recorded more than once: the first of each was taken.")
    if impossible := first.size - used.size:
        notes.append(f"{impossible} steps of a worker had no time of its own work and are missing.")
    if some := int((np.bincount(seen // len(workers)) < len(workers)).sum()):
        notes.append(f"{some} of {steps.size} steps were recorded by some of the workers only.")
    known = np.isfinite(began).any(axis=1)
    nodes = {part.worker: part.node for part in reversed(parts) if part.node}
    return Recording(
        runtimes,
        steps.astype(np.int64),
        tuple(workers),
        nodes=tuple(nodes[worker] for worker in workers) if len(nodes) == len(workers) else (),
        phases=named("phases"),
        communication={name: times for name, times in named("communication").items() if np.nansum(times) > 0},
        began=np.where(known, np.fmin.reduce(began, axis=1), np.nan) if known.any() else None,
        notes=tuple(notes),
    )
