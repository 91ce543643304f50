"""The predictors that are compared on a cluster, with their parameters tuned on its training run."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import numpy as np

from experiments.cutoff.cases import Test
from sgdlab.deep_markov import DeepMarkov, TrainedModel
from sgdlab.predictors import (
    Deadline,
    Elfving,
    Informed,
    Kalman,
    Oracle,
    Predictor,
    RunningMean,
    Static,
    kalman,
    run_online,
)

WINDOWS = (1, 2, 3, 5, 8, 12, 20)
DEVIATIONS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
_TUNING_STEPS = 1000
"""Iterations at the end of the training run that are used for tuning; using more changes no choice."""

Setting = TypeVar("Setting")
Contender = Callable[[Test], Predictor]

ORACLE, INFORMED, DEEP_MARKOV, SYNCHRONOUS = "oracle", "true law, regime one late", "deep Markov", "full synchrony"
NOT_DEPLOYABLE = (ORACLE, INFORMED)
LEARN_NOTHING = (Oracle, Informed, Static)
"""Predictors that do not learn from the run-times that they observe."""


def contenders(train: np.ndarray, model: TrainedModel, *, lag: int, samples: int) -> dict[str, Contender]:
    """The predictors by their titles, which contain the tuned parameters.

    Args:
      train: float64[T, N], run-times of the training run in seconds.
      model: deep Markov model that was trained on it.
      lag: number of iterations of the first window.
      samples: K, number of draws for one prediction, of the predictors that draw.

    Returns:
      Title -> function from a test run to the predictor.
    """
    cutoff = static_cutoff(train)
    running = best(lambda window: RunningMean(window=window), WINDOWS, train, lag)
    grid = [(k, window) for k in DEVIATIONS for window in WINDOWS[::2]]
    deviations, window = best(lambda s: Deadline(deviations=s[0], window=s[1]), grid, train, lag)
    deep = DeepMarkov(model, samples=samples)
    filters = Kalman(kalman.fit(train), samples=samples)
    return {
        ORACLE: lambda test: Oracle(test.runtimes if test.history is not None else test.runtimes[lag:]),
        INFORMED: lambda test: Informed(test.draw),
        DEEP_MARKOV: lambda test: deep,
        "Kalman": lambda test: filters,
        f"running mean of {running}": lambda test: RunningMean(window=running),
        f"median + {deviations:g} MAD of {window}": lambda test: Deadline(deviations=deviations, window=window),
        f"Elfving of {lag}": lambda test: Elfving(window=lag),
        f"static, {cutoff}": lambda test: Static(cutoff),
        SYNCHRONOUS: lambda test: Static(),
    }


def static_cutoff(train: np.ndarray) -> int:
    """The constant number of workers with the most gradients per second over a run."""
    seconds = np.sort(train, axis=1).sum(axis=0)
    return 1 + int(np.argmax(np.arange(1, train.shape[1] + 1) / seconds))


def best(make: Callable[[Setting], Predictor], settings: Iterable[Setting], train: np.ndarray, lag: int) -> Setting:
    """The setting with the most gradients per second on the end of the training run, censored as in production."""
    tuning = train[-_TUNING_STEPS:]
    window = min(lag, len(tuning) // 2)
    return max(settings, key=lambda s: run_online(tuning, make(s), window=window).gradients_per_second())


def deployable(names: Mapping[str, object]) -> list[str]:
    """The names of predictors that could be used in production."""
    return [name for name in names if name not in NOT_DEPLOYABLE]
