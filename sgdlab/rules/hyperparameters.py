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


def learning_rate_argument(value: Rate, name: str = "learning_rate") -> Rate:
    """Checks a rate; makes a schedule a pytree, so that it can be an argument of a compiled function."""
    if callable(value):
        return value if isinstance(value, jax.tree_util.Partial) else jax.tree_util.Partial(value)
    return number(name, value, least=0)


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


def momentum_argument(value: Any, name: str = "momentum") -> Any:
    """Checks a momentum coefficient: (-1, 1), since Barkai et al.'s grid (Figures 9 to 11) has negative ones."""
    return number(name, value, above=-1, below=1)


def decay_argument(name: str, value: Any) -> Any:
    """Checks the decay of a moving average: [0, 1)."""
    return number(name, value, least=0, below=1)


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
