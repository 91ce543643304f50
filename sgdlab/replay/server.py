"""One server of a compiled replay: its state (`Server`), and how it receives a gradient (`take`), in every mode."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sgdlab.replay.functions import Parts
from sgdlab.rules import accumulators

Tree = Any


class Server(NamedTuple):
    """The state of a server for its block of the parameters; with one server, for all of them."""

    params: Tree
    state: Tree  # of the rule.
    slots: Tree  # [slots, *params_shape]: the versions that workers hold.
    message: Tree  # mean of the messages of the current update; None if every update has one gradient.
    average: Tree  # Polyak average; None without one.


class Instruction(NamedTuple):
    """How a server uses a gradient; scalars."""

    worker: jax.Array
    delay: jax.Array  # staleness + 1.
    mean_delay: jax.Array  # of its update's gradients.
    count: jax.Array  # gradients of its update.
    first: jax.Array  # whether it is the first of its update.
    last: jax.Array  # whether it completes its update.
    store: jax.Array  # if it does, the slot for the new version.


def start_server(params: Tree, parts: Parts, *, slots: int, single: bool) -> Server:
    """The server before the first gradient: every slot holds the version that it sends first."""
    state = parts.init(params)
    message = None
    if not single:
        number = jnp.zeros([], jnp.int32)
        receive = functools.partial(parts.receive, worker=number, delay=jnp.zeros([]), read_params=params)
        shape = jax.eval_shape(receive, params, state, params)
        message = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, accumulators.wide_dtype(leaf)), shape)
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
    message = parts.receive(grads, server.state, server.params, worker=use.worker, delay=use.delay, read_params=read)
    if single:
        return updated(server, message, use, parts, worker=use.worker, norms=norms)
    total = jax.tree.map(lambda leaf: jnp.where(use.first, 0, leaf), server.message)
    server = server._replace(message=jax.tree.map(jnp.add, total, share(message, use.count)))
    mean = accumulators.narrow(server.message, message)
    zero = jnp.zeros([], norm_dtype(server.params)) if norms else None
    update = lambda server: updated(server, mean, use, parts, worker=None, norms=norms)
    return jax.lax.cond(use.last, update, lambda server: (server, zero), server)


def share(message: Tree, count: jax.Array) -> Tree:
    """What a message adds to the mean of so many, in at least float32."""
    return jax.tree.map(lambda leaf: leaf / count.astype(leaf.dtype), accumulators.wide(message))


def updated(
    server: Server, message: Tree, use: Instruction, parts: Parts, *, worker: jax.Array | None, norms: bool
) -> tuple[Server, jax.Array | None]:
    """One update, whose new version is stored in its slot, and its norm (None unless `norms`)."""
    updates, state = parts.update(
        message, server.state, server.params, num_gradients=use.count, delay=use.mean_delay, worker=worker
    )
    params = optax.apply_updates(server.params, updates)
    slots = jax.tree.map(
        lambda buffer, leaf: jax.lax.dynamic_update_index_in_dim(buffer, leaf, use.store, 0),
        server.slots,
        parts.send(params, state),
    )
    average = server.average
    if average is not None:
        average = accumulators.moving_average(average, params, parts.average_decay)
    step = norm(updates) if norms else None
    return Server(params, state, slots, server.message, average), step


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
