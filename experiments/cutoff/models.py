"""Trained deep Markov models: each is trained once for its configuration, and every figure asks for it here."""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from experiments.cutoff.cases import training_run
from experiments.harness import Sweep, goes_by
from sgdlab.deep_markov import Architecture, Fitting, TrainedModel, fit
from sgdlab.errors import UsageError
from sgdlab.runs.configuration import flat


def trained(configs: Sequence[ConfigDict]) -> list[str]:
    """Trains the models of configurations of configs/cutoff.py that are not there yet."""
    first = dict(flat(configs[0]))
    over = [{name: value for name, value in flat(config) if value != first[name]} for config in configs]
    sweep = Sweep(configs[0], over, work=fitted, files=("cluster.recorded.trace",))
    return [str(folder / "model") for folder in sweep.folders()]


@goes_by(fit, TrainedModel)
def fitted(
    config: ConfigDict, folder: pathlib.Path, report: Callable[[Mapping[str, Any]], None] = lambda record: None
) -> list[dict[str, Any]]:
    """Trains the model of a configuration; a training that was killed continues at its last checkpoint.

    Args:
      config: configuration of configs/cutoff.py.
      folder: directory of this configuration alone: the model is written to `model`, checkpoints to `checkpoints`.
      report: called with each evaluation.

    Returns:
      The records of the training: its evaluations, then a summary.

    Raises:
      UsageError: if the model cannot be trained as it is configured.
    """
    try:
        model = fit(
            training_run(config.cluster, config.widths.lag),
            Architecture(**config.widths),
            Fitting(**config.fitting),
            seed=config.seed,
            report=lambda evaluation: report({"kind": "evaluation", **evaluation}),
            checkpoints=folder / "checkpoints",
        )
    except ValueError as error:
        raise UsageError(f"the model of {config.cluster.num_workers} workers cannot be trained: {error}") from error
    model.save(folder / "model")
    evaluations = [{"kind": "evaluation", **evaluation} for evaluation in model.history]
    return [*evaluations, {"kind": "summary", **best_evaluation(model), "divisor": model.divisor}]


def best_evaluation(model: TrainedModel) -> dict[str, float]:
    """Return the evaluation with the best validation ELBO."""
    return max(model.history, key=lambda evaluation: evaluation["validation_elbo"])
