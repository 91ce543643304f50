"""Compute times that rise from worker to worker, as benchmarks of asynchronous methods have them."""

import dataclasses

import numpy as np

from sgdlab import arguments
from sgdlab.cluster.family import CLUSTERS


@CLUSTERS.register(
    "ladder", title="compute times that rise from worker to worker", source="Maranjyan and Richtarik 2025"
)
@dataclasses.dataclass(frozen=True)
class Ladder:
    r"""Workers of all speeds: the slowest takes :math:`N^p` times as long as the fastest, and noise comes on top.

    .. math:: t_{kj} = s \left( \pi(j)^p + |\epsilon_{kj}| \right), \qquad
        \epsilon_{kj} \sim N(0, a^2 j), \quad j = 1, \dots, N

    pi is a permutation of the workers. With p = 1 and a = 1 it is the cluster of Ringleader ASGD's experiments, whose
    noise belongs to the number of the worker and not to its speed.

    Attributes:
      num_workers: N, number of workers.
      seconds: s, time of the fastest worker without noise.
      power: p; 0: all workers are equally fast.
      noise: a, standard deviation of the first worker's noise before its sign is lost, in units of s.
      shuffled: whether pi is random; else the workers are in the order of their speeds.

    Source: Maranjyan and Richtarik 2025 (arXiv 2509.22860), in the form of the authors' code
    (vectozavr/ringmaster-lmo, `run_experiments.py`).

    Example:
      >>> Ladder(num_workers=3, noise=0.0, shuffled=False).draw(2, seed=0)
      array([[1., 2., 3.],
             [1., 2., 3.]])
    """

    num_workers: int
    seconds: float = 1.0
    power: float = 1.0
    noise: float = 1.0
    shuffled: bool = True

    def __post_init__(self) -> None:
        arguments.whole("num_workers", self.num_workers)
        arguments.real("seconds", self.seconds, above=0)
        arguments.real("power", self.power, least=0)
        arguments.real("noise", self.noise, least=0)

    def draw(self, rows: int, *, seed: int) -> np.ndarray:
        """float64[rows, N], seconds; more rows do not change the earlier ones."""
        arguments.whole("rows", rows)
        arguments.whole("seed", seed, least=0)
        steps = np.arange(1.0, self.num_workers + 1)
        ranks = np.random.default_rng([seed, 1]).permutation(steps) if self.shuffled else steps
        noise = np.random.default_rng([seed, 0]).standard_normal((rows, self.num_workers))
        return self.seconds * (ranks**self.power + self.noise * np.sqrt(steps) * np.abs(noise))

    def __str__(self) -> str:
        noise = ", and half-normal noise" if self.noise else ""
        return (
            f"compute times of {self.seconds:g} to {self.seconds * self.num_workers**self.power:g} s, rising from "
            f"worker to worker{noise} (Maranjyan and Richtarik 2025)"
        )
