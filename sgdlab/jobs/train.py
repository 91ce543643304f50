"""From a plan to a run: a network, its batches, replay, and where the records go."""

import contextlib
import dataclasses
import json
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from sgdlab import hosts, replay
from sgdlab.checkpoints import CheckpointError, Checkpoints
from sgdlab.errors import UsageError, said_of
from sgdlab.jobs import digests, memory, records, tasks
from sgdlab.jobs.configuration import flat, identity
from sgdlab.jobs.own_parts import check_rule
from sgdlab.jobs.plan import Plan
from sgdlab.jobs.records import Record
from sgdlab.jobs.spans import span_fn, spans
from sgdlab.jobs.store import Store
from sgdlab.peer_schedule import AnySchedule
from sgdlab.registry import NETWORKS
from sgdlab.results.records import as_stored
from sgdlab.results.writers import opened
from sgdlab.rules.fragments import fragments_of
from sgdlab.tasks.task import Task

Tree = Any
CHECKPOINT_SECONDS = 60.0
"""Shorter runs are begun anew in about the time that a checkpoint takes to be written and read."""


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
      records: what is written to its metrics file: `run`, then one `evaluation` for each, then `summary`.
      result: parameters, history and the rest.
      schedule: who computed what, and when.
    """

    records: list[Record]
    result: replay.Result
    schedule: AnySchedule


def train(
    plan: Plan,
    *,
    capacity: replay.Capacity | None = None,
    checkpoints: Checkpoints | None = None,
    mesh: Mesh | None = None,
    stop: Callable[[], bool] | None = None,
    report: Callable[[Record], None] = lambda record: None,
) -> Run:
    """Executes a plan.

    Args:
      plan: made by `sgdlab.jobs.plan.make_plan`.
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
      >>> from sgdlab.jobs.plan import make_plan
      >>> config = digits.get_config()
      >>> config.epochs, config.network.conv.channels, config.rate.warmup_epochs = 0.5, (4, 8), 0.2
      >>> run = train(make_plan(config))
      >>> run.records[-1]["gradients"]
      90
    """
    config, program = plan.config, plan.program
    if mesh is not None and config.mode == "event":
        raise UsageError("--config.mode=event must be left out with several devices, over which waves are sharded")
    own: replay.Capacity = program.capacity
    capacity = own | capacity if capacity else own  # with the program's own width
    program = dataclasses.replace(program, capacity=capacity)
    task = tasks.task_of(config, plan.dataset)
    served = plan.schedule.has_server
    # Without a server the rate follows the gradients of all nodes, and not each node's own steps.
    rates = _padded(plan.rates, capacity.rows)
    rule = plan.rule(rates if served else 1.0, capacity.workers)
    check_rule(plan.choice.rule, rule, task.params, single=program.single)
    _check_blocks(plan, task.params)
    # Before the first record: what is refused leaves nothing.
    grad_fn, batches, local = _workers(plan, task, capacity.rows)
    memory.check_run(config, program, rule, task.params, local, mesh)
    on_test = tasks.evaluation_of(plan, task, "test", config.test_examples)
    begun, written = time.perf_counter(), []

    def add(record: Record) -> None:
        written.append(record)
        report(record)

    def evaluated(history: replay.History) -> None:
        record = records.evaluation(plan, history)
        records.check_first(plan, record)
        add(record)

    add(records.opening(plan))
    watch = replay.Watch(
        evaluate=on_test, report=evaluated, average_decay=config.average_decay if served else None, norms=served
    )
    common = {"watch": watch, "checkpoints": checkpoints, "stop": stop}
    if plan.repeated is not None:
        result = plan.repeated(program, **common)
    else:
        result = replay.run(
            program,
            rule,
            grad_fn,
            task.params,
            batches,
            mode=config.mode,
            lanes=config.lanes or _lanes(config),
            mesh=mesh,
            layout=config.layout,
            stats=task.stats,
            fold=task.fold,
            local=local,
            step_scale=None if served else rates[: program.num_rows],
            **common,
        )
    if not hosts.is_first():  # the first one evaluates
        return Run(written, result, plan.schedule)
    final = tasks.evaluation_of(plan, task, "train", config.train_examples)(result.params, result.stats)
    final = {name: float(value) for name, value in final.items()}
    add(records.closing(plan, result.history, written[1:], final, time.perf_counter() - begun))
    return Run(written, result, plan.schedule)


def train_and_record(
    plan: Plan,
    store: Store,
    name: str,
    *,
    writers: Sequence[str] = (),
    capacity: replay.Capacity | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    mesh: Mesh | None = None,
    stop: Callable[[], bool] | None = None,
    report: Callable[[Record], None] = lambda record: None,
    say: Callable[[str], None] = lambda line: None,
) -> Run:
    """Trains, and appends each record to the run's file under way and to other writers as soon as it is there.

    Args:
      plan: what to do.
      store: where the run is to stand; its file there is left to `store.write`.
      name: of the run.
      writers: names in `sgdlab.results.writers.WRITERS`.
      capacity: as in `train`.
      checkpoint_seconds: between two checkpoints of the run's state, at least; they are removed by `store.write`.
      mesh: as in `train`; over many processes, the first one writes everything but its part of the checkpoints.
      stop: as in `train`.
      report: called with each record too.
      say: called with a line where the run continues from a checkpoint, or cannot.

    Raises:
      Stopped: where it was asked to stop.
      UsageError: where the checkpoints that are there are of another configuration, or one cannot be written.
    """
    with contextlib.ExitStack() as stack:
        path = store.state_path(name)
        checkpoints, capacity = stack.enter_context(_checkpoints(plan, path, capacity, checkpoint_seconds, say))
        sinks: list[Callable[[Record], None]] = []

        def add(record: Record) -> None:
            if record["kind"] == "run":  # what is refused before it begins leaves nothing
                sinks.append(stack.enter_context(store.under_way(name)))
                wanted = writers if store.writes else ()
                sinks.extend(writer.write for writer in stack.enter_context(opened(wanted, store.workdir, name)))
            for sink in sinks:
                sink(record)
            report(record)

        return train(plan, capacity=capacity, checkpoints=checkpoints, mesh=mesh, stop=stop, report=add)


@contextlib.contextmanager
def _checkpoints(
    plan: Plan,
    path: pathlib.Path,
    capacity: replay.Capacity | None,
    seconds: float,
    say: Callable[[str], None],
) -> Iterator[tuple[Checkpoints, replay.Capacity]]:
    """The checkpoints of a run, whose mistakes are a line, and the capacity with which it is to be executed.

    A state has the sizes of the capacity that it was saved with, which may have made room for other runs. One that was
    made by other code is removed, and the run begins anew.
    """
    needed = plan.program.capacity | capacity if capacity else plan.program.capacity
    facts = {"capacity": dataclasses.asdict(needed), "code": digests.of_run(plan.config)}
    settings = {f"config.{name}": value for name, value in flat(as_stored(identity(plan.config)))}
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


def _workers(plan: Plan, task: Task, size: int) -> tuple[Callable[..., tuple[Tree, ...]], Any, Tree]:
    """What the workers of a replay do: their gradient function, the batches of gradients, and what each keeps."""
    grad_fn, batches = gradient_of(plan.config, task), tasks.batches_of(plan, size)
    if not plan.local.active:
        return grad_fn, batches, task.local
    if isinstance(batches, replay.Feed):
        raise UsageError(
            f"--config.local.steps={plan.local.steps} needs data that are in memory: those of "
            f"--config.data.kind={plan.config.data.kind} are read from files, a batch for each gradient"
        )
    with said_of("--config.local."):
        fragments_of(task.params, plan.local.fragments)  # which refuses what cannot be divided
    of_rows = span_fn(*spans(plan.steps_of_rows, size), plan.anew_of_rows, plan.places_of_rows)
    factors = None if plan.inner is None else plan.inner.factors
    return plan.local.gradient(grad_fn, batches, factors), of_rows, plan.local.state_of_worker(task.params, task.local)


def gradient_of(config: ConfigDict, task: Task) -> Callable[..., tuple[Tree, ...]]:
    """The gradient function of a worker: of the whole batch, in micro-batches perhaps, and clipped perhaps.

    Args:
      config: of the run.
      task: of its network.

    Raises:
      UsageError: for micro-batches of a network whose workers remember what they have read.
    """
    finish = finish_of(config)
    if task.local is None:
        return replay.in_micro_batches(task.grad_fn, config.micro_batches, finish)
    if config.micro_batches > 1:
        raise UsageError(
            f"--config.micro_batches={config.micro_batches} must be 1 for --config.network.kind={config.network.kind}, "
            "whose workers remember the texts of a whole batch"
        )
    return task.grad_fn if finish is None else jax.tree_util.Partial(_finished, task.grad_fn, finish)


def finish_of(config: ConfigDict) -> Callable[[Tree], Tree] | None:
    """What a worker does with its own gradient, whole, before it sends any of it: clips it. None: nothing."""
    max_norm = config.optimizer.clip_norm
    return None if max_norm is None else jax.tree_util.Partial(_clipped, max_norm)


def _clipped(max_norm: float, grads: Tree) -> Tree:
    clip = optax.clip_by_global_norm(max_norm)
    return clip.update(grads, clip.init(grads))[0]


def _finished(grad_fn: Any, finish: Any, *arguments: Tree) -> tuple[Tree, ...]:
    grads, *others = grad_fn(*arguments)
    return (finish(grads), *others)


def leaves(params: Tree) -> dict[str, Any]:
    """Every leaf of a tree by its name, such as "head/kernel".

    Example:
      >>> leaves({"head": {"bias": np.zeros(2)}})
      {'head/bias': array([0., 0.])}
    """
    found = jax.tree_util.tree_leaves_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in found}


def _check_blocks(plan: Plan, params: Tree) -> None:
    if plan.schedule.num_blocks > 1:
        with said_of(f"--config.protocol.kind={plan.choice.protocol.name}: "):
            replay.partition(params, plan.schedule.num_blocks)


def _lanes(config: ConfigDict) -> str:
    """One gradient of some networks keeps a CPU, or any device, busy; their parts say so."""
    facts = NETWORKS[config.network.kind].facts
    return facts.lanes or (facts.lanes_on_cpu if jax.default_backend() == "cpu" else "vmap")


def _padded(rates: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([rates, np.full(max(size - rates.size, 0), rates[-1])])
