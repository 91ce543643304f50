"""`Law`, the interface of clusters: a law from which compute times are drawn."""

from typing import Protocol

import numpy as np


class Law(Protocol):
    """A frozen dataclass whose fields are the parameters of the law, and whose text describes it in one line.

    Example:
      >>> from sgdlab import cluster
      >>> law: Law = cluster.Exponential(num_workers=3, mean=2.0)
      >>> print(law)
      exponential compute times (Jin et al. 2016, section 6.2), mean 2 s
    """

    @property
    def num_workers(self) -> int:
        """N, number of workers."""

    def draw(self, rows: int, *, seed: int) -> np.ndarray:
        """Compute times; more rows do not change the earlier ones.

        Args:
          rows: T, number of gradients of each worker.
          seed: of the random numbers.

        Returns:
          float64[T, N], seconds; row t holds each worker's t-th gradient.

        Raises:
          ValueError: where `rows` or `seed` is out of its range, or the law has fewer rows.
        """
