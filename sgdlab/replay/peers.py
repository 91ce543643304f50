"""Replays a schedule of peers: every node averages with others and takes steps of its own, exactly."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sgdlab.peer_schedule import PeerSchedule
from sgdlab.replay import peer_engine
from sgdlab.replay.block_program import BlockProgram
from sgdlab.replay.peer_program import PeerProgram, lower_peers
from sgdlab.replay.program import Program
from sgdlab.replay.watch import Evaluation, Watch, as_pytree, check, uses_waves
from sgdlab.rules.mixing import consensus_distance, mean_of_nodes
from sgdlab.rules.server_rule import ServerRule, server_rule
from sgdlab.schedule import Schedule

Tree = Any


@dataclasses.dataclass(frozen=True)
class PeerHistory:
    """What happened to the gradients, in order; arrays of length R.

    Attributes:
      node: int32[R], whose gradient it is.
      started: float64[R], seconds.
      finished: float64[R], seconds.
      aux: the scalar leaves of the gradient function's aux, as arrays [R]; other leaves are None.
      evaluations: one dict for each look, where nodes are looked at with their own running statistics and the average
        and the center with the mean of all: `gradients`, `updates` (steps of the node that has made most), `seconds`,
        `consensus` (`sgdlab.rules.mixing.consensus_distance`), what `evaluate` gave for the nodes' average, and, under
        names that begin with `node_mean_`, `node_lowest_`, `node_highest_` and `center_`, for the nodes and the center.
    """

    node: np.ndarray
    started: np.ndarray
    finished: np.ndarray
    aux: Tree
    evaluations: list[Evaluation]


@dataclasses.dataclass(frozen=True)
class PeerResult:
    """What a run of peers leaves.

    Attributes:
      params: the nodes' average.
      nodes: [N, *shape], every node's parameters.
      center: the center's parameters; None where there is none.
      state: [N, ...], the state of every node's optimiser.
      stats: the mean of the nodes' running statistics.
      history: see `PeerHistory`.
    """

    params: Tree
    nodes: Tree
    center: Tree
    state: Tree
    stats: Tree
    history: PeerHistory


def run_peers(
    schedule: PeerSchedule | PeerProgram,
    optimizer: ServerRule | optax.GradientTransformation,
    grad_fn: Callable[[Tree, Tree], tuple[Tree, Tree]],
    params: Tree,
    batch_fn: Callable[[jax.Array], Tree],
    *,
    mode: str | None = None,
    step_scale: np.ndarray | None = None,
    stats: Tree = None,
    fold: Callable[[Tree, Tree], Tree] | None = None,
    watch: Watch | None = None,
) -> PeerResult:
    """Executes a schedule of peers: all nodes begin with the same parameters, and each has an optimiser of its own.

    Event mode is the definition, one gradient after the other. Wave mode gives the same result: it averages in order,
    then computes at once the gradients that need no step made among them. Memory: a copy of the parameters for each
    node and for each version that others will still read, and the optimisers' states; in wave mode three copies more
    for each lane.

    Args:
      schedule: what `protocols.gossip` or `protocols.elastic_averaging` made, or its lowered program.
      optimizer: the local one: a rule of `sgdlab.rules`, whose hyperparameters are data of the compiled program, or any
        optax transform. Every gradient is fresh: its delay is 1.
      grad_fn: `(params, batch) -> (grads, aux)`; scalar leaves of aux are recorded.
      params: initial parameters, a pytree of arrays.
      batch_fn: `(g) -> batch` for the g-th gradient of the schedule; traced.
      mode: "event", "wave", or None: event on CPU, wave elsewhere.
      step_scale: float[R], what the step of each gradient is multiplied by: a learning rate that follows the gradients
        of all nodes, where `optimizer` could only count each node's own steps. None: 1.
      stats: initial running statistics; each node has its own.
      fold: `(stats, aux) -> stats`, once per gradient of the node.
      watch: what to look at on the way; its `evaluate` is traced; `norms` and `average_decay` do not apply.

    Returns:
      A `PeerResult`.

    Raises:
      ValueError: where arguments do not fit each other.

    Example:
      >>> import jax.numpy as jnp, numpy as np
      >>> from sgdlab import protocols, rules
      >>> schedule = protocols.gossip(np.ones((2, 2)), synchronous=True, seed=0)
      >>> grad_fn = lambda params, batch: (params - batch, {})
      >>> result = run_peers(schedule, rules.asgd(learning_rate=0.5), grad_fn, jnp.zeros([]), lambda g: g % 2)
      >>> result.nodes
      Array([0.125, 0.625], dtype=float32)
    """
    watch = watch or Watch()
    if isinstance(schedule, Schedule | Program | BlockProgram):
        raise ValueError("schedule is a parameter server's: replay.run executes it")
    lowered = isinstance(schedule, PeerProgram)
    check(watch, schedule if lowered else None, stats, fold)
    if watch.norms or watch.average_decay is not None:
        raise ValueError("watch: norms and average_decay are the server's; peers have none")
    rule = optimizer if isinstance(optimizer, ServerRule) else server_rule(optimizer)
    waves = uses_waves(mode, None)
    program = schedule if lowered else lower_peers(schedule, every=watch.every)
    if rule.num_workers is not None:
        raise ValueError(
            f"optimizer keeps state for num_workers={rule.num_workers} workers of a server; each node has its own "
            "optimiser, one without workers"
        )
    room = program.capacity
    width = room.width if waves else 0
    parts = peer_engine.PeerParts(*(as_pytree(f) for f in (rule.receive, rule.update, grad_fn, batch_fn, fold)))
    engine_mode = peer_engine.PeerMode(width, program.fresh, program.publishes)
    scale = np.ones(program.num_rows) if step_scale is None else np.asarray(step_scale, float)
    if scale.shape != (program.num_rows,) or not np.isfinite(scale).all():
        raise ValueError(
            f"step_scale of shape {scale.shape} must be finite numbers, one for each of {program.num_rows} gradients"
        )
    rows = peer_engine.rows_of(program, width, scale)
    carry = peer_engine.start(
        params, stats, as_pytree(rule.init), parts, nodes=program.num_nodes, rows=room.rows, slots=room.slots
    )
    evaluations: list[Evaluation] = []
    evaluate = as_pytree(watch.evaluate)

    def look(place: int, gradients: int) -> None:
        if watch.evaluate is not None:
            steps = int(np.bincount(program.node[:gradients]).max()) if gradients else 0
            seconds = float(program.finished[:gradients].max()) if gradients else 0.0
            seen = jax.device_get(_evaluated(evaluate, *_parameters(carry, program, place), carry.stats))
            numbers = {name: float(value) for name, value in seen.items()}
            evaluations.append({"gradients": gradients, "updates": steps, "seconds": seconds, **numbers})
            if watch.report is not None:
                watch.report(evaluations[-1])

    look(0, 0)
    ends = np.searchsorted(program.waves, program.pauses) if waves else program.pauses
    begin = 0
    for place, (end, gradients) in enumerate(zip(ends.tolist(), program.pauses.tolist(), strict=True), start=1):
        carry = peer_engine.advance(carry, rows, np.int32(begin), np.int32(end), parts, mode=engine_mode)
        look(place, gradients)
        begin = end
    nodes, center = _parameters(carry, program, len(program.pauses))
    aux = jax.tree.map(lambda array: np.asarray(array)[: program.num_rows], carry.aux)
    history = PeerHistory(program.node, program.started, program.finished, aux, evaluations)
    return PeerResult(mean_of_nodes(nodes), nodes, center, carry.state, mean_of_nodes(carry.stats), history)


def _parameters(carry: peer_engine.PeerCarry, program: PeerProgram, place: int) -> tuple[Tree, Tree]:
    """Every node's parameters, and the center's, at the start or a pause."""
    where = program.newest[place]
    nodes = jax.tree.map(lambda buffer: buffer[where[: program.num_nodes]], carry.slots)
    center = jax.tree.map(lambda buffer: buffer[where[-1]], carry.slots) if program.has_center else None
    return nodes, center


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
