"""`in_fragments`: a worker goes on by itself, and sends one fragment of the parameters at a time (Streaming DiLoCo)."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sgdlab import arguments
from sgdlab.replay import local_steps
from sgdlab.replay.local_steps import LocalState, Span, Walk
from sgdlab.replay.watch import as_pytree
from sgdlab.rules.fragments import fragments_of, within
from sgdlab.rules.hyperparameters import like
from sgdlab.types import Tree
from sgdlab.xla import apart


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Stream:
    """Says how a worker sends and receives fragments.

    Attributes:
      fragments: P.
      overlap: tau, inner steps between the sending of a fragment and its arrival as the server has it then.
      mix: alpha, the share of its own parameters that a worker keeps of a fragment that arrives.
    """

    fragments: int = dataclasses.field(metadata={"static": True})
    overlap: Any
    mix: Any


def in_fragments(
    grad_fn: Callable[..., tuple[Tree, ...]],
    optimizer: optax.GradientTransformation | Callable[[], optax.GradientTransformation],
    batch_fn: Callable[[jax.Array], Tree],
    *,
    fragments: int,
    overlap: int = 0,
    mix: float = 0.0,
    proximal: float | None = None,
    factors: np.ndarray | None = None,
) -> Callable[..., tuple[Tree, ...]]:
    r"""A gradient function of workers that keep their parameters, and send the way of one fragment with each message.

    Message k = 0, 1, ... of a worker follows h inner steps, so that each of the P fragments is sent every H = P h of
    them. Its "gradient" is, on fragment p = k mod P and zero elsewhere,

    .. math:: g_p = \bar\theta_p - \theta_p

    where the bar is what it has read of the server. Fragment p has been updated by the server when the next message
    begins; the worker makes tau of its steps before that arrives, and then goes on with

    .. math:: \theta_p \leftarrow \alpha \theta_p + (1 - \alpha) \bar\theta_p

    The schedule must be synchronous and the server must move the same fragment, as `rules.streaming_nesterov` does.
    With one fragment, no overlap and alpha = 0 it is DiLoCo, `in_local_steps` with `keep_state`.

    Args:
      grad_fn: as for `sgdlab.replay.in_local_steps`.
      optimizer: as there.
      batch_fn: as there.
      fragments: P, shares of about equal size (`sgdlab.rules.fragments.fragments_of`).
      overlap: tau, from 0; in a message of fewer steps a fragment arrives before the last of them.
      mix: alpha, from 0 to 1. With 1 no worker hears of another.
      proximal: as there; the pull is towards what has been read of the server.
      factors: as there.

    Returns:
      `(params, span, local) -> (gradient, aux, local)`, for `sgdlab.replay.run` with a `local` that begins as
      `state_of_fragments`.

    Raises:
      ValueError: where an argument is out of its range.

    Source: Douillard et al. 2025, Streaming DiLoCo with overlapping communication (arXiv 2501.18512), as the public
    code of torchft has it: the offsets H (i + 1) / P, the difference to the parameters that the last outer step has
    made, the outer step tau steps later. That alpha weighs the worker's own parameters is from a second public code;
    torchft weighs them the other way round. The paper's own algorithm was not at hand: a reconstruction there, as is
    the division into fragments. Messages are not quantised, and times have no overlap: a round ends for all at once.

    Example:
      One worker, whose second message follows from where it was: its own first entry and the second, never sent.

      >>> grad_fn = lambda params, batch: (params - batch, {})
      >>> walk = in_fragments(grad_fn, optax.sgd(0.5), lambda number: 8.0, fragments=2)
      >>> params, local = jnp.zeros(2), state_of_fragments(optax.sgd(0.5), jnp.zeros(2))
      >>> first, _, local = walk(params, Span(0, 1), local)
      >>> second, _, local = walk(params - first, Span(1, 1), local)
      >>> first.tolist(), second.tolist()
      ([-4.0, 0.0], [0.0, -6.0])
    """
    made = optimizer if callable(optimizer) else lambda: optimizer
    walk = Walk(as_pytree(grad_fn), as_pytree(batch_fn), as_pytree(made), proximal, local_steps.array_of(factors))
    stream = Stream(
        fragments=arguments.whole("fragments", fragments),
        overlap=arguments.whole("overlap", overlap, least=0),
        mix=arguments.real("mix", mix, least=0, most=1),
    )
    return jax.tree_util.Partial(_streamed, walk, stream)


def state_of_fragments(
    optimizer: optax.GradientTransformation | Callable[[], optax.GradientTransformation],
    params: Tree,
    memory: Tree = None,
) -> Tree:
    """The state with which a worker of `in_fragments` begins: its parameters, and that of its optimizer.

    Args:
      optimizer: as for `in_fragments`.
      params: initial parameters.
      memory: what the network remembers at first; None without a memory.

    Example:
      >>> sorted(state_of_fragments(optax.sgd(0.5), jnp.zeros(2)))
      ['memory', 'messages', 'optimizer', 'params']
    """
    kept = local_steps.state_of_worker(optimizer, params, memory)
    return kept | {"params": params, "messages": jnp.zeros([], jnp.int32)}


def _streamed(walk: Walk, stream: Stream, params: Tree, span: Span, local: Tree) -> tuple[Tree, ...]:
    shapes = local_steps.shapes(walk, params, local["memory"])
    steps, first = (jnp.asarray(number, jnp.int32) for number in (span.steps, span.first))
    anew = lambda: anew_at(walk, params, span.anew)
    local = {"memory": local["memory"]} | local_steps.renewed(
        span.anew, anew, {name: kept for name, kept in local.items() if name != "memory"}
    )
    messages = local["messages"]
    comes = messages > 0 if span.anew is None else (messages > 0) & (span.anew < 0)
    arrives = jnp.where(comes, jnp.minimum(stream.overlap, steps - 1), -1)  # at first there is nothing to come

    def step(index: jax.Array, progress: LocalState) -> LocalState:
        merged = merged_at(stream, index, progress.params, params, messages, arrives)
        place = local_steps.later(walk, span.place, index)
        return local_steps.stepped(walk, progress._replace(params=merged), params, first + index, place)

    begun = local_steps.begun(walk, local["params"], shapes, local["optimizer"], local["memory"])
    ended = jax.lax.fori_loop(jnp.zeros_like(steps), steps, step, begun)
    way, aux = sent(stream, params, ended, shapes, steps, messages)
    kept = {"optimizer": ended.state, "memory": ended.memory, "params": ended.params, "messages": messages + 1}
    return way, aux, kept


def anew_at(walk: Walk, params: Tree, version: Any) -> Tree:
    """Return what a worker has, but for a memory, that begins with a version that it has read of the server.

    Each version before it was made of one message, so that its number says which fragment is sent next.
    """
    return {"optimizer": walk.optimizer().init(params), "params": params, "messages": jnp.asarray(version, jnp.int32)}


def merged_at(stream: Stream, index: jax.Array, own: Tree, read: Tree, messages: jax.Array, arrives: jax.Array) -> Tree:
    """A worker's parameters before step `index`: those of the last fragment are mixed with what it has read, when due.

    Args:
      stream: how fragments are sent.
      index: of the step in its message.
      own: the worker's parameters.
      read: those of the server.
      messages: that the worker has sent, or would have, had it been there from the start.
      arrives: before which step the last fragment arrives; -1: none does.
    """
    fragment = fragments_of(read, stream.fragments)

    def merge(index: jax.Array, own: Tree, read: Tree, messages: jax.Array) -> Tree:
        mixed = jax.tree.map(lambda a, b: like(stream.mix, a) * a + (1 - like(stream.mix, a)) * b, own, read)
        mixed = within(fragment, (messages - 1) % stream.fragments, mixed, own)
        return jax.tree.map(lambda new, old: jnp.where(index == arrives, new, old), mixed, own)

    return apart(merge, index, own, read, messages)


def sent(
    stream: Stream, read: Tree, ended: LocalState, like: Tree, steps: jax.Array, messages: jax.Array
) -> tuple[Tree, Tree]:
    """The message of a worker that has made its steps, zero but for the fragment that is due, and the aux."""
    fragment = fragments_of(read, stream.fragments)
    way, aux = local_steps.arrived(read, ended, like, steps)
    return within(fragment, messages % stream.fragments, way, jax.tree.map(jnp.zeros_like, way)), aux
