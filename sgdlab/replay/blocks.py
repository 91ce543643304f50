"""Parameters in blocks, one for each server: split by whole leaves where they fit, by rows of a leaf where not."""

import dataclasses
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgdlab import arguments

Tree = Any


@dataclasses.dataclass(frozen=True)
class Partition:
    """Which part of a parameter tree each block holds.

    Attributes:
      structure: of the tree.
      pieces: for each block, (leaf, first row, row past the last) of each of its arrays; rows are None for a whole
        leaf. In order, the pieces of all blocks are the leaves of the tree.
    """

    structure: jax.tree_util.PyTreeDef
    pieces: tuple[tuple[tuple[int, int | None, int | None], ...], ...]

    @property
    def num_blocks(self) -> int:
        """S."""
        return len(self.pieces)

    def split(self, tree: Tree) -> tuple[tuple[jax.Array, ...], ...]:
        """The blocks of a tree, each a tuple of arrays."""
        leaves = jax.tree.leaves(tree)
        return tuple(
            tuple(leaves[leaf] if first is None else leaves[leaf][first:past] for leaf, first, past in block)
            for block in self.pieces
        )

    def join(self, blocks: tuple[tuple[jax.Array, ...], ...]) -> Tree:
        """The tree whose blocks these are."""
        parts: dict[int, list[jax.Array]] = {}
        for block, arrays in zip(self.pieces, blocks, strict=True):
            for (leaf, _, _), array in zip(block, arrays, strict=True):
                parts.setdefault(leaf, []).append(array)
        leaves = [found[0] if len(found) == 1 else jnp.concatenate(found) for _, found in sorted(parts.items())]
        return jax.tree.unflatten(self.structure, leaves)


def partition(params: Tree, num_blocks: int) -> Partition:
    """Splits a parameter tree into blocks of nearly equal size, in the order of its leaves.

    A leaf that is larger than an equal share is cut along its first axis, into pieces that are not, as far as whole
    rows allow.

    Args:
      params: arrays, or anything with shapes.
      num_blocks: S.

    Returns:
      The `Partition`.

    Raises:
      ValueError: where there are more blocks than pieces.

    Example:
      >>> import jax.numpy as jnp
      >>> parts = partition({"bias": jnp.zeros(2), "kernel": jnp.zeros((6, 3))}, 2)
      >>> [[array.shape for array in block] for block in parts.split({"bias": jnp.ones(2), "kernel": jnp.ones((6, 3))})]
      [[(2,), (3, 3)], [(3, 3)]]
    """
    leaves, structure = jax.tree.flatten(params)
    shapes = [np.shape(leaf) for leaf in leaves]
    total = sum(math.prod(shape) for shape in shapes)
    pieces = _cut(shapes, arguments.whole("num_blocks", num_blocks))
    sizes = [math.prod(shapes[leaf]) // (shapes[leaf][0] if cut else 1) * (cut or 1) for leaf, cut in _lengths(pieces)]
    if num_blocks > len(pieces):
        raise ValueError(
            f"num_blocks={num_blocks} must be at most {len(pieces)}: the {total} parameters in {len(leaves)} arrays "
            "can be cut, along first axes, into no more pieces"
        )
    # Each cut lies where the sizes so far are nearest to its share, and leaves every block at least one piece.
    so_far = np.cumsum(sizes)
    cuts = [0]
    for block in range(1, num_blocks):
        nearest = int(np.abs(so_far - total * block / num_blocks).argmin()) + 1
        cuts.append(min(max(nearest, cuts[-1] + 1), len(pieces) - (num_blocks - block)))
    cuts.append(len(pieces))
    return Partition(structure, tuple(tuple(pieces[a:b]) for a, b in itertools.pairwise(cuts)))


def _cut(shapes: list[tuple[int, ...]], num_blocks: int) -> list[tuple[int, int | None, int | None]]:
    """Pieces no larger than an equal share, or than a row; smaller ones where that is too few for the blocks."""
    total, shares = sum(math.prod(shape) for shape in shapes), num_blocks
    while True:
        pieces: list[tuple[int, int | None, int | None]] = []
        whole = 0  # leaves that could be cut further
        for leaf, shape in enumerate(shapes):
            size = math.prod(shape)
            count = min(shape[0], math.ceil(size * shares / total)) if shape and size else 1
            rows = np.linspace(0, shape[0], count + 1).round().astype(int).tolist() if count > 1 else [None, None]
            pieces += [(leaf, first, past) for first, past in itertools.pairwise(rows)]
            whole += bool(shape and size and count < shape[0])
        if len(pieces) >= num_blocks or not whole:
            return pieces
        shares *= 2


def _lengths(pieces: list[tuple[int, int | None, int | None]]) -> list[tuple[int, int | None]]:
    """(leaf, rows) of each piece; None for a whole leaf."""
    return [(leaf, None if first is None else past - first) for leaf, first, past in pieces]
