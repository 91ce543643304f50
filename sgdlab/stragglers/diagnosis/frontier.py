"""Frontier accounting: which worker, in which part of a step, makes all others wait."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int


class Frontier(NamedTuple):
    r"""The frontier of each step: the cumulative time of whoever is furthest at the end of each part of it.

    With the time :math:`x_{p n}` of worker n in part p of a step,

    .. math:: F_p = \max_n \sum_{q \le p} x_{q n}, \qquad d_p = F_p - F_{p-1}

    Attributes:
      increments: d, float64[P, T], seconds; they add up to the exposed time of each step, that of its slowest worker.
      leaders: int[P, T], the worker at the frontier at the end of each part.
      ahead: float64[T], seconds of the last leader beyond the median worker.

    Source: Yoon, Chen, Kallioniemi 2026, "StageFrontier: Synchronization-Aware Stage Accounting for Distributed ML
    Training" (arXiv:2606.06751), whose abstract describes the accounting.
    """

    increments: Float64[np.ndarray, "P T"]
    leaders: Int[np.ndarray, "P T"]
    ahead: Float64[np.ndarray, " T"]


def frontier(parts: Float64[np.ndarray, "P T N"]) -> Frontier:
    """Compute the frontier of steps that consist of parts, in their order.

    Args:
      parts: x, float64[P, T, N], seconds.

    Example:
      >>> data, work = np.array([[3.0, 1.0]]), np.array([[2.0, 5.0]])
      >>> found = frontier(np.stack([data, work]))
      >>> found.increments.tolist(), found.leaders.tolist(), found.ahead.tolist()
      ([[3.0], [3.0]], [[0], [1]], [0.5])
    """
    reached = np.cumsum(parts, axis=0)
    furthest = reached.max(axis=2)
    increments = np.diff(furthest, axis=0, prepend=0.0)
    return Frontier(increments, reached.argmax(axis=2), furthest[-1] - np.median(reached[-1], axis=1))
