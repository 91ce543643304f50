"""The names of `sgdlab.predictors` and `sgdlab.deep_markov` under one roof; the second is imported when asked for."""

import importlib
from typing import Any

from sgdlab import predictors

_LEARNED = ("Architecture", "DeepMarkov", "Fitting", "TrainedModel", "fit")

_NAMES = (*predictors.__all__, *_LEARNED)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # NumPyro, Flax and Orbax take seconds to import.
    home = importlib.import_module("sgdlab.deep_markov") if name in _LEARNED else predictors
    return getattr(home, name)


def __dir__() -> list[str]:
    return sorted(_NAMES)
