"""`Packer`, both ends of compressed messages: the worker's, with its memory, and what the server reads in a packet."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sgdlab.live.transport import ANEW
from sgdlab.rules.feedback import Channel, Memory, key_of
from sgdlab.types import Tree


class Packer:
    """Makes packets of a worker's messages, and on the server messages of packets.

    A worker's memory is that after its last message that was used, which the server names when it asks for the next; a
    process that begins anew has none. Both ends unpack by one program, so that their estimates are the same bits.

    Args:
      channel: compressor and memory.
      seed: of random compressors; the key of a message is made of its ticket.
      params: arrays like the parameters.

    Attributes:
      like: shapes and dtypes of a packet.

    Example:
      >>> from sgdlab.compressions import TopK
      >>> packer = Packer(Channel(TopK(share=0.5), "error"), 0, np.zeros(2, np.float32))
      >>> after = ANEW
      >>> for ticket in range(2):
      ...     packet = packer.pack(ticket, np.float32([3.0, 2.0]), after=after)
      ...     print(packer.unpack(packet, ticket))
      ...     after = ticket
      [3. 0.]
      [0. 4.]
    """

    def __init__(self, channel: Channel, seed: int, params: Tree):
        self._channel, self._seed = channel, np.uint32(seed)
        self._params = jax.tree.map(jnp.asarray, params)
        self._remembers = channel.remembers(params)
        self._kept: dict[int, Memory] = {}  # ticket -> the memory after it
        memory = jax.eval_shape(channel.begin, params)
        pack = functools.partial(_packed, channel=channel)
        self.like = jax.eval_shape(pack, params, memory, self._seed, np.int32(0))[0]

    def pack(self, ticket: int, grads: Tree, *, after: int = ANEW) -> Tree:
        """Return the packet of a message.

        Args:
          ticket: of the message.
          grads: the message, like the parameters.
          after: the ticket after which the worker goes on; `ANEW`: with no memory.

        Raises:
          ValueError: where nothing is kept from after that ticket.
        """
        if not self._remembers:
            after = ANEW
        elif after != ANEW and after not in self._kept:
            raise ValueError(f"after={after} must be a message of this process that was used: it keeps nothing of it")
        memory = _begun(self._params, channel=self._channel) if after == ANEW else self._kept[after]
        packet, own = _packed(grads, memory, self._seed, np.int32(ticket), channel=self._channel)
        if self._remembers:
            kept = memory.kept
            if kept is not None:
                kept = _remembered(grads, kept, self.unpack(packet, ticket), channel=self._channel)
            self._kept = {after: memory, ticket: Memory(kept, own)}
        return packet

    def unpack(self, packet: Tree, ticket: int) -> Tree:
        """Return what the server reads in a packet, like the parameters."""
        return _unpacked(packet, self._params, self._seed, np.int32(ticket), channel=self._channel)


@functools.partial(jax.jit, static_argnames="channel")
def _begun(params: Tree, *, channel: Channel) -> Memory:
    return channel.begin(params)


@functools.partial(jax.jit, static_argnames="channel")
def _packed(grads: Tree, memory: Memory, seed: Any, ticket: Any, *, channel: Channel) -> tuple[Tree, Tree]:
    wanted = channel.wanted(grads, memory.kept)
    return channel.compressor.pack(wanted, memory.own, key_of(seed, ticket))


@functools.partial(jax.jit, static_argnames="channel")
def _unpacked(packet: Tree, like: Tree, seed: Any, ticket: Any, *, channel: Channel) -> Tree:
    return channel.unpack(packet, like, key_of(seed, ticket))


@functools.partial(jax.jit, static_argnames="channel")
def _remembered(grads: Tree, kept: Tree, found: Tree, *, channel: Channel) -> Tree:
    return channel.remembered(grads, kept, found)
