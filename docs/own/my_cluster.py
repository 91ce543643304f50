# my_cluster.py
import dataclasses
import numpy as np
from sgdlab.cluster import CLUSTERS


@CLUSTERS.register("spot", title="spot instances")
@dataclasses.dataclass(frozen=True)
class Spot:
    """Equal workers, each of which is sometimes taken away for a while.

    Attributes:
      num_workers: N, number of workers.
      mean: run-time of a gradient, seconds.
      share: of gradients that are interrupted, from 0 to 1.
      away: seconds that an interruption takes.
    """

    num_workers: int  # given by the run; all others are flags
    mean: float = 8.0
    share: float = 0.02
    away: float = 120.0

    def __post_init__(self):
        if not 0 <= self.share <= 1:
            raise ValueError(f"share={self.share} must be from 0 to 1")

    def draw(self, rows, *, seed):
        """float64[rows, N], seconds, above 0; more rows do not change the earlier ones."""
        uniform = np.random.default_rng(seed).random((rows, self.num_workers, 2))
        return self.mean * (0.9 + 0.2 * uniform[..., 0]) + self.away * (uniform[..., 1] < self.share)

    def __str__(self):
        return f"spot instances, {self.mean:.4g} s a gradient, {100 * self.share:.3g} % interrupted"
