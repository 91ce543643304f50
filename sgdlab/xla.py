"""Makes XLA do otherwise: read rows of buffers in loops without copies, and compile a function apart."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from sgdlab.types import Tree


def read_row(buffer: jax.Array, index: jax.Array) -> jax.Array:
    """`buffer[index]`, for an index that is not negative, where the same loop also writes rows of the buffer.

    If a row is read and written in one fused loop body, XLA on CPU copies the whole buffer twice per iteration (at 128
    workers this takes 20 times as long). A read in a separate branch, which is always taken, avoids the copies. On
    other backends a branch would cost more than it saves.

    Args:
      buffer: [n, ...].
      index: int, from 0 to n - 1.

    Returns:
      [...], the row.

    Example:
      >>> read_row(jnp.arange(6.0).reshape(3, 2), 1)
      Array([2., 3.], dtype=float32)
    """
    return jax.lax.platform_dependent(buffer, jnp.asarray(index), cpu=_in_a_branch, default=_plain)


def apart(function: Callable[..., Tree], index: jax.Array, *arguments: Tree) -> Tree:
    """`function(index, *arguments)`, compiled apart from the operations around it, so that these do not change it.

    XLA on CPU computes chains of elementwise operations at once, and then rounds a product and a sum as one operation
    (FMA): the last bit of a result depends on what is done with it. `jax.lax.optimization_barrier` does not prevent
    that, since XLA has removed it by then; what is in a branch stays apart. On other backends a branch would cost more
    than it saves, and there is a barrier.

    Args:
      function: traced.
      index: int, not negative; one that XLA does not know.
      *arguments: of the function.

    Example:
      >>> apart(lambda index, row: index * row, jnp.array(2), jnp.arange(3))
      Array([0, 2, 4], dtype=int32)
    """

    def branch(index: jax.Array, *arguments: Tree) -> Tree:
        zeros = lambda *arguments: jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(function, *arguments)
        )
        return jax.lax.cond(index >= 0, function, zeros, index, *arguments)

    barrier = lambda *arguments: jax.lax.optimization_barrier(function(*arguments))
    return jax.lax.platform_dependent(jnp.asarray(index), *arguments, cpu=branch, default=barrier)


def _in_a_branch(buffer: jax.Array, index: jax.Array) -> jax.Array:
    # Branches with names, not lambdas: outside of a compiled function those would be compiled again at every call.
    return jax.lax.cond(index >= 0, _plain, _first, buffer, index)


def _plain(buffer: jax.Array, index: jax.Array) -> jax.Array:
    return jax.lax.dynamic_index_in_dim(buffer, index, keepdims=False)


def _first(buffer: jax.Array, index: jax.Array) -> jax.Array:
    # Never taken. It has the same arguments, so that XLA sees that two reads of a row are one: a second one, which may
    # come after the row is written, would be a reason to copy the buffer.
    del index
    return buffer[0]
