"""From a plan to a run: a network, its batches, replay, and where the records go."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from ml_collections import ConfigDict

from sgdlab import data, models, replay
from sgdlab.errors import said_of
from sgdlab.jobs import memory, records
from sgdlab.jobs.plan import AnySchedule, Plan
from sgdlab.jobs.records import Record
from sgdlab.jobs.seeds import seed_of
from sgdlab.registry import NETWORKS
from sgdlab.results.directory import RunDirectory
from sgdlab.results.writers import opened

Tree = Any


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
    report: Callable[[Record], None] = lambda record: None,
) -> Run:
    """Executes a plan.

    Args:
      plan: made by `sgdlab.jobs.plan.make_plan`.
      capacity: array sizes to make room for; runs of one method with one capacity share one compiled program.
      report: called with each record as soon as it is there: `run`, each `evaluation`, `summary`.

    Returns:
      The finished `Run`.

    Raises:
      UsageError: where the network has too few parameters for so many servers, or the run would not fit the memory.

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
    capacity = program.capacity | capacity if capacity else program.capacity
    program = dataclasses.replace(program, capacity=capacity)
    network, test = classifier(config, plan.dataset), _on_device(plan.dataset.test)
    served = plan.schedule.has_server
    # Without a server the rate follows the gradients of all nodes, and not each node's own steps.
    rates = _padded(plan.rates, capacity.rows)
    rule = plan.rule(rates if served else 1.0, capacity.workers)
    _check_blocks(plan, network.params)
    memory.check_run(config, program, rule, network.params)
    begun, written = time.perf_counter(), []

    def add(record: Record) -> None:
        written.append(record)
        report(record)

    add(records.opening(plan))
    result = replay.run(
        program,
        rule,
        _clipped(network.grad_fn, config.optimizer.clip_norm),
        network.params,
        _batches(plan, capacity.rows),
        mode=config.mode,
        stats=network.stats,
        fold=network.fold,
        step_scale=None if served else rates[: program.num_rows],
        watch=replay.Watch(
            evaluate=jax.tree_util.Partial(_evaluated, network.evaluate, test),
            report=lambda history: add(records.evaluation(plan, history)),
            average_decay=config.average_decay if served else None,
            norms=served,
        ),
    )
    final = network.evaluate(result.params, result.stats, _on_device(plan.dataset.train))
    final = {name: float(value) for name, value in final.items()}
    add(records.closing(plan, result.history, written[1:], final, time.perf_counter() - begun))
    return Run(written, result, plan.schedule)


def train_and_record(
    plan: Plan,
    directory: RunDirectory,
    name: str,
    *,
    writers: Sequence[str] = (),
    capacity: replay.Capacity | None = None,
    report: Callable[[Record], None] = lambda record: None,
) -> Run:
    """Trains, and appends each record to the run's file under way and to other writers as soon as it is there.

    Args:
      plan: what to do.
      directory: where the run is to stand; its metrics file is left to `directory.write`.
      name: of the run.
      writers: names in `sgdlab.results.writers.WRITERS`.
      capacity: as in `train`.
      report: called with each record too.
    """
    with contextlib.ExitStack() as stack:
        sinks: list[Callable[[Record], None]] = []

        def add(record: Record) -> None:
            if record["kind"] == "run":  # what is refused before it begins leaves nothing
                sinks.append(stack.enter_context(directory.under_way(name)))
                sinks.extend(writer.write for writer in stack.enter_context(opened(writers, directory.path, name)))
            for sink in sinks:
                sink(record)
            report(record)

        return train(plan, capacity=capacity, report=add)


def classifier(config: ConfigDict, dataset: data.Dataset) -> models.Classifier:
    """The configuration's network with its initial parameters, which depend on the seed alone."""
    kind = config.network.kind
    network = NETWORKS.make(
        kind,
        config.network[kind],
        image_shape=dataset.image_shape,
        num_classes=dataset.num_classes,
        rngs=nnx.Rngs(params=seed_of(config, "parameters")),
    )
    with said_of(f"--config.network.kind={kind}: "):
        return models.classifier(network)


def leaves(params: Tree) -> dict[str, np.ndarray]:
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


def _clipped(grad_fn: Any, max_norm: float | None) -> Any:
    """A worker clips its own gradient, whole, before it sends any of it."""
    return grad_fn if max_norm is None else jax.tree_util.Partial(_clip, grad_fn, max_norm)


def _clip(grad_fn: Any, max_norm: float, params: Tree, batch: models.Batch) -> tuple[Tree, Tree]:
    grads, aux = grad_fn(params, batch)
    clip = optax.clip_by_global_norm(max_norm)
    return clip.update(grads, clip.init(grads))[0], aux


def _batches(plan: Plan, size: int) -> Callable[[jax.Array], models.Batch]:
    """Batch k goes to the k-th gradient that is used, whatever was dropped before it: all methods see the same ones."""
    config, examples = plan.config, plan.dataset.train
    order = data.order(
        len(examples),
        batch_size=config.batch_size,
        num_batches=size,
        seed=seed_of(config, "batches"),
        replacement=config.replacement,
    )
    return data.batch_fn(examples, order)


def _evaluated(evaluate: Any, test: models.Batch, params: Tree, stats: Tree) -> dict[str, jax.Array]:
    return evaluate(params, stats, test)


def _padded(rates: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([rates, np.full(max(size - rates.size, 0), rates[-1])])


def _on_device(images: data.Images) -> models.Batch:
    return models.Batch(jnp.asarray(images.images), jnp.asarray(images.labels))
