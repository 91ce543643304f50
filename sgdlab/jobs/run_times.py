"""A configuration's cluster, its workers, and the run-times of what they send: of a gradient, or of local steps."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from sgdlab.jobs import local_steps, own_laws
from sgdlab.jobs.methods import chosen
from sgdlab.jobs.seeds import seed_of
from sgdlab.registry import CLUSTERS


def law_of(config: ConfigDict) -> Any:
    """The configuration's cluster."""
    kind = config.cluster.kind
    return CLUSTERS.make(
        kind, config.cluster[kind], num_workers=config.cluster.num_workers, batch_size=config.batch_size
    )


def num_workers(config: ConfigDict) -> int:
    """N, of the workers that take part."""
    return config.cluster.first_workers or config.cluster.num_workers


def local_in(config: ConfigDict) -> local_steps.Local:
    """The local steps of a configuration and its method."""
    choice = chosen(config)
    return local_steps.local_of(config, choice.method.local, own_rate="rate" in choice.rule.facts)


def steps_of(config: ConfigDict) -> np.ndarray:
    """int[N]: local steps of each worker's gradients, by the speeds that the cluster gives them where that is wanted.

    Raises:
      UsageError: where the cluster's entries are impossible.
    """
    local, workers = local_in(config), num_workers(config)
    if not local.by_speed or local.steps == 1:
        return np.full(workers, local.steps)
    law = law_of(config)
    rows = min(local_steps.SAMPLE, getattr(law, "num_rows", None) or local_steps.SAMPLE)
    return local_steps.steps_by_worker(local, times_fn(config, law, np.ones(workers, int))(rows))


def mean_steps(config: ConfigDict) -> float:
    """Local steps of a gradient, the mean over the workers."""
    local = local_in(config)
    return float(steps_of(config).mean() if local.by_speed else local.steps)  # of any number of workers


def times_fn(config: ConfigDict, law: Any, steps: np.ndarray) -> Callable[[int], np.ndarray]:
    """`(T) -> float64[T, N]`, seconds: the run-times of the cluster, those of each worker's steps added up.

    Args:
      config: of the run.
      law: its cluster.
      steps: int[N], of each worker.
    """
    return functools.partial(_times, config, law, steps)


def rows_of(law: Any, steps: np.ndarray, guess: int) -> int:
    """How many rows of run-times to begin with: those of a trace that ends, taken whole; else the guess."""
    rows = getattr(law, "num_rows", None)
    return guess if rows is None else max(rows // int(steps.max()), 1)


def _times(config: ConfigDict, law: Any, steps: np.ndarray, rows: int) -> np.ndarray:
    part, seed = CLUSTERS.check(config.cluster.kind), seed_of(config, "runtimes")
    times = own_laws.drawn(part, law, rows * int(steps.max()), config.cluster.num_workers, seed)
    times = times[:, : num_workers(config)]
    return times if steps.max() == 1 else local_steps.of_messages(times, steps)
