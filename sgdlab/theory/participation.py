"""Whose gradients are used: shares of the workers, and what they amount to."""

import dataclasses

import numpy as np

UNDER_USED = 0.5
"""A worker's data are under-used if it has less than this part of an equal share of the used gradients."""


def shares(used: np.ndarray) -> np.ndarray:
    """Each worker's share of the used gradients; 0 for all where none was used.

    Args:
      used: float64[N], gradients of each worker that were used, or its rate of them.

    Returns:
      float64[N], which add up to 1.
    """
    counts = np.asarray(used, np.float64)
    return counts / (counts.sum() or 1.0)


def effective_workers(parts: np.ndarray) -> float:
    r"""The effective number of workers.

    .. math:: N_{eff} = \frac{1}{\sum_i s_i^2}

    Args:
      parts: float64[N], their shares s.

    Returns:
      Between 1 and N; 0 where no gradient was used.

    Example:
      >>> effective_workers(np.array([0.5, 0.5, 0.0]))
      2.0
    """
    total = float(np.square(parts).sum())
    return 1 / total if total else 0.0


def under_used(parts: np.ndarray) -> np.ndarray:
    """The workers that have less than half of an equal share.

    Args:
      parts: float64[N], their shares.

    Returns:
      int64[...], none where no gradient was used.
    """
    return np.flatnonzero((parts * parts.size < UNDER_USED) & bool(parts.any()))


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class OfWorkers:
    """What the shares of the workers amount to.

    Attributes:
      shares: float64[N], each worker's share of the used gradients; they add up to 1.
    """

    shares: np.ndarray

    @property
    def effective_workers(self) -> float:
        """Between 1 and N: as many equal workers' data are learned from; 0 where no gradient was used."""
        return effective_workers(self.shares)

    @property
    def least_used(self) -> int:
        """The worker that has the smallest share; the first of several."""
        return int(self.shares.argmin())

    @property
    def least_share(self) -> float:
        """Its share of the used gradients, over an equal share: 1 if all workers' are equal."""
        return float(self.shares.min()) * self.shares.size

    @property
    def under_used(self) -> np.ndarray:
        """int64[...]: the workers that have less than half of an equal share."""
        return under_used(self.shares)
