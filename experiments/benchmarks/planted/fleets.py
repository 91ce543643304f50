"""Fleets without any cause: compute times of workers that differ only by chance."""

import dataclasses

import numpy as np

LAWS = ("normal", "gamma", "log-normal")
"""Laws of the noise on which the thresholds of the diagnosis were chosen."""

WITH_MEMORY = "log-normal with memory"

SKEWED = ("shifted exponential", "Laplace")
"""Laws that were held out first, and that led to one more threshold, that of the owners of single slow steps."""

HELD_OUT = ("Weibull", WITH_MEMORY, "logistic")
"""Laws that were first tried when the thresholds stood."""

_MEMORY = 0.5
"""Correlation of consecutive steps of the noise with memory, and of what its steps have in common."""


@dataclasses.dataclass(frozen=True, eq=False)
class Fleet:
    """Compute times without a cause.

    Attributes:
      runtimes: float64[T, N], seconds; about 1 on average.
      nodes: the machine of each worker; empty if it is unknown.
      noise: relative deviation of a worker's compute time in a step, of the median worker.
      common: relative deviation of what all workers of a step have in common.
      law: of the noise.
      clean: float64[T, N], the compute times before anything is planted.
    """

    runtimes: np.ndarray
    nodes: tuple[str, ...]
    noise: float
    common: float
    law: str
    clean: np.ndarray


def draw(
    generator: np.random.Generator,
    law: str | None = None,
    *,
    nodes: bool | None = None,
    noise: float | None = None,
    steps: int | None = None,
    workers: int | None = None,
) -> Fleet:
    """Draws a fleet: 100 to 2,000 steps of 4 to 64 workers, noise of 2 to 10 %, and 0 to 8 % that a step has in common.

    Workers differ constantly, by about 1 % in speed and by up to 1.5 times the noise of the median worker.

    Args:
      generator: of random numbers.
      law: of the noise; None: one of `LAWS`.
      nodes: whether the nodes are known; None: in half of the fleets. Nodes need at least 8 workers.
      noise: relative deviation of the median worker.
      steps: T.
      workers: N.
    """
    steps = steps or round(float(np.exp(generator.uniform(np.log(100), np.log(2000)))))
    sizes = [8, 16, 32, 64] if nodes else [4, 6, 8, 12, 16, 24, 32, 48, 64]
    workers = workers or int(generator.choice(sizes))
    noise = noise or float(generator.uniform(0.02, 0.1))
    common = float(generator.uniform(0.0, 0.08))
    law = law or str(generator.choice(LAWS))
    spread = noise * generator.uniform(0.5, 1.5, workers)
    speed = np.exp(0.01 * generator.standard_normal(workers))
    shared = np.exp(common * _normal(generator, (steps, 1), law))
    runtimes = speed * shared * _noise(generator, law, steps, spread)
    known = generator.random() < 0.5 if nodes is None else nodes
    size = int(generator.choice([2, 4]))
    names = tuple(f"n{worker // size}" for worker in range(workers)) if known and workers >= 8 else ()
    return Fleet(runtimes, names, noise, common, law, runtimes.copy())


def _noise(generator: np.random.Generator, law: str, steps: int, spread: np.ndarray) -> np.ndarray:
    """float64[T, N] of mean about 1 and relative deviation `spread`."""
    shape = (steps, spread.size)
    if law == "gamma":
        return generator.gamma(1 / spread**2, spread**2, shape)
    if law.startswith("log-normal"):
        return np.exp(spread * _normal(generator, shape, law))
    standard = {  # of mean 0 and variance 1
        "normal": lambda: generator.standard_normal(shape),
        "shifted exponential": lambda: generator.standard_exponential(shape) - 1,
        "Laplace": lambda: generator.laplace(0, 1 / np.sqrt(2), shape),
        "logistic": lambda: generator.logistic(0, np.sqrt(3) / np.pi, shape),
        "Weibull": lambda: (generator.weibull(1.5, shape) - 0.9027) / 0.6129,  # of shape 1.5
    }
    return np.maximum(1 + spread * standard[law](), 0.1)


def _normal(generator: np.random.Generator, shape: tuple[int, int], law: str) -> np.ndarray:
    """Standard normal numbers, correlated from step to step if the law has a memory."""
    result = generator.standard_normal(shape)
    for step in range(1, shape[0]) if law == WITH_MEMORY else ():
        result[step] = _MEMORY * result[step - 1] + np.sqrt(1 - _MEMORY**2) * result[step]
    return result
