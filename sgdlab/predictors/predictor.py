"""`Predictor`, the interface of all predictors of the cutoff, and the `Prediction` that they return."""

from typing import Any, NamedTuple, Protocol

import numpy as np

from sgdlab.predictors.order_statistics import best_cutoff


class Prediction(NamedTuple):
    """The prediction of the next iteration.

    Attributes:
      cutoff: c, the number of workers to wait for, from 1 to N.
      mean: float64[N], seconds, expected order statistics; NaN if the predictor does not predict them.
      std: float64[N], seconds, standard deviations of the order statistics; NaN if it does not predict them.
    """

    cutoff: int
    mean: np.ndarray
    std: np.ndarray

    @classmethod
    def of(cls, mean: np.ndarray, std: np.ndarray, rate: float | None, at_least: int = 1) -> "Prediction":
        """Return the prediction with the best cutoff for expected order statistics, as `best_cutoff` has it."""
        return cls(best_cutoff(mean, rate=rate, at_least=at_least), mean, std)


class Predictor(Protocol):
    """Predicts the compute times of the next iteration from those before it.

    A predictor holds what was fitted before the run; what it learns during a run is in its state, any value that
    `start` makes and `observe` replaces. One predictor can be used in many runs.

    Attributes:
      title: its name in tables.
    """

    title: str

    def start(self, window: np.ndarray, *, seed: int) -> Any:
        """Return the state after the first window.

        Args:
          window: float64[W, N], seconds, complete compute times of the iterations before the first prediction.
          seed: seed of the random numbers of the run.

        Raises:
          ValueError: if the predictor was made for another number of workers.
        """
        ...

    def predict(self, state: Any, *, rate: float | None = None) -> Prediction:
        """Return the prediction of the next iteration; it depends on the arguments alone.

        Args:
          state: returned by `start` or `observe`.
          rate: gradients per second of the run, for the objective of `best_cutoff`.
        """
        ...

    def observe(self, state: Any, runtimes: np.ndarray, cut_at: float) -> Any:
        """Return the state after one more iteration.

        Args:
          state: the state that the iteration was predicted from.
          runtimes: float64[N], seconds; NaN for workers that were cut off.
          cut_at: seconds, a lower bound of the compute times of workers that were cut off.
        """
        ...
