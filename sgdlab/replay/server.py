"""One server of a compiled replay: what it holds, and how it takes a gradient, in every mode."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sgdlab.rules import accumulators

Tree = Any


class Parts(NamedTuple):
    """The functions of a run, as pytrees: their code is the program, their leaves are its data."""

    init: Any
    receive: Any
    update: Any
    send: Any
    grad_fn: Any
    batch_fn: Any
    fold: Any  # None: no statistics.
    average_decay: Any  # None: no Polyak average.


class Server(NamedTuple):
    """What a server holds of its block of the parameters; with one server, of all of them."""

    params: Tree
    state: Tree  # of the rule.
    slots: Tree  # [slots, *params_shape]: the versions that workers hold.
    message: Tree  # mean of the messages of the update under way; None where updates have one gradient each.
    average: Tree  # Polyak average; None where it is not kept.


class Instruction(NamedTuple):
    """What a server does with a gradient; scalars."""

    worker: jax.Array
    delay: jax.Array  # staleness + 1.
    mean_delay: jax.Array  # of its update's gradients.
    count: jax.Array  # gradients of its update.
    first: jax.Array  # whether it is the first of its update.
    last: jax.Array  # whether it completes it.
    store: jax.Array  # where it does: the slot for the new version.


def start_server(params: Tree, parts: Parts, *, slots: int, single: bool) -> Server:
    """The server before the first gradient: every slot holds what it sends at first."""
    state = parts.init(params)
    message = None
    if not single:
        number = jnp.zeros([], jnp.int32)
        receive = functools.partial(parts.receive, worker=number, delay=jnp.zeros([]), read_params=params)
        shape = jax.eval_shape(receive, params, state, params)
        message = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, accumulators.wide_dtype(leaf)), shape)
    # Copies, since the loop takes over its carry's memory and the caller keeps the parameters.
    copied = jax.tree.map(jnp.copy, params)
    return Server(
        params=copied,
        state=state,
        slots=jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (slots, *jnp.shape(leaf))), parts.send(params, state)),
        message=message,
        average=jax.tree.map(jnp.copy, accumulators.wide(params)) if parts.average_decay is not None else None,
    )


def take(
    server: Server, grads: Tree, read: Tree, todo: Instruction, parts: Parts, *, single: bool, norms: bool
) -> tuple[Server, jax.Array | None]:
    """The server receives one gradient, computed on `read`, and updates where it is its update's last.

    Returns:
      The server, and the length of its update (0 where it made none; None unless `norms`).
    """
    message = parts.receive(grads, server.state, server.params, worker=todo.worker, delay=todo.delay, read_params=read)
    if single:
        return _update(server, message, todo, parts, todo.worker, norms)

    def share(total: jax.Array, leaf: jax.Array) -> jax.Array:
        return jnp.where(todo.first, 0, total) + leaf.astype(total.dtype) / todo.count.astype(total.dtype)

    server = server._replace(message=jax.tree.map(share, server.message, message))
    mean = accumulators.narrow(server.message, message)
    zero = jnp.zeros([], norm_dtype(server.params)) if norms else None
    return jax.lax.cond(todo.last, lambda s: _update(s, mean, todo, parts, None, norms), lambda s: (s, zero), server)


def _update(
    server: Server, message: Tree, todo: Instruction, parts: Parts, worker: jax.Array | None, norms: bool
) -> tuple[Server, jax.Array | None]:
    """One update, and the new version stored for those who will read it."""
    updates, state = parts.update(
        message, server.state, server.params, num_gradients=todo.count, delay=todo.mean_delay, worker=worker
    )
    params = optax.apply_updates(server.params, updates)
    slots = jax.tree.map(
        lambda buffer, leaf: jax.lax.dynamic_update_index_in_dim(buffer, leaf, todo.store, 0),
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
