"""`Compressor`, pure functions between a message and its packet, and `Uncompressed`, which leaves it as it is."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgdlab.compressions.family import COMPRESSIONS
from sgdlab.types import Tree


class Compressor:
    r"""Makes packets of messages, and messages of packets: a frozen dataclass of its entries, all functions pure.

    .. math:: \mathcal{C}(v) = \text{unpack}(\text{pack}(v))

    Attributes:
      random: whether it draws, and needs a key for each message.
      adds_up: whether the mean of messages can be formed on the way, by an all-reduce, with no more bytes than of one.
      entrywise: whether an entry becomes what it becomes whatever zeros stand beside it, and zeros stay zeros: then a
        message of one fragment of the parameters can be compressed as one of all.
    """

    random = False
    adds_up = False
    entrywise = False

    def begin(self, like: Tree) -> Tree:
        """Return what a worker keeps between its messages besides the memory of what was left out; None: nothing."""
        del like
        return None

    def pack(self, tree: Tree, state: Tree = None, key: jax.Array | None = None) -> tuple[Tree, Tree]:
        """Return the packet of a message, a pytree of arrays, and what the worker keeps after it."""
        raise NotImplementedError

    def unpack(self, packet: Tree, like: Tree, key: jax.Array | None = None) -> Tree:
        """Return what the receiver makes of a packet, with the shapes and dtypes of `like` and the sender's key."""
        raise NotImplementedError

    def excess(self, shapes: Sequence[tuple[int, ...]]) -> float:
        r"""Return omega of an unbiased compressor: :math:`E \|C(v) - v\|^2 \le \omega \|v\|^2`; 0 of others."""
        del shapes
        return 0.0

    def message_bytes(self, shapes: Sequence[tuple[int, ...]], dtype: Any = "float32") -> float:
        """Return the bytes of a message, in which fractions are bits.

        Args:
          shapes: of the arrays of the message.
          dtype: of its numbers.
        """
        raise NotImplementedError

    def compress(self, tree: Tree, state: Tree = None, key: jax.Array | None = None) -> tuple[Tree, Tree]:
        """Return C of a message, as its receiver has it, and what the worker keeps after it.

        Args:
          tree: the message, a pytree of arrays.
          state: kept since the worker's message before; at first, that of `begin`.
          key: of `jax.random`, if it is `random`.

        Raises:
          ValueError: where a key is missing.

        Example:
          >>> from sgdlab import compressions
          >>> compressions.TopK(share=0.5).compress({"w": jnp.array([1.0, -3.0]), "b": jnp.array([0.5, 2.0])})[0]
          {'b': Array([0., 2.], dtype=float32), 'w': Array([ 0., -3.], dtype=float32)}
        """
        if self.random and key is None:
            raise ValueError("key=None must be a key of jax.random: this compressor draws")
        packet, state = self.pack(tree, state, key)
        return self.unpack(packet, tree, key), state


class VectorCompressor(Compressor):
    """Compresses all arrays of a message as one vector, in the order of `jax.tree.leaves`."""

    def encode(self, vector: jax.Array, key: Any) -> Tree:
        """Return the packet of a vector, [d]."""
        raise NotImplementedError

    def decode(self, packet: Tree, size: int, key: Any) -> jax.Array:
        """Return the vector, [size], of a packet."""
        raise NotImplementedError

    def bytes_of(self, size: int, each: int) -> float:
        """Return the bytes of a message of `size` numbers of `each` bytes."""
        raise NotImplementedError

    def pack(self, tree: Tree, state: Tree = None, key: jax.Array | None = None) -> tuple[Tree, Tree]:
        """Return the packet of a message."""
        leaves = jax.tree.leaves(tree)
        dtype = jnp.result_type(*leaves)
        return self.encode(jnp.concatenate([jnp.ravel(leaf).astype(dtype) for leaf in leaves]), key), state

    def unpack(self, packet: Tree, like: Tree, key: jax.Array | None = None) -> Tree:
        """Return what the receiver makes of a packet."""
        leaves, structure = jax.tree.flatten(like)
        ends = np.cumsum([math.prod(leaf.shape) for leaf in leaves])
        pieces = jnp.split(self.decode(packet, int(ends[-1]), key), ends[:-1].tolist())
        shaped = [piece.reshape(leaf.shape).astype(leaf.dtype) for piece, leaf in zip(pieces, leaves, strict=True)]
        return jax.tree.unflatten(structure, shaped)

    def message_bytes(self, shapes: Sequence[tuple[int, ...]], dtype: Any = "float32") -> float:
        """Return the bytes of a message, in which fractions are bits."""
        return float(self.bytes_of(sum(map(math.prod, shapes)), jnp.dtype(dtype).itemsize))


@COMPRESSIONS.register("none", title="Uncompressed messages")
@dataclasses.dataclass(frozen=True)
class Uncompressed(VectorCompressor):
    """Leaves messages as they are.

    Example:
      >>> Uncompressed().message_bytes([(10, 10), (10,)])
      440.0
    """

    adds_up = True
    entrywise = True

    def encode(self, vector: jax.Array, key: Any) -> Tree:
        """Return the vector."""
        return vector

    def decode(self, packet: Tree, size: int, key: Any) -> jax.Array:
        """Return the packet."""
        return packet

    def bytes_of(self, size: int, each: int) -> float:
        """Return the bytes of all numbers."""
        return size * each
