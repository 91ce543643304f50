"""Learning-rate schedules as tables, which are data of a compiled program instead of a part of it."""

import jax
import jax.numpy as jnp
import numpy as np


def tabulated(rates: np.ndarray) -> jax.tree_util.Partial:
    """A learning-rate schedule that is read from a table; the last value holds for every later update.

    Any schedule can be tabulated beforehand; two tables of one length then share one compiled program.

    Args:
      rates: float[U], the learning rate of each update.

    Returns:
      A schedule, count of updates -> learning rate, usable with every optax transform.

    Raises:
      ValueError: where rates are not finite, or there are none.

    Example:
      >>> tabulated([0.1, 0.2])(1)
      Array(0.2, dtype=float32)
    """
    values = np.asarray(rates, float)
    if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all():
        raise ValueError(f"rates of shape {values.shape} must be a list of finite numbers, at least one")
    return jax.tree_util.Partial(_lookup, jnp.asarray(values))


def _lookup(rates: jax.Array, count: jax.Array) -> jax.Array:
    return rates[jnp.minimum(count, rates.shape[0] - 1)]
