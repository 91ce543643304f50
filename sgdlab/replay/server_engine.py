"""`ServerEngine`: the compiled loop of replay for parameter servers, in event mode and in wave mode."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from sgdlab.replay.blocks import partition
from sgdlab.replay.engine import Engine, loop
from sgdlab.replay.functions import Parts, checked_aux, computed
from sgdlab.replay.lanes import of_each_worker, workers_of
from sgdlab.replay.program import padded
from sgdlab.replay.server import Server, norm_dtype, start_server
from sgdlab.replay.server_program import ServerProgram
from sgdlab.replay.server_step import Carry, Mode, Records, ServerRows, points, used
from sgdlab.replay.server_wave import wave
from sgdlab.replay.sharding import MeshLayout
from sgdlab.replay.watch import Watch
from sgdlab.rules import accumulators
from sgdlab.types import Tree
from sgdlab.xla import apart, read_row


class ServerEngine(Engine):
    """A program of parameter servers on the device.

    Args:
      program: the program to execute.
      params: initial parameters.
      parts: the functions of the run.
      watch: what to evaluate and record.
      waves: whether to run in wave mode.
      lanes: how the gradients of a wave are computed, "vmap" or "map".
      mesh: over which a wave is sharded; None: one device.
      layout: one of `sgdlab.replay.sharding.KINDS`; None: as suits the sizes.
      stateful: whether workers have a state.
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
        mesh: Mesh | None,
        layout: str | None,
        stateful: bool,
    ):
        self.watch = watch
        blocks = partition(params, program.num_blocks)
        shapes = jax.eval_shape(blocks.split, params)
        super().__init__(program, params, shapes, waves=waves, mesh=mesh, layout=layout)
        self.parts = self.layout.put(parts)
        self._static = {
            "single": program.single,
            "aligned": program.aligned,
            "lanes": lanes,
            "norms": watch.norms,
            "layout": self.layout,
            "partition": blocks,
        }
        self._place(program, workers=program.capacity.workers, stateful=stateful)

    def _prepare(self, width: int, lane: np.ndarray) -> None:
        self.mode = Mode(
            width=width,
            uniform=self._waves and self.program.uniform and self.parts.point is None,
            # On one device the messages are added up in their order, as in event mode: equal bit for bit.
            # A rule that absorbs gradients is given each of them, not only their sum.
            synchronous=self.layout.mesh is not None and self.program.synchronous and self.parts.absorb is None,
            **self._static,
        )
        self.rows = on_device(self.program, lane, self.layout)

    def start(self, params: Tree, stats: Tree, local: Tree) -> Carry:
        """The carry before the first gradient."""
        capacity = self.program.capacity
        sizes = {"rows": capacity.rows, "slots": capacity.slots, "kept": capacity.kept, "workers": capacity.workers}
        return start(*self.layout.put((params, stats, local)), self.parts, **sizes, mode=self.mode)

    def advance(self, carry: Carry, begin: int, end: int, batch_fn: Any = None) -> Carry:
        """Executes gradients, or waves, `begin` to `end`, perhaps with batches of their own."""
        parts = self.parts if batch_fn is None else self.parts._replace(batch_fn=batch_fn)
        return advance(carry, self.rows, np.int32(begin), np.int32(end), parts, mode=self.mode)

    def evaluated(self, carry: Carry, pause: int) -> dict[str, Any]:
        """The values of `watch.evaluate` for the parameters, and for their Polyak average, at a pause.

        All processes call it; one of them evaluates.
        """
        del pause  # what is evaluated is the newest version
        found = self._parameters(carry)
        return evaluated_server(self.watch, **found) if self.layout.evaluates else {}

    def outcome(self, carry: Carry) -> dict[str, Tree]:
        """The fields of `Result`: the blocks of all servers joined, except the states of their rules.

        What grows with the number of workers stays where it is: `state` and `local`.
        """
        state = tuple(server.state for server in carry.servers)
        return self._parameters(carry) | {
            "state": state if len(state) > 1 else state[0],
            "local": workers_of(carry.local, self.program.num_workers),
        }

    def _parameters(self, carry: Carry) -> dict[str, Tree]:
        """Parameters, statistics and their averages, for this process to use."""
        params, _, _, _, average = zip(*carry.servers, strict=True)
        params, average, stats, average_stats = self.layout.local((params, average, carry.stats, carry.average_stats))
        join = self.mode.partition.join
        return {
            "params": join(params),
            "stats": stats,
            "average": None if self.watch.average_decay is None else join(average),
            "average_stats": average_stats,
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


def evaluated_server(watch: Any, params: Tree, stats: Tree, average: Tree, average_stats: Tree) -> dict[str, Any]:
    """The values of `watch.evaluate` for the parameters, and for their Polyak average, unless that is None."""
    values = dict(watch.evaluate(params, stats))
    if average is not None:
        narrow = accumulators.narrow(average, params), accumulators.narrow(average_stats, stats)
        values |= {f"average_{name}": value for name, value in watch.evaluate(*narrow).items()}
    return values


def on_device(program: ServerProgram, lane: np.ndarray, layout: MeshLayout) -> ServerRows:
    """Puts a program, and the lane of each gradient, on the device, padded to its capacity."""
    rows = program.capacity.rows
    sizes = {"ends": rows + 1, "waves": rows + 1}
    names = [field.name for field in dataclasses.fields(ServerRows) if field.name != "lane"]
    arrays = {name: getattr(program, name) for name in names} | {"lane": lane}
    found = ServerRows(**{name: padded(array, sizes.get(name, rows), "constant") for name, array in arrays.items()})
    return jax.device_put(found) if layout.mesh is None else layout.put(found)


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
    return _placed(carry._replace(records=records), mode.layout)


@functools.partial(jax.jit, static_argnames=("mode",), donate_argnames=("carry",))
def advance(carry: Carry, rows: ServerRows, begin: jax.Array, end: jax.Array, parts: Parts, *, mode: Mode) -> Carry:
    """Executes gradients `begin` to `end` (event mode) or waves `begin` to `end` (wave mode)."""
    body = wave if mode.width else _event
    step = lambda index, carry: body(carry, rows, index, parts, mode)
    return _placed(loop(carry, begin, end, step, mode.layout), mode.layout)


def _placed(carry: Carry, layout: MeshLayout) -> Carry:
    """The carry where the layout wants it, between two segments of a run."""
    servers = (
        Server(
            params=layout.by_parameter(server.params),
            state=layout.by_shape(server.state),
            slots=layout.by_parameter(server.slots, lead=1),
            message=layout.by_shape(server.message),
            average=layout.by_parameter(server.average),
        )
        for server in carry.servers
    )
    return Carry(
        servers=tuple(servers),
        kept=layout.by_parameter(carry.kept, lead=1),
        stats=layout.replicated(carry.stats),
        average_stats=layout.replicated(carry.average_stats),
        local=layout.by_worker(carry.local),
        records=layout.replicated(carry.records),
    )


def _event(carry: Carry, rows: ServerRows, row: jax.Array, parts: Parts, mode: Mode) -> Carry:
    """One gradient: loads the version it reads, computes it, and uses it."""
    read = points(carry, rows, row, parts)
    worker = rows.worker[row]
    own = jax.tree.map(lambda buffer: read_row(buffer, worker), carry.local)
    # Apart from its use, as on a worker: else the gradient and its use would round each other.
    gradient = lambda row, read, own: computed(parts, mode.partition.join(read), parts.batch_fn(row), own)
    grads, aux, own = apart(gradient, row, read, own)
    write = lambda buffer, leaf: jax.lax.dynamic_update_index_in_dim(buffer, leaf, worker, 0)
    carry = carry._replace(local=jax.tree.map(write, carry.local, own))
    return used(carry, rows, row, read, (mode.partition.split(grads), aux), parts, mode)
