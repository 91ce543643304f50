"""The compiled loop of replay for peers: event mode, one gradient at a time, and wave mode, a wave of them at once."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sgdlab.replay.engine import note_aux
from sgdlab.replay.lowering import padded
from sgdlab.replay.peer_program import PeerProgram
from sgdlab.row import row as row_of
from sgdlab.rules.mixing import mixed

Tree = Any


class PeerParts(NamedTuple):
    """The functions of a run, as pytrees: their code is the program, their leaves are its data."""

    receive: Any
    update: Any
    grad_fn: Any
    batch_fn: Any
    fold: Any  # None: no statistics.


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PeerRows:
    """A `PeerProgram` on the device, padded to its capacity (see there)."""

    event: jax.Array
    node: jax.Array
    own: jax.Array
    store: jax.Array
    publish: jax.Array
    edges: jax.Array
    source: jax.Array
    weight: jax.Array
    waves: jax.Array
    scale: jax.Array  # float[R], what each step is multiplied by.


class PeerCarry(NamedTuple):
    """What the loop carries from one gradient to the next."""

    slots: Tree  # [slots + 1, *params_shape]: versions of the nodes' parameters; the last one is never read.
    state: Tree  # [N, ...], of each node's optimiser.
    stats: Tree  # [N, ...], each node's running statistics.
    aux: Tree  # scalar leaves of the gradient function's aux, by row.


@dataclasses.dataclass(frozen=True)
class PeerMode:
    """What makes another program.

    Attributes:
      width: gradients of a wave computed at once; 0 is event mode.
      fresh: gradients are taken at what has been averaged.
      publishes: averages are kept for others to read.
    """

    width: int
    fresh: bool
    publishes: bool


def rows_of(program: PeerProgram, width: int, scale: np.ndarray) -> PeerRows:
    """Puts a program on the device, with `width` rows to spare: a wave always reads its full width."""
    room = program.capacity
    publish = np.where(program.publish == program.num_slots, room.slots, program.publish)
    return jax.device_put(
        PeerRows(
            **{name: padded(getattr(program, name), room.rows + width) for name in ("node", "own", "store")},
            scale=padded(scale, room.rows + width),
            event=padded(program.event, room.rows + width + 1, "edge"),
            publish=padded(publish, room.events),
            edges=padded(program.edges, room.events + 1, "edge"),
            source=padded(program.source, room.edges),
            weight=padded(program.weight, room.edges),
            waves=padded(program.waves, room.rows + 1, "edge"),
        )
    )


@functools.partial(jax.jit, static_argnames=("nodes", "rows", "slots"))
def start(params: Tree, stats: Tree, init: Any, parts: PeerParts, *, nodes: int, rows: int, slots: int) -> PeerCarry:
    """The carry before the first gradient: all nodes have the same parameters."""
    batch = jax.eval_shape(parts.batch_fn, jnp.zeros([], jnp.int32))
    _, aux = jax.eval_shape(parts.grad_fn, params, batch)
    many = lambda tree, count: jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))).copy(), tree)
    return PeerCarry(
        slots=many(params, slots + 1),
        state=many(init(params), nodes),
        stats=many(stats, nodes),
        aux=jax.tree.map(lambda leaf: jnp.zeros((rows,), leaf.dtype) if leaf.shape == () else None, aux),
    )


@functools.partial(jax.jit, static_argnames=("mode",), donate_argnames=("carry",))
def advance(
    carry: PeerCarry, rows: PeerRows, begin: jax.Array, end: jax.Array, parts: PeerParts, *, mode: PeerMode
) -> PeerCarry:
    """Executes gradients `begin` to `end` (event mode) or waves `begin` to `end` (wave mode)."""
    body = _wave if mode.width else _event
    return jax.lax.fori_loop(begin, end, lambda i, c: body(c, rows, i, parts, mode), carry)


def _event(carry: PeerCarry, rows: PeerRows, row: jax.Array, parts: PeerParts, mode: PeerMode) -> PeerCarry:
    """One node averages, takes a gradient and a step."""
    node = rows.node[row]
    slots, averaged, at = _averaged(carry.slots, rows, row, mode)
    grads, aux = parts.grad_fn(at, parts.batch_fn(row))
    averaged, grads, aux = jax.lax.optimization_barrier((averaged, grads, aux))
    mine = jax.tree.map(lambda buffer: row_of(buffer, node), (carry.state, carry.stats))
    stepped, *mine = _step(averaged, grads, aux, mine, node, rows.scale[row], parts)
    write = lambda place: lambda buffer, leaf: jax.lax.dynamic_update_index_in_dim(buffer, leaf, place, 0)
    return PeerCarry(
        slots=jax.tree.map(write(rows.store[row]), slots, stepped),
        state=jax.tree.map(write(node), carry.state, mine[0]),
        stats=jax.tree.map(write(node), carry.stats, mine[1]),
        aux=note_aux(carry.aux, row, aux),
    )


def _wave(carry: PeerCarry, rows: PeerRows, wave: jax.Array, parts: PeerParts, mode: PeerMode) -> PeerCarry:
    """Averages in order, then all gradients and steps of the wave at once: each is another node's."""
    begin, end = rows.waves[wave], rows.waves[wave + 1]
    lanes = begin + jnp.arange(mode.width)
    empty = jax.tree.map(lambda leaf: jnp.zeros((mode.width, *leaf.shape[1:]), leaf.dtype), carry.slots)

    def average(row: jax.Array, state: tuple[Tree, Tree, Tree]) -> tuple[Tree, Tree, Tree]:
        slots, *found = state
        slots, *now = _averaged(slots, rows, row, mode)
        write = lambda buffer, leaf: jax.lax.dynamic_update_index_in_dim(buffer, leaf, row - begin, 0)
        return slots, *(jax.tree.map(write, buffers, tree) for buffers, tree in zip(found, now, strict=True))

    slots, averaged, at = jax.lax.fori_loop(begin, end, average, (carry.slots, empty, empty))
    grads, aux = jax.vmap(parts.grad_fn)(at, jax.vmap(parts.batch_fn)(lanes))
    averaged, grads, aux = jax.lax.optimization_barrier((averaged, grads, aux))
    # Lanes past the wave's end write out of bounds, that is nowhere.
    inside = lanes < end
    node = jax.lax.dynamic_slice_in_dim(rows.node, begin, mode.width)
    mine = jax.tree.map(lambda buffer: buffer[node], (carry.state, carry.stats))
    step = functools.partial(_step, parts=parts)
    scale = jax.lax.dynamic_slice_in_dim(rows.scale, begin, mode.width)
    stepped, *mine = jax.vmap(step)(averaged, grads, aux, mine, node, scale)

    def write(places: jax.Array):
        return lambda buffer, leaf: buffer.at[jnp.where(inside, places, buffer.shape[0])].set(leaf, mode="drop")

    return PeerCarry(
        slots=jax.tree.map(write(jax.lax.dynamic_slice_in_dim(rows.store, begin, mode.width)), slots, stepped),
        state=jax.tree.map(write(node), carry.state, mine[0]),
        stats=jax.tree.map(write(node), carry.stats, mine[1]),
        aux=jax.tree.map(
            lambda leaf, record: None if record is None else write(lanes)(record, leaf),
            aux,
            carry.aux,
            is_leaf=lambda leaf: leaf is None,
        ),
    )


def _averaged(slots: Tree, rows: PeerRows, row: jax.Array, mode: PeerMode) -> tuple[Tree, Tree, Tree]:
    """What a node has averaged, where its gradient is taken; and the center moves, where it does."""
    event = rows.event[row]
    own = jax.tree.map(lambda buffer: row_of(buffer, rows.own[row]), slots)
    averaged = _sum(slots, rows, event)
    if mode.publishes:
        slots = _write(slots, rows.publish[event], averaged)
        move = lambda e, slots: _write(slots, rows.publish[e], _sum(slots, rows, e))
        slots = jax.lax.fori_loop(event + 1, rows.event[row + 1], move, slots)
    return slots, averaged, averaged if mode.fresh else own


def _sum(slots: Tree, rows: PeerRows, event: jax.Array) -> Tree:
    """The weighted mean that an event's edges make. The first edge is not added to zero: alone, it is exact."""
    first = rows.edges[event]
    read = lambda edge: jax.tree.map(lambda buffer: row_of(buffer, rows.source[edge]), slots)
    start = jax.tree.map(lambda leaf: leaf * rows.weight[first].astype(leaf.dtype), read(first))
    more = lambda edge, total: mixed(total, rows.weight[edge], read(edge))
    return jax.lax.fori_loop(first + 1, rows.edges[event + 1], more, start)


def _write(slots: Tree, place: jax.Array, values: Tree) -> Tree:
    return jax.tree.map(lambda buffer, leaf: jax.lax.dynamic_update_index_in_dim(buffer, leaf, place, 0), slots, values)


def _step(
    averaged: Tree,
    grads: Tree,
    aux: Tree,
    mine: tuple[Tree, Tree],
    node: jax.Array,
    scale: jax.Array,
    parts: PeerParts,
) -> tuple[Tree, Tree, Tree]:
    """The node's own optimiser: momentum, Nesterov, or any other."""
    state, stats = mine
    message = parts.receive(grads, state, averaged, worker=node, delay=jnp.ones([]), read_params=averaged)
    updates, state = parts.update(message, state, averaged, num_gradients=1, delay=jnp.ones([]), worker=node)
    stats = stats if parts.fold is None else parts.fold(stats, aux)
    updates = jax.tree.map(lambda leaf: leaf * scale.astype(leaf.dtype), updates)
    return optax.apply_updates(averaged, updates), state, stats
