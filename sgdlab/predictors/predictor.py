"""What every predictor of the cutoff is: it sees run-times as they come, and says how many workers to wait for."""

from typing import Any, NamedTuple, Protocol

import numpy as np

from sgdlab.predictors.order_statistics import best_cutoff


class Prediction(NamedTuple):
    """What is expected of the next iteration.

    Attributes:
      cutoff: c, how many workers to wait for, from 1 to N.
      mean: float64[N], seconds, expected order statistics; NaN where the predictor has no opinion.
      std: float64[N], seconds, of the order statistics; NaN where the predictor has no opinion.
    """

    cutoff: int
    mean: np.ndarray
    std: np.ndarray

    @classmethod
    def of(cls, mean: np.ndarray, std: np.ndarray, rate: float | None) -> "Prediction":
        """The best cutoff for expected order statistics; `rate` is that of `best_cutoff`."""
        return cls(best_cutoff(mean, rate=rate), mean, std)


class Predictor(Protocol):
    """Predicts the run-times of the next iteration from those before it.

    A predictor holds what was learned before the run; what it learns in a run is in its state, any value, which `start`
    makes and `observe` replaces. One predictor serves many runs.

    Attributes:
      title: one or two words for tables.
    """

    title: str

    def start(self, window: np.ndarray, *, seed: int) -> Any:
        """The state after the first window.

        Args:
          window: float64[W, N], seconds, the iterations before the first prediction, all of them complete.
          seed: of the random numbers that the run needs.

        Raises:
          ValueError: where the predictor was made for another number of workers.
        """
        ...

    def predict(self, state: Any, *, rate: float | None = None) -> Prediction:
        """What is expected of the next iteration; the same state gives the same answer.

        Args:
          state: made by `start` or `observe`.
          rate: gradients per second of the run, for the objective of `best_cutoff`.
        """
        ...

    def observe(self, state: Any, runtimes: np.ndarray, cut_at: float) -> Any:
        """The state after one more iteration.

        Args:
          state: that the iteration was predicted from.
          runtimes: float64[N], seconds; NaN where a worker was cut off.
          cut_at: seconds; workers that were cut off would have taken as long, or longer.
        """
        ...
