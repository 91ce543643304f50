"""The deep Markov model of a configuration: trained once, kept, and found again."""

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
    """The trained model; a training that was killed continues where it last looked.

    Args:
      config: of configs/cutoff.py.
      path: a directory of the configuration's own: the model goes to `model`, checkpoints to `checkpoints`.

    Raises:
      UsageError: where the model cannot be trained as it is configured.
    """
    if TrainedModel.exists(path / "model"):
        return TrainedModel.load(path / "model")
    begun = time.perf_counter()

    def report(look: dict[str, float]) -> None:
        print(
            f"  step {look['step']:>6.0f} of {config.fitting.steps}, {time.perf_counter() - begun:>4.0f} s: ELBO "
            f"{look['elbo']:.4f}, validation {look['validation_elbo']:.4f} nats per value",
            flush=True,
        )

    try:
        model = fit(
            training_run(config),
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
    """What tells a trained model from another: a hash of its parameters."""
    model = TrainedModel.load(path)
    found = hashlib.sha256(repr((model.widths, model.num_workers, model.divisor)).encode())
    for leaf in jax.tree.leaves(model.parameters):
        found.update(np.ascontiguousarray(leaf).tobytes())
    return found.hexdigest()[:16]


def kept(config: ConfigDict, path: pathlib.Path) -> TrainedModel:
    """The model of a configuration in a directory that throughput and the figures share, trained where it is missing.

    Raises:
      UsageError: where the directory holds that of another configuration.
    """
    try:
        RunDirectory(path, config.to_dict(), made=provenance.made_with()).claim()
    except OtherConfiguration as error:
        raise UsageError(f"{str(error).split(';')[0]}; name another --workdir") from error
    if not TrainedModel.exists(path / "model"):
        print(f"Training the model of {config.cluster.num_workers} workers in {path}", flush=True)
    return trained(config, path)
