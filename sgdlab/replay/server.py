"""One server: its state (`Server`), and how it receives a gradient and applies an update, in replay and live."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sgdlab.replay.functions import Parts
from sgdlab.rules import accumulators
from sgdlab.rules.server_rule import absorbed, received
from sgdlab.types import Tree


class Server(NamedTuple):
    """The state of a server for its block of the parameters; with one server, for all of them."""

    params: Tree
    state: Tree  # of the rule.
    slots: Tree  # [slots, *params_shape]: the versions that workers hold.
    message: Tree  # sum of the messages of the open update; None if every update has one gradient.
    average: Tree  # Polyak average; None without one.


class Instruction(NamedTuple):
    """Says how a server uses a gradient; scalars, of NumPy outside compiled code."""

    worker: Any
    number: Any  # of the gradient, as rules are told it.
    anew: Any  # whether its worker begins anew with it.
    delay: Any  # staleness + 1.
    mean_delay: Any  # of its update's gradients.
    count: Any  # gradients of its update.
    first: Any  # whether it is the first of its update.
    last: Any  # whether it completes its update.
    store: Any  # if it does, the slot for the new version.


def start_server(params: Tree, parts: Parts, *, slots: int, single: bool) -> Server:
    """The server before the first gradient: every slot holds the version that it sends first."""
    state = parts.init(params)
    message = None
    if not single:
        shapes = _message_like(params, state, parts)
        message = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, accumulators.wide_dtype(leaf)), shapes)
    # Copies, since the loop reuses the memory of its carry, and the parameters belong to the caller.
    copied = jax.tree.map(jnp.copy, params)
    return Server(
        params=copied,
        state=state,
        slots=jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (slots, *jnp.shape(leaf))), parts.send(params, state)),
        message=message,
        average=jax.tree.map(jnp.copy, accumulators.wide(params)) if parts.average_decay is not None else None,
    )


def take(
    server: Server, grads: Tree, read: Tree, use: Instruction, parts: Parts, *, single: bool, norms: bool
) -> tuple[Server, jax.Array | None]:
    """The server receives one gradient, computed on `read`, and updates if the gradient is the last of its update.

    Returns:
      The server, and the norm of its update (0 if it made none; None unless `norms`).
    """
    if single:
        sent, step, server = apply_one(server, grads, read, use, parts, norms=norms)
        return stored(server, sent, use.store), step
    server = receive(server, grads, read, use, parts)
    zero = jnp.zeros([], norm_dtype(server.params)) if norms else None

    def update(server: Server) -> tuple[Server, jax.Array | None]:
        sent, step, closed = close(server, use, parts, norms=norms)
        return stored(closed, sent, use.store), step

    return jax.lax.cond(use.last, update, lambda server: (server, zero), server)


def apply_one(
    server: Server, grads: Tree, read: Tree, use: Instruction, parts: Parts, *, norms: bool = False
) -> tuple[Tree, jax.Array | None, Server]:
    """An update of one gradient, computed on `read`; of `use`, `first` and `last` are not looked at.

    Returns:
      What `close` returns.
    """
    server, message = _message(server, grads, read, use, parts)
    return _updated(server, message, use, parts, worker=use.worker, norms=norms)


def receive(server: Server, grads: Tree, read: Tree, use: Instruction, parts: Parts) -> Server:
    """The server with one more gradient, computed on `read`, in its open update.

    The messages of an update are added up in the order of their arrival, in at least float32; how many there will be
    need not be known. Of `use`, `worker`, `number`, `anew`, `delay` and `first` are looked at.
    """
    total = jax.tree.map(lambda leaf: jnp.where(use.first, 0, leaf), server.message)
    server, message = _message(server, grads, read, use, parts)
    return server._replace(message=jax.tree.map(jnp.add, total, accumulators.wide(message)))


def close(
    server: Server, use: Instruction, parts: Parts, *, norms: bool = False
) -> tuple[Tree, jax.Array | None, Server]:
    """The open update is applied: its messages, as `receive` has added them up, are divided by their number.

    Of `use`, `count` and `mean_delay` are looked at.

    Returns:
      The new version, as workers read it; the norm of the update (None unless `norms`); and the server, which has not
      stored that version (`stored`).
    """
    mean = jax.tree.map(lambda leaf: leaf / use.count.astype(leaf.dtype), server.message)
    mean = accumulators.narrow(mean, _message_like(server.params, server.state, parts))
    return _updated(server, mean, use, parts, worker=None, norms=norms)


def stored(server: Server, sent: Tree, slot: jax.Array) -> Server:
    """The server with a version in one of its slots."""
    write = lambda buffer, leaf: jax.lax.dynamic_update_index_in_dim(buffer, leaf, slot, 0)
    return server._replace(slots=jax.tree.map(write, server.slots, sent))


def _message(server: Server, grads: Tree, read: Tree, use: Instruction, parts: Parts) -> tuple[Server, Tree]:
    """The server after its rule has absorbed a gradient, and the gradient's message."""
    given = {"worker": use.worker, "delay": use.delay, "read_params": read, "number": use.number}
    state = absorbed(parts, grads, server.state, server.params, anew=use.anew, **given)
    return server._replace(state=state), received(parts, grads, state, server.params, **given)


def _message_like(params: Tree, state: Tree, parts: Parts) -> Tree:
    """Shapes and dtypes of a message."""
    use = {"worker": jnp.zeros([], jnp.int32), "delay": jnp.zeros([]), "number": jnp.zeros([], jnp.int32)}
    made = lambda params, state: received(parts, params, state, params, read_params=params, **use)
    return jax.eval_shape(made, params, state)


def _updated(
    server: Server, message: Tree, use: Instruction, parts: Parts, *, worker: jax.Array | None, norms: bool
) -> tuple[Tree, jax.Array | None, Server]:
    updates, state = parts.update(
        message, server.state, server.params, num_gradients=use.count, delay=use.mean_delay, worker=worker
    )
    params = optax.apply_updates(server.params, updates)
    average = server.average
    if average is not None:
        average = accumulators.moving_average(average, params, parts.average_decay)
    step = norm(updates) if norms else None
    return parts.send(params, state), step, server._replace(params=params, state=state, average=average)


def norm_dtype(tree: Tree) -> jnp.dtype:
    """The dtype of norms of a tree."""
    return jnp.promote_types(optax.tree.dtype(tree, "highest"), jnp.float32)


def norm(tree: Tree) -> jax.Array:
    """Euclidean norm of all entries together, in at least float32.

    Example:
      >>> norm({"a": jnp.array([3.0]), "b": jnp.array([[4.0]])})
      Array(5., dtype=float32)
    """
    dtype = norm_dtype(tree)
    return jnp.sqrt(sum(jnp.sum(jnp.square(leaf.astype(dtype))) for leaf in jax.tree.leaves(tree)))
