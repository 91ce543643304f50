"""Predictors that look at the last iterations alone: running mean, Elfving on running moments, deadline, static.

Run-times of workers that were cut off are filled in by `censoring.from_window`, from the last `IMPUTATION` iterations.
"""

import dataclasses

import numpy as np

from sgdlab import arguments
from sgdlab.predictors import censoring, order_statistics
from sgdlab.predictors.predictor import Prediction
from sgdlab.registry import PREDICTORS

_ROUNDING = 1e-9
"""Means of equal run-times differ from them by their rounding: who is in time to the digit is in time."""

IMPUTATION = 20
"""Iterations from which a missing run-time is filled in, whatever window a predictor has."""


@dataclasses.dataclass(frozen=True, eq=False)
class _State:
    window: np.ndarray  # float64[W, N], seconds, complete
    seed: int
    step: int


class _Windowed:
    """Keeps the last iterations, complete."""

    title: str

    def __init__(self, window: int = 5):
        self._size = arguments.whole("window", window)

    def start(self, window: np.ndarray, *, seed: int) -> _State:
        """The state after a first window."""
        return _State(np.array(window, np.float64)[-max(self._size, IMPUTATION) :], seed, 0)

    def observe(self, state: _State, runtimes: np.ndarray, cut_at: float) -> _State:
        """The state after one more iteration; those that were cut off are filled in."""
        generator = np.random.default_rng((state.seed, state.step))
        filled = censoring.from_window(generator, state.window[-IMPUTATION:], runtimes, cut_at)
        kept = state.window[-max(self._size, IMPUTATION) + 1 :]
        return _State(np.concatenate([kept, filled[None]]), state.seed, state.step + 1)

    def _seen(self, state: _State) -> np.ndarray:
        return state.window[-self._size :]


@PREDICTORS.register("running_mean", title="running mean")
class RunningMean(_Windowed):
    """The next order statistics are the mean of the last ones: identities of workers do not count.

    Args:
      window: iterations.

    Example:
      >>> predictor = RunningMean(window=2)
      >>> predictor.predict(predictor.start(np.array([[1.0, 3.0], [3.0, 1.0]]), seed=0)).mean
      array([1., 3.])
    """

    title = "running mean"

    def predict(self, state: _State, *, rate: float | None = None) -> Prediction:
        """What is expected of the next iteration."""
        ordered = np.sort(self._seen(state), axis=1)
        return Prediction.of(ordered.mean(axis=0), ordered.std(axis=0), rate)


@PREDICTORS.register("elfving", title="Elfving", source="Teng and Wood 2018, equation 3")
class Elfving(_Windowed):
    """Independent, identical normal workers with the window's mean and deviation (`order` in the paper).

    Args:
      window: iterations.

    Source: Teng and Wood 2018, equation 3 and Figure 4.

    Example:
      >>> predictor = Elfving(window=20)
      >>> predictor.predict(predictor.start(np.ones((20, 4)), seed=0)).cutoff
      4
    """

    title = "Elfving"

    def predict(self, state: _State, *, rate: float | None = None) -> Prediction:
        """What is expected of the next iteration; the deviation of order statistics is not."""
        seen = self._seen(state)
        mean = order_statistics.elfving(seen.shape[1], mean=float(seen.mean()), std=float(seen.std()))
        # Normal run-times can be negative, an iteration's time cannot: no sooner than the fastest that was seen.
        return Prediction.of(np.maximum(mean, seen.min()), np.full(seen.shape[1], np.nan), rate)


@PREDICTORS.register("deadline", title="median + k MAD")
class Deadline(_Windowed):
    r"""Waits for as many as were done by a deadline: the median of the last run-times plus k deviations.

    .. math:: d = \mathrm{median}(x) + k\, \mathrm{MAD}(x), \qquad c = \#\{j : \overline{x_{(j)}} \le d\}

    MAD is the median absolute deviation from the median.

    Args:
      deviations: k.
      window: iterations.

    Example:
      >>> predictor = Deadline(deviations=2.0, window=1)
      >>> predictor.predict(predictor.start(np.array([[1.0, 1.1, 0.9, 5.0]]), seed=0)).cutoff
      3
    """

    title = "median + k MAD"

    def __init__(self, *, deviations: float = 2.0, window: int = 5):
        super().__init__(window)
        self._deviations = arguments.real("deviations", deviations)

    def predict(self, state: _State, *, rate: float | None = None) -> Prediction:
        """What is expected of the next iteration; the deadline is the same whatever the rate."""
        del rate
        seen = self._seen(state)
        median = np.median(seen)
        deadline = median + self._deviations * np.median(np.abs(seen - median))
        ordered = np.sort(seen, axis=1)
        mean = ordered.mean(axis=0)
        return Prediction(max(1, int(np.count_nonzero(mean <= (1 + _ROUNDING) * deadline))), mean, ordered.std(axis=0))


class Static:
    """The same number of workers in every iteration: backup workers, whose late gradients are interrupted.

    Args:
      cutoff: c; all workers where it is None, full synchrony.

    Raises:
      ValueError: at the start, where there are fewer workers.

    Example:
      >>> predictor = Static(3)
      >>> predictor.predict(predictor.start(np.ones((20, 4)), seed=0)).cutoff
      3
    """

    def __init__(self, cutoff: int | None = None):
        self._cutoff = None if cutoff is None else arguments.whole("cutoff", cutoff)
        self.title = "full synchrony" if cutoff is None else "static cutoff"

    def start(self, window: np.ndarray, *, seed: int) -> int:
        """The number of workers is all there is to know."""
        del seed
        workers = np.shape(window)[1]
        if self._cutoff is not None:
            arguments.whole("cutoff", self._cutoff, most=workers, why=f"there are {workers} workers")
        return workers

    def predict(self, state: int, *, rate: float | None = None) -> Prediction:
        """No opinion but the cutoff."""
        del rate
        return Prediction(self._cutoff or state, np.full(state, np.nan), np.full(state, np.nan))

    def observe(self, state: int, runtimes: np.ndarray, cut_at: float) -> int:
        """Nothing is learned."""
        del runtimes, cut_at
        return state


@PREDICTORS.register(title="static cutoff")
def static(*, cutoff: int | None = None, runtimes: np.ndarray) -> Static:
    """The same number of workers in every iteration; a run has to say how many.

    Args:
      cutoff: c, from 1 to the number of workers.
      runtimes: float64[T, N], seconds, of the run; only the number of workers is looked at.

    Returns:
      The predictor.

    Raises:
      ValueError: where `cutoff` is not such a number.

    Example:
      >>> static(cutoff=3, runtimes=np.ones((20, 4))).title
      'static cutoff'
    """
    workers = np.shape(runtimes)[1]
    return Static(arguments.whole("cutoff", cutoff, most=workers, why=f"there are {workers} workers"))
