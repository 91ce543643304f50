"""The slowest worker, the slowest node, and workers that are slow together, as the times are after some repairs."""

from collections.abc import Iterator

import numpy as np

from sgdlab.advice.what_if.candidates import Repair, Times, node_of, of_workers
from sgdlab.advice.what_if.scores import above_median, second_longest
from sgdlab.traces.recording import Recording

_ALIKE, _OUTLYING = 0.5, 4.0
"""Workers are slow together whose excess is this share of the largest at least, and this multiple of the median one."""


def find_slowest(recording: Recording, times: Times, left_out: frozenset[int]) -> Iterator[Repair]:
    """The slowest worker, the workers that are slow together, and the slowest node, as the times now are.

    Args:
      recording: the complete steps.
      times: after the repairs so far.
      left_out: workers that have been repaired.
    """
    runtimes = times.runtimes
    order = runtimes.argmax(axis=1)
    gaps = runtimes[np.arange(len(runtimes)), order] - second_longest(runtimes)
    excess = above_median(runtimes)
    saved = np.bincount(order, gaps, minlength=runtimes.shape[1]) + 1e-9 * excess  # of equals, the slower one
    rest = np.setdiff1d(np.arange(excess.size), list(left_out))
    if not rest.size:
        return
    yield of_workers(recording, [rest[saved[rest].argmax()]])
    least = max(_ALIKE * excess[rest].max(), _OUTLYING * np.median(excess[rest]), np.finfo(float).tiny)
    together = rest[excess[rest] >= least]
    if 2 <= together.size <= len(recording.workers) // 2 and node_of(recording, tuple(together.tolist())) is None:
        yield of_workers(recording, together)
    node = _slowest_node(recording, runtimes, left_out)
    if node is not None:
        yield of_workers(recording, node)


def _slowest_node(recording: Recording, runtimes: np.ndarray, left_out: frozenset[int]) -> np.ndarray | None:
    """The workers of the node for which the others wait longest; None if no node has several, or all are left out."""
    names, of = np.unique(recording.nodes, return_inverse=True)
    if names.size < 2:
        return None
    order = np.argsort(of, kind="stable")
    longest = np.maximum.reduceat(runtimes[:, order], np.searchsorted(of[order], np.arange(names.size)), axis=1)
    slowest = longest.argmax(axis=1)
    gaps = longest[np.arange(len(longest)), slowest] - second_longest(longest)
    saved = np.bincount(slowest, gaps, minlength=names.size)
    rest = np.bincount(of, [worker not in left_out for worker in range(of.size)], minlength=names.size)
    saved[(np.bincount(of) < 2) | (rest == 0)] = -1.0
    return np.flatnonzero(of == saved.argmax()) if saved.max() >= 0 else None
