"""`Partition`: parameters in blocks, one for each server, made of whole leaves and of rows of large leaves."""

import dataclasses
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgdlab import arguments
from sgdlab.types import Tree

# The loop over blocks is unrolled in the compiled program. For the conv net with layers that are pushed one by one,
# `gap_aware` with norms compiles in 24 CPU seconds with 32 blocks, in 34 with 64, in more than a minute with 128.
MAX_BLOCKS = 64


def check_num_blocks(num_blocks: int, name: str = "num_blocks") -> int:
    """Returns the number of blocks if it can be compiled in reasonable time.

    Args:
      num_blocks: S.
      name: what an error message calls it.

    Raises:
      ValueError: if it is not a whole number from 1 to `MAX_BLOCKS`.
    """
    return arguments.whole(
        name, num_blocks, most=MAX_BLOCKS, why="each block is compiled separately, and more would take over a minute"
    )


@dataclasses.dataclass(frozen=True)
class Partition:
    """Holds which part of a parameter tree each block has.

    Attributes:
      structure: the structure of the tree.
      pieces: for each block, (leaf, first row, row past the last) of each of its arrays; rows are None for a whole
        leaf. The pieces of all blocks, in order, make up the leaves of the tree.
    """

    structure: jax.tree_util.PyTreeDef
    pieces: tuple[tuple[tuple[int, int | None, int | None], ...], ...]

    @property
    def num_blocks(self) -> int:
        """S."""
        return len(self.pieces)

    def split(self, tree: Tree) -> tuple[Tree, ...]:
        """The blocks of a tree: the tree itself if there is one, otherwise a tuple of arrays for each."""
        if self.num_blocks == 1:
            return (tree,)
        leaves = jax.tree.leaves(tree)
        return tuple(
            tuple(leaves[leaf] if first is None else leaves[leaf][first:past] for leaf, first, past in block)
            for block in self.pieces
        )

    def join(self, blocks: tuple[Tree, ...]) -> Tree:
        """The tree that was split into these blocks."""
        if self.num_blocks == 1:
            return blocks[0]
        parts: dict[int, list[jax.Array]] = {}
        for block, arrays in zip(self.pieces, blocks, strict=True):
            for (leaf, _, _), array in zip(block, arrays, strict=True):
                parts.setdefault(leaf, []).append(array)
        leaves = [found[0] if len(found) == 1 else jnp.concatenate(found) for _, found in sorted(parts.items())]
        return jax.tree.unflatten(self.structure, leaves)


def partition(params: Tree, num_blocks: int) -> Partition:
    """Splits a parameter tree into blocks of nearly equal size, in the order of its leaves.

    Leaves larger than an equal share are cut along their first axis into pieces of at most that size (at least one row
    each).

    Args:
      params: a pytree of arrays, or of objects with shapes.
      num_blocks: S, at most `MAX_BLOCKS`.

    Returns:
      The `Partition`.

    Raises:
      ValueError: if there are more blocks than pieces, or than can be compiled in reasonable time.

    Example:
      >>> import jax.numpy as jnp
      >>> parts = partition({"bias": jnp.zeros(2), "kernel": jnp.zeros((6, 3))}, 2)
      >>> [[array.shape for array in block] for block in parts.split({"bias": jnp.ones(2), "kernel": jnp.ones((6, 3))})]
      [[(2,), (3, 3)], [(3, 3)]]
    """
    leaves, structure = jax.tree.flatten(params)
    shapes = [np.shape(leaf) for leaf in leaves]
    total = sum(math.prod(shape) for shape in shapes)
    pieces = _cut(shapes, check_num_blocks(num_blocks))
    sizes = [math.prod(shapes[leaf]) // (shapes[leaf][0] if cut else 1) * (cut or 1) for leaf, cut in _lengths(pieces)]
    if num_blocks > len(pieces):
        raise ValueError(
            f"num_blocks={num_blocks} must be at most {len(pieces)}: the {total} parameters in {len(leaves)} arrays "
            "can be cut, along first axes, into no more pieces"
        )
    # Each cut is where the sum of the sizes is nearest to its share, and every block gets at least one piece.
    so_far = np.cumsum(sizes)
    cuts = [0]
    for block in range(1, num_blocks):
        nearest = int(np.abs(so_far - total * block / num_blocks).argmin()) + 1
        cuts.append(min(max(nearest, cuts[-1] + 1), len(pieces) - (num_blocks - block)))
    cuts.append(len(pieces))
    return Partition(structure, tuple(tuple(pieces[a:b]) for a, b in itertools.pairwise(cuts)))


def _cut(shapes: list[tuple[int, ...]], num_blocks: int) -> list[tuple[int, int | None, int | None]]:
    """Pieces of at most an equal share (or one row); smaller ones if these are fewer than the blocks."""
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


def _lengths(pieces: list[tuple[int, int | None, Any]]) -> list[tuple[int, int | None]]:
    """(leaf, rows) of each piece; None for a whole leaf."""
    return [(leaf, None if first is None else past - first) for leaf, first, past in pieces]
