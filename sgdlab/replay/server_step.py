"""The state of a replay of parameter servers, and how the servers use a gradient; the same in both modes."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sgdlab.replay.blocks import Partition
from sgdlab.replay.functions import Parts
from sgdlab.replay.lanes import record_aux
from sgdlab.replay.server import Instruction, Server, norm, take
from sgdlab.replay.sharding import MeshLayout
from sgdlab.rules import accumulators
from sgdlab.rules.server_rule import absorbed, called
from sgdlab.types import Tree
from sgdlab.xla import apart, read_row

State = tuple[Server, "Records", Tree]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class ServerRows:
    """A `ServerProgram` on the device, padded to its capacity (see there)."""

    worker: jax.Array
    number: jax.Array
    anew: jax.Array
    lane: jax.Array  # [rows], the lane in which wave mode computes a gradient.
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
    norm: Any  # [rows], norm of the gradient; None, like the next two, unless recorded.
    distance: Any  # [rows, S], norm of the server's parameters less those read.
    step: Any  # [rows, S], norm of the update that a gradient completes; 0 where it completes none.
    penalty: Any  # [rows, S], what the rule divides a gradient by; None where it says nothing of it.


class Carry(NamedTuple):
    """The state of the loop between two gradients."""

    servers: tuple[Server, ...]
    kept: tuple[Tree, ...]  # of each block, [kept, *block_shape]: the buffer of gradients not used yet.
    stats: Tree  # running statistics, such as BatchNorm's.
    average_stats: Tree  # their Polyak average; None without one.
    local: Tree  # [workers, ...], what belongs to each worker; None if nothing does.
    records: Any  # `Records`; None while the rest of the carry is made


@dataclasses.dataclass(frozen=True)
class Mode:
    """Static settings: a new value compiles a new program.

    Attributes:
      single: every update has one gradient.
      aligned: every block uses every gradient at once, so that none is buffered.
      width: gradients of a wave computed at once; 0 is event mode.
      lanes: how they are: by "vmap", or one after the other by "map".
      uniform: all gradients of a wave are computed on one version of the parameters.
      synchronous: besides, they are the gradients of one update: only their mean is exchanged.
      norms: whether norms are recorded.
      layout: how arrays are distributed over a mesh.
      partition: which parameters each block holds.
    """

    single: bool
    aligned: bool
    width: int
    lanes: str
    uniform: bool
    synchronous: bool
    norms: bool
    layout: MeshLayout
    partition: Partition


def loaded(carry: Carry, rows: ServerRows, row: jax.Array) -> tuple[Tree, ...]:
    """The versions that a gradient is computed on."""
    return tuple(
        jax.tree.map(lambda buffer, b=block: read_row(buffer, rows.load[row, b]), server.slots)
        for block, server in enumerate(carry.servers)
    )


def points(carry: Carry, rows: ServerRows, row: jax.Array, parts: Parts) -> tuple[Tree, ...]:
    """Return where a gradient is computed: on versions that it is to load, or where its worker is because of them."""
    read = loaded(carry, rows, row)
    if parts.point is None:
        return read
    worker = rows.worker[row]
    return tuple(
        parts.point(sent, server.state, worker=worker) for sent, server in zip(read, carry.servers, strict=True)
    )


def used(
    carry: Carry,
    rows: ServerRows,
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
      read: the points that it was computed at; needed if the program is aligned.
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
            servers[block], records, average_stats = _used_by(
                state, stats, rows, (row, row, block), inputs, parts, mode
            )
        return carry._replace(servers=tuple(servers), stats=stats, average_stats=average_stats, records=records)
    write = lambda buffer, leaf: jax.lax.dynamic_update_index_in_dim(buffer, leaf, rows.kept[row], 0)
    kept = jax.tree.map(write, carry.kept, grads)
    for block in range(len(servers)):

        def use(k: jax.Array, state: State, block: int = block) -> State:
            of = rows.row[k, block]
            row_of = lambda tree, index: jax.tree.map(lambda buffer: buffer[index], tree)
            both = lambda k, slots, kept: (row_of(slots, rows.reload[k, block]), row_of(kept, rows.kept[of]))
            # Read together: a version that only records need might be read after the new one is stored, for all that
            # XLA knows, and all versions would be copied.
            inputs = apart(both, k, state[0].slots, kept[block])
            return _used_by(state, stats, rows, (k, of, block), inputs, parts, mode)

        span = rows.ends[row, block], rows.ends[row + 1, block]
        state = jax.lax.fori_loop(*span, use, (servers[block], records, average_stats))
        servers[block], records, average_stats = state
    return carry._replace(servers=tuple(servers), kept=kept, stats=stats, average_stats=average_stats, records=records)


def _used_by(
    state: State,
    stats: Tree,
    rows: ServerRows,
    index: tuple[jax.Array, jax.Array, int],
    inputs: tuple[Tree, Tree],
    parts: Parts,
    mode: Mode,
) -> State:
    """The state after a block has used its part of a gradient.

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
    instruction = instruction_of(rows, k, row, block)
    if mode.norms:
        distance = norm(jax.tree.map(jnp.subtract, server.params, read))
        records = records._replace(distance=records.distance.at[row, block].set(distance))
    if parts.penalty is not None:
        own = {"worker": instruction.worker, "delay": instruction.delay, "read_params": read}
        own["number"] = instruction.number
        # As `receive` sees it.
        state = absorbed(parts, grads, server.state, server.params, anew=instruction.anew, **own)
        penalty = called(parts.penalty, grads, state, server.params, **own).astype(records.penalty.dtype)
        records = records._replace(penalty=records.penalty.at[row, block].set(penalty))
    server, step = take(server, grads, read, instruction, parts, single=mode.single, norms=mode.norms)
    if mode.norms:
        records = records._replace(step=records.step.at[row, block].set(step))
    if average_stats is not None and block == 0:
        moved = lambda average, stats: accumulators.moving_average(average, stats, parts.average_decay)
        if mode.single:
            average_stats = apart(lambda _, *trees: moved(*trees), row, average_stats, stats)
        else:
            average_stats = jax.lax.cond(instruction.last, moved, lambda average, _: average, average_stats, stats)
    return server, records, average_stats


def instruction_of(rows: ServerRows, k: jax.Array, row: jax.Array, block: int) -> Instruction:
    """Return how a block uses a gradient, its k-th."""
    of_gradient = ("worker", "number", "anew")
    by_use = {name: getattr(rows, name)[k, block] for name in Instruction._fields if name not in of_gradient}
    return Instruction(**{name: getattr(rows, name)[row] for name in of_gradient}, **by_use)
