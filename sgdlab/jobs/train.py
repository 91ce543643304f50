"""From a plan to a run: a network, its batches, and replay."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from ml_collections import ConfigDict

from sgdlab import data, models, replay
from sgdlab.errors import said_of
from sgdlab.jobs import memory
from sgdlab.jobs.plan import AnySchedule, Plan
from sgdlab.jobs.records import records
from sgdlab.jobs.seeds import seed_of
from sgdlab.registry import NETWORKS
from sgdlab.replay.watch import Evaluation

Tree = Any


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
      records: what is written to its metrics file: `run`, then one `evaluation` for each, then `summary`.
      result: parameters, history and the rest.
      schedule: who computed what, and when.
    """

    records: list[dict[str, Any]]
    result: replay.Result
    schedule: AnySchedule


def train(
    plan: Plan,
    *,
    capacity: replay.Capacity | None = None,
    report: Callable[[Evaluation], None] | None = None,
) -> Run:
    """Executes a plan.

    Args:
      plan: made by `sgdlab.jobs.plan.make_plan`.
      capacity: array sizes to make room for; runs of one method with one capacity share one compiled program.
      report: called with each evaluation as soon as it is there.

    Returns:
      The finished `Run`.

    Raises:
      UsageError: where the network has too few parameters for so many servers, or the run would not fit the memory.

    Example:
      >>> from configs import digits
      >>> from sgdlab.jobs.plan import make_plan
      >>> config = digits.get_config()
      >>> config.epochs, config.network.conv.channels, config.rate.warmup_epochs = 2.0, (4, 8), 1.0
      >>> run = train(make_plan(config))
      >>> run.records[-1]["gradients"]
      88
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
    begun = time.perf_counter()
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
            report=report,
            average_decay=config.average_decay if served else None,
            norms=served,
        ),
    )
    final = network.evaluate(result.params, result.stats, _on_device(plan.dataset.train))
    seconds = time.perf_counter() - begun
    return Run(records(plan, result, {name: float(v) for name, v in final.items()}, seconds), result, plan.schedule)


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
    return models.classifier(network)


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
