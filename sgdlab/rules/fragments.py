"""Fragments of the parameters, which are synchronised one after the other (Streaming DiLoCo)."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgdlab import arguments
from sgdlab.types import Tree


def fragments_of(params: Tree, fragments: int) -> Tree:
    r"""To which fragment each row of each leaf belongs: in the order of the leaves, in shares of about equal size.

    .. math:: p = \left\lfloor P \frac{\text{parameters before the middle of the row}}{\text{parameters}} \right\rfloor

    Args:
      params: a pytree of arrays, or of objects with shapes.
      fragments: P.

    Returns:
      For each leaf an int32 array from 0 to P - 1 that broadcasts against it, [rows, 1, ..., 1].

    Raises:
      ValueError: where a fragment would be empty, since rows are not cut.

    Source: reconstruction: the paper groups whole layers of a transformer, and here fragments are of about equal size.

    Example:
      >>> found = fragments_of({"bias": jnp.zeros(2), "kernel": jnp.zeros((3, 2))}, 2)
      >>> found["bias"].tolist(), found["kernel"].tolist()
      ([0, 0], [[0], [1], [1]])
    """
    fragments = arguments.whole("fragments", fragments)
    leaves, structure = jax.tree.flatten(params)
    shapes = [np.shape(leaf) for leaf in leaves]
    total, before, found = sum(math.prod(shape) for shape in shapes), 0, []
    for shape in shapes:
        rows, size = shape[0] if shape else 1, math.prod(shape)
        middles = before + (np.arange(rows) + 0.5) * (size / max(rows, 1))
        index = np.minimum(np.floor(fragments * middles / max(total, 1)), fragments - 1).astype(np.int32)
        found.append(index.reshape((rows, *(1,) * (len(shape) - 1)) if shape else ()))
        before += size
    there = np.unique(np.concatenate([index.ravel() for index in found])) if found else np.empty(0)
    if there.size < fragments:
        raise ValueError(
            f"fragments={fragments} must be smaller: the {total} parameters have rows for no more than {there.size} "
            "of so many shares of equal size"
        )
    return jax.tree.unflatten(structure, found)


def within(fragment: Tree, due: Any, inside: Tree, outside: Tree) -> Tree:
    """`inside` on one fragment, and `outside` on all others.

    Args:
      fragment: of the rows of each leaf, as `fragments_of` returns it.
      due: int, the number of the fragment.
      inside: like the parameters.
      outside: like the parameters.

    Example:
      >>> within(np.array([0, 1, 1]), 1, jnp.ones(3), jnp.zeros(3))
      Array([0., 1., 1.], dtype=float32)
    """
    return jax.tree.map(lambda index, own, other: jnp.where(index == due, own, other), fragment, inside, outside)
