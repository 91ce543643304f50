"""Hyperparameters of rules: checked where they are concrete, and carried as data so that no new value recompiles."""

import dataclasses
import math
import numbers
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Rate = float | jax.Array | Callable[[jax.Array], jax.Array]
"""A learning rate, or an optax schedule: count of updates -> learning rate."""


def static(default: Any = dataclasses.MISSING) -> Any:
    """A dataclass field that is part of the program rather than its data.

    Two registered dataclasses without any field need one each: jaxlib 0.10 compares such structures by their fields and
    not by their class, and a compiled function could be taken for that of the other.
    """
    return dataclasses.field(default=default, metadata={"static": True})


def learning_rate_argument(value: Rate, name: str = "learning_rate") -> Rate:
    """Checks a rate; makes a schedule a pytree, so that it can be an argument of a compiled function."""
    if callable(value):
        return value if isinstance(value, jax.tree_util.Partial) else jax.tree_util.Partial(value)
    return number(name, value, lower=0.0)


def rate_at(rate: Rate, count: jax.Array) -> jax.Array:
    """The learning rate after `count` updates."""
    return rate(count) if callable(rate) else rate


def number(name: str, value: Any, *, lower: float = -math.inf, upper: float = math.inf, open_: bool = False) -> Any:
    """Returns `value`, refused where it is a concrete number outside [lower, upper] (or inside out of an open range).

    Values that are being traced, and arrays of several values, pass unseen.
    """
    if isinstance(value, jax.core.Tracer) or (isinstance(value, (jax.Array, np.ndarray)) and value.ndim > 0):
        return value
    if not isinstance(value, (numbers.Real, jax.Array, np.ndarray)) or isinstance(value, bool):
        raise ValueError(f"{name}={value!r} must be a number")
    if not math.isfinite(value):
        raise ValueError(f"{name}={value} must be finite")
    inside = lower < value < upper if open_ else lower <= value <= upper
    if not inside:
        bounds = f"between {lower:g} and {upper:g}" if math.isfinite(upper) else f"at least {lower:g}"
        raise ValueError(f"{name}={value} must be {bounds}{', both excluded' if open_ else ''}")
    return value


def momentum_argument(value: Any, name: str = "momentum") -> Any:
    """Checks a momentum coefficient: (-1, 1), since Barkai et al.'s grid (Figures 9 to 11) has negative ones."""
    return number(name, value, lower=-1.0, upper=1.0, open_=True)


def decay_argument(name: str, value: Any) -> Any:
    """Checks the decay of a moving average: [0, 1)."""
    number(name, value, lower=0.0, upper=1.0)
    if _equals(value, 1):
        raise ValueError(f"{name}={value} must be at least 0 and below 1")
    return value


def _equals(value: Any, excluded: float) -> bool:
    return not isinstance(value, jax.core.Tracer) and np.ndim(value) == 0 and float(value) == excluded


def workers_argument(value: Any) -> int:
    """Checks a number of workers."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"num_workers={value!r} must be a whole number of at least 1")
    return int(value)


def max_learning_rate_argument(max_learning_rate: Any, learning_rate: Rate) -> Any:
    """Checks eta_max of the gap: the learning rate by default, required where that is a schedule."""
    learning_rate_argument(learning_rate)  # first, so that a bad one is refused by its own name
    if max_learning_rate is None:
        if callable(learning_rate):
            raise ValueError(
                "max_learning_rate=None must be given where learning_rate is a schedule: "
                "the gap is measured in steps of the largest learning rate"
            )
        max_learning_rate = learning_rate
    number("max_learning_rate", max_learning_rate, lower=0.0)
    if _equals(max_learning_rate, 0):
        raise ValueError(f"max_learning_rate={max_learning_rate} must be positive")
    return max_learning_rate


def like(value: Any, leaf: jax.Array) -> jax.Array:
    """`value` in the dtype of `leaf`, so that hyperparameters and delays never promote the parameters."""
    return jnp.asarray(value, leaf.dtype)


def moving_average(average: Any, value: Any, decay: Any) -> Any:
    """decay average + (1 - decay) value, leaf by leaf, dtypes kept."""

    def fold(old: jax.Array, new: jax.Array) -> jax.Array:
        # In bfloat16 0.999 is 1, and 1 - 0.999 would be 0: take the difference in a dtype that holds both.
        rest = 1 - jnp.asarray(decay, jnp.promote_types(old.dtype, jnp.float32))
        return like(decay, old) * old + like(rest, new) * new

    return jax.tree.map(fold, average, value)


def scale(tree: Any, factor: Any) -> Any:
    """Every leaf times `factor`, dtypes kept."""
    return jax.tree.map(lambda leaf: leaf * like(factor, leaf), tree)
