"""`repeat`, which executes the schedule of a recording by the programs of the live run: equal to the bit.

`sgdlab.replay.run` computes a gradient and its use in one compiled loop, which XLA may round otherwise than a worker
and a server that compile them apart; by how much depends on its version. Here nothing is left to it: gradients are
computed by the function of a worker and used by the steps of a server, each by the very program of the live run.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from sgdlab.live.recording import LiveRecording
from sgdlab.replay.execution import Execution
from sgdlab.replay.history import Result
from sgdlab.replay.lowering import lower
from sgdlab.replay.program import Program
from sgdlab.replay.server import norm
from sgdlab.replay.server_engine import evaluated_server
from sgdlab.replay.server_program import ServerProgram
from sgdlab.replay.sharding import MeshLayout
from sgdlab.replay.steps import Steps
from sgdlab.replay.watch import Watch
from sgdlab.schedule import Schedule
from sgdlab.types import Tree

if TYPE_CHECKING:
    from sgdlab.checkpoints import Checkpoints

Compute = Callable[[int, Tree], tuple[Tree, Tree]]


def repeat(
    schedule: Schedule | Program,
    steps: Steps,
    compute: Compute,
    *,
    aux: Tree,
    watch: Watch | None = None,
    checkpoints: "Checkpoints | None" = None,
    stop: Callable[[], bool] | None = None,
) -> Result:
    """Execute a schedule, one gradient after the other, by the programs of a live run.

    Args:
      schedule: that was recorded, or its program (`sgdlab.replay.lower`).
      steps: of the server, as the live run made them, before the first gradient.
      compute: `(row, params) -> (grads, aux)`, the row-th of the R gradients that entered updates, computed on these
        parameters as its worker did it (`as_computed`).
      aux: of a gradient, or objects with its shapes and dtypes.
      watch: what to evaluate and record; `average_decay` is that of `steps`.
      checkpoints: where the state is saved at pauses; a run continues from the newest that is there.
      stop: asked after each piece of about two seconds: whether to stop.

    Returns:
      What `sgdlab.replay.run` returns, to rounding; parameters, states, statistics and averages are those of the live
      run, on the same kind of processor with the same versions of libraries.

    Raises:
      ValueError: if there is no server, or several servers hold the parameters.
      Stopped: if the run was asked to stop.

    Example:
      >>> from sgdlab import protocols, rules
      >>> schedule = protocols.asynchronous(np.array([[2.0, 3.0], [2.0, 3.0]]), num_gradients=3)
      >>> steps = Steps(rules.asgd(learning_rate=0.5), jnp.zeros([]), single=True)
      >>> float(repeat(schedule, steps, lambda row, params: (params - 1.0, {}), aux={}).params)
      1.25
    """
    watch = watch or Watch()
    program: Any = schedule if isinstance(schedule, Program) else lower(schedule, every=watch.every)
    servers = program.num_blocks if isinstance(program, ServerProgram) else "none"
    if servers != 1:
        raise ValueError(f"schedule must have one server, as live runs have; it has {servers}")
    engine: Any = _Repetition(program, steps, compute, watch)
    begun = engine.start(aux)
    return Execution(engine, begun, watch, waves=False, checkpoints=checkpoints, stop=stop).finish(None)


def as_computed(recording: LiveRecording, program: ServerProgram, compute_of: Callable[[int], Any]) -> Compute:
    """Return the `compute` of `repeat` by which each gradient of a recording is what its worker has computed.

    Args:
      recording: of the live run.
      program: of its schedule.
      compute_of: `(worker) -> compute`, such as `Gradients.compute` of a process of its own.
    """
    rows, of_worker = program.gradient[: program.num_rows], functools.cache(compute_of)
    ticket, read, after = recording.ticket[rows], recording.schedule.read[rows, 0], recording.after()[rows]

    def compute(row: int, params: Tree) -> tuple[Tree, Tree]:
        kept = {"after": int(after[row]), "version": int(read[row])}
        return of_worker(int(program.worker[row]))(int(ticket[row]), params, **kept)

    return compute


class _Repetition:
    """The engine of an `Execution` with a loop in Python; a carry holds the state of the `Steps` between two pieces."""

    def __init__(self, program: ServerProgram, steps: Steps, compute: Compute, watch: Watch):
        self.program, self.layout = program, MeshLayout()
        self._steps, self._compute, self._watch = steps, compute, watch

    def cut_at(self, gradients: int) -> None:
        """Do nothing: a run may begin after any gradient."""

    def start(self, aux: Tree) -> Tree:
        """Return the carry before the first gradient: the server, the versions that workers hold, and the records."""
        records = {"aux": self._records(aux)}
        if self._watch.norms:
            params = self._steps.params
            found = self._steps.measured(self._steps.nothing(), read=params, worker=0, delay=1.0)
            records |= self._records(found | {"step": found["norm"]})
        return self._carry_of([self._steps.sent()] * self.program.num_slots, records)

    def advance(self, carry: Tree, begin: int, end: int, batch_fn: Any = None) -> Tree:
        """Execute gradients `begin` to `end`."""
        del batch_fn
        self._at(carry)
        program, steps, slots = self.program, self._steps, list(carry["slots"])
        records = _copied(carry["records"])
        for row in range(begin, end):
            read = slots[program.load[row, 0]]
            grads, aux = self._compute(row, read)
            given: dict[str, Any] = {
                "read": read,
                "worker": int(program.worker[row]),
                "delay": float(program.delay[row, 0]),
            }
            given |= {"number": int(program.number[row]), "anew": bool(program.anew[row])}
            found, last = {"aux": aux}, bool(program.last[row, 0])
            if self._watch.norms:
                found |= steps.measured(grads, **given) | {"step": 0.0}
            before = steps.params if self._watch.norms and last else None
            steps.receive(grads, aux, **given)
            if last:
                steps.close()
                slots[program.store[row, 0]] = steps.sent()
            if before is not None:
                found["step"] = norm(jax.tree.map(jnp.subtract, steps.params, before))
            _record(records, row, found)
        return self._carry_of(slots, records)

    def evaluated(self, carry: Tree, pause: int) -> dict[str, Any]:
        """Return the values of `watch.evaluate` for the parameters, and for their Polyak average."""
        del pause
        self._at(carry)
        return evaluated_server(self._watch, **self._parameters())

    def outcome(self, carry: Tree) -> dict[str, Tree]:
        """Return the fields of `Result`."""
        self._at(carry)
        return self._parameters() | {"state": self._steps.state}

    def records(self, carry: Tree) -> dict[str, Tree]:
        """Return the fields of `History` that the run has recorded."""
        return carry["records"]

    def _records(self, aux: Tree) -> Tree:
        """Return arrays [R] of the scalars of aux."""
        rows = self.program.num_rows
        return jax.tree.map(lambda leaf: np.zeros(rows, leaf.dtype) if np.shape(leaf) == () else None, aux)

    def _parameters(self) -> dict[str, Tree]:
        return {name: getattr(self._steps, name) for name in ("params", "stats", "average", "average_stats")}

    def _carry_of(self, slots: list[Tree], records: Tree) -> Tree:
        self._carry = {"steps": self._steps.snapshot(), "slots": slots, "records": records}
        return self._carry

    def _at(self, carry: Tree) -> None:
        """Bring the steps to where a carry is that was read from a checkpoint."""
        if carry is not self._carry:
            self._steps.restore(jax.tree.map(np.asarray, carry["steps"]))
            self._carry = carry


def _copied(records: Tree) -> Tree:
    """Return copies that can be written, while a checkpoint of the others is."""
    return jax.tree.map(np.array, records)


def _record(records: Tree, row: int, found: Tree) -> None:
    """Write what was found of a gradient where there is an array for it."""

    def write(array: np.ndarray | None, value: Any) -> None:
        if array is not None:
            array[row] = value

    jax.tree.map(write, records, {name: found[name] for name in records}, is_leaf=lambda leaf: leaf is None)
