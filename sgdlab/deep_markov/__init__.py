"""A deep Markov model of a cluster's run-times: trained by variational inference, and used as a predictor."""

from sgdlab.deep_markov.fitting import Fitting, fit
from sgdlab.deep_markov.model import Architecture, WindowModel
from sgdlab.deep_markov.predictor import DeepMarkov, Forecast
from sgdlab.deep_markov.trained import TrainedModel

__all__ = ["Architecture", "DeepMarkov", "Fitting", "Forecast", "TrainedModel", "WindowModel", "fit"]
