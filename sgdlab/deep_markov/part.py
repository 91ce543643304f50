"""The part `deep_markov` of the family `predictor`; NumPyro, Flax and Orbax are imported when it is called."""

import functools
from typing import Any

import numpy as np

from sgdlab.predictors.family import PREDICTORS
from sgdlab.predictors.predictor import Predictor


@PREDICTORS.register(title="deep Markov", source="Teng and Wood 2018, section 3.1.3", files=("model",))
def deep_markov(*, model: str = "", samples: int = 64, at_least: float = 0.5, runtimes: np.ndarray) -> Predictor:
    """A trained deep Markov model, `sgdlab.deep_markov.DeepMarkov`, read from a directory once per process.

    Args:
      model: directory that `TrainedModel.save` has written, as experiments.cutoff.train does.
      samples: number of draws for the order statistics.
      at_least: least share of the workers that every iteration waits for.
      runtimes: float64[T, N], seconds, of the run; only the number of workers is used.

    Raises:
      ValueError: if the directory holds no model or one of another number of workers, or a number is out of its range.

    Example:
      >>> deep_markov(model="", runtimes=np.ones((30, 4)))
      Traceback (most recent call last):
      ...
      ValueError: model='' must be a directory with a trained model; experiments.cutoff.train makes one
    """
    if not model:
        raise ValueError(f"{model=} must be a directory with a trained model; experiments.cutoff.train makes one")
    try:
        trained = _trained(model)
    except ValueError as error:
        raise ValueError(f"{model=} must be a directory with a trained model: {error}") from error
    from sgdlab.deep_markov.predictor import DeepMarkov  # noqa: PLC0415 (by name: a run's digest follows it)

    workers = np.shape(runtimes)[1]
    if trained.num_workers != workers:
        raise ValueError(f"{model=} must be a model of {workers} workers: it was trained on {trained.num_workers}")
    return DeepMarkov(trained, samples=samples, at_least=at_least)


@functools.cache
def _trained(model: str) -> Any:
    from sgdlab.deep_markov.trained import TrainedModel  # noqa: PLC0415

    return TrainedModel.load(model)
