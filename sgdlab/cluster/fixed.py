"""Compute times that never change: one number for each worker."""

import dataclasses

import numpy as np

from sgdlab import arguments
from sgdlab.cluster.family import CLUSTERS


@CLUSTERS.register("fixed", title="fixed compute times")
@dataclasses.dataclass(frozen=True)
class Fixed:
    """Every gradient of a worker takes the same time, as analyses of asynchronous methods assume.

    Attributes:
      num_workers: N, number of workers.
      seconds: compute time of each worker's gradients; one number for all, or N of them.

    Raises:
      ValueError: where there are neither one nor N numbers, or one is not above 0.

    Example:
      >>> Fixed(num_workers=2, seconds=(1.0, 2.5)).draw(2, seed=0)
      array([[1. , 2.5],
             [1. , 2.5]])
    """

    num_workers: int
    seconds: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        arguments.whole("num_workers", self.num_workers)
        if len(self.seconds) not in (1, self.num_workers):
            raise ValueError(f"seconds={self.seconds!r} must be one number, or {self.num_workers}, one for each worker")
        for number in self.seconds:
            arguments.real("seconds", number, above=0)

    def draw(self, rows: int, *, seed: int) -> np.ndarray:
        """float64[rows, N], seconds; nothing is random."""
        arguments.whole("rows", rows)
        arguments.whole("seed", seed, least=0)
        return np.broadcast_to(np.array(self.seconds, float), (rows, self.num_workers)).copy()

    def __str__(self) -> str:
        least, most = min(self.seconds), max(self.seconds)
        return f"fixed compute times of {least:g} s" + (f" to {most:g} s" if most > least else "")
