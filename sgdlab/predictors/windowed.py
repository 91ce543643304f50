"""Predictors that use the last iterations alone: `RunningMean`, `Elfving`, `Deadline`; and the `Static` cutoff.

Compute times of workers that were cut off are imputed by `censoring.from_window` from the last `IMPUTATION` iterations.
"""

import dataclasses
import math

import numpy as np

from sgdlab import arguments
from sgdlab.predictors import censoring, order_statistics
from sgdlab.predictors.family import PREDICTORS
from sgdlab.predictors.predictor import Prediction

_ROUNDING = 1e-9
"""Relative tolerance of the deadline: means of equal compute times differ from them by rounding."""

IMPUTATION = 20
"""Number of iterations from which a missing compute time is imputed, independent of the window of the predictor."""


@dataclasses.dataclass(frozen=True, eq=False)
class _State:
    window: np.ndarray  # float64[W, N], seconds, complete
    ordered: np.ndarray  # the last rows of it, as many as the predictor uses, each in ascending order
    seed: int
    step: int
    values: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))  # of `ordered` all together, ascending


class _Windowed:
    """Base of predictors whose state is the compute times of the last iterations, completed by imputation."""

    title: str

    def __init__(self, window: int = 5):
        self._size = arguments.whole("window", window)

    def start(self, window: np.ndarray, *, seed: int) -> _State:
        """Return the state after a first window."""
        kept = np.array(window, np.float64)[-max(self._size, IMPUTATION) :]
        return _State(kept, np.sort(kept[-self._size :], axis=1), seed, 0)

    def observe(self, state: _State, runtimes: np.ndarray, cut_at: float) -> _State:
        """Return the state after one more iteration, with the compute times of workers that were cut off imputed."""
        generator = np.random.default_rng((state.seed, state.step))
        filled = censoring.from_window(generator, state.window[-IMPUTATION:], runtimes, cut_at)
        window = _appended(state.window, filled, max(self._size, IMPUTATION))
        # One row is sorted, not the window: most of the time of a prediction for a thousand workers.
        ordered = _appended(state.ordered, np.sort(filled), self._size)
        return _State(window, ordered, state.seed, state.step + 1)

    def _seen(self, state: _State) -> np.ndarray:
        return state.window[-self._size :]


def _appended(rows: np.ndarray, row: np.ndarray, most: int) -> np.ndarray:
    """Return the last `most` of the rows and one more."""
    return np.concatenate([rows[len(rows) + 1 - most :] if len(rows) >= most else rows, row[None]])


@PREDICTORS.register("running_mean", title="running mean")
class RunningMean(_Windowed):
    """Predicts the mean of the last order statistics, whatever the identity of the workers.

    Args:
      window: number of iterations.
      at_least: least share of the workers that every iteration waits for. Without one, a worker that is much faster
        than all others is the only one that is waited for: serial SGD. The paper has none.

    Example:
      >>> predictor = RunningMean(window=2)
      >>> predictor.predict(predictor.start(np.array([[1.0, 3.0], [3.0, 1.0]]), seed=0)).mean
      array([1., 3.])
    """

    title = "running mean"

    def __init__(self, window: int = 5, *, at_least: float = 0.5):
        super().__init__(window)
        self._at_least = arguments.real("at_least", at_least, least=0, most=1)

    def predict(self, state: _State, *, rate: float | None = None) -> Prediction:
        """Return the prediction of the next iteration."""
        least = max(math.ceil(self._at_least * state.ordered.shape[1]), 1)
        return Prediction.of(state.ordered.mean(axis=0), state.ordered.std(axis=0), rate, least)


@PREDICTORS.register("elfving", title="Elfving", source="Teng and Wood 2018, equation 3")
class Elfving(_Windowed):
    """Assumes independent, identical normal times with the mean and deviation of the window (`order` in the paper).

    Args:
      window: number of iterations.

    Source: Teng and Wood 2018, equation 3 and Figure 4.

    Example:
      >>> predictor = Elfving(window=20)
      >>> predictor.predict(predictor.start(np.ones((20, 4)), seed=0)).cutoff
      4
    """

    title = "Elfving"

    def predict(self, state: _State, *, rate: float | None = None) -> Prediction:
        """Return the prediction of the next iteration, without deviations of the order statistics."""
        seen = self._seen(state)
        mean = order_statistics.elfving(seen.shape[1], mean=float(seen.mean()), std=float(seen.std()))
        # Normal times can be negative, which real ones cannot: at least the shortest compute time of the window.
        return Prediction.of(np.maximum(mean, seen.min()), np.full(seen.shape[1], np.nan), rate)


@PREDICTORS.register("deadline", title="median + k MAD")
class Deadline(_Windowed):
    r"""Waits for as many workers as finished by a deadline: the median of the last compute times plus k deviations.

    .. math:: d = \mathrm{median}(x) + k\, \mathrm{MAD}(x), \qquad c = \#\{j : \overline{x_{(j)}} \le d\}

    MAD is the median absolute deviation from the median.

    Args:
      deviations: k, number of median absolute deviations.
      window: number of iterations.

    Example:
      >>> predictor = Deadline(deviations=2.0, window=1)
      >>> predictor.predict(predictor.start(np.array([[1.0, 1.1, 0.9, 5.0]]), seed=0)).cutoff
      3
    """

    title = "median + k MAD"

    def __init__(self, *, deviations: float = 2.0, window: int = 5):
        super().__init__(window)
        self._deviations = arguments.real("deviations", deviations)

    def start(self, window: np.ndarray, *, seed: int) -> _State:
        """Return the state after a first window."""
        state = super().start(window, seed=seed)
        return dataclasses.replace(state, values=np.sort(state.ordered, axis=None))

    def observe(self, state: _State, runtimes: np.ndarray, cut_at: float) -> _State:
        """Return the state after one more iteration, with the compute times of workers that were cut off imputed."""
        after, values = super().observe(state, runtimes, cut_at), state.values
        # All of the window in order, kept up to date: to find two medians of it takes many times as long.
        if len(state.ordered) == self._size:
            gone = state.ordered[0]
            of_equals = np.arange(gone.size) - np.searchsorted(gone, gone)
            values = np.delete(values, np.searchsorted(values, gone) + of_equals)
        new = after.ordered[-1]
        return dataclasses.replace(after, values=np.insert(values, np.searchsorted(values, new), new))

    def predict(self, state: _State, *, rate: float | None = None) -> Prediction:
        """Return the prediction of the next iteration; the deadline does not depend on `rate`."""
        del rate
        values, half = state.values, state.values.size // 2
        odd = values.size % 2
        median = values[half] if odd else (values[half] + values[half - 1]) / 2

        def distance(rank: int) -> float:
            """Return the distance from the median of so many values next to it, which are consecutive."""
            return float(np.maximum(median - values[: values.size - rank + 1], values[rank - 1 :] - median).min())

        deviation = distance(half + 1) if odd else (distance(half + 1) + distance(half)) / 2
        deadline = median + self._deviations * deviation
        mean, std = state.ordered.mean(axis=0), state.ordered.std(axis=0)
        return Prediction(max(1, int(np.count_nonzero(mean <= (1 + _ROUNDING) * deadline))), mean, std)


class Static:
    """The same number of workers in every iteration: backup workers, whose late gradients are interrupted.

    Args:
      cutoff: c. None: all workers, full synchrony.

    Raises:
      ValueError: in `start`, if there are fewer workers.

    Example:
      >>> predictor = Static(3)
      >>> predictor.predict(predictor.start(np.ones((20, 4)), seed=0)).cutoff
      3
    """

    def __init__(self, cutoff: int | None = None):
        self._cutoff = None if cutoff is None else arguments.whole("cutoff", cutoff)
        self.title = "full synchrony" if cutoff is None else "static cutoff"

    def start(self, window: np.ndarray, *, seed: int) -> int:
        """Return the state, which is the number of workers."""
        del seed
        workers = np.shape(window)[1]
        if self._cutoff is not None:
            arguments.whole("cutoff", self._cutoff, most=workers, why=f"there are {workers} workers")
        return workers

    def predict(self, state: int, *, rate: float | None = None) -> Prediction:
        """Return the cutoff, without order statistics."""
        del rate
        return Prediction(self._cutoff or state, np.full(state, np.nan), np.full(state, np.nan))

    def observe(self, state: int, runtimes: np.ndarray, cut_at: float) -> int:
        """Return the same state: nothing is learned."""
        del runtimes, cut_at
        return state


@PREDICTORS.register(title="static cutoff")
def static(*, cutoff: int | None = None, runtimes: np.ndarray) -> Static:
    """Waits for the same number of workers in every iteration.

    Args:
      cutoff: c, from 1 to the number of workers.
      runtimes: float64[T, N], seconds, of the run; only the number of workers is used.

    Raises:
      ValueError: if `cutoff` is not such a number.

    Example:
      >>> static(cutoff=3, runtimes=np.ones((20, 4))).title
      'static cutoff'
    """
    workers = np.shape(runtimes)[1]
    return Static(arguments.whole("cutoff", cutoff, most=workers, why=f"there are {workers} workers"))
