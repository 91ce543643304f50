"""A deep Markov model of run-times: training (`fit`), the model (`TrainedModel`), the predictor (`DeepMarkov`).

NumPyro, Flax and Orbax take seconds to import: a module is imported at its first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "fitting": ["Fitting", "fit"],
        "model": ["Architecture", "WindowModel"],
        "part": ["deep_markov"],
        "predictor": ["DeepMarkov", "Forecast"],
        "trained": ["TrainedModel"],
    },
)
