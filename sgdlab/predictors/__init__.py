"""Predictors of how many workers to wait for, the order statistics they use, and `run_online`, which runs them."""

# ruff: isort: skip_file
# In the order in which tables show them: a predictor registers itself when its module is imported.
from sgdlab.predictors.windowed import Deadline, Elfving, RunningMean, Static
from sgdlab.predictors import kalman
from sgdlab.predictors.kalman import Kalman
from sgdlab.predictors.deep_markov import deep_markov
from sgdlab.predictors.ceilings import Informed, Oracle
from sgdlab.predictors.censoring import truncated_mixture, truncated_normal
from sgdlab.predictors.guarded import Guarded
from sgdlab.predictors.online import OBJECTIVES, CutoffRecord, run_online
from sgdlab.predictors.order_statistics import best_cutoff, elfving, monte_carlo, normal
from sgdlab.predictors.predictor import Prediction, Predictor

__all__ = [
    "OBJECTIVES",
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
    "deep_markov",
    "elfving",
    "kalman",
    "monte_carlo",
    "normal",
    "run_online",
    "truncated_mixture",
    "truncated_normal",
]
