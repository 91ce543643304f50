"""The runs of the clusters of configs/cutoff.py: a training run, and the test runs on which predictors are compared."""

import dataclasses
from collections.abc import Callable

import numpy as np
from ml_collections import ConfigDict

from configs import cutoff as configurations
from sgdlab import cluster
from sgdlab.cluster.family import CLUSTERS

INFORMED_SAMPLES = 128
"""Number of draws from the true law for one prediction."""
CHANGE, RECOVERED = 61, 85
"""Of the paper's Figure 2: the last iteration in which a node is slow, and that by which the cutoff has recovered."""


@dataclasses.dataclass(frozen=True, eq=False)
class Test:
    """A run on which predictors are tested and no model was trained.

    Attributes:
      runtimes: float64[T, N], seconds.
      history: float64[W, N], the iterations before the run, if it is the second part of a recording; None: the first
        window of the run is synchronous.
      draw: draws of an iteration's compute times from the true law: iteration and generator -> float64[K, N]; None if
        the law is unknown.
    """

    runtimes: np.ndarray
    history: np.ndarray | None = None
    draw: Callable[[int, np.random.Generator], np.ndarray] | None = None


def configured(name: str, *, small: bool = False, trace: str = "") -> ConfigDict:
    """Return the configuration of a cluster.

    Args:
      name: one of `configs.cutoff.CLUSTERS`.
      small: 8 workers, short runs and a model that is hardly trained, to try the code.
      trace: file of recorded compute times, for the cluster `recorded`.

    Raises:
      ValueError: if `recorded` has no trace, or another cluster has one.

    Example:
      >>> configured("memory", small=True).cluster.num_workers
      8
    """
    if (name == "recorded") != bool(trace):
        raise ValueError(f"{trace=} must name a file of recorded run-times for the cluster recorded, and for no other")
    config = configurations.get_config(name)
    config.cluster.recorded.trace = trace
    if small:
        config.cluster.num_workers, config.cluster.test_steps = 8, 40
        config.cluster.regimes.num_nodes = min(config.cluster.regimes.num_nodes, 8)
        config.cluster.train_steps = 160
        config.fitting.steps = config.fitting.every = 20
        config.widths.state = config.widths.gate = config.widths.emission = config.widths.scale = 4
        config.widths.recurrent, config.samples = 4, 8
    return config


def recovering(config: ConfigDict, iterations: int) -> ConfigDict:
    """The configuration of the run of Figures 2 and 3: the first node is slow until iteration `CHANGE`, no other is.

    Everything else is as in training: `mean` and `std` are set to the training law's `ordinary_mean` and
    `ordinary_mean * noise`, so that ordinary compute times have the same mean and the same relative noise. The first
    window of the model is the iterations before the first one, in which the node is slow too.
    """
    law, config = law_of(config.cluster), config.copy_and_resolve_references()
    config.cluster.test_steps = config.widths.lag + iterations
    regimes = config.cluster.regimes
    regimes.slow_share, regimes.slow_until = 0.0, config.widths.lag + CHANGE
    regimes.mean, regimes.std = law.ordinary_mean, law.ordinary_mean * law.noise
    return config


def law_of(machines: ConfigDict) -> cluster.RegimeCluster:
    """Return the cluster with regimes of a configuration's entry `cluster`."""
    return CLUSTERS.make("regimes", machines.regimes, num_workers=machines.num_workers)


def training_run(machines: ConfigDict, lag: int) -> np.ndarray:
    """Return the run on which a model of a cluster is trained, in full synchrony.

    Returns:
      float64[T, N], seconds.

    Raises:
      ValueError: if the cluster is impossible, or the recording cannot be read.
    """
    if machines.kind == "recorded":
        return _halves(machines, lag)[0]
    return law_of(machines).draw(machines.train_steps, seed=machines.train_seed)


def test_run(machines: ConfigDict, lag: int, seed: int) -> Test:
    """Return a run on which predictors are compared; of a recording, its second part, whatever the seed."""
    if machines.kind == "recorded":
        before, after = _halves(machines, lag)
        return Test(after, history=before[-lag:])
    law = law_of(machines)
    run = law.run(machines.test_steps, seed=seed)

    def draw(iteration: int, generator: np.random.Generator) -> np.ndarray:
        return law.draw_next(run, lag + iteration, num_samples=INFORMED_SAMPLES, generator=generator)

    return Test(run.runtimes, draw=draw)


def _halves(machines: ConfigDict, lag: int) -> tuple[np.ndarray, np.ndarray]:
    trace = machines.recorded.trace
    try:
        runtimes = cluster.recorded(trace).complete().runtimes
    except (ValueError, OSError) as error:
        raise ValueError(f"recorded.{trace=} must be a file of recorded run-times: {error}") from error
    half = machines.train_steps or len(runtimes) // 2
    if not lag <= half < len(runtimes):
        raise ValueError(
            f"train_steps={half} must be from {lag} to {len(runtimes) - 1}: a window to train on and an iteration to "
            "compare on"
        )
    return runtimes[:half], runtimes[half:]
