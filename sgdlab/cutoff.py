"""Deprecated: these names are in `sgdlab.predictors` and `sgdlab.deep_markov`."""

from sgdlab import deprecation, predictors

_HOMES = dict.fromkeys(predictors.__all__, "sgdlab.predictors") | dict.fromkeys(
    ("Architecture", "DeepMarkov", "Fitting", "TrainedModel", "fit"), "sgdlab.deep_markov"
)

__all__: list[str] = []
__getattr__ = deprecation.moved(__name__, _HOMES, until="1.2")
