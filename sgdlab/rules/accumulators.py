"""Accumulators of rules (velocities, moments and sums), in float32 at least, whatever the dtype of the parameters.

In bfloat16 a velocity stalls as soon as an increment is less than half a unit in its last place, 0.999 is rounded to 1,
and the second moment of ones ends at one half. States are therefore wider than narrow parameters (a velocity of
bfloat16 parameters takes twice their memory); messages and updates have the dtypes of the parameters. With parameters
in float32 or float64 nothing is converted.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from sgdlab.rules.hyperparameters import Rate, like, rate_at, scale
from sgdlab.types import Tree


def wide(tree: Tree) -> Tree:
    """Every leaf in float32 at least.

    Example:
      >>> wide(jnp.ones(1, jnp.bfloat16)).dtype
      dtype('float32')
    """
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, wide_dtype(leaf)), tree)


def wide_dtype(leaf: jax.Array) -> jnp.dtype:
    """float32, or the leaf's own dtype where that is wider."""
    return jnp.promote_types(leaf.dtype, jnp.float32)


def zeros(params: Tree) -> Tree:
    """An accumulator of zeros for each leaf of the parameters."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, wide_dtype(leaf)), params)


def narrow(tree: Tree, example: Tree) -> Tree:
    """Every leaf in the dtype that it has in `example`."""
    return jax.tree.map(like, tree, example)


def moving_average(average: Tree, value: Tree, decay: Any) -> Tree:
    """decay average + (1 - decay) value, leaf by leaf, in the dtypes of the average.

    Example:
      >>> moving_average(jnp.zeros(1), jnp.ones(1, jnp.bfloat16), 0.75)
      Array([0.25], dtype=float32)
    """
    return jax.tree.map(
        lambda old, new: like(decay, old) * old + (1 - like(decay, old)) * like(new, old), average, value
    )


def momentum_step(gradient: Tree, velocity: Tree, momentum: Any, *, nesterov: bool = False) -> tuple[Tree, Tree]:
    r"""One step of momentum SGD.

    .. math:: v \leftarrow \gamma v + g, \qquad \text{step} = v \quad\text{or, with nesterov,}\quad \gamma v + g

    Args:
      gradient: g, like the parameters.
      velocity: v, like the parameters or wider.
      momentum: gamma.
      nesterov: whether to use Nesterov's momentum, as in `optax.trace`.

    Returns:
      The new velocity, and the step before it is multiplied by the learning rate.

    Example:
      >>> momentum_step(jnp.ones(1), jnp.full(1, 2.0), 0.5, nesterov=True)
      (Array([2.], dtype=float32), Array([2.], dtype=float32))
    """
    new = optax.tree.add(gradient, scale(velocity, momentum))
    return new, optax.tree.add(gradient, scale(new, momentum)) if nesterov else new


def descent(step: Tree, learning_rate: Rate, count: jax.Array, params: Tree) -> Tree:
    """The update -eta step, after `count` updates, in the dtypes of the parameters."""
    return narrow(scale(step, -rate_at(learning_rate, count)), params)


def momentum_chains(
    *,
    learning_rate: Rate,
    momentum: Any,
    weight_decay: Any,
    nesterov: bool = False,
    of_gradients: tuple[optax.GradientTransformation, ...] = (),
    of_steps: tuple[optax.GradientTransformation, ...] = (),
) -> tuple[optax.GradientTransformation, optax.GradientTransformation]:
    """Return the transforms of momentum SGD, of each gradient and of each update.

    Args:
      learning_rate: or an optax schedule.
      momentum: of the velocity.
      weight_decay: added to each gradient at the server's parameters.
      nesterov: whether to use Nesterov's momentum.
      of_gradients: stateless transforms of each gradient, after its weight decay.
      of_steps: transforms of the step, before the learning rate multiplies it.
    """
    steps = in_float32(optax.trace(momentum, nesterov)), *of_steps, optax.scale_by_learning_rate(learning_rate)
    return optax.chain(optax.add_decayed_weights(weight_decay), *of_gradients), optax.chain(*steps)


def in_float32(transform: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    """An optax transform that computes, and keeps its state, in float32 at least.

    Args:
      transform: any optax transform whose state takes its dtypes from the parameters, as most do.

    Returns:
      A transform whose updates have the dtypes of its state.

    Example:
      >>> transform, params = in_float32(optax.trace(0.9)), jnp.zeros(1, jnp.bfloat16)
      >>> transform.update(params, transform.init(params))[1].trace.dtype
      dtype('float32')
    """
    inner = optax.with_extra_args_support(transform)

    def update(updates: Tree, state: Tree, params: Tree | None = None, **extra: Any) -> tuple[Tree, Tree]:
        return inner.update(wide(updates), state, None if params is None else wide(params), **extra)

    return optax.GradientTransformationExtraArgs(lambda params: inner.init(wide(params)), update)
