"""Whose gradients a protocol uses on the evaluation steps, and how far they are from their use (`sgdlab.theory`)."""

import dataclasses

import numpy as np

from sgdlab.advice.comparison.measured import Measured
from sgdlab.advice.comparison.protocol import Protocol
from sgdlab.theory import participation


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Usage(participation.OfWorkers):
    """What the schedule of a protocol says of convergence, whatever is trained.

    Attributes:
      tree_distance: R, the largest distance in Birch SGD's computation tree.
    """

    tree_distance: int


def usage(protocol: Protocol, runtimes: np.ndarray) -> Usage:
    """The usage of a protocol of the comparison, with the paper's objective.

    Args:
      protocol: a row of the comparison.
      runtimes: float64[T, N], seconds, of the steps on which it was measured.
    """
    result = protocol.paper
    most = int(np.max(result.gradients))
    used = participation.shares(_used(result, runtimes, protocol.without))
    return Usage(tree_distance=most - 1 + result.largest_staleness, shares=used)


def _used(result: Measured, runtimes: np.ndarray, without: tuple[int, ...]) -> np.ndarray:
    """float64[N], gradients of each worker that were used, or in proportion to them."""
    if result.used is not None:
        return result.used
    if without:
        return np.isin(np.arange(runtimes.shape[1]), without, invert=True).astype(float)
    # The first of every iteration: those whose place by run-time is below the number of its gradients.
    order = np.argsort(runtimes, axis=1, kind="stable")
    in_time = np.arange(runtimes.shape[1]) < result.gradients
    return np.bincount(order[in_time], minlength=runtimes.shape[1]).astype(float)
