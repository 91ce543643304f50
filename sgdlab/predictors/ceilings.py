"""Upper bounds for predictors: `Oracle` knows all compute times, `Informed` the true law of the cluster."""

from collections.abc import Callable

import numpy as np

from sgdlab.predictors import order_statistics
from sgdlab.predictors.family import PREDICTORS
from sgdlab.predictors.predictor import Prediction
from sgdlab.runtimes import checked


class Oracle:
    """Predicts the actual compute times, which it knows beforehand.

    Args:
      runtimes: float64[T, N], seconds, of the iterations to predict, in order.
      whole: whether `runtimes` begins with the first window, so that predictions begin after it.

    Example:
      >>> predictor = Oracle(np.array([[1.0, 1.1, 9.0]]))
      >>> predictor.predict(predictor.start(np.ones((20, 3)), seed=0)).cutoff
      2
    """

    title = "oracle"

    def __init__(self, runtimes: np.ndarray, *, whole: bool = False):
        self._ordered = np.sort(checked(runtimes), axis=1)
        self._whole = whole

    def start(self, window: np.ndarray, *, seed: int) -> int:
        """Return the index of the next iteration; raises a `ValueError` for a window of another number of workers."""
        del seed
        workers = self._ordered.shape[1]
        if np.ndim(window) != 2 or np.shape(window)[1] != workers:
            raise ValueError(f"window of shape {np.shape(window)} must have {workers} columns, as runtimes has")
        return len(window) if self._whole else 0

    def predict(self, state: int, *, rate: float | None = None) -> Prediction:
        """Return the order statistics of the actual compute times as a prediction."""
        return Prediction.of(self._ordered[state], np.zeros(self._ordered.shape[1]), rate)

    def observe(self, state: int, runtimes: np.ndarray, cut_at: float) -> int:
        """Return the index of the next iteration.

        Raises:
          ValueError: if the times differ from the known ones, for example because the oracle was given the first
            window too.
        """
        del cut_at
        observed = np.sort(runtimes[~np.isnan(runtimes)])
        if not np.array_equal(observed, self._ordered[state, : observed.size]):
            raise ValueError(
                f"runtimes of the oracle's iteration {state} must be those observed: without whole=True they "
                "begin after the first window"
            )
        return state + 1


@PREDICTORS.register(title="oracle")
def oracle(*, runtimes: np.ndarray) -> Oracle:
    """Predicts the actual compute times of the run, which it knows beforehand.

    Args:
      runtimes: float64[T, N], seconds, of all iterations, beginning with the first window.

    Raises:
      ValueError: if compute times are not positive and finite.

    Example:
      >>> predictor = oracle(runtimes=np.array([[1.0, 1.0, 1.0], [1.0, 1.1, 9.0]]))
      >>> predictor.predict(predictor.start(np.ones((1, 3)), seed=0)).cutoff
      2
    """
    return Oracle(runtimes, whole=True)


class Informed:
    """Knows the true law of the cluster, and its hidden state in the previous iteration.

    Args:
      draw: (iteration, generator) -> float64[K, N], seconds, samples of the compute times of an iteration given the
        state of the previous one, such as `RegimeCluster.draw_next` returns.

    Example:
      >>> predictor = Informed(lambda step, generator: np.array([[1.0, 1.1, 9.0]]))
      >>> predictor.predict(predictor.start(np.ones((20, 3)), seed=0)).cutoff
      2
    """

    title = "true law, regime one late"

    def __init__(self, draw: Callable[[int, np.random.Generator], np.ndarray]):
        self._draw = draw

    def start(self, window: np.ndarray, *, seed: int) -> tuple[int, int]:
        """Return the seed and the index of the next iteration."""
        del window
        return seed, 0

    def predict(self, state: tuple[int, int], *, rate: float | None = None) -> Prediction:
        """Return the prediction of the next iteration."""
        samples = self._draw(state[1], np.random.default_rng(state))
        return Prediction.of(*order_statistics.monte_carlo(samples), rate)

    def observe(self, state: tuple[int, int], runtimes: np.ndarray, cut_at: float) -> tuple[int, int]:
        """Return the seed and the index of the next iteration."""
        del runtimes, cut_at
        return state[0], state[1] + 1
