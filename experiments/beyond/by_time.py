"""Runs for a given virtual time, without warm-up or decay: what is measured is the loss that they train on."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from sgdlab import data, replay
from sgdlab.runs import resolve, tasks
from sgdlab.runs.plan import Plan, make_plan
from sgdlab.tasks import Task

WORST = 1e12
"""Stands for a number that is not finite, or larger: the run is lost."""


def until(config: ConfigDict, seconds: float) -> Plan:
    """Return the plan of a run that takes a given virtual time.

    Args:
      config: of the run; its epochs are set.
      seconds: how long it takes.
    """
    per_epoch = resolve(config).data.batches_per_epoch
    config.epochs = config.cluster.num_workers / per_epoch
    while (schedule := make_plan(config).schedule).wall_clock() <= seconds:
        config.epochs *= 2
    used = schedule.used()[:, 0]
    applied = schedule.applied[schedule.update[used, 0], 0]
    # Rounded down a little: a number of gradients that is not whole is rounded up.
    config.epochs = max(int((applied <= seconds).sum()) - 0.5, 0.5) / per_epoch
    return make_plan(config)


def measured(plan: Plan, *, norms: bool = True) -> dict[str, Any]:
    """Trains, and measures the loss of all training examples on the way.

    Returns:
      Lists with a number for each evaluation: `seconds`, `loss`, `accuracy` and, with `norms`, `squared_norm`, of the
      gradient of the mean loss of all examples; and `gradients` and `updates` that were used and made.
    """
    experiment, computing = plan.experiment, plan.experiment.computing
    task = tasks.task_of(experiment)
    losses = tasks.evaluation_of(experiment, task, "train", None)  # what the methods minimise
    squares = _squares(task, experiment.data.dataset) if norms else None

    def evaluate(params: Any, stats: Any) -> dict[str, Any]:
        found = losses(params, stats)
        return found if squares is None else {**found, "squared_norm": squares(params)}

    result = replay.run(
        plan.program,
        plan.rule(plan.rates, plan.schedule.num_workers),
        Task(tasks.gradient_of(experiment, task), task.params),
        tasks.batches_of(plan, plan.program.capacity.rows),
        mode=computing.mode,
        lanes=computing.lanes or "vmap",
        watch=replay.Watch(evaluate=evaluate),
    )
    found = result.history.evaluations
    names = ("seconds", "loss", "accuracy", *(("squared_norm",) if norms else ()))
    return {name: [_finite(float(each[name])) for each in found] for name in names} | {
        "gradients": int(found[-1]["gradients"]),
        "updates": int(found[-1]["updates"]),
    }


def _squares(task: Task, dataset: Any) -> Any:
    train = dataset.train
    finish = data.Finish(dataset.preprocess, train.white, levels=False, train=False)
    whole = finish(jnp.asarray(train.pixels), jnp.asarray(train.labels))

    def squared_norm(params: Any) -> jax.Array:
        grads, *_ = task.grad_fn(params, whole)
        return sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(grads))

    return squared_norm


def _finite(value: float) -> float:
    return min(value, WORST) if math.isfinite(value) else WORST


def at_times(run: Mapping[str, Any], name: str, times: np.ndarray) -> np.ndarray:
    """float64[.]: the newest value of a quantity at given times.

    Args:
      run: as `measured` returns it.
      name: of the quantity.
      times: ascending, seconds.

    Example:
      >>> at_times({"seconds": [0.0, 2.0], "loss": [3.0, 1.0]}, "loss", np.array([0.0, 1.9, 2.0, 5.0])).tolist()
      [3.0, 3.0, 1.0, 1.0]
    """
    seconds, values = np.array(run["seconds"]), np.array(run[name])
    return values[np.maximum(np.searchsorted(seconds, times, side="right") - 1, 0)]


def first_time(run: Mapping[str, Any], name: str, target: float) -> float:
    """Return the virtual time of the first evaluation at which a quantity is at most its target; infinite if none is.

    Example:
      >>> first_time({"seconds": [0.0, 2.0], "loss": [3.0, 1.0]}, "loss", 1.5)
      2.0
    """
    good = np.flatnonzero(np.array(run[name]) <= target)
    return float(run["seconds"][good[0]]) if good.size else math.inf
