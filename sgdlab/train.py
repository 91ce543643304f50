"""From a configuration to a run: the one place that puts the parts together."""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from ml_collections import ConfigDict

from sgdlab import data, models, replay
from sgdlab.methods import METHODS
from sgdlab.peer_schedule import PeerSchedule
from sgdlab.plan import Plan, dataset
from sgdlab.replay.watch import Evaluation
from sgdlab.results import metrics
from sgdlab.seeds import seed_of
from sgdlab.validate import ConfigError
from sgdlab.waiting import AnySchedule


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
      records: what is written to its metrics file: `run`, then one `evaluation` for each look, then `summary`.
      result: parameters, history and the rest.
      schedule: who computed what, and when.
    """

    records: list[dict[str, Any]]
    result: replay.Result | replay.PeerResult
    schedule: AnySchedule


def train(
    plan: Plan,
    *,
    capacity: replay.Capacity | replay.PeerCapacity | None = None,
    report: Callable[[Evaluation], None] | None = None,
) -> Run:
    """Executes a plan.

    Args:
      plan: made by `sgdlab.plan.make_plan`.
      capacity: shapes to make room for; runs of one method with one capacity share one compiled program.
      report: called with each evaluation as soon as it is there.

    Returns:
      The finished `Run`.

    Raises:
      ConfigError: where the network has too few parameters for so many servers.

    Example:
      >>> from configs import digits
      >>> from sgdlab.plan import make_plan
      >>> config = digits.get_config()
      >>> config.epochs, config.network.widths, config.schedule.warmup_epochs = 2.0, (4, 8), 1.0
      >>> run = train(make_plan(config))
      >>> run.records[-1]["gradients"]
      88
    """
    config, program = plan.config, plan.program
    train_set, test_set = dataset(config.dataset)
    capacity = program.capacity | capacity if capacity else program.capacity
    program = dataclasses.replace(program, capacity=capacity)
    network = classifier(config)
    test = _on_device(test_set)
    if isinstance(program, replay.BlockProgram):
        try:
            replay.partition(network.params, program.num_blocks)
        except ValueError as error:
            raise ConfigError(f"--config.protocol.num_blocks: {error}") from error
    begun = time.perf_counter()
    method, peers = METHODS[config.method], METHODS[config.method].peers
    if peers:  # the rate follows the gradients of all nodes, not each node's own steps
        rates = np.ones(1)
        execute = functools.partial(
            replay.run_peers, step_scale=_padded(plan.rates, program.num_rows)[: program.num_rows]
        )
    else:
        rates, execute = _padded(plan.rates, capacity.rows), replay.run
    result = execute(
        program,
        method.make_rule(config, rates, _bucket(capacity, plan.schedule)),
        network.grad_fn,
        network.params,
        _batches(plan, train_set, capacity),
        mode=config.mode,
        stats=network.stats,
        fold=network.fold,
        watch=replay.Watch(
            evaluate=jax.tree_util.Partial(_evaluated, network.evaluate, test),
            report=report,
            average_decay=None if peers else config.average_decay,
            norms=not peers,
        ),
    )
    final = {name: float(v) for name, v in network.evaluate(result.params, result.stats, _on_device(train_set)).items()}
    seconds = time.perf_counter() - begun
    return Run(metrics.records(plan, result, final, seconds), result, plan.schedule)


def _evaluated(evaluate: Any, test: models.Batch, params: Any, stats: Any) -> dict[str, jax.Array]:
    return evaluate(params, stats, test)


def classifier(config: ConfigDict) -> models.Classifier:
    """The configuration's network with its initial parameters, which depend on the seed alone."""
    rngs, widths = nnx.Rngs(params=seed_of(config, "parameters")), tuple(config.network.widths)
    if config.network.kind == "mlp":
        return models.classifier(models.MLP((64, *widths, 10), rngs=rngs))
    return models.classifier(models.ConvNet(widths, batch_norm=config.network.batch_norm, rngs=rngs))


def _batches(
    plan: Plan, train_set: data.Images, capacity: replay.Capacity | replay.PeerCapacity
) -> Callable[[jax.Array], models.Batch]:
    """Batch k goes to the k-th gradient that is used, whatever was dropped before it: all methods see the same ones."""
    config = plan.config
    order = data.order(
        len(train_set),
        batch_size=config.batch_size,
        num_batches=capacity.rows,
        seed=seed_of(config, "batches"),
        replacement=config.replacement,
    )
    if isinstance(plan.schedule, PeerSchedule):  # replay asks for the batches of gradients, which are all used
        return data.batch_fn(train_set, order)
    used = plan.schedule.used().any(axis=1)
    # One entry for each row of the schedule, the dropped ones among them; rounded up, so that shapes are shared.
    size = max(2 * capacity.rows, 1 << (used.size - 1).bit_length())
    indices = np.zeros((size, config.batch_size), np.int32)
    indices[: used.size] = order[np.maximum(np.cumsum(used) - 1, 0)]
    return data.batch_fn(train_set, indices)


def _padded(rates: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([rates, np.full(max(size - rates.size, 0), rates[-1])])


def _bucket(capacity: replay.Capacity | replay.PeerCapacity, schedule: AnySchedule) -> int:
    """Workers to keep state for: the slots that programs of this capacity share, or this schedule's workers."""
    return max(capacity.slots, schedule.num_workers)


def _on_device(images: data.Images) -> models.Batch:
    return models.Batch(jnp.asarray(images.images), jnp.asarray(images.labels))
