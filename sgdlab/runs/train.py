"""From a plan to a run: a network, its batches, replay, and where the records go."""

import contextlib
import dataclasses
import json
import math
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
import psutil
from jax.sharding import Mesh

from sgdlab import hosts, replay
from sgdlab.checkpoints import CheckpointError, Checkpoints
from sgdlab.errors import UsageError, said_of
from sgdlab.peer_schedule import AnySchedule
from sgdlab.results.records import as_stored
from sgdlab.results.writers import opened
from sgdlab.rules import ServerRule
from sgdlab.runs import digests, records, tasks
from sgdlab.runs.configuration import flat
from sgdlab.runs.experiment import Experiment
from sgdlab.runs.parts import check_rule
from sgdlab.runs.plan import Plan, in_words
from sgdlab.runs.records import Record
from sgdlab.runs.store import Store
from sgdlab.types import Tree

CHECKPOINT_SECONDS = 60.0
"""Shorter runs are begun anew in about the time that a checkpoint takes to be written and read."""

_BYTES_PER_ROW = 80
"""Bytes that a program and its records take on the device, for each gradient and block."""


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run."""

    records: list[Record]  # what is written to its metrics file: `run`, then one `evaluation` for each, then `summary`
    result: replay.Result  # parameters, history and the rest
    schedule: AnySchedule  # who computed what, and when


@dataclasses.dataclass(frozen=True)
class Place:
    """The place where a run that is trained writes what it has done so far, and what it computes on."""

    store: Store  # holds the run when it has finished: its file there is left to `store.write`
    name: str  # of the run, there
    writers: Sequence[str] = ()  # names in `sgdlab.results.writers.WRITERS`: where its records go besides
    # as of `train`; over many processes, the first one writes everything but its part of the checkpoints
    mesh: Mesh | None = None
    stop: Callable[[], bool] | None = None  # as of `train`

    @contextlib.contextmanager
    def reporting(self, *others: Callable[[Record], None]) -> Iterator[Callable[[Record], None]]:
        """Yield what sends a record to the run's file under way, the writers and others, as soon as it is there."""
        with contextlib.ExitStack() as stack:
            sinks: list[Callable[[Record], None]] = []

            def add(record: Record) -> None:
                if record["kind"] == "run":  # what is refused before it begins leaves nothing
                    sinks.append(stack.enter_context(self.store.under_way(self.name)))
                    wanted = opened(self.writers if self.store.writes else (), self.store.workdir, self.name)
                    sinks.extend(writer.write for writer in stack.enter_context(wanted))
                for sink in (*sinks, *others):
                    sink(record)

            yield add


def train(
    plan: Plan,
    *,
    capacity: replay.Capacity | None = None,
    checkpoints: Checkpoints | None = None,
    mesh: Mesh | None = None,
    stop: Callable[[], bool] | None = None,
    report: Callable[[Record], None] = lambda record: None,
) -> Run:
    """Execute a plan.

    Args:
      plan: made by `sgdlab.runs.plan.make_plan`.
      capacity: array sizes to make room for; runs of one method with one capacity share one compiled program.
      checkpoints: where the state of the run is saved at its evaluations; it continues from the newest that is there.
      mesh: the devices to use (`sgdlab.hosts.mesh`), of this process or of many, each of which calls this. None: one.
      stop: `() -> bool`, asked about every two seconds: whether to stop.
      report: called with each record as soon as it is there: `run`, each `evaluation`, `summary`.

    Returns:
      The finished `Run`; of many processes, that of the first one alone has evaluations and a summary.

    Raises:
      Stopped: where it was asked to stop; the state of the run is saved before, where there are checkpoints.
      UsageError: where the network has too few parameters for so many servers, the run would not fit the memory, or an
        entry is one for a single device.

    Example:
      >>> from configs import digits
      >>> from sgdlab.runs.plan import make_plan
      >>> config = digits.get_config()
      >>> config.epochs, config.network.conv.channels, config.rate.warmup_epochs = 0.5, (4, 8), 0.2
      >>> run = train(make_plan(config))
      >>> run.records[-1]["gradients"]
      90
    """
    experiment, program = plan.experiment, plan.program
    computing, reporting = experiment.computing, experiment.reporting
    if mesh is not None and computing.mode == "event":
        raise UsageError("--config.mode=event must be left out with several devices, over which waves are sharded")
    own: replay.Capacity = program.capacity
    capacity = own | capacity if capacity else own  # with the program's own width
    program = dataclasses.replace(program, capacity=capacity)
    task = tasks.task_of(experiment)
    served = plan.schedule.has_server
    # Without a server the rate follows the gradients of all nodes, and not each node's own steps.
    rates = np.pad(plan.rates, (0, max(capacity.rows - plan.rates.size, 0)), mode="edge")
    rule = plan.rule(rates if served else 1.0, capacity.workers)
    check_rule(experiment.rule.part, rule, task.params, single=program.single)
    _check_blocks(plan, task.params)
    # Before the first record: what is refused leaves nothing.
    of_workers, batches = tasks.workers_of(plan, task, capacity.rows)  # whose state is more than that of the network
    check_memory(experiment, program, rule, task.params, of_workers.local, mesh)
    on_test = tasks.evaluation_of(experiment, task, "test", reporting.test_examples)
    begun, written = time.perf_counter(), []

    def add(record: Record) -> None:
        written.append(record)
        report(record)

    def evaluated(history: replay.History) -> None:
        record = records.evaluation(plan, history)
        records.check_first(plan, record)
        add(record)

    add(records.opening(plan, task.params))
    watch = replay.Watch(
        evaluate=on_test,
        report=evaluated,
        ends=records.End(plan) if experiment.ending.until_target else None,
        average_decay=reporting.average_decay if served else None,
        norms=served,
        nodes_at_end=not served,  # as the summary needs them
    )
    common = {"watch": watch, "checkpoints": checkpoints, "stop": stop}
    if plan.recorded is not None and plan.recorded.repeat is not None:
        result = plan.recorded.repeat(program, **common)
    else:
        result = replay.run(
            program,
            rule,
            of_workers,
            batches,
            mode=computing.mode,
            lanes=computing.lanes or _lanes(experiment),
            mesh=mesh,
            layout=computing.layout,
            step_scale=None if served else rates[: program.num_rows],
            **common,
        )
    if not hosts.is_first():  # the first one evaluates
        return Run(written, result, plan.schedule)
    final = tasks.evaluation_of(experiment, task, "train", reporting.train_examples)(result.params, result.stats)
    final = {name: float(value) for name, value in final.items()}
    add(records.closing(plan, result.history, written[1:], final, time.perf_counter() - begun))
    return Run(written, result, plan.schedule)


def train_and_record(
    plan: Plan,
    place: Place,
    *,
    capacity: replay.Capacity | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    report: Callable[[Record], None] = lambda record: None,
    say: Callable[[str], None] = lambda line: None,
) -> Run:
    """Train, and send each record to the run's place as soon as it is there.

    Checkpoints of its state are at least `checkpoint_seconds` apart, and removed by `store.write`. `report` gets
    each record too, and `say` a line where the run continues from a checkpoint, or cannot.

    Raises:
      Stopped: where it was asked to stop.
      UsageError: where the checkpoints that are there are of another configuration, or one cannot be written.
    """
    path = place.store.state_path(place.name)
    with _checkpoints(plan, path, capacity, checkpoint_seconds, say) as (kept, needed), place.reporting(report) as add:
        return train(plan, capacity=needed, checkpoints=kept, mesh=place.mesh, stop=place.stop, report=add)


@contextlib.contextmanager
def _checkpoints(
    plan: Plan,
    path: pathlib.Path,
    capacity: replay.Capacity | None,
    seconds: float,
    say: Callable[[str], None],
) -> Iterator[tuple[Checkpoints, replay.Capacity]]:
    """Yield the checkpoints of a run, whose mistakes are a line, and the capacity with which it is to be executed.

    A state has the sizes of the capacity that it was saved with, which may have made room for other runs. One that was
    made by other code is removed, and the run begins anew.
    """
    needed = plan.program.capacity | capacity if capacity else plan.program.capacity
    facts = {"capacity": dataclasses.asdict(needed), "code": digests.of_run(plan.experiment)}
    settings = {f"config.{name}": value for name, value in flat(as_stored(plan.experiment.identity))}
    try:
        with Checkpoints(path, settings, least_seconds=seconds, facts=facts, say=say) as checkpoints:
            # Of many processes, the first one decides.
            before = json.loads(hosts.gather("the facts of the last checkpoint", json.dumps(checkpoints.facts))[0])
            if before is not None and before.get("code") != facts["code"]:
                say(f"The code of the run in {path} has changed; it is begun anew.")
                checkpoints.clear()
            elif before is not None:
                needed = dataclasses.replace(replay.Capacity(**before["capacity"]), width=needed.width)
                checkpoints.always(facts | {"capacity": before["capacity"]})
            yield checkpoints, needed
    except CheckpointError as error:
        raise UsageError(f"{error}; --rerun begins anew") from error


def leaves(params: Tree) -> dict[str, Any]:
    """Return every leaf of a tree by its name, such as "head/kernel".

    Example:
      >>> leaves({"head": {"bias": np.zeros(2)}})
      {'head/bias': array([0., 0.])}
    """
    found = jax.tree_util.tree_leaves_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in found}


def _check_blocks(plan: Plan, params: Tree) -> None:
    if plan.schedule.num_blocks > 1:
        with said_of(f"--config.protocol.kind={plan.experiment.protocol.name}: "):
            replay.partition(params, plan.schedule.num_blocks)


def check_memory(
    experiment: Experiment,
    program: Any,  # replay.Program
    rule: ServerRule,
    params: object,
    local: object = None,
    mesh: Mesh | None = None,
) -> None:
    """Raise a `UsageError` where what a run holds does not fit the device.

    That is a copy of the parameters for each version that some worker holds, the state of the workers and of the rule
    (of every node where there is no server), in wave mode copies for each lane, and the program. Activations come on
    top. Each device of a mesh has its share of that, but in a replicated layout it has all versions, the rule's state
    and the gradients of all lanes.
    """
    capacity, of_peers = program.capacity, isinstance(program, replay.PeerProgram)
    size, optimizers = _bytes(params), program.num_workers if of_peers else 1
    state = optimizers * _bytes(jax.eval_shape(rule.init, params))
    waves, devices = mesh is not None or _in_waves(experiment, program), 1 if mesh is None else mesh.size
    versions = capacity.slots + capacity.kept + (program.num_workers if of_peers else 0)
    of_lanes = program.versions - versions if waves else 0
    if waves and rule.point is not None and program.uniform:
        of_lanes += capacity.width  # a version that lanes share, and each one's own point
    own = capacity.workers * _bytes(local) / devices
    if mesh is not None and (experiment.computing.layout or replay.sharding.kind_of(program, params)) == "sharded":
        versions, state = math.ceil(versions / devices), state / devices
    elif not program.synchronous:
        of_lanes += (devices - 1) * capacity.width  # the gradients of the other devices
    copies = versions + 4 + math.ceil(of_lanes / devices)
    blocks = 1 if of_peers else program.num_blocks
    needed = copies * size + state + own + _BYTES_PER_ROW * blocks * capacity.rows
    stats = jax.local_devices()[0].memory_stats() or {}
    free = stats.get("bytes_limit", 0) - stats.get("bytes_in_use", 0) or psutil.virtual_memory().available
    if mesh is not None and jax.default_backend() == "cpu":
        free /= len(mesh.local_devices)  # which share the memory of the machine
    limit = experiment.computing.limit(free)
    if needed > limit:
        of_workers = f", and {in_words(own)} of the workers" if own else ""
        raise UsageError(
            f"--config.cluster.num_workers={experiment.cluster.workers.cluster} would take about {in_words(needed)} on "
            f"the device ({copies} copies of parameters of {in_words(size)}, {in_words(state)} of the rule{of_workers})"
            f", and {in_words(limit)} are free; fewer workers or a smaller network take less, and "
            "--config.memory=GIB sets another limit"
        )


def _in_waves(experiment: Experiment, program: replay.Program) -> bool:
    if experiment.computing.mode is None:
        return jax.default_backend() != "cpu" and program.mean_wave_length() >= 2
    return experiment.computing.mode == "wave"


def _bytes(tree: object) -> int:
    return sum(math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(tree))


def _lanes(experiment: Experiment) -> str:
    """Return how a wave is computed: one gradient of some networks keeps a CPU, or any device, busy by itself."""
    facts = experiment.network.facts
    return facts.lanes or (facts.lanes_on_cpu if jax.default_backend() == "cpu" else "vmap")
