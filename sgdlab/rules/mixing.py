"""Averaging parameters: what peers do in the place of a server, and how far they are from agreeing."""

from typing import Any

import jax
import jax.numpy as jnp

Tree = Any


def mixed(total: Tree, weight: Any, values: Tree) -> Tree:
    """total + weight values: one summand of a weighted mean, dtypes kept.

    Pull gossip takes 1/2 of each, push gossip 1 / (n + 1) of a node's own and of the n that were sent to it, elastic
    averaging 1 - beta of one's own and beta of the other (Jin et al. 2016, Algorithms 2 to 4).

    Example:
      >>> import jax.numpy as jnp
      >>> mixed(0.5 * jnp.ones(2), 0.5, jnp.zeros(2))
      Array([0.5, 0.5], dtype=float32)
    """
    return jax.tree.map(lambda sum_, leaf: sum_ + jnp.asarray(weight, leaf.dtype) * leaf, total, values)


def mean_of_nodes(stacked: Tree) -> Tree:
    """The nodes' average.

    Args:
      stacked: [N, *shape], one row a node.

    Example:
      >>> import jax.numpy as jnp
      >>> mean_of_nodes(jnp.array([[1.0, 2.0], [3.0, 6.0]]))
      Array([2., 4.], dtype=float32)
    """
    return jax.tree.map(lambda leaf: leaf.mean(axis=0), stacked)


def consensus_distance(stacked: Tree) -> jax.Array:
    r"""How far the nodes are from agreeing: :math:`\sqrt{\frac1p \sum_i \|\theta_i - \bar\theta\|^2}`.

    Args:
      stacked: [N, *shape], one row a node.

    Example:
      >>> import jax.numpy as jnp
      >>> consensus_distance(jnp.array([[1.0], [3.0]]))
      Array(1., dtype=float32)
    """
    leaves = jax.tree.leaves(stacked)
    squares = sum(jnp.sum(jnp.square(leaf - leaf.mean(axis=0))) for leaf in leaves)
    return jnp.sqrt(squares / leaves[0].shape[0])
