"""Exponential compute times: the ends of a worker's gradients are a Poisson process."""

import dataclasses

import numpy as np

from sgdlab import arguments
from sgdlab.cluster.family import CLUSTERS


@CLUSTERS.register("exponential", title="exponential compute times", source="Jin et al. 2016, section 6.2")
@dataclasses.dataclass(frozen=True)
class Exponential:
    r"""Independent exponential compute times, :math:`t_{kj} \sim \operatorname{Exp}(1 / mean)`.

    Beginnings and ends of gradients are then the ticks of Poisson clocks, as the analysis of gossip assumes.

    Attributes:
      num_workers: N, number of workers.
      mean: mean compute time, seconds.

    Source: Jin et al. 2016, section 6.2.

    Example:
      >>> Exponential(num_workers=3).draw(2, seed=0).shape
      (2, 3)
    """

    num_workers: int
    mean: float = 1.0

    def __post_init__(self) -> None:
        arguments.whole("num_workers", self.num_workers)
        arguments.real("mean", self.mean, above=0)

    def draw(self, rows: int, *, seed: int) -> np.ndarray:
        """float64[rows, N], seconds; more rows do not change the earlier ones."""
        arguments.whole("rows", rows)
        generator = np.random.default_rng(arguments.whole("seed", seed, least=0))
        # A variate of exactly 0 would not move the clock.
        return np.maximum(self.mean * generator.standard_exponential((rows, self.num_workers)), np.finfo(float).tiny)

    def __str__(self) -> str:
        return f"exponential compute times (Jin et al. 2016, section 6.2), mean {self.mean:.4g} s"


def exponential(*, num_workers: int, num_gradients: int, mean: float = 1.0, seed: int) -> np.ndarray:
    """Draws `num_gradients` rows from `Exponential`, which describes the other numbers: float64[T, N], seconds.

    Example:
      >>> exponential(num_workers=3, num_gradients=2, seed=0).shape
      (2, 3)
    """
    return Exponential(num_workers, mean).draw(arguments.whole("num_gradients", num_gradients), seed=seed)
