"""The runs of the clusters of configs/cutoff.py: a training run, and the test runs on which predictors are compared."""

import dataclasses
from collections.abc import Callable

import numpy as np
from ml_collections import ConfigDict

from sgdlab import cluster
from sgdlab.errors import UsageError
from sgdlab.registry import CLUSTERS

INFORMED_SAMPLES = 128
"""Number of draws from the true law for one prediction."""


@dataclasses.dataclass(frozen=True, eq=False)
class Test:
    """A run on which predictors are tested and no model was trained.

    Attributes:
      runtimes: float64[T, N], seconds.
      history: float64[W, N], the iterations before the run, if it is the second part of a recording; None: the first
        window of the run is synchronous.
      draw: draws of an iteration's run-times from the true law: iteration and generator -> float64[K, N]; None if the
        law is unknown.
    """

    runtimes: np.ndarray
    history: np.ndarray | None = None
    draw: Callable[[int, np.random.Generator], np.ndarray] | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """The runs of a cluster.

    Attributes:
      train: float64[T, N], seconds, a complete run in full synchrony.
      tests: runs on which predictors are compared.
    """

    train: np.ndarray
    tests: tuple[Test, ...]


def case(config: ConfigDict, seeds: int) -> Case:
    """The training run and the test runs of a configuration.

    Args:
      config: configuration of configs/cutoff.py.
      seeds: number of test runs; a recording has one.

    Raises:
      UsageError: if the cluster is impossible, or the recording cannot be read.
    """
    if config.cluster.kind == "recorded":
        return _recorded(config)
    law = law_of(config.cluster)
    tests = (_simulated(law, config, seed) for seed in range(seeds))
    return Case(training_run(config), tuple(tests))


def training_run(config: ConfigDict) -> np.ndarray:
    """float64[T, N], seconds: the run on which a model of this cluster is trained."""
    if config.cluster.kind == "recorded":
        return _recorded(config).train
    law = law_of(config.cluster)
    return law.draw(config.cluster.train_steps, seed=config.cluster.train_seed)


def law_of(machines: ConfigDict) -> cluster.RegimeCluster:
    """The cluster with regimes of a configuration.

    Args:
      machines: entry `cluster` of the configuration.

    Raises:
      UsageError: if the cluster is impossible.
    """
    return CLUSTERS.make("regimes", machines.regimes, num_workers=machines.num_workers)


def _simulated(law: cluster.RegimeCluster, config: ConfigDict, seed: int) -> Test:
    run, lag = law.run(config.cluster.test_steps, seed=seed), config.widths.lag

    def draw(iteration: int, generator: np.random.Generator) -> np.ndarray:
        return law.draw_next(run, lag + iteration, num_samples=INFORMED_SAMPLES, generator=generator)

    return Test(run.runtimes, draw=draw)


def _recorded(config: ConfigDict) -> Case:
    if not config.cluster.recorded.trace:
        raise UsageError("--config.cluster.recorded.trace= must name a file of recorded run-times")
    try:
        runtimes = cluster.recorded(config.cluster.recorded.trace).complete().runtimes
    except (ValueError, OSError) as error:
        raise UsageError(f"--config.cluster.recorded.trace: {error}") from error
    half = config.cluster.train_steps or len(runtimes) // 2
    if not config.widths.lag <= half < len(runtimes):
        raise UsageError(
            f"--config.cluster.train_steps={half} must be from {config.widths.lag} to {len(runtimes) - 1}: a window to "
            "train on and a step to compare on"
        )
    return Case(runtimes[:half], (Test(runtimes[half:], history=runtimes[:half][-config.widths.lag :]),))
