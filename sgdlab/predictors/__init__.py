"""Predictors of how many workers to wait for, the order statistics they use, and `run_online`, which runs them."""

from sgdlab.predictors import kalman
from sgdlab.predictors.ceilings import Informed, Oracle
from sgdlab.predictors.censoring import truncated_mixture, truncated_normal
from sgdlab.predictors.family import PREDICTORS
from sgdlab.predictors.guarded import Guarded
from sgdlab.predictors.kalman import Kalman
from sgdlab.predictors.online import OBJECTIVES, CutoffRecord, run_online
from sgdlab.predictors.order_statistics import best_cutoff, elfving, monte_carlo, normal
from sgdlab.predictors.predictor import Prediction, Predictor
from sgdlab.predictors.windowed import Deadline, Elfving, RunningMean, Static

__all__ = [
    "OBJECTIVES",
    "PREDICTORS",
    "CutoffRecord",
    "Deadline",
    "Elfving",
    "Guarded",
    "Informed",
    "Kalman",
    "Oracle",
    "Prediction",
    "Predictor",
    "RunningMean",
    "Static",
    "best_cutoff",
    "elfving",
    "kalman",
    "monte_carlo",
    "normal",
    "run_online",
    "truncated_mixture",
    "truncated_normal",
]
