"""`PowerSgd`: each matrix of a message is sent as two thin ones (Vogels et al. 2019)."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from sgdlab import arguments
from sgdlab.compressions.compressor import Compressor
from sgdlab.compressions.family import COMPRESSIONS
from sgdlab.types import Tree


@COMPRESSIONS.register("power_sgd", title="PowerSGD", source="Vogels et al. 2019", feedback="error")
@dataclasses.dataclass(frozen=True)
class PowerSgd(Compressor):
    r"""Sends each matrix as one of rank r, by a step of power iteration that begins where the worker's last has ended.

    .. math:: P = \operatorname{orth}(M Q), \qquad Q \leftarrow M^\top P, \qquad C(M) = P Q^\top = P P^\top M

    The matrix M of an array has its first axis as rows and all others as columns; arrays of one axis or none are sent
    as they are. Q is at first random, the same in all workers. With a rank no lower than that of M it is M. A message
    has 4 r (rows + columns) bytes for a matrix in float32, and 4 for each number of a vector. Being linear in M but for
    the basis, it can be formed by two all-reduces.

    Attributes:
      rank: r, at least 1; that of a matrix is at most the smaller of its sides.

    Raises:
      ValueError: where the rank is no whole number of at least 1.

    Source: Vogels, Karimireddy and Jaggi 2019, "PowerSGD", Algorithm 1. There P is the mean over the workers before it
    is made orthogonal; here each worker's message is by itself, as asynchronous workers send it.

    Example:
      >>> matrix = jnp.outer(jnp.array([1.0, 2.0]), jnp.array([3.0, 0.0, 4.0]))
      >>> part = PowerSgd(rank=1)
      >>> found, _ = part.compress(matrix, part.begin(matrix))
      >>> bool(jnp.allclose(found, matrix, atol=1e-5)), part.message_bytes([matrix.shape])
      (True, 20.0)
    """

    rank: int = 2
    adds_up = True

    def __post_init__(self) -> None:
        arguments.whole("rank", self.rank)

    def begin(self, like: Tree) -> Tree:
        """Return Q of each matrix, [columns, r], normal numbers; None for vectors."""
        leaves = jax.tree.leaves(like)
        keys = jax.random.split(jax.random.key(0), len(leaves))
        return [
            jax.random.normal(key, (math.prod(leaf.shape[1:]), self._rank(leaf.shape)), _wide(leaf))
            if len(leaf.shape) > 1
            else None
            for key, leaf in zip(keys, leaves, strict=True)
        ]

    def pack(self, tree: Tree, state: Tree = None, key: jax.Array | None = None) -> tuple[Tree, Tree]:
        """Return P and Q of each matrix, and the vectors; and the new Q."""
        packet, kept = [], []
        for leaf, before in zip(jax.tree.leaves(tree), self.begin(tree) if state is None else state, strict=True):
            if before is None:
                packet.append(leaf)
                kept.append(None)
                continue
            matrix = leaf.reshape(leaf.shape[0], -1).astype(before.dtype)
            left = jnp.linalg.qr(_product(matrix, before))[0]
            kept.append(_product(matrix.T, left))
            packet.append((left.astype(leaf.dtype), kept[-1].astype(leaf.dtype)))
        return packet, kept

    def unpack(self, packet: Tree, like: Tree, key: jax.Array | None = None) -> Tree:
        """Return the product of each two, and the vectors."""
        leaves, structure = jax.tree.flatten(like)
        made = [
            _product(sent[0].astype(_wide(leaf)), sent[1].astype(_wide(leaf)).T).reshape(leaf.shape).astype(leaf.dtype)
            if len(leaf.shape) > 1
            else sent
            for sent, leaf in zip(packet, leaves, strict=True)
        ]
        return jax.tree.unflatten(structure, made)

    def message_bytes(self, shapes: Sequence[tuple[int, ...]], dtype: Any = "float32") -> float:
        """Return 4 r (rows + columns) for each matrix in float32, and the bytes of the vectors."""
        numbers = (
            self._rank(shape) * (shape[0] + math.prod(shape[1:])) if len(shape) > 1 else math.prod(shape)
            for shape in shapes
        )
        return float(sum(numbers) * jnp.dtype(dtype).itemsize)

    def _rank(self, shape: tuple[int, ...]) -> int:
        return min(self.rank, shape[0], math.prod(shape[1:]))


def _wide(leaf: Any) -> Any:
    return jnp.promote_types(leaf.dtype, jnp.float32)


def _product(left: jax.Array, right: jax.Array) -> jax.Array:
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)
