"""The compiled loop of replay: event mode, one gradient at a time, and wave mode, a wave of gradients at once."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sgdlab.replay.program import Program
from sgdlab.replay.sharding import Layout
from sgdlab.row import row as row_of

Tree = Any


class Parts(NamedTuple):
    """The functions of a run, as pytrees: their code is the program, their leaves are its data."""

    receive: Any
    update: Any
    send: Any
    grad_fn: Any
    batch_fn: Any
    fold: Any  # None: no statistics.
    average_decay: Any  # None: no Polyak average.


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Rows:
    """A `Program` on the device, padded to its capacity (see there)."""

    gradient: jax.Array
    worker: jax.Array
    load: jax.Array
    store: jax.Array
    first: jax.Array
    last: jax.Array
    delay: jax.Array
    mean_delay: jax.Array
    count: jax.Array
    waves: jax.Array


class Records(NamedTuple):
    """What is noted of each gradient; arrays of the program's capacity."""

    aux: Tree  # scalar leaves of the gradient function's aux.
    distance: jax.Array | None  # norm of server's parameters - parameters read.
    step: jax.Array | None  # norm of the update, where a gradient completes one; else 0.


class Carry(NamedTuple):
    """What the loop carries from one gradient to the next."""

    params: Tree
    state: Tree  # of the rule.
    slots: Tree  # [slots, *params_shape]: the versions that workers hold.
    message: Tree  # mean of the messages of the update under way; None where updates have one gradient each.
    stats: Tree  # running statistics, such as BatchNorm's.
    average: Tree  # Polyak average; None where it is not kept.
    records: Records


@dataclasses.dataclass(frozen=True)
class Mode:
    """What makes another program.

    Attributes:
      single: every update has one gradient.
      width: gradients of a wave computed at once; 0 is event mode.
      norms: note distances and steps.
      layout: how arrays are laid out over a mesh.
    """

    single: bool
    width: int
    norms: bool
    layout: Layout


def rows_of(program: Program, width: int) -> Rows:
    """Puts a program on the device, with `width` rows to spare: a wave always reads its full width."""
    length = program.capacity.rows + width

    def padded(array: np.ndarray, size: int) -> np.ndarray:
        dtype = jax.dtypes.canonicalize_dtype(array.dtype)
        return np.concatenate([array, np.zeros(size - array.shape[0], array.dtype)]).astype(dtype)

    fields = {field.name: getattr(program, field.name) for field in dataclasses.fields(Rows)}
    starts = fields.pop("waves")
    arrays = {name: padded(array, length) for name, array in fields.items()}
    return jax.device_put(Rows(**arrays, waves=padded(starts, program.capacity.rows + 1)))


@functools.partial(jax.jit, static_argnames=("rows", "slots", "mode"))
def start(params: Tree, stats: Tree, init: Any, parts: Parts, *, rows: int, slots: int, mode: Mode) -> Carry:
    """The carry before the first gradient: every slot holds what the server sends at first."""
    state = init(params)
    sent = parts.send(params, state)
    batch = jax.eval_shape(parts.batch_fn, jnp.zeros([], jnp.int32))
    grads, aux = jax.eval_shape(parts.grad_fn, params, batch)
    message = None
    if not mode.single:
        shape = jax.eval_shape(
            functools.partial(parts.receive, worker=jnp.zeros([], jnp.int32), delay=jnp.zeros([]), read_params=params),
            grads,
            state,
            params,
        )
        message = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)
    number = functools.partial(jnp.zeros, (rows,), optax.tree.dtype(params, "highest"))
    records = Records(
        aux=jax.tree.map(lambda leaf: jnp.zeros((rows,), leaf.dtype) if leaf.shape == () else None, aux),
        distance=number() if mode.norms else None,
        step=number() if mode.norms else None,
    )
    # Copies, since the loop takes over its carry's memory and the caller keeps the parameters.
    params, stats, average = (
        jax.tree.map(jnp.copy, tree) for tree in (params, stats, params if parts.average_decay is not None else None)
    )
    carry = Carry(
        params=params,
        state=state,
        slots=jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (slots, *leaf.shape)), sent),
        message=message,
        stats=stats,
        average=average,
        records=records,
    )
    return mode.layout.by_parameter(carry._replace(records=None))._replace(records=records)


@functools.partial(jax.jit, static_argnames=("mode",), donate_argnames=("carry",))
def advance(carry: Carry, rows: Rows, begin: jax.Array, end: jax.Array, parts: Parts, *, mode: Mode) -> Carry:
    """Executes gradients `begin` to `end` (event mode) or waves `begin` to `end` (wave mode)."""
    body = _wave if mode.width else _event
    return jax.lax.fori_loop(begin, end, lambda i, c: body(c, rows, i, parts, mode), carry)


def _event(carry: Carry, rows: Rows, row: jax.Array, parts: Parts, mode: Mode) -> Carry:
    """One gradient: load, differentiate, apply."""
    slot = rows.load[row]
    read = jax.tree.map(lambda buffer: row_of(buffer, slot), carry.slots)
    grads, aux = parts.grad_fn(read, parts.batch_fn(rows.gradient[row]))
    return _apply(carry, rows, row, (read, grads, aux), parts, mode)


def _wave(carry: Carry, rows: Rows, wave: jax.Array, parts: Parts, mode: Mode) -> Carry:
    """All gradients of a wave at once, each on its own version; then applied in order."""
    begin, end = rows.waves[wave], rows.waves[wave + 1]
    lanes = lambda array: jax.lax.dynamic_slice_in_dim(array, begin, mode.width)
    reads = mode.layout.by_lane(jax.tree.map(lambda buffer: buffer[lanes(rows.load)], carry.slots))
    batches = jax.vmap(parts.batch_fn)(lanes(rows.gradient))
    computed = mode.layout.by_lane(jax.vmap(parts.grad_fn)(reads, batches))
    computed = mode.layout.by_parameter((reads, *computed), lanes=True)

    def step(row: jax.Array, carry: Carry) -> Carry:
        lane = jax.tree.map(lambda leaf: leaf[row - begin], computed)
        return _apply(carry, rows, row, lane, parts, mode)

    return jax.lax.fori_loop(begin, end, step, carry)


def _apply(
    carry: Carry, rows: Rows, row: jax.Array, computed: tuple[Tree, Tree, Tree], parts: Parts, mode: Mode
) -> Carry:
    """The server receives one gradient, and updates where it is its update's last: the same in both modes."""
    # Without the barrier XLA fuses the update into the gradient, differently in the two modes, and rounds differently.
    read, grads, aux = jax.lax.optimization_barrier(computed)
    worker, delay = rows.worker[row], rows.delay[row]
    message = parts.receive(grads, carry.state, carry.params, worker=worker, delay=delay, read_params=read)
    records = _note(carry.records, row, aux, carry.params, read)
    if parts.fold is not None:
        carry = carry._replace(stats=parts.fold(carry.stats, aux))
    if mode.single:
        return _update(carry._replace(records=records), message, rows, row, parts, worker)
    share = lambda total, leaf: jnp.where(rows.first[row], 0, total) + leaf / rows.count[row].astype(leaf.dtype)
    message = jax.tree.map(share, carry.message, message)
    carry = carry._replace(message=message, records=records)
    return jax.lax.cond(rows.last[row], lambda c: _update(c, c.message, rows, row, parts, None), lambda c: c, carry)


def _update(carry: Carry, message: Tree, rows: Rows, row: jax.Array, parts: Parts, worker: jax.Array | None) -> Carry:
    """One update of the server, and the new version stored for those who will read it."""
    updates, state = parts.update(
        message,
        carry.state,
        carry.params,
        num_gradients=rows.count[row],
        delay=rows.mean_delay[row],
        worker=worker,
    )
    params = optax.apply_updates(carry.params, updates)
    sent = parts.send(params, state)
    slots = jax.tree.map(
        lambda buffer, leaf: jax.lax.dynamic_update_index_in_dim(buffer, leaf, rows.store[row], 0), carry.slots, sent
    )
    records = carry.records
    if records.step is not None:
        records = records._replace(step=records.step.at[row].set(optax.tree.norm(updates)))
    average = carry.average
    if average is not None:
        average = optax.incremental_update(params, average, 1 - parts.average_decay)
    return carry._replace(params=params, state=state, slots=slots, average=average, records=records)


def _note(records: Records, row: jax.Array, aux: Tree, params: Tree, read: Tree) -> Records:
    scalars = jax.tree.map(
        lambda leaf, record: None if record is None else record.at[row].set(leaf),
        aux,
        records.aux,
        is_leaf=lambda leaf: leaf is None,
    )
    distance = records.distance
    if distance is not None:
        distance = distance.at[row].set(optax.tree.norm(optax.tree.sub(params, read)))
    return records._replace(aux=scalars, distance=distance)
