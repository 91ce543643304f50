"""The batches of a run: the order of the examples, drawn on the host, and their lookup inside the compiled loop."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from sgdlab import arguments
from sgdlab.data.source import Images
from sgdlab.models.batch import Batch


def order(num_examples: int, *, batch_size: int, num_batches: int, seed: int, replacement: bool = False) -> np.ndarray:
    """Draws the examples of every batch; batch g depends on the seed and g alone, not on `num_batches`.

    Without replacement every epoch is a new permutation, cut into batches; the examples that remain after the last
    whole batch of an epoch are not used in it.

    Args:
      num_examples: n.
      batch_size: B, at most n.
      num_batches: K.
      seed: seed of the permutations.
      replacement: whether every example of every batch is drawn independently.

    Returns:
      int32[K, B], indices of examples.

    Raises:
      ValueError: if a number is out of its range.

    Example:
      >>> sorted(order(6, batch_size=3, num_batches=2, seed=0).ravel().tolist())
      [0, 1, 2, 3, 4, 5]
    """
    arguments.whole("batch_size", batch_size, most=num_examples, why="the number of examples")
    arguments.whole("num_batches", num_batches)
    if replacement:
        return np.random.default_rng(seed).integers(0, num_examples, (num_batches, batch_size), dtype=np.int32)
    per_epoch = num_examples // batch_size
    epochs = [
        np.random.default_rng([seed, epoch]).permutation(num_examples)[: per_epoch * batch_size]
        for epoch in range(-(-num_batches // per_epoch))
    ]
    return np.concatenate(epochs).astype(np.int32).reshape(-1, batch_size)[:num_batches]


def batch_fn(data: Images, indices: np.ndarray) -> Callable[[jax.Array], Batch]:
    """Makes the `batch_fn` of replay: the index g of a gradient -> the examples `indices[g]`; traced.

    Images and indices are arguments of the compiled program, not constants of it: another order compiles nothing.

    Args:
      data: the images to draw from.
      indices: int32[K, B], the examples of each batch, such as `order` draws.

    Returns:
      `(g) -> Batch`.

    Example:
      >>> images = Images(np.zeros((6, 8, 8, 1), np.float32), np.arange(6, dtype=np.int32))
      >>> batch_fn(images, np.array([[0, 1, 2], [5, 4, 3]]))(1).labels
      Array([5, 4, 3], dtype=int32)
    """
    return jax.tree_util.Partial(_batch, jnp.asarray(data.images), jnp.asarray(data.labels), jnp.asarray(indices))


def _batch(images: jax.Array, labels: jax.Array, indices: jax.Array, g: jax.Array) -> Batch:
    chosen = indices[g]
    return Batch(images[chosen], labels[chosen])
