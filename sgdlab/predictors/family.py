"""The registry of predictors, which say how many workers to wait for."""

from sgdlab.registry import Registry

PREDICTORS = Registry(
    "predictor",
    given={"runtimes": ""},
    modules=(
        "sgdlab.predictors.windowed",
        "sgdlab.predictors.kalman",
        "sgdlab.deep_markov.part",
        "sgdlab.predictors.ceilings",
    ),
)
"""Predictors of the number of workers to wait for, step by step: see `sgdlab.predictors`."""
