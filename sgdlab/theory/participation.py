"""Shares of the workers in the gradients that are used, and what they amount to."""

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


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class OfWorkers:
    """Say what the shares of the workers amount to.

    Attributes:
      shares: float64[N], each worker's share of the used gradients; they add up to 1.
    """

    shares: np.ndarray

    @property
    def effective_workers(self) -> float:
        r"""Return how many equal workers' data are learned from, 1 to N; 0 where no gradient was used.

        .. math:: N_{eff} = \frac{1}{\sum_i s_i^2}
        """
        total = float(np.square(self.shares).sum())
        return 1 / total if total else 0.0

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
        """int64[...]: the workers that have less than half of an equal share; none where no gradient was used."""
        return np.flatnonzero((self.shares * self.shares.size < UNDER_USED) & bool(self.shares.any()))
