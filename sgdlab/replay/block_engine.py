"""The compiled loop of replay for several blocks: each gradient is kept until the last block has used it."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sgdlab.replay.block_program import BlockProgram
from sgdlab.replay.blocks import Partition
from sgdlab.replay.engine import Records, empty_records, note_aux
from sgdlab.replay.lowering import padded
from sgdlab.replay.server import Instruction, Parts, Server, start_server, take
from sgdlab.replay.sharding import Layout
from sgdlab.row import row as row_of

Tree = Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class BlockRows:
    """A `BlockProgram` on the device, padded to its capacity (see there)."""

    gradient: jax.Array
    worker: jax.Array
    load: jax.Array
    kept: jax.Array  # int[R], where each gradient is kept.
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


class BlockCarry(NamedTuple):
    """What the loop carries from one gradient to the next."""

    servers: tuple[Server, ...]
    gradients: tuple[Tree, ...]  # of each block, [kept, *block_shape].
    stats: Tree
    records: Records  # distance and step have one column a block.


@dataclasses.dataclass(frozen=True)
class BlockMode:
    """What makes another program.

    Attributes:
      single: every update has one gradient.
      aligned: every block uses every gradient at once, so that none is kept.
      width: gradients of a wave computed at once; 0 is event mode.
      norms: note distances and steps.
      layout: how arrays are laid out over a mesh.
      partition: which parameters each block holds.
    """

    single: bool
    aligned: bool
    width: int
    norms: bool
    layout: Layout
    partition: Partition


def rows_of(program: BlockProgram, width: int) -> BlockRows:
    """Puts a program on the device, with `width` rows to spare: a wave always reads its full width."""
    length = program.capacity.rows
    by_gradient = {name: getattr(program, name) for name in ("gradient", "worker", "load")}
    by_gradient["kept"] = program.kept(by_wave=width > 0)[0]
    by_use = ("row", "reload", "store", "first", "last", "delay", "mean_delay", "count")
    return jax.device_put(
        BlockRows(
            **{name: padded(array, length + width) for name, array in by_gradient.items()},
            **{name: padded(getattr(program, name), length) for name in by_use},
            waves=padded(program.waves, length + 1, "edge"),
            ends=padded(program.ends, length + 1, "edge"),
        )
    )


@functools.partial(jax.jit, static_argnames=("rows", "slots", "kept", "mode"))
def start(
    params: Tree, stats: Tree, init: Any, parts: Parts, *, rows: int, slots: int, kept: int, mode: BlockMode
) -> BlockCarry:
    """The carry before the first gradient."""
    blocks = mode.partition.split(params)
    room = 0 if mode.aligned and not mode.width else kept + mode.width
    carry = BlockCarry(
        servers=tuple(start_server(block, init, parts, slots=slots, single=mode.single) for block in blocks),
        gradients=jax.tree.map(lambda leaf: jnp.zeros((room, *leaf.shape), leaf.dtype), blocks),
        stats=jax.tree.map(jnp.copy, stats),
        records=empty_records(params, parts, rows, mode.norms, (len(blocks),)),
    )
    return mode.layout.by_parameter(carry._replace(records=None))._replace(records=carry.records)


@functools.partial(jax.jit, static_argnames=("mode",), donate_argnames=("carry",))
def advance(
    carry: BlockCarry, rows: BlockRows, begin: jax.Array, end: jax.Array, parts: Parts, *, mode: BlockMode
) -> BlockCarry:
    """Executes gradients `begin` to `end` (event mode) or waves `begin` to `end` (wave mode)."""
    body = _wave if mode.width else _event
    return jax.lax.fori_loop(begin, end, lambda i, c: body(c, rows, i, parts, mode), carry)


def _event(carry: BlockCarry, rows: BlockRows, row: jax.Array, parts: Parts, mode: BlockMode) -> BlockCarry:
    """One gradient; then every block makes the uses that it allows."""
    read = tuple(
        jax.tree.map(lambda buffer, b=block: row_of(buffer, rows.load[row, b]), server.slots)
        for block, server in enumerate(carry.servers)
    )
    params = mode.partition.join(read)
    grads, aux = parts.grad_fn(params, parts.batch_fn(rows.gradient[row]))
    read, grads, aux = jax.lax.optimization_barrier((read, mode.partition.split(grads), aux))
    carry = _seen(carry, row, aux, parts)
    if mode.aligned:
        return _used_at_once(carry, rows, row, read, grads, parts, mode)
    place = rows.kept[row]
    keep = lambda buffer, leaf: jax.lax.dynamic_update_index_in_dim(buffer, leaf, place, 0)
    carry = carry._replace(gradients=jax.tree.map(keep, carry.gradients, grads))
    return _uses(carry, rows, row, row + 1, parts, mode)


def _wave(carry: BlockCarry, rows: BlockRows, wave: jax.Array, parts: Parts, mode: BlockMode) -> BlockCarry:
    """All gradients of a wave at once, each on its own versions; then every block makes the uses that they allow."""
    begin, end = rows.waves[wave], rows.waves[wave + 1]
    lanes = lambda array: jax.lax.dynamic_slice_in_dim(array, begin, mode.width)
    load = lanes(rows.load)
    read = tuple(
        jax.tree.map(lambda buffer, b=block: buffer[load[:, b]], server.slots)
        for block, server in enumerate(carry.servers)
    )
    params = mode.layout.by_lane(jax.vmap(mode.partition.join)(read))
    batches = jax.vmap(parts.batch_fn)(lanes(rows.gradient))
    grads, aux = mode.layout.by_lane(jax.vmap(parts.grad_fn)(params, batches))
    grads, aux = mode.layout.by_parameter((jax.vmap(mode.partition.split)(grads), aux), lanes=True)
    # Lanes past the wave's end write out of bounds, that is nowhere.
    room = jax.tree.leaves(carry.gradients)[0].shape[0]
    place = jnp.where(begin + jnp.arange(mode.width) < end, lanes(rows.kept), room)
    keep = lambda buffer, leaf: buffer.at[place].set(leaf, mode="drop")
    carry = carry._replace(gradients=jax.tree.map(keep, carry.gradients, jax.lax.optimization_barrier(grads)))
    see = lambda row, carry: _seen(carry, row, jax.tree.map(lambda leaf: leaf[row - begin], aux), parts)
    return _uses(jax.lax.fori_loop(begin, end, see, carry), rows, begin, end, parts, mode)


def _seen(carry: BlockCarry, row: jax.Array, aux: Tree, parts: Parts) -> BlockCarry:
    """What a gradient leaves besides itself."""
    stats = carry.stats if parts.fold is None else parts.fold(carry.stats, aux)
    return carry._replace(stats=stats, records=carry.records._replace(aux=note_aux(carry.records.aux, row, aux)))


def _uses(
    carry: BlockCarry, rows: BlockRows, begin: jax.Array, end: jax.Array, parts: Parts, mode: BlockMode
) -> BlockCarry:
    """The uses that gradients `begin` to `end` allow, block by block: blocks do not depend on each other."""
    servers, records = list(carry.servers), carry.records
    for block in range(len(servers)):

        def use(k: jax.Array, state: tuple[Server, Records], block: int = block) -> tuple[Server, Records]:
            server, records = state
            row = rows.row[k, block]
            grads = jax.tree.map(lambda buffer: row_of(buffer, rows.kept[row]), carry.gradients[block])
            read = jax.tree.map(lambda buffer: row_of(buffer, rows.reload[k, block]), server.slots)
            return _taken(server, records, rows, (k, row, block), (read, grads), parts, mode)

        span = rows.ends[begin, block], rows.ends[end, block]
        servers[block], records = jax.lax.fori_loop(*span, use, (servers[block], records))
    return carry._replace(servers=tuple(servers), records=records)


def _used_at_once(
    carry: BlockCarry, rows: BlockRows, row: jax.Array, read: Tree, grads: Tree, parts: Parts, mode: BlockMode
) -> BlockCarry:
    servers, records = list(carry.servers), carry.records
    for block, server in enumerate(servers):
        mine = read[block], grads[block]
        servers[block], records = _taken(server, records, rows, (row, row, block), mine, parts, mode)
    return carry._replace(servers=tuple(servers), records=records)


def _taken(
    server: Server,
    records: Records,
    rows: BlockRows,
    place: tuple[jax.Array, jax.Array, int],
    mine: tuple[Tree, Tree],
    parts: Parts,
    mode: BlockMode,
) -> tuple[Server, Records]:
    """Block `place[2]` takes its part of gradient `place[1]`, as its use `place[0]`."""
    k, row, block = place
    read, grads = mine
    todo = Instruction(
        worker=rows.worker[row],
        **{name: getattr(rows, name)[k, block] for name in Instruction._fields if name != "worker"},
    )
    if mode.norms:
        far = optax.tree.norm(optax.tree.sub(server.params, read))
        records = records._replace(distance=records.distance.at[row, block].set(far))
    server, step = take(server, grads, read, todo, parts, single=mode.single, norms=mode.norms)
    if mode.norms:
        records = records._replace(step=records.step.at[row, block].set(step))
    return server, records
