"""The predictors that are compared on a cluster, each tuned on its training run."""

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
"""The end of the training run; more of it changes no choice."""

Setting = TypeVar("Setting")
Contender = Callable[[Test], Predictor]

ORACLE, INFORMED, DEEP_MARKOV, SYNCHRONOUS = "oracle", "true law, regime one late", "deep Markov", "full synchrony"
NOT_DEPLOYABLE = (ORACLE, INFORMED)
LEARN_NOTHING = (Oracle, Informed, Static)
"""Predictors to which nothing is new that they see."""


def contenders(train: np.ndarray, model: TrainedModel, *, lag: int, samples: int) -> dict[str, Contender]:
    """Predictors by their titles; what they were tuned to is in the titles.

    Args:
      train: float64[T, N], seconds, the training run.
      model: trained on it.
      lag: first window.
      samples: K, of the models that draw.
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
    """The number of workers that gives most gradients per second over a run, if it never changes."""
    seconds = np.sort(train, axis=1).sum(axis=0)
    return 1 + int(np.argmax(np.arange(1, train.shape[1] + 1) / seconds))


def best(make: Callable[[Setting], Predictor], settings: Iterable[Setting], train: np.ndarray, lag: int) -> Setting:
    """The setting of most gradients per second on the end of the training run, censored as in production."""
    seen = train[-_TUNING_STEPS:]
    window = min(lag, len(seen) // 2)
    return max(settings, key=lambda s: run_online(seen, make(s), window=window).gradients_per_second())


def deployable(names: Mapping[str, object]) -> list[str]:
    """Those that one could have."""
    return [name for name in names if name not in NOT_DEPLOYABLE]
