"""Hyperparameters of rules: checks of concrete values, static settings, and learning rates as data."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgdlab import arguments

Rate = float | jax.Array | Callable[[jax.Array], jax.Array]
"""A learning rate, or an optax schedule: count of updates -> learning rate."""


def static(default: Any = dataclasses.MISSING) -> Any:
    """A dataclass field that is a static setting: a new value compiles a new program.

    A registered dataclass without other fields needs one: jaxlib 0.10 compares tree structures by their fields, not by
    their class, so that two such classes would share a compiled function.
    """
    return dataclasses.field(default=default, metadata={"static": True})


def learning_rate_argument(value: Rate) -> Rate:
    """Checks a rate; makes a schedule a pytree, so that it can be an argument of a compiled function."""
    if callable(value):
        return value if isinstance(value, jax.tree_util.Partial) else jax.tree_util.Partial(value)
    return number("learning_rate", value, least=0)


def rate_at(rate: Rate, count: jax.Array) -> jax.Array | float:
    """The learning rate after `count` updates."""
    return rate(count) if callable(rate) else rate


def number(name: str, value: Any, **bounds: float) -> Any:
    """A number whose finiteness and `bounds` (`sgdlab.arguments.real`) are checked where its value is known.

    Tracers and arrays of several values are not checked.

    Example:
      >>> number("b1", 0.9, least=0, below=1)
      0.9
    """
    if not isinstance(value, (jax.Array, np.ndarray)):  # a tracer is a jax.Array
        return arguments.real(name, value, **bounds)
    if value.ndim == 0 and not isinstance(value, jax.core.Tracer):
        arguments.real(name, value.item(), **bounds)
    return value


def taking_part(workers: Any, num_workers: int) -> Any:
    """Return how many workers take part, checked; None: all that there is room for."""
    present = num_workers if workers is None else workers
    number("workers", present, least=1, most=num_workers)
    return present


def decay_argument(name: str, value: Any) -> Any:
    """Checks the decay of a moving average: [0, 1)."""
    return number(name, value, least=0, below=1)


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "learning_rate": learning_rate_argument,
    # Barkai et al.'s grid (Figures 9 to 11) has negative ones.
    "momentum": lambda value: number("momentum", value, above=-1, below=1),
    "nesterov": bool,
    "weight_decay": lambda value: number("weight_decay", value, least=0),
    "b1": lambda value: decay_argument("b1", value),
    "b2": lambda value: decay_argument("b2", value),
    "eps": lambda value: number("eps", value, least=0),
}


def checked(**values: Any) -> dict[str, Any]:
    """Check hyperparameters that many rules have, by their names.

    Example:
      >>> checked(momentum=0.9, weight_decay=0.1)
      {'momentum': 0.9, 'weight_decay': 0.1}
    """
    return {name: _CHECKS[name](value) for name, value in values.items()}


def max_learning_rate_argument(max_learning_rate: Any, learning_rate: Rate) -> Any:
    """Checks eta_max of the gap; the default is the learning rate, unless that is a schedule."""
    learning_rate_argument(learning_rate)  # first, so that a bad one is refused by its own name
    if max_learning_rate is None:
        if callable(learning_rate):
            raise ValueError(
                "max_learning_rate=None must be given where learning_rate is a schedule: "
                "the gap is measured in steps of the largest learning rate"
            )
        max_learning_rate = learning_rate
    return number("max_learning_rate", max_learning_rate, above=0)


def like(value: Any, leaf: jax.Array) -> jax.Array:
    """`value` in the dtype of `leaf`, so that hyperparameters and delays never promote the parameters."""
    return jnp.asarray(value, leaf.dtype)


def scale(tree: Any, factor: Any) -> Any:
    """Every leaf times `factor`, in its own dtype."""
    return jax.tree.map(lambda leaf: leaf * like(factor, leaf), tree)


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
