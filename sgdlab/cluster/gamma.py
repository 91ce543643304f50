"""Compute times from gamma distributions: homogeneous and heterogeneous clusters (Barkai et al. 2020, Appendix C.3)."""

import dataclasses

import numpy as np

from sgdlab import arguments
from sgdlab.cluster.family import CLUSTERS

_LEAST, _MOST = 1e-6, 100.0
"""Coefficients of variation beyond these have shapes that no float64 gamma distribution can draw from."""


@CLUSTERS.register("gamma", title="gamma-distributed compute times", source="Barkai et al. 2020, Appendix C.3")
@dataclasses.dataclass(frozen=True)
class Gamma:
    r"""Gamma-distributed compute times, of machines of equal or unequal speed.

    Homogeneous machines (Algorithm 12) share one mean :math:`q`, and each task scatters around it:

    .. math:: q \sim \Gamma(1 / V_{task}^2,\; \mu V_{task}^2), \qquad
        t_{kj} \sim \Gamma(1 / V_{mach}^2,\; q V_{mach}^2), \qquad V_{mach} = V_{task} = 0.1

    Heterogeneous machines (Algorithm 13) each have a mean :math:`p_j` of their own for the whole run:

    .. math:: p_j \sim \Gamma(1 / V_{mach}^2,\; \mu V_{mach}^2), \qquad
        t_{kj} \sim \Gamma(1 / V_{task}^2,\; p_j V_{task}^2), \qquad V_{mach} = 0.6,\; V_{task} = 0.1

    The mean over runs is :math:`\mu`, by default the batch size B in seconds of virtual time, as in the paper.

    Attributes:
      num_workers: N, number of machines.
      batch_size: B, examples per gradient.
      heterogeneous: whether machines have unequal mean compute times.
      mean: mu, mean compute time, seconds; None: `batch_size` seconds.
      task_variation: V_task, coefficient of variation of tasks.
      machine_variation: V_mach, coefficient of variation of machines; None: 0.6 if heterogeneous, else 0.1.

    Source: Barkai et al. 2020, Appendix C.3, Algorithms 12 and 13.

    Example:
      >>> Gamma(num_workers=3).draw(2, seed=0).shape
      (2, 3)
      >>> print(Gamma(num_workers=3, batch_size=32, heterogeneous=True))
      gamma-distributed compute times, machines of unequal speed (Barkai et al. 2020, C.3), mean 32 s, coefficients of
      variation 0.1 (tasks) and 0.6 (machines)
    """

    num_workers: int
    batch_size: float = 128.0
    heterogeneous: bool = False
    mean: float | None = None
    task_variation: float = 0.1
    machine_variation: float | None = None

    def __post_init__(self) -> None:
        arguments.whole("num_workers", self.num_workers)
        arguments.real("batch_size", self.batch_size, above=0)
        if self.mean is not None:
            arguments.real("mean", self.mean, above=0)
        arguments.real("task_variation", self.task_variation, least=_LEAST, most=_MOST)
        if self.machine_variation is not None:
            arguments.real("machine_variation", self.machine_variation, least=_LEAST, most=_MOST)

    def draw(self, rows: int, *, seed: int) -> np.ndarray:
        """float64[rows, N], seconds; more rows do not change the earlier ones."""
        arguments.whole("rows", rows)
        generator = np.random.default_rng(arguments.whole("seed", seed, least=0))
        if self.heterogeneous:
            between, within, size = self._machine_variation(), self.task_variation, self.num_workers
        else:
            between, within, size = self.task_variation, self._machine_variation(), 1
        means = generator.gamma(1 / between**2, self._mean() * between**2, size)
        runtimes = generator.gamma(1 / within**2, means * within**2, (rows, self.num_workers))
        return np.maximum(runtimes, np.finfo(float).tiny)  # variations far above 1 draw exact zeros

    def __str__(self) -> str:
        speed = "unequal" if self.heterogeneous else "equal"
        return (
            f"gamma-distributed compute times, machines of {speed} speed (Barkai et al. 2020, C.3), "
            f"mean {self._mean():.4g} s, coefficients of variation {self.task_variation:g} (tasks) "
            f"and {self._machine_variation():g} (machines)"
        )

    def _mean(self) -> float:
        return self.batch_size if self.mean is None else self.mean

    def _machine_variation(self) -> float:
        if self.machine_variation is not None:
            return self.machine_variation
        return 0.6 if self.heterogeneous else 0.1


@CLUSTERS.register("gamma_quantiles", title="gamma-distributed compute times, mean speeds at quantiles of their law")
@dataclasses.dataclass(frozen=True)
class GammaQuantiles:
    r"""Machines of unequal speed, as of `Gamma`, whose means are quantiles of their law and not draws from it.

    .. math:: p_j = F^{-1}\Bigl(\frac{j - 1/2}{N}\Bigr), \qquad
        t_{kj} \sim \Gamma(1 / V_{task}^2,\; p_j V_{task}^2), \qquad j = 1, \dots, N

    with F the distribution function of :math:`\Gamma(1 / V_{mach}^2, \mu V_{mach}^2)`. Every seed then has the same
    machines, so that what a method makes of unequal ones does not depend on how unequal a seed's happen to be.

    Attributes:
      num_workers: N, number of machines.
      batch_size: B, examples per gradient.
      mean: mu, mean compute time, seconds; None: `batch_size` seconds.
      task_variation: V_task, coefficient of variation of tasks.
      machine_variation: V_mach, coefficient of variation of machines.

    Example:
      >>> GammaQuantiles(num_workers=3, mean=1.0, task_variation=0.001).draw(1, seed=0).round(1)
      array([[0.4, 0.9, 1.5]])
    """

    num_workers: int
    batch_size: float = 128.0
    mean: float | None = None
    task_variation: float = 0.1
    machine_variation: float = 0.6

    def __post_init__(self) -> None:
        arguments.real("machine_variation", self.machine_variation, least=_LEAST, most=_MOST)
        self._law()

    def draw(self, rows: int, *, seed: int) -> np.ndarray:
        """float64[rows, N], seconds; more rows do not change the earlier ones."""
        from scipy import special  # noqa: PLC0415 (SciPy takes a while to import)

        arguments.whole("rows", rows)
        generator = np.random.default_rng(arguments.whole("seed", seed, least=0))
        shape, within = 1 / self.machine_variation**2, self.task_variation
        middles = (np.arange(self.num_workers) + 0.5) / self.num_workers
        means = special.gammaincinv(shape, middles) * self._mean() / shape
        runtimes = generator.gamma(1 / within**2, means * within**2, (rows, self.num_workers))
        return np.maximum(runtimes, np.finfo(float).tiny)

    def __str__(self) -> str:
        return f"{self._law()}, machines at quantiles of their law"

    def _mean(self) -> float:
        return self.batch_size if self.mean is None else self.mean

    def _law(self) -> Gamma:
        return Gamma(self.num_workers, self.batch_size, True, self.mean, self.task_variation, self.machine_variation)


def gamma(
    *, num_workers: int, num_gradients: int, heterogeneous: bool = False, batch_size: float = 128, seed: int
) -> np.ndarray:
    """Draws `num_gradients` rows from `Gamma`, which describes the other numbers: float64[T, N], seconds.

    Example:
      >>> gamma(num_workers=3, num_gradients=2, seed=0).shape
      (2, 3)
    """
    rows = arguments.whole("num_gradients", num_gradients)
    return Gamma(num_workers, batch_size, heterogeneous).draw(rows, seed=seed)
