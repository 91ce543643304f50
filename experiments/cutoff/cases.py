"""The clusters of configs/cutoff.py: the run that is trained on, and those that predictors are compared on."""

import dataclasses
from collections.abc import Callable

import numpy as np
from ml_collections import ConfigDict

from sgdlab import cluster
from sgdlab.errors import UsageError
from sgdlab.registry import CLUSTERS

INFORMED_SAMPLES = 128
"""Draws from the true law for one prediction."""


@dataclasses.dataclass(frozen=True, eq=False)
class Test:
    """A run that no model has seen.

    Attributes:
      runtimes: float64[T, N], seconds.
      history: iterations just before, where the run is the second part of a recording; else its first window is
        synchronous.
      draw: for one who knows the true law: iteration and generator -> float64[K, N]; None where nobody does.
    """

    runtimes: np.ndarray
    history: np.ndarray | None = None
    draw: Callable[[int, np.random.Generator], np.ndarray] | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """A cluster.

    Attributes:
      train: float64[T, N], seconds: a complete run in full synchrony.
      tests: runs to compare predictors on.
    """

    train: np.ndarray
    tests: tuple[Test, ...]


def case(config: ConfigDict, seeds: int) -> Case:
    """The runs of a configuration.

    Args:
      config: of configs/cutoff.py.
      seeds: how many test runs; a recording has one.

    Raises:
      UsageError: where the cluster cannot be, or the recording cannot be read.
    """
    if config.cluster.kind == "recorded":
        return _recorded(config)
    law = law_of(config.cluster)
    tests = (_simulated(law, config, seed) for seed in range(seeds))
    return Case(training_run(config), tuple(tests))


def training_run(config: ConfigDict) -> np.ndarray:
    """float64[T, N], seconds: what a model of this cluster is trained on."""
    if config.cluster.kind == "recorded":
        return _recorded(config).train
    law = law_of(config.cluster)
    return law.draw(config.cluster.train_steps, seed=config.cluster.train_seed)


def law_of(machines: ConfigDict) -> cluster.RegimeCluster:
    """The cluster with regimes that a configuration describes.

    Args:
      machines: its `cluster`.

    Raises:
      UsageError: where it cannot be.
    """
    return CLUSTERS.make("regimes", machines.regimes, num_workers=machines.num_workers)


def _simulated(law: cluster.RegimeCluster, config: ConfigDict, seed: int) -> Test:
    run, lag = law.run(config.cluster.test_steps, seed=seed), config.widths.lag

    def draw(iteration: int, generator: np.random.Generator) -> np.ndarray:
        return law.draw_next(run, lag + iteration, num_samples=INFORMED_SAMPLES, generator=generator)

    return Test(run.runtimes, draw=draw)


def _recorded(config: ConfigDict) -> Case:
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
