"""A table with the mean gradient of each worker, and their sum, which every gradient changes in O(parameters)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from sgdlab.rules import accumulators
from sgdlab.rules.hyperparameters import like
from sgdlab.types import Tree
from sgdlab.xla import read_row


class WorkerTable(NamedTuple):
    """The mean gradient of each worker; in float32 at least.

    To clear it costs nothing: a row without gradients may hold anything, and is read as zeros.
    """

    means: Tree  # [num_workers, *params_shape]: of the gradients of each worker that are in the table.
    counts: jax.Array  # shape=(num_workers,), dtype=int32: how many they are.
    total: Tree  # *params_shape: the sum of the means, updated incrementally.


def empty(params: Tree, num_workers: int) -> WorkerTable:
    """A table without gradients."""
    total = accumulators.zeros(params)
    means = jax.tree.map(lambda leaf: jnp.zeros((num_workers, *leaf.shape), leaf.dtype), total)
    return WorkerTable(means, jnp.zeros(num_workers, jnp.int32), total)


def row(table: WorkerTable, worker: jax.Array, count: jax.Array) -> Tree:
    """The mean gradient of a worker, of `count` gradients; zeros if there is none."""
    return jax.tree.map(
        lambda buffer: jnp.where(count > 0, read_row(buffer, worker), jnp.zeros_like(buffer[0])), table.means
    )


def rows(table: Tree, worker: jax.Array) -> Tree:
    """Return the row of a worker in each leaf [num_workers, *params_shape]."""
    return jax.tree.map(lambda buffer: read_row(buffer, worker), table)


def written(means: Tree, worker: jax.Array, mean: Tree) -> Tree:
    """The rows of a table with another mean for a worker."""
    return jax.tree.map(lambda buffer, leaf: jax.lax.dynamic_update_index_in_dim(buffer, leaf, worker, 0), means, mean)


def added(table: WorkerTable, worker: jax.Array, gradient: Tree) -> WorkerTable:
    r"""The table with one more gradient of a worker.

    .. math:: m_i \leftarrow m_i + \frac{g - m_i}{b_i + 1}, \qquad b_i \leftarrow b_i + 1

    Args:
      table: m and b.
      worker: i, from 0 to num_workers - 1.
      gradient: g, like the parameters.

    Example:
      >>> table = empty(jnp.zeros([]), num_workers=2)
      >>> for worker, gradient in ((0, 1.0), (1, 5.0), (0, 3.0)):
      ...     table = added(table, worker, jnp.array(gradient))
      >>> table.means, table.counts, mean(table)
      (Array([2., 5.], dtype=float32), Array([2, 1], dtype=int32), Array(3.5, dtype=float32))
    """
    count = table.counts[worker]
    old = row(table, worker, count)
    change = divided(jax.tree.map(jnp.subtract, accumulators.wide(gradient), old), count + 1)
    return _changed(table, worker, old, change, count + 1)


def replaced(table: WorkerTable, worker: jax.Array, gradient: Tree) -> WorkerTable:
    """The table with a gradient of a worker in the place of those that it has.

    Example:
      >>> table = replaced(replaced(empty(jnp.zeros([]), num_workers=2), 0, jnp.ones([])), 0, jnp.array(4.0))
      >>> table.means, table.total
      (Array([4., 0.], dtype=float32), Array(4., dtype=float32))
    """
    old = row(table, worker, table.counts[worker])
    change = jax.tree.map(jnp.subtract, accumulators.wide(gradient), old)
    return _changed(table, worker, old, change, jnp.ones([], jnp.int32))


def cleared(table: WorkerTable) -> WorkerTable:
    """The table without gradients."""
    return WorkerTable(table.means, jnp.zeros_like(table.counts), jax.tree.map(jnp.zeros_like, table.total))


def num_present(table: WorkerTable) -> jax.Array:
    """Return how many workers have gradients in the table."""
    return jnp.sum(table.counts > 0, dtype=jnp.int32)


def mean(table: WorkerTable) -> Tree:
    r"""The mean of the workers' means, each of the same weight: :math:`\frac{1}{n} \sum_i m_i`.

    n is the number of workers that have gradients in the table; zeros if none has.
    """
    return divided(table.total, num_present(table))


def divided(total: Tree, number: jax.Array) -> Tree:
    """A sum over so many, or zeros if they are none."""
    return jax.tree.map(lambda leaf: leaf / like(jnp.maximum(number, 1), leaf), total)


def _changed(table: WorkerTable, worker: jax.Array, old: Tree, change: Tree, count: jax.Array) -> WorkerTable:
    return WorkerTable(
        means=written(table.means, worker, jax.tree.map(jnp.add, old, change)),
        counts=table.counts.at[worker].set(count),
        total=jax.tree.map(jnp.add, table.total, change),
    )
