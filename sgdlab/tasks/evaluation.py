"""`evaluate`: the metrics of a whole split, batch after batch in one compiled loop, and how a split is cut."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgdlab import arguments
from sgdlab.data.batch import Batch
from sgdlab.tasks.network import NetworkTask
from sgdlab.types import Tree


def evaluate(
    task: NetworkTask, params: Tree, stats: Tree, batches: Batch, prepare: Callable[..., Batch] | None = None
) -> dict[str, jax.Array]:
    """Return the metrics over all batches; what a worker remembers runs through them.

    Args:
      task: made by `sgdlab.tasks.classification`, `density` or `language`.
      params: parameters.
      stats: running statistics, or None.
      batches: a `Batch` of arrays [K, B, ...], such as `padded_batches` makes.
      prepare: `(inputs, targets) -> Batch`, what happens to each batch before the network sees it, such as a
        `sgdlab.data.Finish`; traced.

    Returns:
      As `task.finish` returns them: those of one batch of all examples that are not padding.

    Example:
      >>> from flax import nnx
      >>> from sgdlab import networks, tasks
      >>> task = tasks.classification(networks.MLP((4, 3), rngs=nnx.Rngs(0)), num_classes=3)
      >>> images, labels = np.random.default_rng(0).normal(size=(7, 2, 2, 1)), np.array([0, 1, 2, 0, 1, 2, 0])
      >>> parts = evaluate(task, task.params, None, padded_batches(images, labels, most=3))
      >>> whole = task.evaluate(task.params, None, Batch(jnp.asarray(images), jnp.asarray(labels)))
      >>> bool(abs(parts["loss"] - whole["loss"]) < 1e-6), float(parts["accuracy"]) == float(whole["accuracy"])
      (True, True)
    """
    return evaluation(task, batches, prepare)(params, stats)


def evaluation(
    task: NetworkTask, batches: Batch, prepare: Callable[..., Batch] | None = None
) -> Callable[[Tree, Tree], dict[str, jax.Array]]:
    """Return `evaluate` as a function `(params, stats) -> metrics` that can be traced; its arrays are data of it."""
    return jax.tree_util.Partial(_evaluate, _Functions(task.finish, prepare), task.sums, task.local, batches)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class _Functions:
    finish: Callable[..., dict[str, jax.Array]]
    prepare: Callable[..., Batch] | None

    def prepared(self, batch: Batch) -> Batch:
        return (
            batch if self.prepare is None else self.prepare(batch.inputs, batch.targets)._replace(weight=batch.weight)
        )


@jax.jit
def _evaluate(
    functions: _Functions, sums: Any, local: Tree, batches: Batch, params: Tree, stats: Tree
) -> dict[str, jax.Array]:
    def summed(batch: Batch, local: Tree) -> tuple[Tree, Tree]:
        batch = functions.prepared(batch)
        return (sums(params, stats, batch), None) if local is None else sums(params, stats, batch, local)

    def add(carry: tuple[Tree, Tree], batch: Batch) -> tuple[tuple[Tree, Tree], None]:
        total, local = carry
        found, local = summed(batch, local)
        return (jax.tree.map(jnp.add, total, found), local), None

    shapes, _ = jax.eval_shape(summed, jax.tree.map(lambda leaf: leaf[0], batches), local)
    zero = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    return functions.finish(jax.lax.scan(add, (zero, local), batches)[0][0])


def padded_batches(inputs: np.ndarray, targets: np.ndarray, *, most: int = 1000) -> Batch:
    """Cut a split into batches of one size, the last one padded with examples of weight zero.

    Args:
      inputs: [n, ...].
      targets: [n, ...].
      most: largest size of a batch.

    Returns:
      A `Batch` of [K, B, ...] with K = ceil(n / most) and B = ceil(n / K), on the device; its weight is None where
      nothing is padded.

    Example:
      >>> batches = padded_batches(np.zeros((7, 2)), np.arange(7), most=3)
      >>> batches.inputs.shape, batches.weight.tolist()
      ((3, 3, 2), [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    """
    arguments.whole("most", most)
    size = len(targets)
    count = -(-size // most)
    each = -(-size // count)
    padding = count * each - size

    def cut(array: np.ndarray) -> jax.Array:
        # Padding repeats the first examples, so that it is of a kind that the network knows.
        whole = np.concatenate([array, np.resize(array, (padding, *array.shape[1:]))]) if padding else array
        return jnp.asarray(whole.reshape(count, each, *array.shape[1:]))

    weight = jnp.asarray((np.arange(count * each) < size).astype(np.float32).reshape(count, each)) if padding else None
    return Batch(cut(np.asarray(inputs)), cut(np.asarray(targets)), weight=weight)


def text_batches(tokens: np.ndarray, segment: int, *, streams: int = 1) -> Batch:
    """Cut a text into segments that follow each other, in one or several streams, for `evaluate`.

    Every token but the first is a target once. A stream begins without a memory of what comes before it.

    Args:
      tokens: int[T].
      segment: L.
      streams: E, as many as what the network remembers is of; those that the text is too short for are padding.

    Returns:
      A `Batch` of int32[K, E, L], on the device, whose weight [K, E, L] is 0 past the end of a stream.

    Example:
      >>> batches = text_batches(np.arange(8), 2, streams=2)
      >>> batches.inputs[:, 0].tolist(), batches.targets[:, 1].tolist(), batches.weight[:, 1].tolist()
      ([[0, 1], [2, 3]], [[5, 6], [7, 7]], [[1.0, 1.0], [1.0, 0.0]])
    """
    targets = len(tokens) - 1
    each = -(-targets // streams)
    column = np.arange(-(-each // segment) * segment)
    place = np.arange(streams)[:, None] * each + column
    inside = (column < each) & (place < targets)

    def cut(array: np.ndarray) -> jax.Array:
        return jnp.asarray(array.reshape(streams, -1, segment).swapaxes(0, 1))

    read = lambda shift: cut(tokens[np.minimum(place + shift, targets)].astype(np.int32))
    return Batch(read(0), read(1), weight=cut(inside.astype(np.float32)))
