"""A wave of gradients of parameter servers: computed at once, each device its own lanes, then used in order."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from sgdlab.replay import exchange
from sgdlab.replay.functions import Parts, computed
from sgdlab.replay.lanes import Lanes, lanes_at, over_lanes, record_aux, summed_over_lanes, write_lanes
from sgdlab.replay.server import close, norm, stored
from sgdlab.replay.server_step import Carry, Mode, ServerRows, instruction_of, loaded, points, used
from sgdlab.replay.sharding import AXIS
from sgdlab.rules import accumulators
from sgdlab.rules.server_rule import called, received
from sgdlab.types import Tree
from sgdlab.xla import read_row

EVERYWHERE = PartitionSpec()
BY_LANE = PartitionSpec(AXIS)


def wave(carry: Carry, rows: ServerRows, index: jax.Array, parts: Parts, mode: Mode) -> Carry:
    """The carry after a wave."""
    lanes = lanes_at(rows.lane, rows.waves[index], rows.waves[index + 1], mode.width)
    return (_updated_once if mode.synchronous else _used_in_order)(carry, rows, lanes, parts, mode)


def _used_in_order(carry: Carry, rows: ServerRows, lanes: Lanes, parts: Parts, mode: Mode) -> Carry:
    """All gradients go to the servers, which use one after the other."""
    layout, slots = mode.layout, tuple(server.slots for server in carry.servers)
    axes = tuple(layout.axes(block, lead=1) for block in slots)

    # Made of the servers' states, wherever these are, and handed to the devices of the lanes.
    stands = None
    if parts.point is not None:
        stands = jax.vmap(lambda row: mode.partition.join(points(carry, rows, row, parts)))(lanes.row)

    def compute(
        slots: tuple[Tree, ...], rows: ServerRows, lanes: Lanes, local: Tree, stands: Tree, parts: Parts
    ) -> tuple[Tree, Tree]:
        gradient, inputs = _of_own_lanes(slots, rows, lanes, local, axes, parts, mode, stands)
        grads, aux, after = over_lanes(mode.lanes, gradient, *inputs)
        blocks = jax.vmap(mode.partition.split)(grads)
        *blocks, aux = exchange.from_lanes(layout, (*blocks, aux), (*axes, exchange.everywhere(aux)))
        return (tuple(blocks), aux), write_lanes(
            local, after, exchange.rows_of_workers(layout, rows.worker, lanes, local)[1]
        )

    by_parameter = tuple(layout.specs(block, lead=1) for block in slots)
    compute = layout.by_device(
        compute,
        (by_parameter, EVERYWHERE, EVERYWHERE, BY_LANE, BY_LANE, layout.of_parts(parts)),
        ((by_parameter, EVERYWHERE), BY_LANE),
    )
    found, local = compute(slots, rows, lanes, carry.local, stands, parts)

    def use(row: jax.Array, carry: Carry) -> Carry:
        lane = jax.tree.map(lambda leaf: leaf[rows.lane[row]], found)
        return used(carry, rows, row, points(carry, rows, row, parts) if mode.aligned else None, lane, parts, mode)

    return jax.lax.fori_loop(lanes.begin, lanes.end, use, carry._replace(local=local))


def _updated_once(carry: Carry, rows: ServerRows, lanes: Lanes, parts: Parts, mode: Mode) -> Carry:
    """All gradients are of one update, and of one version: the devices exchange only the sum of their messages."""
    layout, slots = mode.layout, tuple(server.slots for server in carry.servers)
    axes = tuple(layout.axes(block, lead=1) for block in slots)

    def compute(
        slots: tuple[Tree, ...], servers: tuple[Tree, ...], rows: ServerRows, lanes: Lanes, local: Tree, parts: Parts
    ) -> tuple[Tree, Tree, Tree]:
        gradient, inputs = _of_own_lanes(slots, rows, lanes, local, axes, parts, mode)
        read = mode.partition.split(_version(slots, rows, lanes, axes, mode))

        def messages(row: jax.Array, used: jax.Array, *inputs: Tree) -> tuple[Tree, Tree]:
            grads, aux, after = gradient(*inputs)
            grads = mode.partition.split(jax.lax.optimization_barrier(grads))
            found, added = {"aux": aux, "after": after}, []
            for block, (params, state) in enumerate(servers):
                given = {"worker": rows.worker[row], "delay": rows.delay[row, block], "read_params": read[block]}
                given["number"] = rows.number[row]
                message = accumulators.wide(received(parts, grads[block], state, params, **given))
                added.append(jax.tree.map(lambda leaf: jnp.where(used, leaf, 0), message))
                if parts.penalty is not None:
                    found[f"penalty{block}"] = called(parts.penalty, grads[block], state, params, **given)
            return tuple(added), found | ({"norm": norm(grads)} if mode.norms else {})

        own = exchange.own(layout, (lanes.row, lanes.used))
        added, found = summed_over_lanes(mode.lanes, messages, *own, *inputs)
        local = write_lanes(local, found.pop("after"), exchange.rows_of_workers(layout, rows.worker, lanes, local)[1])
        (found,) = exchange.from_lanes(layout, (found,), (exchange.everywhere(found),))
        return exchange.total(layout, added), found, local

    servers = tuple((server.params, server.state) for server in carry.servers)
    by_parameter = tuple(layout.specs(block, lead=1) for block in slots)
    compute = layout.by_device(
        compute,
        (by_parameter, EVERYWHERE, EVERYWHERE, EVERYWHERE, BY_LANE, layout.of_parts(parts)),
        (EVERYWHERE, EVERYWHERE, BY_LANE),
    )
    totals, found, local = compute(slots, servers, rows, lanes, carry.local, parts)
    totals, found = jax.lax.optimization_barrier((totals, found))
    stats = _folded(carry.stats, found["aux"], rows, lanes, parts)
    carry = carry._replace(local=local, stats=stats, records=_recorded(carry, rows, lanes, found, mode))
    return _with_update(carry, rows, lanes, totals, parts, mode)


def _with_update(
    carry: Carry, rows: ServerRows, lanes: Lanes, totals: tuple[Tree, ...], parts: Parts, mode: Mode
) -> Carry:
    """The carry after the one update of a wave, from the sum of each block's messages."""
    last, servers, records = lanes.end - 1, [], carry.records
    for block, (server, total, read) in enumerate(zip(carry.servers, totals, loaded(carry, rows, last), strict=True)):
        instruction = instruction_of(rows, last, last, block)
        if mode.norms:
            distance = norm(jax.tree.map(jnp.subtract, server.params, read))
            records = records._replace(distance=records.distance.at[lanes.index, block].set(distance, mode="drop"))
        received = server._replace(message=mode.layout.by_shape(total))
        sent, step, changed = close(received, instruction, parts, norms=mode.norms)
        if mode.norms:
            records = records._replace(step=records.step.at[last, block].set(step))
        servers.append(stored(changed, sent, instruction.store))
    average_stats = carry.average_stats
    if average_stats is not None:
        average_stats = accumulators.moving_average(average_stats, carry.stats, parts.average_decay)
    return carry._replace(servers=tuple(servers), records=records, average_stats=average_stats)


def _of_own_lanes(
    slots: tuple[Tree, ...],
    rows: ServerRows,
    lanes: Lanes,
    local: Tree,
    axes: tuple[Tree, ...],
    parts: Parts,
    mode: Mode,
    stands: Tree = None,
) -> tuple[Callable[..., Tree], tuple[Tree, ...]]:
    """The gradient function of a lane, and what it is given for each of this device's lanes.

    Args:
      slots: of each block, this device's part of the versions.
      rows: the program.
      lanes: of the wave.
      local: states of this device's workers.
      axes: along which the versions are split.
      parts: the functions of the run.
      mode: static settings.
      stands: the points of this device's lanes; None: they compute on versions.
    """
    layout = mode.layout
    batches = jax.vmap(parts.batch_fn)(exchange.own(layout, lanes.row))
    worker, _ = exchange.rows_of_workers(layout, rows.worker, lanes, local)
    before = jax.tree.map(lambda buffer: buffer[worker], local)
    if mode.uniform:
        version = _version(slots, rows, lanes, axes, mode)
        return lambda batch, own: computed(parts, version, batch, own), (batches, before)
    if stands is None:
        sources = [(buffers, rows.load[lanes.row, block]) for block, buffers in enumerate(slots)]
        stands = jax.vmap(mode.partition.join)(exchange.to_lanes(layout, sources, axes))
    return lambda params, batch, own: computed(parts, params, batch, own), (stands, batches, before)


def _version(slots: tuple[Tree, ...], rows: ServerRows, lanes: Lanes, axes: tuple[Tree, ...], mode: Mode) -> Tree:
    """The version that all gradients of a wave are computed on."""
    load = rows.load[lanes.begin]
    read = tuple(
        jax.tree.map(lambda buffer, block=block: read_row(buffer, load[block]), buffers)
        for block, buffers in enumerate(slots)
    )
    return mode.partition.join(exchange.whole(mode.layout, read, axes))


def _folded(stats: Tree, aux: Tree, rows: ServerRows, lanes: Lanes, parts: Parts) -> Tree:
    """Running statistics after the gradients of a wave, in their order."""
    if parts.fold is None:
        return stats
    of_row = lambda row: jax.tree.map(lambda leaf: leaf[rows.lane[row]], aux)
    return jax.lax.fori_loop(lanes.begin, lanes.end, lambda row, stats: parts.fold(stats, of_row(row)), stats)


def _recorded(carry: Carry, rows: ServerRows, lanes: Lanes, found: dict[str, Tree], mode: Mode) -> Any:
    """The records after the gradients of a wave, without its update's."""
    records = carry.records._replace(aux=record_aux(carry.records.aux, lanes.index, found["aux"]))
    if mode.norms:
        records = records._replace(norm=records.norm.at[lanes.index].set(found["norm"], mode="drop"))
    if records.penalty is not None:
        values = jnp.stack([found[f"penalty{block}"] for block in range(len(carry.servers))], axis=1)
        penalty = records.penalty.at[lanes.index].set(values.astype(records.penalty.dtype), mode="drop")
        records = records._replace(penalty=penalty)
    return records
