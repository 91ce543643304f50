"""`compressed`: any rule, on what its server has of compressed messages."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sgdlab import arguments
from sgdlab.bounds import Count, Whole, bounded
from sgdlab.compressions import Compressor
from sgdlab.rules import worker_table
from sgdlab.rules.feedback import Channel, Memory, key_of
from sgdlab.rules.hyperparameters import static
from sgdlab.rules.server_rule import ServerRule, Settings, absorbed, called, received, rule_of
from sgdlab.types import Tree
from sgdlab.xla import apart

SEEDS = 2**32


class CompressedState(NamedTuple):
    """State of a rule of compressed messages."""

    inner: Tree  # of the rule itself.
    memory: Memory  # [num_workers, ...] of each of its arrays.
    message: Tree  # *params_shape: the newest gradient, as the rule itself has received it.


@bounded
def compressed(
    rule: ServerRule,
    compressor: Compressor,
    *,
    num_workers: Count,
    feedback: str = "none",
    seed: Whole = 0,
    unpacked: bool = False,
) -> ServerRule:
    """Make a rule one of compressed messages: it receives what its server has of each gradient.

    Worker and server compute the same numbers, so that a worker's memory is a row of the rule's state. `absorb`
    compresses, and writes the message and the memory; `receive` gives the message to the rule. What is added to
    gradients at the server, such as weight decay, is not compressed, and local steps send compressed differences.

    Memories are those of gradients that enter updates: a dropped gradient leaves its worker's as it was, as if its
    server had told it so. A worker that was lost and begins anew has an empty memory, on both sides.

    Args:
      rule: any rule.
      compressor: of `sgdlab.compressions`.
      num_workers: rows of the memory; a number above the schedule's only takes more memory.
      feedback: the memory of a worker, one of `sgdlab.rules.feedback.FEEDBACKS`: "none"; "error", what its messages
        have left out; "ef21", what the server has of its gradient.
      seed: of random compressors. The key of a gradient is `fold_in(key(seed), number)`: event mode, waves and
        processes draw the same.
      unpacked: whether gradients are what `Channel.unpack` has made of packets, as on the server of processes, so that
        nothing is left to compress.

    Returns:
      A `ServerRule` for any schedule of servers; besides the rule's own its state holds a message, and N rows where
      workers have a memory.

    Raises:
      ValueError: where an argument is out of its range; from `absorb`, where a random compressor is told no `number`.

    Source: `sgdlab.rules.feedback.Channel`.

    Example:
      >>> from sgdlab import compressions, rules
      >>> rule = compressed(
      ...     rules.asgd(learning_rate=1.0), compressions.TopK(share=0.5), num_workers=1, feedback="error"
      ... )
      >>> params, use = jnp.zeros(2), {"worker": 0, "delay": 1}
      >>> state = rule.init(params)
      >>> for _ in range(2):
      ...     state = rule.absorb(jnp.array([3.0, 2.0]), state, params, read_params=params, **use)
      ...     print(rule.receive(jnp.array([3.0, 2.0]), state, params, read_params=params, **use))
      [3. 0.]
      [0. 4.]
    """
    channel, most = Channel(compressor, feedback), SEEDS - 1
    arguments.whole("seed", seed, least=0, most=most)
    inner = ServerRule(*map(_as_pytree, rule._replace(num_workers=None)))
    made = rule_of(_Compressed(inner, np.uint32(seed), channel, num_workers, unpacked))
    remembers = channel.remembers(jnp.zeros(1)) or channel.remembers(jnp.zeros([1, 1]))
    return made._replace(
        num_workers=num_workers if remembers else rule.num_workers,
        penalty=None if rule.penalty is None else made.penalty,
        point=None if rule.point is None else made.point,
    )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Compressed(Settings):
    rule: Any  # ServerRule
    seed: Any
    channel: Channel = static()  # noqa: RUF009 (a field)
    num_workers: int = static()
    unpacked: bool = static()

    def init(self, params: Tree, **extra: Any) -> CompressedState:
        memory = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.num_workers, *leaf.shape)), self._begin(params))
        return CompressedState(self.rule.init(params, **extra), memory, jax.tree.map(jnp.zeros_like, params))

    def absorb(
        self,
        grads: Tree,
        state: CompressedState,
        params: Tree,
        *,
        worker: Any,
        number: Any = None,
        anew: Any = False,
        **use: Any,
    ) -> CompressedState:
        if number is None and self.channel.compressor.random:
            raise ValueError("number=None must be the gradient's number, by which a random compressor draws")
        told = {"worker": worker, **use} | ({} if number is None else {"number": number})
        memory = worker_table.rows(state.memory, worker)
        if anew is not False:
            memory = jax.lax.cond(anew, self._begin, lambda params: memory, params)
        message, memory = apart(self._sent, worker if number is None else number, grads, memory)
        return CompressedState(
            absorbed(self.rule, message, state.inner, params, anew=anew, **told),
            worker_table.written(state.memory, worker, memory),
            message,
        )

    def receive(self, grads: Tree, state: CompressedState, params: Tree, **use: Any) -> Tree:
        return received(self.rule, state.message, state.inner, params, **use)

    def mean_penalty(self, grads: Tree, state: CompressedState, params: Tree, **use: Any) -> jax.Array:
        return called(self.rule.penalty, state.message, state.inner, params, **use)

    def update(self, message: Tree, state: CompressedState, params: Tree, **use: Any) -> tuple[Tree, CompressedState]:
        updates, inner = self.rule.update(message, state.inner, params, **use)
        return updates, state._replace(inner=inner)

    def send(self, params: Tree, state: CompressedState, **extra: Any) -> Tree:
        return self.rule.send(params, state.inner, **extra)

    def point(self, sent: Tree, state: CompressedState, **extra: Any) -> Tree:
        return self.rule.point(sent, state.inner, **extra)

    def _begin(self, params: Tree) -> Memory:
        """Return the memory of a worker: on the server of processes what it knows of that."""
        memory = self.channel.begin(params)
        if not self.unpacked:
            return memory
        return Memory(memory.kept if self.channel.feedback == "ef21" else None, None)

    def _sent(self, number: jax.Array, grads: Tree, memory: Memory) -> tuple[Tree, Memory]:
        if self.unpacked:
            message, estimate = self.channel.heard(grads, memory.kept)
            return message, Memory(estimate, None)
        key = key_of(self.seed, number)
        packet, after = self.channel.pack(grads, memory, key)
        return self.channel.heard(self.channel.unpack(packet, grads, key), memory.kept)[0], after


def _as_pytree(function: Any) -> Any:
    """Return a function of a rule as data, which those of this package are already."""
    is_one = function is None or isinstance(function, jax.tree_util.Partial)
    return function if is_one else jax.tree_util.Partial(function)
