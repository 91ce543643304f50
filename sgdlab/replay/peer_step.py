"""One step of the loop for peers: in event mode, one gradient; in wave mode, a wave of them at once."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec

from sgdlab.replay import exchange
from sgdlab.replay.functions import Parts, computed
from sgdlab.replay.lanes import NOWHERE, Lanes, lanes_at, over_lanes, record_aux, write_lanes
from sgdlab.replay.mixing import mixed, weighted
from sgdlab.replay.sharding import AXIS, MeshLayout
from sgdlab.rules.server_rule import received
from sgdlab.types import Tree
from sgdlab.xla import apart, read_row


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PeerRows:
    """A `PeerProgram` on the device, padded to its capacity (see there)."""

    event: jax.Array
    first: jax.Array
    worker: jax.Array
    lane: jax.Array  # int[R], the lane in which wave mode computes a gradient.
    own: jax.Array
    store: jax.Array
    publish: jax.Array
    edges: jax.Array
    source: jax.Array
    weight: jax.Array
    waves: jax.Array
    scale: jax.Array  # float[R], what each step is multiplied by.


class PeerCarry(NamedTuple):
    """The state of the loop between two gradients."""

    slots: Tree  # [slots + 1, *params_shape]: versions of the nodes' parameters; the last one is never read.
    state: Tree  # [N, ...], the state of each node's optimiser.
    stats: Tree  # [N, ...], each node's running statistics.
    local: Tree  # [N, ...], what else belongs to each node, such as a memory; None if nothing does.
    aux: Tree  # scalar leaves of the gradient function's aux, by row.


@dataclasses.dataclass(frozen=True)
class PeerMode:
    """Static settings: a new value compiles a new program.

    Attributes:
      width: gradients of a wave computed at once; 0 is event mode.
      lanes: how they are: by "vmap", or one after the other by "map".
      fresh: gradients are computed at the averaged parameters.
      publishes: averages are stored for other nodes to read.
      leads: moves come before the gradients of their rows.
      layout: how arrays are distributed over a mesh.
    """

    width: int
    lanes: str
    fresh: bool
    publishes: bool
    leads: bool
    layout: MeshLayout


def one_gradient(carry: PeerCarry, rows: PeerRows, row: jax.Array, parts: Parts, mode: PeerMode) -> PeerCarry:
    """One node averages, computes a gradient and makes a step."""
    node = rows.worker[row]
    slots, averaged, at = _averaged(carry.slots, rows, row, mode)
    read = lambda tree: jax.tree.map(lambda buffer: read_row(buffer, node), tree)
    # Apart from the step, as on a worker: else the gradient and the step would round each other.
    gradient = lambda row, at, own: computed(parts, at, parts.batch_fn(row), own)
    grads, aux, local = apart(gradient, row, at, read(carry.local))
    averaged = jax.lax.optimization_barrier(averaged)
    own = read((carry.state, carry.stats))
    stepped, *own = node_step(averaged, grads, aux, own, (node, row), rows.scale[row], parts)
    write = lambda index: lambda buffer, leaf: jax.lax.dynamic_update_index_in_dim(buffer, leaf, index, 0)
    return PeerCarry(
        slots=jax.tree.map(write(rows.store[row]), slots, stepped),
        state=jax.tree.map(write(node), carry.state, own[0]),
        stats=jax.tree.map(write(node), carry.stats, own[1]),
        local=jax.tree.map(write(node), carry.local, local),
        aux=record_aux(carry.aux, row, aux),
    )


def one_wave(carry: PeerCarry, rows: PeerRows, number: jax.Array, parts: Parts, mode: PeerMode) -> PeerCarry:
    """Averages in order, then computes all gradients and steps of the wave at once: each is of another node."""
    lanes = lanes_at(rows.lane, rows.waves[number], rows.waves[number + 1], mode.width)
    empty = jax.tree.map(lambda leaf: jnp.zeros((mode.width, *leaf.shape[1:]), leaf.dtype), carry.slots)

    def average(row: jax.Array, state: tuple[Tree, Tree, Tree]) -> tuple[Tree, Tree, Tree]:
        slots, *buffers = state
        slots, *trees = _averaged(slots, rows, row, mode)
        write = lambda buffer, leaf: jax.lax.dynamic_update_index_in_dim(buffer, leaf, rows.lane[row], 0)
        return slots, *(jax.tree.map(write, *pair) for pair in zip(buffers, trees, strict=True))

    slots, averaged, at = jax.lax.fori_loop(lanes.begin, lanes.end, average, (carry.slots, empty, empty))
    grads, aux, local = _gradients(at, rows, lanes, carry.local, parts, mode)
    averaged, grads, aux = jax.lax.optimization_barrier((averaged, grads, aux))
    node = rows.worker[lanes.row]
    own = jax.tree.map(lambda buffer: buffer[node], (carry.state, carry.stats))
    step = functools.partial(node_step, parts=parts)
    stepped, *own = jax.vmap(step)(averaged, grads, aux, own, (node, lanes.row), rows.scale[lanes.row])
    write = lambda buffers, found, index: write_lanes(buffers, found, jnp.where(lanes.used, index, NOWHERE))
    state, stats = write((carry.state, carry.stats), tuple(own), node)
    return PeerCarry(
        slots=write(slots, stepped, rows.store[lanes.row]),
        state=state,
        stats=stats,
        local=local,
        aux=record_aux(carry.aux, lanes.index, aux),
    )


def _gradients(
    at: Tree, rows: PeerRows, lanes: Lanes, local: Tree, parts: Parts, mode: PeerMode
) -> tuple[Tree, Tree, Tree]:
    """The gradients of a wave at parameters [width, *shape], their aux, and the states of the nodes afterwards."""
    layout, everywhere, by_lane = mode.layout, PartitionSpec(), PartitionSpec(AXIS)
    axes = layout.axes(at, lead=1)

    def compute(at: Tree, rows: PeerRows, lanes: Lanes, local: Tree, parts: Parts) -> tuple[Tree, Tree, Tree]:
        (params,) = exchange.to_lanes(layout, [(at, jnp.arange(mode.width))], (axes,))
        read, written = exchange.rows_of_workers(layout, rows.worker, lanes, local)
        before = jax.tree.map(lambda buffer: buffer[read], local)
        batches = jax.vmap(parts.batch_fn)(exchange.own(layout, lanes.row))
        grads, aux, after = over_lanes(mode.lanes, functools.partial(computed, parts), params, batches, before)
        grads, aux = exchange.from_lanes(layout, (grads, aux), (axes, exchange.everywhere(aux)))
        return grads, aux, write_lanes(local, after, written)

    by_parameter = layout.specs(at, lead=1)
    compute = layout.by_device(
        compute,
        (by_parameter, everywhere, everywhere, by_lane, layout.of_parts(parts)),
        (by_parameter, everywhere, by_lane),
    )
    return compute(at, rows, lanes, local, parts)


def _averaged(slots: Tree, rows: PeerRows, row: jax.Array, mode: PeerMode) -> tuple[Tree, Tree, Tree]:
    """The slots after the row's moves, the node's average, and the parameters its gradient is computed at."""
    event = rows.event[row]
    move = lambda e, slots: _write(slots, rows.publish[e], _sum(slots, rows, e))
    if mode.leads:
        slots = jax.lax.fori_loop(rows.first[row], event, move, slots)
    averaged = _sum(slots, rows, event)
    # Read together with the average, which is written next: else XLA, which does not know that the read comes first,
    # copies all slots.
    both = lambda own, slots, averaged: (jax.tree.map(lambda buffer: buffer[own], slots), averaged)
    own, averaged = (None, averaged) if mode.fresh else apart(both, rows.own[row], slots, averaged)
    if mode.publishes:
        slots = _write(slots, rows.publish[event], averaged)
    if mode.publishes and not mode.leads:
        slots = jax.lax.fori_loop(event + 1, rows.first[row + 1], move, slots)
    return slots, averaged, averaged if mode.fresh else own


def _sum(slots: Tree, rows: PeerRows, event: jax.Array) -> Tree:
    """The weighted mean over an event's edges. The sum begins with the first edge, not with zero: alone it is exact."""
    first = rows.edges[event]
    read = lambda edge: jax.tree.map(lambda buffer: read_row(buffer, rows.source[edge]), slots)
    more = lambda edge, total: mixed(total, rows.weight[edge], read(edge))
    total = jax.lax.fori_loop(first + 1, rows.edges[event + 1], more, weighted(rows.weight[first], read(first)))
    return jax.tree.map(lambda leaf, buffer: leaf.astype(buffer.dtype), total, slots)


def _write(slots: Tree, index: jax.Array, values: Tree) -> Tree:
    return jax.tree.map(lambda buffer, leaf: jax.lax.dynamic_update_index_in_dim(buffer, leaf, index, 0), slots, values)


def node_step(
    averaged: Tree,
    grads: Tree,
    aux: Tree,
    own: tuple[Tree, Tree],
    of: tuple[jax.Array, jax.Array],
    scale: jax.Array,
    parts: Parts,
) -> tuple[Tree, Tree, Tree]:
    """One step of a node's own optimiser, with its gradient `of[1]`: parameters, state and statistics afterwards."""
    (state, stats), (node, number) = own, of
    given = {"worker": node, "delay": jnp.ones([]), "read_params": averaged, "number": number}
    message = received(parts, grads, state, averaged, **given)
    updates, state = parts.update(message, state, averaged, num_gradients=1, delay=jnp.ones([]), worker=node)
    stats = stats if parts.fold is None else parts.fold(stats, aux)
    updates = jax.tree.map(lambda leaf: leaf * scale.astype(leaf.dtype), updates)
    return optax.apply_updates(averaged, updates), state, stats
