"""Averages of the parameters of peers: weighted sums, the mean over nodes, and the consensus distance."""

import jax
import jax.numpy as jnp

from sgdlab.rules import accumulators
from sgdlab.types import Tree


def weighted(weight: jax.Array, values: Tree) -> Tree:
    """weight * values: the first term of a weighted mean, in at least float32.

    In bfloat16 three weights of 1/3 do not add up to 1: parameters that are averaged many times would grow.

    Example:
      >>> import jax.numpy as jnp
      >>> weighted(jnp.array(0.5), jnp.ones(2, jnp.bfloat16))
      Array([0.5, 0.5], dtype=float32)
    """
    return jax.tree.map(lambda leaf: leaf * weight.astype(leaf.dtype), accumulators.wide(values))


def mixed(total: Tree, weight: jax.Array, values: Tree) -> Tree:
    """total + weight * values: one more term of a weighted mean, in the dtypes of `total`.

    The weights are 1/2 and 1/2 in pull gossip, 1 / (n + 1) for the node's own and each of the n received parameters in
    push gossip, and 1 - beta for the own and beta for the other ones in elastic averaging.

    Source: Jin et al. 2016, Algorithms 2 to 4.

    Example:
      >>> import jax.numpy as jnp
      >>> mixed(0.5 * jnp.ones(2), jnp.array(0.5), jnp.zeros(2))
      Array([0.5, 0.5], dtype=float32)
    """
    return jax.tree.map(lambda sum_, leaf: sum_ + weight.astype(sum_.dtype) * leaf.astype(sum_.dtype), total, values)


def mean_of_nodes(stacked: Tree) -> Tree:
    """The mean over the nodes.

    Args:
      stacked: [N, *shape], one row per node.

    Example:
      >>> import jax.numpy as jnp
      >>> mean_of_nodes(jnp.array([[1.0, 2.0], [3.0, 6.0]]))
      Array([2., 4.], dtype=float32)
    """
    return jax.tree.map(lambda leaf: leaf.mean(axis=0), stacked)


def consensus_distance(stacked: Tree) -> jax.Array:
    r"""The root mean square distance of the nodes from their mean.

    .. math:: \sqrt{\frac1p \sum_i \|\theta_i - \bar\theta\|^2}

    Args:
      stacked: [N, *shape], one row per node.

    Example:
      >>> import jax.numpy as jnp
      >>> consensus_distance(jnp.array([[1.0], [3.0]]))
      Array(1., dtype=float32)
    """
    leaves = jax.tree.leaves(accumulators.wide(stacked))
    squares = sum(jnp.sum(jnp.square(leaf - leaf.mean(axis=0))) for leaf in leaves)
    return jnp.sqrt(squares / leaves[0].shape[0])
