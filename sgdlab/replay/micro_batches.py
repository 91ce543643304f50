"""`in_micro_batches`: a gradient computed part by part, each part of its batch after the other."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgdlab import arguments
from sgdlab.replay.watch import as_pytree
from sgdlab.rules import accumulators
from sgdlab.types import Tree

GradFn = Callable[[Tree, Tree], tuple[Tree, Tree]]


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Cut:
    """Says how a batch is cut: static, since the shapes of its parts depend on it.

    Attributes:
      number: of equal parts, m.
    """

    number: int

    def size(self, batch: Tree) -> int:
        """Examples of a part.

        Raises:
          ValueError: if the parts would not be equal.
        """
        sizes = {jax.tree_util.keystr(path): leaf.shape[0] for path, leaf in _cut_leaves(batch)}
        if len(set(sizes.values())) != 1:
            raise ValueError(f"batch must be of arrays with one first axis, of its examples; it has {sizes or 'none'}")
        (size,) = set(sizes.values())
        if size % self.number:
            raise ValueError(f"batch_size={size} must be a multiple of micro_batches={self.number}")
        return size // self.number

    def part(self, batch: Tree, index: jax.typing.ArrayLike) -> Tree:
        """One part of a batch; a random key becomes one of the part's own. If there is one part, the batch itself."""
        if self.number == 1:
            return batch
        size = self.size(batch)

        def of(leaf: Any) -> Any:
            leaf = jnp.asarray(leaf)
            if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                return jax.random.fold_in(leaf, index)
            return jax.lax.dynamic_slice_in_dim(leaf, index * size, size) if leaf.ndim else leaf

        return jax.tree.map(of, batch)


def in_micro_batches(grad_fn: GradFn, micro_batches: int, finish: Callable[[Tree], Tree] | None = None) -> GradFn:
    r"""A gradient function that computes the gradient of a batch as the mean of those of its parts, in their order.

    .. math:: g = \frac1m \sum_{i=1}^m g(\text{part } i)

    The activations take the memory of one part. The mean of equal parts is the gradient of the whole batch, except for
    networks that normalise with the statistics of a batch: here with those of a part. Sums are at least in float32.

    Args:
      grad_fn: `(params, batch) -> (grads, aux)`, such as replay takes; grads of the mean loss of a batch.
      micro_batches: m, the number of parts. 1: the whole batch at once, as `grad_fn` does it, bit for bit.
      finish: `(grads) -> grads` of the whole gradient, such as its clipping; None: nothing.

    Returns:
      `(params, batch) -> (grads, aux)`. Of the aux, floating numbers are averaged and whole numbers added up. All
      arrays of a batch are cut along their first axis; those without axes are the same in each part, but each part has
      a random key of its own.

    Raises:
      ValueError: if `micro_batches` is not a positive whole number; when it is called, if a batch cannot be cut into
        that many equal parts.

    Example:
      >>> grad_fn = lambda params, batch: (params - batch.mean(), {"loss": jnp.mean((params - batch) ** 2), "size": 2})
      >>> grads, aux = in_micro_batches(grad_fn, 2)(jnp.zeros([]), jnp.array([1.0, 2.0, 3.0, 4.0]))
      >>> float(grads), float(aux["loss"]), int(aux["size"])
      (-2.5, 7.5, 4)
    """
    number = arguments.whole("micro_batches", micro_batches)
    if number == 1:
        return grad_fn if finish is None else jax.tree_util.Partial(_finished, as_pytree(grad_fn), as_pytree(finish))
    # The number of parts is data too: a loop whose length XLA knows would be compiled otherwise than a worker's.
    count = np.int32(number)
    return jax.tree_util.Partial(_part_by_part, Cut(number), as_pytree(grad_fn), as_pytree(finish), count)


def _finished(grad_fn: GradFn, finish: Callable[[Tree], Tree], params: Tree, batch: Tree) -> tuple[Tree, Tree]:
    grads, aux = grad_fn(params, batch)
    return finish(grads), aux


def _part_by_part(
    cut: Cut, grad_fn: GradFn, finish: Callable[[Tree], Tree] | None, count: jax.Array, params: Tree, batch: Tree
) -> tuple[Tree, Tree]:
    like = shapes(cut, grad_fn, params, batch)
    add = lambda index, total: added(cut, grad_fn, total, params, batch, index)
    total = jax.lax.fori_loop(jnp.zeros_like(count), count, add, zeros(like))
    return mean(total, like, count, finish)


def shapes(cut: Cut, grad_fn: GradFn, params: Tree, batch: Tree) -> tuple[Tree, Tree]:
    """Shapes and dtypes of what `grad_fn` returns of a part."""
    return jax.eval_shape(lambda params, batch: grad_fn(params, cut.part(batch, 0)), params, batch)


def zeros(like: Tree) -> Tree:
    """The sum of no parts."""
    for path, leaf in jax.tree.leaves_with_path(like):
        if not jnp.issubdtype(leaf.dtype, jnp.number):
            raise ValueError(f"grad_fn must return numbers, which micro_batches add up; {_name(path)} is {leaf.dtype}")
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, _sum_dtype(leaf)), like)


def added(cut: Cut, grad_fn: GradFn, total: Tree, params: Tree, batch: Tree, index: jax.Array) -> Tree:
    """The sum with one more part.

    The barrier separates the gradient from what is done with it, so that every program rounds it alike.
    """
    found = jax.lax.optimization_barrier(grad_fn(params, cut.part(batch, index)))
    return jax.tree.map(lambda whole, leaf: whole + leaf.astype(whole.dtype), total, found)


def mean(total: Tree, like: Tree, count: jax.Array, finish: Callable[[Tree], Tree] | None) -> tuple[Tree, Tree]:
    """The gradient and the aux of a whole batch, in their own dtypes, from the sums over its `count` parts."""
    total = jax.lax.optimization_barrier(total)

    def of(added: jax.Array, leaf: Any) -> jax.Array:
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            return added
        return (added / count.astype(added.dtype)).astype(leaf.dtype)

    grads, aux = jax.tree.map(of, total, like)
    return (grads if finish is None else finish(jax.lax.optimization_barrier(grads))), aux


def _sum_dtype(leaf: Any) -> jnp.dtype:
    return accumulators.wide_dtype(leaf) if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf.dtype


def _cut_leaves(batch: Tree) -> list[tuple[Any, Any]]:
    leaves = [(path, jnp.asarray(leaf)) for path, leaf in jax.tree.leaves_with_path(batch)]
    return [(path, leaf) for path, leaf in leaves if leaf.ndim and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)]


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path) or "it"
