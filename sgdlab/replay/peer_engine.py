"""The compiled loop of replay for peers: event mode, one gradient at a time, and wave mode, a wave of them at once."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sgdlab.replay.functions import Parts, checked_aux, computed
from sgdlab.replay.mixing import consensus_distance, mean_of_nodes, mixed, weighted
from sgdlab.replay.peer_program import PeerProgram
from sgdlab.replay.program import padded
from sgdlab.replay.server_engine import of_each_worker, over_lanes, record_aux, within, write_lanes
from sgdlab.replay.watch import Watch, as_pytree
from sgdlab.xla import read_row

Tree = Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PeerRows:
    """A `PeerProgram` on the device, padded to its capacity (see there)."""

    event: jax.Array
    worker: jax.Array
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
    """

    width: int
    lanes: str
    fresh: bool
    publishes: bool


class PeerEngine:
    """A program of peers on the device; each node has an optimiser and statistics of its own.

    Args:
      program: the program to execute.
      parts: the functions of the run.
      watch: what to evaluate; its `evaluate` is traced.
      waves: whether to run in wave mode.
      lanes: how the gradients of a wave are computed, "vmap" or "map".
      scale: float[R], what each step is multiplied by.
    """

    def __init__(self, program: PeerProgram, parts: Parts, watch: Watch, *, waves: bool, lanes: str, scale: np.ndarray):
        self.program, self.parts, self.evaluate = program, parts, as_pytree(watch.evaluate)
        self.mode = PeerMode(program.capacity.width if waves else 0, lanes, program.fresh, program.publishes)
        self.rows = on_device(program, scale)

    def start(self, params: Tree, stats: Tree, local: Tree) -> PeerCarry:
        """The carry before the first gradient."""
        capacity = self.program.capacity
        sizes = {"rows": capacity.rows, "slots": capacity.slots}
        return start(params, stats, local, self.parts, nodes=self.program.num_nodes, **sizes)

    def advance(self, carry: PeerCarry, begin: int, end: int, batch_fn: Any = None) -> PeerCarry:
        """Executes gradients, or waves, `begin` to `end`, perhaps with batches of their own."""
        parts = self.parts if batch_fn is None else self.parts._replace(batch_fn=batch_fn)
        return advance(carry, self.rows, np.int32(begin), np.int32(end), parts, mode=self.mode)

    def evaluated(self, carry: PeerCarry, pause: int) -> dict[str, jax.Array]:
        """The values of `watch.evaluate` for the average of the nodes, the nodes and the center, at a pause."""
        return _evaluated(self.evaluate, *self._parameters(carry, pause), carry.stats)

    def outcome(self, carry: PeerCarry) -> dict[str, Tree]:
        """The fields of `Result`."""
        nodes, center = self._parameters(carry, len(self.program.pauses))
        found = {"params": mean_of_nodes(nodes), "stats": mean_of_nodes(carry.stats)}
        return found | {"state": carry.state, "nodes": nodes, "center": center, "local": carry.local}

    def records(self, carry: PeerCarry) -> dict[str, Tree]:
        """The fields of `History` that the run has recorded."""
        return {"aux": jax.tree.map(lambda array: np.asarray(array)[: self.program.num_rows], carry.aux)}

    def _parameters(self, carry: PeerCarry, pause: int) -> tuple[Tree, Tree]:
        """Every node's parameters, and the center's, at the start or a pause."""
        newest = self.program.newest[pause]
        nodes = jax.tree.map(lambda buffer: buffer[newest[: self.program.num_nodes]], carry.slots)
        center = jax.tree.map(lambda buffer: buffer[newest[-1]], carry.slots) if self.program.has_center else None
        return nodes, center


def on_device(program: PeerProgram, scale: np.ndarray) -> PeerRows:
    """Puts a program on the device, padded to its capacity."""
    capacity = program.capacity
    publish = np.where(program.publish == program.num_slots, capacity.slots, program.publish)
    return jax.device_put(
        PeerRows(
            **{name: padded(getattr(program, name), capacity.rows) for name in ("worker", "own", "store")},
            scale=padded(scale, capacity.rows),
            event=padded(program.event, capacity.rows + 1, "edge"),
            publish=padded(publish, capacity.events),
            edges=padded(program.edges, capacity.events + 1, "edge"),
            source=padded(program.source, capacity.edges),
            weight=padded(program.weight, capacity.edges),
            waves=padded(program.waves, capacity.rows + 1, "edge"),
        )
    )


@jax.jit
def _evaluated(evaluate: Any, nodes: Tree, center: Tree, stats: Tree) -> dict[str, jax.Array]:
    own, stats = stats, mean_of_nodes(stats)
    values = dict(evaluate(mean_of_nodes(nodes), stats)) | {"consensus": consensus_distance(nodes)}
    each = jax.lax.map(lambda node: evaluate(*node), (nodes, own))
    for kind, summary in (("mean", jnp.mean), ("lowest", jnp.min), ("highest", jnp.max)):
        values |= {f"node_{kind}_{name}": summary(value) for name, value in each.items()}
    if center is not None:
        values |= {f"center_{name}": value for name, value in evaluate(center, stats).items()}
    return values


@functools.partial(jax.jit, static_argnames=("nodes", "rows", "slots"))
def start(params: Tree, stats: Tree, local: Tree, parts: Parts, *, nodes: int, rows: int, slots: int) -> PeerCarry:
    """The carry before the first gradient: all nodes have the same parameters."""
    aux = checked_aux(parts, params, stats, local)
    many = lambda tree, count: jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))).copy(), tree)
    return PeerCarry(
        slots=many(params, slots + 1),
        state=many(parts.init(params), nodes),
        stats=many(stats, nodes),
        local=of_each_worker(local, nodes),
        aux=jax.tree.map(lambda leaf: jnp.zeros((rows,), leaf.dtype) if leaf.shape == () else None, aux),
    )


@functools.partial(jax.jit, static_argnames=("mode",), donate_argnames=("carry",))
def advance(
    carry: PeerCarry, rows: PeerRows, begin: jax.Array, end: jax.Array, parts: Parts, *, mode: PeerMode
) -> PeerCarry:
    """Executes gradients `begin` to `end` (event mode) or waves `begin` to `end` (wave mode)."""
    body = _wave if mode.width else _event
    return jax.lax.fori_loop(begin, end, lambda i, c: body(c, rows, i, parts, mode), carry)


def _event(carry: PeerCarry, rows: PeerRows, row: jax.Array, parts: Parts, mode: PeerMode) -> PeerCarry:
    """One node averages, computes a gradient and makes a step."""
    node = rows.worker[row]
    slots, averaged, at = _averaged(carry.slots, rows, row, mode)
    read = lambda tree: jax.tree.map(lambda buffer: read_row(buffer, node), tree)
    grads, aux, local = computed(parts, at, parts.batch_fn(row), read(carry.local))
    averaged, grads, aux = jax.lax.optimization_barrier((averaged, grads, aux))
    own = read((carry.state, carry.stats))
    stepped, *own = _step(averaged, grads, aux, own, node, rows.scale[row], parts)
    write = lambda index: lambda buffer, leaf: jax.lax.dynamic_update_index_in_dim(buffer, leaf, index, 0)
    return PeerCarry(
        slots=jax.tree.map(write(rows.store[row]), slots, stepped),
        state=jax.tree.map(write(node), carry.state, own[0]),
        stats=jax.tree.map(write(node), carry.stats, own[1]),
        local=jax.tree.map(write(node), carry.local, local),
        aux=record_aux(carry.aux, row, aux),
    )


def _wave(carry: PeerCarry, rows: PeerRows, wave: jax.Array, parts: Parts, mode: PeerMode) -> PeerCarry:
    """Averages in order, then computes all gradients and steps of the wave at once: each is of another node."""
    begin, end = rows.waves[wave], rows.waves[wave + 1]
    # Lanes past the end of the wave repeat its last gradient; their results are not used.
    lanes = jnp.minimum(begin + jnp.arange(mode.width, dtype=begin.dtype), end - 1)
    empty = jax.tree.map(lambda leaf: jnp.zeros((mode.width, *leaf.shape[1:]), leaf.dtype), carry.slots)

    def average(row: jax.Array, state: tuple[Tree, Tree, Tree]) -> tuple[Tree, Tree, Tree]:
        slots, *buffers = state
        slots, *trees = _averaged(slots, rows, row, mode)
        write = lambda buffer, leaf: jax.lax.dynamic_update_index_in_dim(buffer, leaf, row - begin, 0)
        return slots, *(jax.tree.map(write, *pair) for pair in zip(buffers, trees, strict=True))

    slots, averaged, at = jax.lax.fori_loop(begin, end, average, (carry.slots, empty, empty))
    node = rows.worker[lanes]
    read = lambda tree: jax.tree.map(lambda buffer: buffer[node], tree)
    compute = functools.partial(computed, parts)
    grads, aux, local = over_lanes(mode.lanes, compute, at, jax.vmap(parts.batch_fn)(lanes), read(carry.local))
    averaged, grads, aux = jax.lax.optimization_barrier((averaged, grads, aux))
    own = read((carry.state, carry.stats))
    step = functools.partial(_step, parts=parts)
    stepped, *own = jax.vmap(step)(averaged, grads, aux, own, node, rows.scale[lanes])
    write = functools.partial(write_lanes, begin=begin, end=end)
    state, stats, local = write((carry.state, carry.stats, carry.local), (*own, local), node)
    return PeerCarry(
        slots=write(slots, stepped, rows.store[lanes]),
        state=state,
        stats=stats,
        local=local,
        aux=record_aux(carry.aux, within(lanes, begin, end), aux),
    )


def _averaged(slots: Tree, rows: PeerRows, row: jax.Array, mode: PeerMode) -> tuple[Tree, Tree, Tree]:
    """The slots after the moves of the center, the node's average, and the parameters its gradient is computed at."""
    event = rows.event[row]
    own = jax.tree.map(lambda buffer: read_row(buffer, rows.own[row]), slots)
    averaged = _sum(slots, rows, event)
    if mode.publishes:
        slots = _write(slots, rows.publish[event], averaged)
        move = lambda e, slots: _write(slots, rows.publish[e], _sum(slots, rows, e))
        slots = jax.lax.fori_loop(event + 1, rows.event[row + 1], move, slots)
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


def _step(
    averaged: Tree,
    grads: Tree,
    aux: Tree,
    own: tuple[Tree, Tree],
    node: jax.Array,
    scale: jax.Array,
    parts: Parts,
) -> tuple[Tree, Tree, Tree]:
    """One step of the node's own optimiser: its parameters, its state and its statistics afterwards."""
    state, stats = own
    message = parts.receive(grads, state, averaged, worker=node, delay=jnp.ones([]), read_params=averaged)
    updates, state = parts.update(message, state, averaged, num_gradients=1, delay=jnp.ones([]), worker=node)
    stats = stats if parts.fold is None else parts.fold(stats, aux)
    updates = jax.tree.map(lambda leaf: leaf * scale.astype(leaf.dtype), updates)
    return optax.apply_updates(averaged, updates), state, stats
