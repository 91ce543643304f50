"""The compiled loop of replay: event mode, one gradient at a time, and wave mode, a wave of gradients at once."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from sgdlab.replay.lowering import padded
from sgdlab.replay.program import Program
from sgdlab.replay.server import Instruction, Parts, Server, start_server, take
from sgdlab.replay.sharding import Layout
from sgdlab.row import row as row_of

Tree = Any


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

    server: Server
    stats: Tree  # running statistics, such as BatchNorm's.
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
    fields = {field.name: getattr(program, field.name) for field in dataclasses.fields(Rows)}
    starts = fields.pop("waves")
    arrays = {name: padded(array, length) for name, array in fields.items()}
    return jax.device_put(Rows(**arrays, waves=padded(starts, program.capacity.rows + 1)))


@functools.partial(jax.jit, static_argnames=("rows", "slots", "mode"))
def start(params: Tree, stats: Tree, init: Any, parts: Parts, *, rows: int, slots: int, mode: Mode) -> Carry:
    """The carry before the first gradient."""
    carry = Carry(
        server=start_server(params, init, parts, slots=slots, single=mode.single),
        stats=jax.tree.map(jnp.copy, stats),
        records=empty_records(params, parts, rows, mode.norms),
    )
    return mode.layout.by_parameter(carry._replace(records=None))._replace(records=carry.records)


def empty_records(params: Tree, parts: Parts, rows: int, norms: bool, columns: tuple[int, ...] = ()) -> Records:
    """Room for notes on so many gradients."""
    batch = jax.eval_shape(parts.batch_fn, jnp.zeros([], jnp.int32))
    _, aux = jax.eval_shape(parts.grad_fn, params, batch)
    number = functools.partial(jnp.zeros, (rows, *columns), optax.tree.dtype(params, "highest"))
    return Records(
        aux=jax.tree.map(lambda leaf: jnp.zeros((rows,), leaf.dtype) if leaf.shape == () else None, aux),
        distance=number() if norms else None,
        step=number() if norms else None,
    )


@functools.partial(jax.jit, static_argnames=("mode",), donate_argnames=("carry",))
def advance(carry: Carry, rows: Rows, begin: jax.Array, end: jax.Array, parts: Parts, *, mode: Mode) -> Carry:
    """Executes gradients `begin` to `end` (event mode) or waves `begin` to `end` (wave mode)."""
    body = _wave if mode.width else _event
    return jax.lax.fori_loop(begin, end, lambda i, c: body(c, rows, i, parts, mode), carry)


def _event(carry: Carry, rows: Rows, row: jax.Array, parts: Parts, mode: Mode) -> Carry:
    """One gradient: load, differentiate, apply."""
    slot = rows.load[row]
    read = jax.tree.map(lambda buffer: row_of(buffer, slot), carry.server.slots)
    grads, aux = parts.grad_fn(read, parts.batch_fn(rows.gradient[row]))
    return _apply(carry, rows, row, (read, grads, aux), parts, mode)


def _wave(carry: Carry, rows: Rows, wave: jax.Array, parts: Parts, mode: Mode) -> Carry:
    """All gradients of a wave at once, each on its own version; then applied in order."""
    begin, end = rows.waves[wave], rows.waves[wave + 1]
    lanes = lambda array: jax.lax.dynamic_slice_in_dim(array, begin, mode.width)
    reads = mode.layout.by_lane(jax.tree.map(lambda buffer: buffer[lanes(rows.load)], carry.server.slots))
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
    """The server receives one gradient: the same in both modes."""
    # Without the barrier XLA fuses the update into the gradient, differently in the two modes, and rounds differently.
    read, grads, aux = jax.lax.optimization_barrier(computed)
    records = carry.records._replace(aux=note_aux(carry.records.aux, row, aux))
    if mode.norms:
        far = optax.tree.norm(optax.tree.sub(carry.server.params, read))
        records = records._replace(distance=records.distance.at[row].set(far))
    stats = carry.stats if parts.fold is None else parts.fold(carry.stats, aux)
    todo = Instruction(*(getattr(rows, name)[row] for name in Instruction._fields))
    server, step = take(carry.server, grads, read, todo, parts, single=mode.single, norms=mode.norms)
    if mode.norms:
        records = records._replace(step=records.step.at[row].set(step))
    return Carry(server, stats, records)


def note_aux(records: Tree, row: jax.Array, aux: Tree) -> Tree:
    """Writes the scalars of a gradient's aux down."""
    return jax.tree.map(
        lambda leaf, record: None if record is None else record.at[row].set(leaf),
        aux,
        records,
        is_leaf=lambda leaf: leaf is None,
    )
