"""`Channel`, the way of messages from a worker to its server: a compressor, and a memory of what was left out."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sgdlab import arguments
from sgdlab.compressions import Compressor
from sgdlab.rules import accumulators
from sgdlab.rules.hyperparameters import scale
from sgdlab.types import Tree

FEEDBACKS = ("none", "error", "ef21")
"""Memories of a worker: none; the error so far; what the server has of its gradient."""


class Memory(NamedTuple):
    """Holds what a worker keeps between two messages."""

    kept: Tree  # *params_shape, float32 at least: the error, or the server's estimate; None without feedback.
    own: Tree  # of the compressor, such as PowerSGD's Q; None: nothing.


@dataclasses.dataclass(frozen=True)
class Channel:
    r"""Carries messages g of a worker to its server, which makes m of them.

    .. math::
        \text{none:}\quad & m = C(g) \\
        \text{error:}\quad & m = C(e + g), \qquad e \leftarrow e + g - m \\
        \text{ef21:}\quad & h \leftarrow h + C(g - h), \qquad m = h

    e and h are 0 at first. An unbiased compressor is divided by 1 + omega (`Compressor.excess`) where there is a
    memory, which wants a contraction: random-k then keeps its entries as they are.

    Args:
      compressor: C.
      feedback: one of `FEEDBACKS`.

    Raises:
      ValueError: where `feedback` is another.

    Source: Seide et al. 2014, Stich et al. 2018 ("error"); Richtarik, Sokolov and Fatkhullin 2021 ("ef21").

    Example:
      >>> from sgdlab.compressions import TopK
      >>> channel, key = Channel(TopK(share=0.5), "error"), key_of(0, 0)
      >>> memory = channel.begin(jnp.zeros(2))
      >>> for _ in range(3):
      ...     packet, memory = channel.pack(jnp.array([3.0, 2.0]), memory, key)
      ...     print(channel.unpack(packet, jnp.zeros(2), key), memory.kept)
      [3. 0.] [0. 2.]
      [0. 4.] [3. 0.]
      [6. 0.] [0. 2.]
    """

    compressor: Compressor
    feedback: str = "none"

    def __post_init__(self) -> None:
        arguments.one_of("feedback", self.feedback, FEEDBACKS)

    def begin(self, params: Tree) -> Memory:
        """Return the memory of a worker that has sent nothing."""
        return Memory(None if self.feedback == "none" else accumulators.zeros(params), self.compressor.begin(params))

    def remembers(self, params: Tree) -> bool:
        """Return True if a worker keeps anything between its messages."""
        return bool(jax.tree.leaves(jax.eval_shape(self.begin, params)))

    def pack(self, grads: Tree, memory: Memory, key: jax.Array) -> tuple[Tree, Memory]:
        """Return the packet that a worker sends, and its memory after it."""
        packet, own = self.compressor.pack(self.wanted(grads, memory.kept), memory.own, key)
        if self.feedback == "none":
            return packet, Memory(None, own)
        return packet, Memory(self.remembered(grads, memory.kept, self.unpack(packet, grads, key)), own)

    def wanted(self, grads: Tree, kept: Tree) -> Tree:
        """Return what a worker compresses: C's argument."""
        if self.feedback == "none":
            return grads
        wide = accumulators.wide(grads)
        signed = jax.tree.map(jnp.add if self.feedback == "error" else jnp.subtract, wide, kept)
        return accumulators.narrow(signed, grads)

    def remembered(self, grads: Tree, kept: Tree, found: Tree) -> Tree:
        """Return the memory of a worker after a message in which the server has `found` this."""
        if self.feedback == "ef21":
            return self.heard(found, kept)[1]
        left = lambda error, grad, found: error + grad - found
        return jax.tree.map(left, kept, *map(accumulators.wide, (grads, found)))

    def unpack(self, packet: Tree, like: Tree, key: jax.Array) -> Tree:
        """Return what the server reads in a packet, like the parameters."""
        found = self.compressor.unpack(packet, like, key)
        shapes: Sequence[Any] = [leaf.shape for leaf in jax.tree.leaves(like)]
        excess = 0.0 if self.feedback == "none" else self.compressor.excess(shapes)
        return scale(found, 1 / (1 + excess)) if excess else found

    def heard(self, found: Tree, estimate: Tree) -> tuple[Tree, Tree]:
        """Return the message that the server makes of what it has read, and its estimate of the worker's gradient."""
        if self.feedback != "ef21":
            return found, None
        estimate = jax.tree.map(jnp.add, estimate, accumulators.wide(found))
        return accumulators.narrow(estimate, found), estimate


def key_of(seed: Any, number: Any) -> jax.Array:
    """Return the key of a gradient's message."""
    return jax.random.fold_in(jax.random.key(seed), number)
