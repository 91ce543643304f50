"""Recordings of several files, such as one for each worker, as one."""

from collections.abc import Mapping, Sequence

import numpy as np

from sgdlab.traces.problems import BadTrace
from sgdlab.traces.recording import Recording


def joined(recordings: Mapping[str, Recording]) -> Recording:
    """One recording of the steps and the workers of all.

    Args:
      recordings: by the names of their files.

    Returns:
      The recording, with rows in the order of the steps, and workers in the order of the files. What one file alone
      has, such as a phase, is missing (NaN) for the workers of the others; nodes, and when steps began, are kept where
      all files have them.

    Raises:
      BadTrace: where two files have a run-time of the same worker in the same step.

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
    places = [_places(each, steps, number_of) for each in found]
    owner = np.full((steps.size, len(workers)), -1)
    for number, (each, place) in enumerate(zip(found, places, strict=True)):
        twice = ~np.isnan(each.runtimes) & (owner[place] >= 0)
        if twice.any():
            row, column = np.argwhere(twice)[0]
            other = list(recordings)[owner[place][row, column]]
            raise BadTrace(
                f"{list(recordings)[number]} and {other} both have a run-time of worker {each.workers[column]} in step "
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


def _places(recording: Recording, steps: np.ndarray, number_of: Mapping[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """Where the run-times of a recording stand among all: the rows, and the columns."""
    return np.ix_(np.searchsorted(steps, recording.steps), [number_of[worker] for worker in recording.workers])


def _began(recordings: Sequence[Recording], steps: np.ndarray) -> np.ndarray | None:
    """When the first worker began each step; None where a file does not say so."""
    if any(each.began is None for each in recordings):
        return None
    began = np.full(steps.size, np.nan)
    for each in recordings:
        rows = np.searchsorted(steps, each.steps)
        began[rows] = np.fmin(began[rows], each.began)
    return began
