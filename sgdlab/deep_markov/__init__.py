"""A deep Markov model of compute times: training (`fit`), the model (`TrainedModel`), the predictor (`DeepMarkov`).

NumPyro, Flax and Orbax take seconds to import: a module is imported at its first use.
"""

from sgdlab import lazy

__getattr__, __dir__, __all__ = lazy.attach(
    __name__,
    names={
        "fitting": ["Fitting", "fit"],
        "model": ["Architecture", "WindowModel"],
        "part": ["deep_markov"],
        "predictor": ["DeepMarkov", "Forecast"],
        "trained": ["TrainedModel"],
    },
)
