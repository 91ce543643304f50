"""Run-times without memory: every worker's clock ticks as a Poisson process."""

import numpy as np

from sgdlab import arguments


def exponential(*, num_workers: int, num_gradients: int, mean: float = 1.0, seed: int) -> np.ndarray:
    r"""Draws independent exponential run-times, :math:`t_{kj} \sim \operatorname{Exp}(1 / mean)`.

    Beginnings and ends of gradients are then the ticks of Poisson clocks, as the analysis of gossip assumes (Jin et
    al. 2016, section 6.2). More rows can be asked for later: the same seed gives the same first rows.

    Args:
      num_workers: N.
      num_gradients: T, rows.
      mean: seconds.
      seed: of the random numbers.

    Returns:
      float64[T, N], seconds.

    Raises:
      ValueError: where a number is out of its range.

    Example:
      >>> exponential(num_workers=3, num_gradients=2, seed=0).shape
      (2, 3)
    """
    shape = (arguments.whole("num_gradients", num_gradients), arguments.whole("num_workers", num_workers))
    arguments.real("mean", mean, above=0)
    generator = np.random.default_rng(arguments.whole("seed", seed, least=0))
    # A variate of exactly 0 would not move the clock.
    return np.maximum(mean * generator.standard_exponential(shape), np.finfo(float).tiny)
