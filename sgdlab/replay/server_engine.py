"""The compiled loop of replay for parameter servers, in event mode and in wave mode."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sgdlab.replay.blocks import Partition, partition
from sgdlab.replay.functions import Parts, checked_aux, computed
from sgdlab.replay.program import padded
from sgdlab.replay.server import Instruction, Server, norm, norm_dtype, start_server, take
from sgdlab.replay.server_program import ServerProgram
from sgdlab.replay.sharding import Layout
from sgdlab.replay.watch import Watch
from sgdlab.rules import accumulators
from sgdlab.xla import read_row

Tree = Any
State = tuple[Server, "Records", Tree]
NOWHERE = np.iinfo(np.int32).max
"""An index that is out of bounds of every buffer."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Rows:
    """A `ServerProgram` on the device, padded to its capacity (see there)."""

    worker: jax.Array
    load: jax.Array
    kept: jax.Array
    waves: jax.Array
    ends: jax.Array
    row: jax.Array
    reload: jax.Array
    store: jax.Array
    first: jax.Array
    last: jax.Array
    delay: jax.Array
    mean_delay: jax.Array
    count: jax.Array


class Records(NamedTuple):
    """The records of each gradient; arrays of the program's capacity."""

    aux: Tree  # [rows], scalar leaves of the gradient function's aux.
    norm: jax.Array | None  # [rows], norm of the gradient; None, like the next two, unless recorded.
    distance: jax.Array | None  # [rows, S], norm of the server's parameters less those read.
    step: jax.Array | None  # [rows, S], norm of the update that a gradient completes; 0 where it completes none.
    penalty: jax.Array | None  # [rows, S], what the rule divides a gradient by; None where it says nothing of it.


class Carry(NamedTuple):
    """The state of the loop between two gradients."""

    servers: tuple[Server, ...]
    kept: tuple[Tree, ...]  # of each block, [kept, *block_shape]: the buffer of gradients not used yet.
    stats: Tree  # running statistics, such as BatchNorm's.
    average_stats: Tree  # their Polyak average; None without one.
    local: Tree  # [workers, ...], what belongs to each worker; None if nothing does.
    records: Records


@dataclasses.dataclass(frozen=True)
class Mode:
    """Static settings: a new value compiles a new program.

    Attributes:
      single: every update has one gradient.
      aligned: every block uses every gradient at once, so that none is buffered.
      width: gradients of a wave computed at once; 0 is event mode.
      lanes: how they are: by "vmap", or one after the other by "map".
      uniform: all gradients of a wave are computed on one version of the parameters.
      norms: whether norms are recorded.
      layout: how arrays are distributed over a mesh.
      partition: which parameters each block holds.
    """

    single: bool
    aligned: bool
    width: int
    lanes: str
    uniform: bool
    norms: bool
    layout: Layout
    partition: Partition


class ServerEngine:
    """A program of parameter servers on the device.

    Args:
      program: the program to execute.
      params: initial parameters.
      parts: the functions of the run.
      watch: what to evaluate and record.
      waves: whether to run in wave mode.
      lanes: how the gradients of a wave are computed, "vmap" or "map".
      layout: how arrays are distributed over a mesh.
    """

    def __init__(
        self,
        program: ServerProgram,
        params: Tree,
        parts: Parts,
        watch: Watch,
        *,
        waves: bool,
        lanes: str,
        layout: Layout,
    ):
        self.program, self.parts, self.watch = program, parts, watch
        devices = layout.num_devices
        self.mode = Mode(
            single=program.single,
            aligned=program.aligned,
            width=-(-program.capacity.width // devices) * devices if waves else 0,
            lanes=lanes,
            uniform=waves and program.uniform,
            norms=watch.norms,
            layout=layout,
            partition=partition(params, program.num_blocks),
        )
        self.rows = on_device(program)

    def start(self, params: Tree, stats: Tree, local: Tree) -> Carry:
        """The carry before the first gradient."""
        capacity = self.program.capacity
        sizes = {"rows": capacity.rows, "slots": capacity.slots, "kept": capacity.kept, "workers": capacity.workers}
        return start(params, stats, local, self.parts, **sizes, mode=self.mode)

    def advance(self, carry: Carry, begin: int, end: int, batch_fn: Any = None) -> Carry:
        """Executes gradients, or waves, `begin` to `end`, perhaps with batches of their own."""
        parts = self.parts if batch_fn is None else self.parts._replace(batch_fn=batch_fn)
        return advance(carry, self.rows, np.int32(begin), np.int32(end), parts, mode=self.mode)

    def evaluated(self, carry: Carry, pause: int) -> dict[str, Any]:
        """The values of `watch.evaluate` for the parameters, and for their Polyak average, at a pause."""
        del pause  # what is evaluated is the newest version
        found = self.outcome(carry)
        values = dict(self.watch.evaluate(found["params"], found["stats"]))
        if found["average"] is not None:
            average = (
                accumulators.narrow(found["average"], found["params"]),
                accumulators.narrow(found["average_stats"], found["stats"]),
            )
            values |= {f"average_{name}": value for name, value in self.watch.evaluate(*average).items()}
        return values

    def outcome(self, carry: Carry) -> dict[str, Tree]:
        """The fields of `Result`: the blocks of all servers joined, except the states of their rules."""
        join = self.mode.partition.join
        params, state, _, _, average = zip(*carry.servers, strict=True)
        return {
            "params": join(params),
            "state": state if len(state) > 1 else state[0],
            "stats": carry.stats,
            "average": None if self.watch.average_decay is None else join(average),
            "average_stats": carry.average_stats,
            "local": workers_of(carry.local, self.program.num_workers),
        }

    def records(self, carry: Carry) -> dict[str, Tree]:
        """The fields of `History` that the run has recorded."""
        found = jax.tree.map(lambda array: np.asarray(array)[: self.program.num_rows], carry.records)._asdict()
        if self.watch.norms:
            unused = self.program.update < 0
            for name in ("distance", "step", "penalty"):
                if found[name] is None:
                    continue
                by_block = np.where(unused, np.nan, found[name])
                found[name] = by_block if self.program.num_blocks > 1 else by_block[:, 0]
        return found


def on_device(program: ServerProgram) -> Rows:
    """Puts a program on the device, padded to its capacity."""
    rows = program.capacity.rows
    sizes = {"ends": rows + 1, "waves": rows + 1}
    arrays = {field.name: getattr(program, field.name) for field in dataclasses.fields(Rows)}
    return jax.device_put(
        Rows(**{name: padded(array, sizes.get(name, rows), "constant") for name, array in arrays.items()})
    )


@functools.partial(jax.jit, static_argnames=("rows", "slots", "kept", "workers", "mode"))
def start(
    params: Tree, stats: Tree, local: Tree, parts: Parts, *, rows: int, slots: int, kept: int, workers: int, mode: Mode
) -> Carry:
    """The carry before the first gradient."""
    aux = checked_aux(parts, params, stats, local)
    blocks = mode.partition.split(params)
    number = lambda *columns: jnp.zeros((rows, *columns), norm_dtype(params)) if mode.norms else None
    carry = Carry(
        servers=tuple(start_server(block, parts, slots=slots, single=mode.single) for block in blocks),
        kept=() if mode.aligned else jax.tree.map(lambda leaf: jnp.zeros((kept, *leaf.shape), leaf.dtype), blocks),
        stats=jax.tree.map(jnp.copy, stats),
        average_stats=None if parts.average_decay is None else jax.tree.map(jnp.copy, accumulators.wide(stats)),
        local=of_each_worker(local, workers),
        records=None,
    )
    aux = jax.tree.map(lambda leaf: jnp.zeros((rows,), leaf.dtype) if leaf.shape == () else None, aux)
    penalty = None if parts.penalty is None else number(len(blocks))
    records = Records(aux, norm=number(), distance=number(len(blocks)), step=number(len(blocks)), penalty=penalty)
    return mode.layout.by_parameter(carry)._replace(records=records)


@functools.partial(jax.jit, static_argnames=("mode",), donate_argnames=("carry",))
def advance(carry: Carry, rows: Rows, begin: jax.Array, end: jax.Array, parts: Parts, *, mode: Mode) -> Carry:
    """Executes gradients `begin` to `end` (event mode) or waves `begin` to `end` (wave mode)."""
    body = _wave if mode.width else _event
    return jax.lax.fori_loop(begin, end, lambda i, c: body(c, rows, i, parts, mode), carry)


def _event(carry: Carry, rows: Rows, row: jax.Array, parts: Parts, mode: Mode) -> Carry:
    """One gradient: loads the version it reads, computes it, and uses it."""
    read = _loaded(carry, rows, row)
    worker = rows.worker[row]
    own = jax.tree.map(lambda buffer: read_row(buffer, worker), carry.local)
    grads, aux, own = computed(parts, mode.partition.join(read), parts.batch_fn(row), own)
    write = lambda buffer, leaf: jax.lax.dynamic_update_index_in_dim(buffer, leaf, worker, 0)
    carry = carry._replace(local=jax.tree.map(write, carry.local, jax.lax.optimization_barrier(own)))
    return _used(carry, rows, row, read, (mode.partition.split(grads), aux), parts, mode)


def _wave(carry: Carry, rows: Rows, wave: jax.Array, parts: Parts, mode: Mode) -> Carry:
    """Computes all gradients of a wave at once, then uses them in order."""
    begin, end = rows.waves[wave], rows.waves[wave + 1]
    # Lanes past the end of the wave repeat its last gradient; their results are not used.
    lanes = jnp.minimum(begin + jnp.arange(mode.width, dtype=begin.dtype), end - 1)
    join, split, layout = mode.partition.join, mode.partition.split, mode.layout
    if mode.uniform:
        shared, params = (layout.replicated(join(_loaded(carry, rows, begin))),), ()
    else:
        gather = lambda block, server: jax.tree.map(lambda buffer: buffer[rows.load[lanes, block]], server.slots)
        versions = tuple(gather(*pair) for pair in enumerate(carry.servers))
        shared, params = (), (layout.by_lane(jax.vmap(join)(versions)),)
    batches = jax.vmap(parts.batch_fn)(lanes)
    worker = rows.worker[lanes]
    own = jax.tree.map(lambda buffer: buffer[worker], carry.local)
    compute = functools.partial(computed, parts, *shared)
    grads, aux, own = layout.by_lane(over_lanes(mode.lanes, compute, *params, batches, own))
    carry = carry._replace(local=write_lanes(carry.local, own, worker, begin, end))
    found = layout.by_parameter((jax.vmap(split)(grads), aux), lanes=True)

    def use(row: jax.Array, carry: Carry) -> Carry:
        lane = jax.tree.map(lambda leaf: leaf[row - begin], found)
        return _used(carry, rows, row, _loaded(carry, rows, row) if mode.aligned else None, lane, parts, mode)

    return jax.lax.fori_loop(begin, end, use, carry)


def _loaded(carry: Carry, rows: Rows, row: jax.Array) -> tuple[Tree, ...]:
    """The versions that a gradient is computed on."""
    return tuple(
        jax.tree.map(lambda buffer, b=block: read_row(buffer, rows.load[row, b]), server.slots)
        for block, server in enumerate(carry.servers)
    )


def _used(
    carry: Carry,
    rows: Rows,
    row: jax.Array,
    read: tuple[Tree, ...] | None,
    found: tuple[tuple[Tree, ...], Tree],
    parts: Parts,
    mode: Mode,
) -> Carry:
    """The carry after a gradient, in both modes: every block makes the uses that this gradient completes.

    Args:
      carry: the carry before it.
      rows: the program.
      row: the index of the gradient.
      read: the versions that it was computed on; needed if the program is aligned.
      found: the gradient of each block, and its aux.
      parts: the functions of the run.
      mode: static settings.
    """
    # Without the barrier XLA fuses the update with the gradient, differently in the two modes, and rounds differently.
    read, (grads, aux) = jax.lax.optimization_barrier((read, found))
    stats = carry.stats if parts.fold is None else parts.fold(carry.stats, aux)
    records = carry.records._replace(aux=record_aux(carry.records.aux, row, aux))
    if mode.norms:
        records = records._replace(norm=records.norm.at[row].set(norm(grads)))
    carry = carry._replace(records=records)
    servers, records, average_stats = list(carry.servers), carry.records, carry.average_stats
    if mode.aligned:
        for block, server in enumerate(servers):
            state, inputs = (server, records, average_stats), (read[block], grads[block])
            servers[block], records, average_stats = _use(state, stats, rows, (row, row, block), inputs, parts, mode)
        return carry._replace(servers=tuple(servers), stats=stats, average_stats=average_stats, records=records)
    write = lambda buffer, leaf: jax.lax.dynamic_update_index_in_dim(buffer, leaf, rows.kept[row], 0)
    kept = jax.tree.map(write, carry.kept, grads)
    for block in range(len(servers)):

        def use(k: jax.Array, state: State, block: int = block) -> State:
            of = rows.row[k, block]
            grads = jax.tree.map(lambda buffer: read_row(buffer, rows.kept[of]), kept[block])
            read = jax.tree.map(lambda buffer: read_row(buffer, rows.reload[k, block]), state[0].slots)
            return _use(state, stats, rows, (k, of, block), (read, grads), parts, mode)

        span = rows.ends[row, block], rows.ends[row + 1, block]
        state = jax.lax.fori_loop(*span, use, (servers[block], records, average_stats))
        servers[block], records, average_stats = state
    return carry._replace(servers=tuple(servers), kept=kept, stats=stats, average_stats=average_stats, records=records)


def _use(
    state: State,
    stats: Tree,
    rows: Rows,
    index: tuple[jax.Array, jax.Array, int],
    inputs: tuple[Tree, Tree],
    parts: Parts,
    mode: Mode,
) -> State:
    """A block uses its part of a gradient.

    Args:
      state: the block's server, the records, the average of the statistics.
      stats: running statistics.
      rows: the program.
      index: index of the use, of the gradient, and of the block.
      inputs: the version of the block that the gradient was computed on, and the block's part of the gradient.
      parts: the functions of the run.
      mode: static settings.
    """
    (server, records, average_stats), (k, row, block), (read, grads) = state, index, inputs
    by_use = {name: getattr(rows, name)[k, block] for name in Instruction._fields if name != "worker"}
    instruction = Instruction(worker=rows.worker[row], **by_use)
    if mode.norms:
        distance = norm(jax.tree.map(jnp.subtract, server.params, read))
        records = records._replace(distance=records.distance.at[row, block].set(distance))
    if parts.penalty is not None:
        own = {"worker": instruction.worker, "delay": instruction.delay, "read_params": read}
        penalty = parts.penalty(grads, server.state, server.params, **own).astype(records.penalty.dtype)
        records = records._replace(penalty=records.penalty.at[row, block].set(penalty))
    server, step = take(server, grads, read, instruction, parts, single=mode.single, norms=mode.norms)
    if mode.norms:
        records = records._replace(step=records.step.at[row, block].set(step))
    if average_stats is not None and block == 0:
        moved = accumulators.moving_average(average_stats, stats, parts.average_decay)
        average_stats = jax.tree.map(lambda new, old: jnp.where(instruction.last, new, old), moved, average_stats)
    return server, records, average_stats


def of_each_worker(local: Tree, workers: int) -> Tree:
    """The state of so many workers at the start."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (workers, *jnp.shape(leaf))).copy(), local)


def workers_of(local: Tree, num_workers: int) -> Tree:
    """The state of the workers that there are, without those that a capacity has made room for."""
    return jax.tree.map(lambda leaf: leaf[:num_workers], local)


def over_lanes(lanes: str, function: Callable[..., Tree], *arguments: Tree) -> Tree:
    """A function of each lane: at once ("vmap"), or in a loop ("map"), which takes the memory of one."""
    if lanes == "vmap":
        return jax.vmap(function)(*arguments)
    return jax.lax.map(lambda lane: function(*lane), arguments)


def within(index: jax.Array, begin: jax.Array, end: jax.Array) -> jax.Array:
    """The rows that the lanes of a wave write to: an index out of bounds, which JAX drops, for lanes past its end."""
    return jnp.where(begin + jnp.arange(index.size, dtype=begin.dtype) < end, index, NOWHERE)


def write_lanes(buffers: Tree, lanes: Tree, index: jax.Array, begin: jax.Array, end: jax.Array) -> Tree:
    """Writes what each lane of a wave has computed to its row of the buffers; lanes past its end write nothing."""
    rows = within(index, begin, end)
    return jax.tree.map(lambda buffer, leaf: buffer.at[rows].set(leaf, mode="drop"), buffers, lanes)


def record_aux(records: Tree, row: jax.Array, aux: Tree) -> Tree:
    """Records the scalars of a gradient's aux, or of several gradients if `row` and the leaves of `aux` are arrays."""
    return jax.tree.map(
        lambda leaf, record: None if record is None else record.at[row].set(leaf, mode="drop"),
        aux,
        records,
        is_leaf=lambda leaf: leaf is None,
    )
