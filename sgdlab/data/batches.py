"""Which examples gradient g is computed on: a table on the device, indexed inside the compiled loop."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from sgdlab import arguments
from sgdlab.data.source import Images
from sgdlab.models.classifier import Batch


def order(num_examples: int, *, batch_size: int, num_batches: int, seed: int, replacement: bool = False) -> np.ndarray:
    """Draws the examples of every batch; batch g depends on the seed and g alone, not on `num_batches`.

    Without replacement every epoch is a fresh permutation, cut into batches; what is left of an epoch after its last
    whole batch is left out of it.

    Args:
      num_examples: n.
      batch_size: B, at most n.
      num_batches: K.
      seed: of the permutations.
      replacement: draw every example of every batch independently.

    Returns:
      int32[K, B], indices of examples.

    Raises:
      ValueError: where a number is out of its range.

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
    """Makes the function that replay asks for batches: g -> examples `indices[g]`, traced.

    Data and indices are its arguments, not constants of the program: another order compiles nothing anew.
    """
    return jax.tree_util.Partial(_batch, jnp.asarray(data.images), jnp.asarray(data.labels), jnp.asarray(indices))


def _batch(images: jax.Array, labels: jax.Array, indices: jax.Array, g: jax.Array) -> Batch:
    chosen = indices[g]
    return Batch(images[chosen], labels[chosen])
