"""Rows of one worker and step that a further column tells apart: numbers on each node, steps of each epoch."""

import numpy as np

from sgdlab.traces.cells import Cells, Names, indexed, ordered
from sgdlab.traces.columns import ColumnLayout

RESTARTS = 0.1
"""Up to this share of a worker's steps may stand for two nodes because it was restarted on another one."""


def several(worker: np.ndarray, step: np.ndarray, other: np.ndarray, *, most: float = 0.0) -> bool:
    """Tell whether a worker has several values in one step.

    Args:
      worker: int[R], its index.
      step: float64[R], whole numbers.
      other: int[R], index of the value; -1 where it is missing.
      most: so large a share of the steps may have several.

    Example:
      >>> several(np.array([0, 1, 0, 1]), np.zeros(4), np.array([0, 0, 1, 1]))
      True
    """
    known = np.flatnonzero((worker >= 0) & (other >= 0) & np.isfinite(step))
    if not known.size:
        return False
    worker, step, other = worker[known].astype(np.int64), step[known], other[known].astype(np.int64)
    values, workers = int(other.max()) + 1, int(worker.max()) + 1
    if (np.bincount(np.unique(worker * values + other) // values) <= 1).all():
        return False
    _, place = indexed(step)
    pairs = np.unique((place * workers + worker) * values + other) // values
    _, count = np.unique(pairs, return_counts=True)
    return bool((count > 1).mean() > most)


def joined(node: str, worker: str) -> str:
    """Return the name of a worker whose number is its machine's."""
    return f"{node}/{worker}" if node else worker


def tell(cells: Cells, layout: ColumnLayout) -> None:
    """Names workers by their machine, and counts steps over epochs, where their numbers begin anew in each.

    Args:
      cells: the columns of a long table, of which those of the workers and of the steps are replaced.
      layout: what they hold.
    """
    columns = layout.columns
    worker, step = cells.names[columns["worker"]], cells.numbers[columns["step"]]
    node = cells.names.get(columns.get("node", ""))
    if node is not None and several(worker.codes, step, node.codes, most=RESTARTS):
        worker = cells.names[columns["worker"]] = _joined(node, worker)
        cells.notes += (f"column {columns['worker']!r} counts on each {columns['node']}: both name a worker",)
    epoch = cells.names.get(columns.get("epoch", ""))
    if epoch is not None and several(worker.codes, step, epoch.codes):
        whole = step[np.isfinite(step)]
        steps = int(whole.max()) + 1
        if whole.min() >= 0 and len(epoch.values) * steps < 2**53:
            number = _numbers(epoch)
            cells.numbers[columns["step"]] = np.where(epoch.codes >= 0, number * steps + step, np.nan)
            cells.notes += (f"{columns['epoch']} * {steps:,} + {columns['step']} was read as the step",)


def _joined(node: Names, worker: Names) -> Names:
    size = len(node.values) + 1
    keys, codes = np.unique(worker.codes.astype(np.int64) * size + (node.codes + 1), return_inverse=True)
    names = [
        joined(node.values[key % size - 1] if key % size else "", worker.values[key // size]) if key >= 0 else ""
        for key in keys.tolist()
    ]
    return Names.coded(names, codes)


def _numbers(epoch: Names) -> np.ndarray:
    """The number of each row's epoch, or its place among them where they are no whole numbers."""
    if all(value.isdecimal() for value in epoch.values):
        return np.array([*map(float, epoch.values), np.nan])[epoch.codes]
    return ordered(epoch)[1].astype(np.float64)
