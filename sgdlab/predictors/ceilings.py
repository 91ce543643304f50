"""Predictors that nobody can deploy, to measure the others by: one knows the future, one the true law."""

from collections.abc import Callable

import numpy as np

from sgdlab.predictors import order_statistics
from sgdlab.predictors.predictor import Prediction
from sgdlab.registry import PREDICTORS
from sgdlab.runtimes import checked


class Oracle:
    """Knows the run-times of every iteration beforehand.

    Args:
      runtimes: float64[T, N], seconds, those of the iterations that it predicts, in their order.
      whole: the first window is among them, so that it begins behind it.

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
        """Which iteration comes next.

        Raises:
          ValueError: where the window is of another number of workers.
        """
        del seed
        workers = self._ordered.shape[1]
        if np.ndim(window) != 2 or np.shape(window)[1] != workers:
            raise ValueError(f"window of shape {np.shape(window)} must have {workers} columns, as runtimes has")
        return len(window) if self._whole else 0

    def predict(self, state: int, *, rate: float | None = None) -> Prediction:
        """What will be."""
        return Prediction.of(self._ordered[state], np.zeros(self._ordered.shape[1]), rate)

    def observe(self, state: int, runtimes: np.ndarray, cut_at: float) -> int:
        """The next iteration.

        Raises:
          ValueError: where the run-times are not those that were foreseen, as where the oracle was given the first
            window too.
        """
        del cut_at
        came = np.sort(runtimes[~np.isnan(runtimes)])
        if not np.array_equal(came, self._ordered[state, : came.size]):
            raise ValueError(
                f"runtimes of the oracle's iteration {state} must be those that came: without whole=True it takes "
                "those after the first window"
            )
        return state + 1


@PREDICTORS.register(title="oracle")
def oracle(*, runtimes: np.ndarray) -> Oracle:
    """Knows the run-times of the whole run.

    Args:
      runtimes: float64[T, N], seconds, of all iterations, the first window among them.

    Returns:
      The predictor.

    Raises:
      ValueError: where run-times are not positive and finite.

    Example:
      >>> predictor = oracle(runtimes=np.array([[1.0, 1.0, 1.0], [1.0, 1.1, 9.0]]))
      >>> predictor.predict(predictor.start(np.ones((1, 3)), seed=0)).cutoff
      2
    """
    return Oracle(runtimes, whole=True)


class Informed:
    """Knows the true law of the cluster, and its hidden state as it was in the iteration before.

    Args:
      draw: (iteration, generator) -> float64[K, N], run-times of an iteration as the law has them, given the state
        of the one before; `RegimeCluster.draw_next` makes them.

    Example:
      >>> predictor = Informed(lambda step, generator: np.array([[1.0, 1.1, 9.0]]))
      >>> predictor.predict(predictor.start(np.ones((20, 3)), seed=0)).cutoff
      2
    """

    title = "true law, regime one late"

    def __init__(self, draw: Callable[[int, np.random.Generator], np.ndarray]):
        self._draw = draw

    def start(self, window: np.ndarray, *, seed: int) -> tuple[int, int]:
        """Seed, and which iteration comes next."""
        del window
        return seed, 0

    def predict(self, state: tuple[int, int], *, rate: float | None = None) -> Prediction:
        """What is expected of the next iteration."""
        samples = self._draw(state[1], np.random.default_rng(state))
        return Prediction.of(*order_statistics.monte_carlo(samples), rate)

    def observe(self, state: tuple[int, int], runtimes: np.ndarray, cut_at: float) -> tuple[int, int]:
        """The next iteration."""
        del runtimes, cut_at
        return state[0], state[1] + 1
