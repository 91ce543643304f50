"""The compiled loop of replay for peers: in event mode a gradient, in wave mode a wave, at a time (`peer_step`)."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from sgdlab.replay.engine import Engine, loop
from sgdlab.replay.functions import Parts, checked_aux
from sgdlab.replay.lanes import of_each_worker
from sgdlab.replay.mixing import consensus_distance, mean_of_nodes
from sgdlab.replay.peer_program import PeerProgram
from sgdlab.replay.peer_step import PeerCarry, PeerMode, PeerRows, one_gradient, one_wave
from sgdlab.replay.program import padded
from sgdlab.replay.sharding import MeshLayout
from sgdlab.replay.watch import Watch, as_pytree
from sgdlab.types import Tree


class PeerEngine(Engine):
    """A program of peers on the device; each node has an optimiser and statistics of its own.

    Args:
      program: the program to execute.
      parts: the functions of the run.
      watch: what to evaluate; its `evaluate` is traced.
      waves: whether to run in wave mode.
      lanes: how the gradients of a wave are computed, "vmap" or "map".
      mesh: over which a wave is sharded; None: one device.
      layout: one of `sgdlab.replay.sharding.KINDS`; None: as suits the sizes.
      stateful: whether nodes have a state besides their optimiser's.
      scale: float[R], what each step is multiplied by, besides the schedule's own.
    """

    def __init__(
        self,
        program: PeerProgram,
        params: Tree,
        parts: Parts,
        watch: Watch,
        *,
        waves: bool,
        lanes: str,
        mesh: Mesh | None,
        layout: str | None,
        stateful: bool,
        scale: np.ndarray,
    ):
        super().__init__(program, params, params, waves=waves, mesh=mesh, layout=layout)
        self.parts, self.evaluate = self.layout.put((parts, as_pytree(watch.evaluate)))
        self._lanes, self._scale, self._nodes_at_end = lanes, scale * program.scale, watch.nodes_at_end
        self._place(program, workers=program.num_nodes, stateful=stateful)

    def _prepare(self, width: int, lane: np.ndarray) -> None:
        program = self.program
        self.mode = PeerMode(width, self._lanes, program.fresh, program.publishes, program.leads, self.layout)
        self.rows = on_device(program, lane, self._scale, self.layout)

    def start(self, params: Tree, stats: Tree, local: Tree) -> PeerCarry:
        """The carry before the first gradient."""
        capacity = self.program.capacity
        sizes = {"rows": capacity.rows, "slots": capacity.slots, "nodes": self.program.num_nodes}
        return start(*self.layout.put((params, stats, local)), self.parts, **sizes, layout=self.layout)

    def advance(self, carry: PeerCarry, begin: int, end: int, batch_fn: Any = None) -> PeerCarry:
        """Executes gradients, or waves, `begin` to `end`, perhaps with batches of their own."""
        parts = self.parts if batch_fn is None else self.parts._replace(batch_fn=batch_fn)
        return advance(carry, self.rows, np.int32(begin), np.int32(end), parts, mode=self.mode)

    def evaluated(self, carry: PeerCarry, pause: int) -> dict[str, jax.Array]:
        """The values of `watch.evaluate` for the average of the nodes, the nodes and the center, at a pause.

        All processes evaluate: the parameters of the nodes may be too many for one.
        """
        each = not self._nodes_at_end or pause == len(self.program.pauses)
        return evaluated_peers(self.evaluate, *self._parameters(carry, pause), carry.stats, each=each)

    def outcome(self, carry: PeerCarry) -> dict[str, Tree]:
        """The fields of `Result`. What grows with the number of nodes stays where it is."""
        nodes, center = self._parameters(carry, len(self.program.pauses))
        found = {"params": mean_of_nodes(nodes), "stats": mean_of_nodes(carry.stats), "center": center}
        return self.layout.local(found) | {"state": carry.state, "nodes": nodes, "local": carry.local}

    def records(self, carry: PeerCarry) -> dict[str, Tree]:
        """The fields of `History` that the run has recorded."""
        return {"aux": jax.tree.map(lambda array: np.asarray(array)[: self.program.num_rows], carry.aux)}

    def _parameters(self, carry: PeerCarry, pause: int) -> tuple[Tree, Tree]:
        """Every node's parameters, and the center's, at the start or a pause."""
        newest = self.program.newest[pause]
        nodes = _versions(carry.slots, newest[: self.program.num_nodes])
        return nodes, _versions(carry.slots, newest[-1]) if self.program.has_center else None


def on_device(program: PeerProgram, lane: np.ndarray, scale: np.ndarray, layout: MeshLayout) -> PeerRows:
    """Puts a program, and the lane of each gradient, on the device, padded to its capacity."""
    capacity = program.capacity
    publish = np.where(program.publish == program.num_slots, capacity.slots, program.publish)
    rows = PeerRows(
        **{name: padded(getattr(program, name), capacity.rows) for name in ("worker", "own", "store")},
        lane=padded(lane, capacity.rows),
        scale=padded(scale, capacity.rows),
        event=padded(program.event, capacity.rows + 1, "edge"),
        first=padded(program.first, capacity.rows + 1, "edge"),
        publish=padded(publish, capacity.events),
        edges=padded(program.edges, capacity.events + 1, "edge"),
        source=padded(program.source, capacity.edges),
        weight=padded(program.weight, capacity.edges),
        waves=padded(program.waves, capacity.rows + 1, "edge"),
    )
    return jax.device_put(rows) if layout.mesh is None else layout.put(rows)


@jax.jit
def _versions(slots: Tree, index: jax.Array) -> Tree:
    # Compiled: array by array, the rows of a small net take longer than its training between two pauses.
    return jax.tree.map(lambda buffer: buffer[index], slots)


def evaluated_peers(
    evaluate: Any, nodes: Tree, center: Tree, stats: Tree, *, each: bool = True
) -> dict[str, jax.Array]:
    """The values of `evaluate` for the average of the nodes, summaries of those of each node, and the center's.

    Args:
      evaluate: `(params, stats) -> {name: scalar}`, a pytree of functions.
      nodes: [N, *shape], the parameters of every node.
      center: the parameters of the center; None if there is none.
      stats: [N, ...], the running statistics of every node.
      each: whether each node is evaluated, which takes N times as long as their average.
    """
    mean, mean_stats, consensus = _means(nodes, stats)
    values = _evaluated(evaluate, mean, mean_stats) | {"consensus": consensus}
    if each:
        values |= _of_each_node(evaluate, nodes, stats)
    if center is not None:
        values |= {f"center_{name}": value for name, value in _evaluated(evaluate, center, mean_stats).items()}
    return values


@jax.jit
def _means(nodes: Tree, stats: Tree) -> tuple[Tree, Tree, jax.Array]:
    return mean_of_nodes(nodes), mean_of_nodes(stats), consensus_distance(nodes)


@jax.jit
def _evaluated(evaluate: Any, params: Tree, stats: Tree) -> dict[str, jax.Array]:
    return dict(evaluate(params, stats))


@jax.jit
def _of_each_node(evaluate: Any, nodes: Tree, stats: Tree) -> dict[str, jax.Array]:
    values: dict[str, jax.Array] = {}
    each = jax.lax.map(lambda node: evaluate(*node), (nodes, stats))
    for kind, summary in (("mean", jnp.mean), ("lowest", jnp.min), ("highest", jnp.max)):
        values |= {f"node_{kind}_{name}": summary(value) for name, value in each.items()}
    return values


@functools.partial(jax.jit, static_argnames=("nodes", "rows", "slots", "layout"))
def start(
    params: Tree, stats: Tree, local: Tree, parts: Parts, *, nodes: int, rows: int, slots: int, layout: MeshLayout
) -> PeerCarry:
    """The carry before the first gradient: all nodes have the same parameters."""
    aux = checked_aux(parts, params, stats, local)
    many = lambda tree, count: jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))).copy(), tree)
    carry = PeerCarry(
        slots=many(params, slots + 1),
        state=many(parts.init(params), nodes),
        stats=many(stats, nodes),
        local=of_each_worker(local, nodes),
        aux=jax.tree.map(lambda leaf: jnp.zeros((rows,), leaf.dtype) if leaf.shape == () else None, aux),
    )
    return _placed(carry, layout)


@functools.partial(jax.jit, static_argnames=("mode",), donate_argnames=("carry",))
def advance(
    carry: PeerCarry, rows: PeerRows, begin: jax.Array, end: jax.Array, parts: Parts, *, mode: PeerMode
) -> PeerCarry:
    """Executes gradients `begin` to `end` (event mode) or waves `begin` to `end` (wave mode)."""
    body = one_wave if mode.width else one_gradient
    step = lambda index, carry: body(carry, rows, index, parts, mode)
    return _placed(loop(carry, begin, end, step, mode.layout), mode.layout)


def _placed(carry: PeerCarry, layout: MeshLayout) -> PeerCarry:
    """The carry where the layout wants it, between two segments of a run."""
    return PeerCarry(
        slots=layout.by_parameter(carry.slots, lead=1),
        state=layout.by_shape(carry.state),
        stats=layout.replicated(carry.stats),
        local=layout.by_worker(carry.local),
        aux=layout.replicated(carry.aux),
    )
