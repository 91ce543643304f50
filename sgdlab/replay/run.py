"""Replays a schedule on a virtual clock: gradients by a network, updates by a rule, exactly."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from sgdlab.peer_schedule import PeerSchedule
from sgdlab.replay import block_engine, engine
from sgdlab.replay.block_program import BlockProgram
from sgdlab.replay.blocks import partition
from sgdlab.replay.peer_program import PeerProgram
from sgdlab.replay.program import Program, lower
from sgdlab.replay.server import Parts, Server
from sgdlab.replay.sharding import Layout
from sgdlab.replay.watch import Evaluation, Watch, as_pytree, check, uses_waves
from sgdlab.rules.server_rule import ServerRule
from sgdlab.schedule import Schedule

Tree = Any


@dataclasses.dataclass(frozen=True)
class History:
    """What happened to the gradients that entered an update, in order; arrays of length R.

    Where the schedule has several blocks, whatever is marked [, S] has a column for each block, which holds NaN, or a
    negative update, where the gradient entered no update of that block.

    Attributes:
      gradient: int32[R], the gradient's row in the schedule.
      worker: int32[R], who computed it.
      update: int32[R[, S]], the update it entered.
      delay: float64[R[, S]], staleness + 1.
      arrived: float64[R[, S]], seconds, when the server had it.
      applied: float64[R[, S]], seconds, when its update was applied.
      aux: the scalar leaves of the gradient function's aux, as arrays [R]; other leaves are None.
      distance: float[R[, S]], norm of the server's parameters less those it was computed on; None unless watched.
      step: float[R[, S]], norm of the update that it completed, 0 where it completed none; None unless watched.
      evaluations: one dict for each look: `gradients`, `updates`, `seconds`, and what `evaluate` gave.
    """

    gradient: np.ndarray
    worker: np.ndarray
    update: np.ndarray
    delay: np.ndarray
    arrived: np.ndarray
    applied: np.ndarray
    aux: Tree
    distance: np.ndarray | None
    step: np.ndarray | None
    evaluations: list[Evaluation]


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run leaves.

    Attributes:
      params: the server's parameters.
      state: the rule's state; a tuple with that of every block where there are several.
      stats: running statistics, as given to `run` and folded.
      average: the Polyak average; None where it was not kept.
      history: see `History`.
    """

    params: Tree
    state: Tree
    stats: Tree
    average: Tree
    history: History


def run(
    schedule: Schedule | Program | BlockProgram,
    rule: ServerRule,
    grad_fn: Callable[[Tree, Tree], tuple[Tree, Tree]],
    params: Tree,
    batch_fn: Callable[[jax.Array], Tree],
    *,
    mode: str | None = None,
    mesh: Mesh | None = None,
    stats: Tree = None,
    fold: Callable[[Tree, Tree], Tree] | None = None,
    watch: Watch | None = None,
) -> Result:
    """Executes a schedule: every gradient on the version it read, every update in order.

    Event mode is the definition, one gradient after the other. Wave mode gives the same result: it computes at once
    the gradients that read only versions made before any of them, then applies them in order. Dropped work is never
    computed. Memory: one copy of the parameters for each version that some worker holds (at most one a worker; one in
    all for synchronous schedules), and in wave mode two more, and the activations, for each lane: the widest wave or
    the number of workers, whichever is more, rounded up to a power of two. Shorter waves leave lanes unused.

    One program serves every schedule of the same shape and every value of the hyperparameters. Functions are part
    of the program by identity: pass the same function object again and nothing is compiled anew. A function's own
    arrays are constants of the program unless it is a `jax.tree_util.Partial`, whose arguments are data.

    Args:
      schedule: what a protocol made, or its `lower`ed program.
      rule: what the server does with a gradient.
      grad_fn: `(params, batch) -> (grads, aux)`; scalar leaves of aux are recorded.
      params: initial parameters, a pytree of arrays.
      batch_fn: `(g) -> batch` for gradient g, its row in the schedule; traced.
      mode: "event", "wave", or None: event on CPU, wave elsewhere and wherever there is a mesh.
      mesh: one-axis mesh over which wave mode is sharded.
      stats: initial running statistics; they live at the server.
      fold: `(stats, aux) -> stats`, once per used gradient, in order.
      watch: what to look at on the way.

    Returns:
      A `Result`.

    Raises:
      ValueError: where arguments do not fit each other.

    Example:
      >>> import jax.numpy as jnp, numpy as np
      >>> from sgdlab import protocols, rules
      >>> schedule = protocols.asynchronous(np.array([[2.0, 3.0], [2.0, 3.0]]), num_gradients=3)
      >>> grad_fn = lambda params, batch: (params - batch, {"loss": 0.5 * (params - batch) ** 2})
      >>> result = run(schedule, rules.asgd(learning_rate=0.5), grad_fn, jnp.zeros([]), lambda g: 1.0)
      >>> float(result.params), result.history.aux["loss"]
      (1.25, array([0.5  , 0.5  , 0.125], dtype=float32))
    """
    watch = watch or Watch()
    if isinstance(schedule, PeerSchedule | PeerProgram):
        raise ValueError("schedule is one of peers, without a server: replay.run_peers executes it")
    lowered = isinstance(schedule, Program | BlockProgram)
    check(watch, schedule if lowered else None, stats, fold)
    layout = Layout(mesh)
    waves = uses_waves(mode, mesh)
    program = schedule if lowered else lower(schedule, every=watch.every)
    if rule.num_workers is not None and rule.num_workers < program.num_workers:
        raise ValueError(
            f"rule keeps state for num_workers={rule.num_workers}, but schedule has {program.num_workers} workers"
        )
    if watch.average_decay is not None and not 0 <= watch.average_decay < 1:
        raise ValueError(f"average_decay={watch.average_decay} must be at least 0 and below 1")

    parts = Parts(
        *(as_pytree(f) for f in (rule.receive, rule.update, rule.send, grad_fn, batch_fn, fold)), watch.average_decay
    )
    width = -(-program.capacity.width // layout.num_devices) * layout.num_devices if waves else 0
    loop = _Loop(program, width, watch.norms, layout, params)
    carry = loop.start(params, stats, as_pytree(rule.init), parts)
    evaluations: list[Evaluation] = []

    def look(gradients: int) -> None:
        if watch.evaluate is not None:
            server = loop.server(carry)
            evaluations.append(_evaluated(watch, server, carry.stats, program, gradients))
            if watch.report is not None:
                watch.report(evaluations[-1])

    look(0)
    ends = np.searchsorted(program.waves, program.pauses) if waves else program.pauses
    begin = 0
    for end, gradients in zip(ends.tolist(), program.pauses.tolist(), strict=True):
        carry = loop.advance(carry, begin, end, parts)
        look(gradients)
        begin = end
    server = loop.server(carry)
    history = _history(program, carry.records, evaluations)
    return Result(server.params, server.state, carry.stats, server.average, history)


class _Loop:
    """The compiled loop of a program: that of one block, or that of several."""

    def __init__(self, program: Program | BlockProgram, width: int, norms: bool, layout: Layout, params: Tree):
        capacity = program.capacity
        self.room = {"rows": capacity.rows, "slots": capacity.slots}
        self.engine, self.partition = engine, None
        if isinstance(program, BlockProgram):
            self.engine, self.partition = block_engine, partition(params, program.num_blocks)
            self.room["kept"] = capacity.kept
            self.mode = block_engine.BlockMode(program.single, program.aligned, width, norms, layout, self.partition)
        else:
            self.mode = engine.Mode(program.single, width, norms, layout)
        self.rows = self.engine.rows_of(program, width)

    def start(self, params: Tree, stats: Tree, init: Any, parts: Parts) -> Any:
        return self.engine.start(params, stats, init, parts, **self.room, mode=self.mode)

    def advance(self, carry: Any, begin: int, end: int, parts: Parts) -> Any:
        return self.engine.advance(carry, self.rows, np.int32(begin), np.int32(end), parts, mode=self.mode)

    def server(self, carry: Any) -> Server:
        """The server, or all servers as one: parameters joined, and a tuple of their states."""
        if self.partition is None:
            return carry.server
        params, state, _, _, average = zip(*carry.servers, strict=True)
        joined = None if average[0] is None else self.partition.join(average)
        return Server(self.partition.join(params), state, None, None, joined)


def _evaluated(
    watch: Watch, server: Server, stats: Tree, program: Program | BlockProgram, gradients: int
) -> Evaluation:
    values = dict(watch.evaluate(server.params, stats))
    if server.average is not None:
        values |= {f"average_{k}": v for k, v in watch.evaluate(server.average, stats).items()}
    updates, seconds = program.made(gradients)
    return {
        "gradients": gradients,
        "updates": updates,
        "seconds": seconds,
        **{name: float(value) for name, value in jax.device_get(values).items()},
    }


def _history(program: Program | BlockProgram, records: engine.Records, evaluations: list[Evaluation]) -> History:
    records = jax.tree.map(lambda array: np.asarray(array)[: program.num_rows], records)
    names = ("gradient", "worker", "update", "arrived", "applied")
    delay = np.where(program.update >= 0, program.update - program.read + 1.0, np.nan)
    fields = {name: getattr(program, name) for name in names} | {"delay": delay}
    if records.distance is not None:
        unused = program.update < 0
        records = records._replace(
            distance=np.where(unused, np.nan, records.distance), step=np.where(unused, np.nan, records.step)
        )
    return History(**fields, **records._asdict(), evaluations=evaluations)
