"""Where the steps of workers go back, as they do when a job is started again and writes to the same file."""

import numpy as np

BACK = 10
"""Rows that are fewer steps back may be out of order, and no more."""


def goes_back(worker: np.ndarray, step: np.ndarray, newest: np.ndarray, known: np.ndarray) -> np.ndarray | None:
    """bool[R], the rows of each worker from the first one on whose step is far behind an earlier one of it.

    Args:
      worker: int64[R], index of each row's worker.
      step: int64[R], of each row.
      newest: int64[N], the newest step of each worker before.
      known: bool[N], workers whose steps went back before: all rows of theirs count.

    Returns:
      None where there are no such rows.

    Example:
      >>> worker, step = np.array([0, 1, 0, 1, 0]), np.array([50, 50, 51, 10, 52])
      >>> goes_back(worker, step, np.zeros(2, int), np.zeros(2, bool))
      array([False, False, False,  True, False])
    """
    ahead = np.maximum.accumulate(step) if step.size else step
    if not (known.any() or (step + BACK <= ahead).any() or (step + BACK <= newest[worker]).any()):
        return None
    back = np.zeros(step.size, bool)
    order = np.argsort(worker, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(worker[order])) + 1):
        if not rows.size:
            continue
        own = int(worker[rows[0]])
        ahead = np.maximum(np.maximum.accumulate(step[rows]), newest[own])
        far = step[rows] + BACK <= ahead
        if known[own] or far.any():
            back[rows[0 if known[own] else int(far.argmax()) :]] = True
    return back if back.any() else None
