"""How many workers to wait for: order statistics, and predictors of the next iteration's run-times."""

from sgdlab.cutoff import kalman
from sgdlab.cutoff.ceilings import Informed, Oracle
from sgdlab.cutoff.censoring import truncated_mixture, truncated_normal
from sgdlab.cutoff.deep_markov import DeepMarkov
from sgdlab.cutoff.fitting import Fitting, fit
from sgdlab.cutoff.kalman import Kalman
from sgdlab.cutoff.model import Architecture
from sgdlab.cutoff.online import OBJECTIVES, CutoffRecord, run_online
from sgdlab.cutoff.order_statistics import best_cutoff, elfving, monte_carlo, normal
from sgdlab.cutoff.predictor import Prediction, Predictor
from sgdlab.cutoff.trained import TrainedModel
from sgdlab.cutoff.windowed import Deadline, Elfving, RunningMean, Static

__all__ = [
    "OBJECTIVES",
    "Architecture",
    "CutoffRecord",
    "Deadline",
    "DeepMarkov",
    "Elfving",
    "Fitting",
    "Informed",
    "Kalman",
    "Oracle",
    "Prediction",
    "Predictor",
    "RunningMean",
    "Static",
    "TrainedModel",
    "best_cutoff",
    "elfving",
    "fit",
    "kalman",
    "monte_carlo",
    "normal",
    "run_online",
    "truncated_mixture",
    "truncated_normal",
]
