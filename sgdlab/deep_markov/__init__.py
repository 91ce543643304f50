"""A deep Markov model of run-times: training (`fit`), the model (`TrainedModel`), the predictor (`DeepMarkov`)."""

from sgdlab.deep_markov.fitting import Fitting, fit
from sgdlab.deep_markov.model import Architecture, WindowModel
from sgdlab.deep_markov.predictor import DeepMarkov, Forecast
from sgdlab.deep_markov.trained import TrainedModel

__all__ = ["Architecture", "DeepMarkov", "Fitting", "Forecast", "TrainedModel", "WindowModel", "fit"]
