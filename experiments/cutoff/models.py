"""Trains the deep Markov model of a configuration once, stores it, and loads it afterwards."""

import hashlib
import pathlib
import time

import jax
import numpy as np
from ml_collections import ConfigDict

from experiments.cutoff.cases import training_run
from sgdlab.deep_markov import Architecture, Fitting, TrainedModel, fit
from sgdlab.errors import UsageError
from sgdlab.jobs import provenance
from sgdlab.results.directory import OtherConfiguration, RunDirectory


def trained(config: ConfigDict, path: pathlib.Path) -> TrainedModel:
    """Trains the model of a configuration, or loads it; a training that was killed continues at its last checkpoint.

    Args:
      config: configuration of configs/cutoff.py.
      path: directory of this configuration alone: the model is written to `model`, checkpoints to `checkpoints`.

    Raises:
      UsageError: if the model cannot be trained as it is configured.
    """
    if TrainedModel.exists(path / "model"):
        return TrainedModel.load(path / "model")
    runtimes, begun = training_run(config), time.perf_counter()

    def report(evaluation: dict[str, float]) -> None:
        print(
            f"  step {evaluation['step']:>6.0f} of {config.fitting.steps}, {time.perf_counter() - begun:>4.0f} s: ELBO "
            f"{evaluation['elbo']:.4f}, validation {evaluation['validation_elbo']:.4f} nats per value",
            flush=True,
        )

    try:
        model = fit(
            runtimes,
            Architecture(**config.widths),
            Fitting(**config.fitting),
            seed=config.seed,
            report=report,
            checkpoints=path / "checkpoints",
        )
    except ValueError as error:
        raise UsageError(f"--config: {error}") from error
    model.save(path / "model")
    return model


def digest(path: str | pathlib.Path) -> str:
    """A hash of a trained model's parameters, which identifies it."""
    model = TrainedModel.load(path)
    sha = hashlib.sha256(repr((model.widths, model.num_workers, model.divisor)).encode())
    for leaf in jax.tree.leaves(model.parameters):
        sha.update(np.ascontiguousarray(leaf).tobytes())
    return sha.hexdigest()[:16]


def kept(config: ConfigDict, path: pathlib.Path) -> TrainedModel:
    """Loads the model of a configuration from a directory that throughput and the figures share, or trains it.

    Args:
      config: configuration of configs/cutoff.py.
      path: directory of the model.

    Raises:
      UsageError: if the directory holds the model of another configuration.
    """
    try:
        RunDirectory(path, config.to_dict(), made=provenance.made_with()).claim()
    except OtherConfiguration as error:
        raise UsageError(f"{str(error).split(';')[0]}; name another --workdir") from error
    if not TrainedModel.exists(path / "model"):
        print(f"Training the model of {config.cluster.num_workers} workers in {path}", flush=True)
    return trained(config, path)
