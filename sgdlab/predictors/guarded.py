"""`Guarded`: a predictor that does not learn from pauses, steps in which all workers are several times slower."""

import dataclasses
from typing import Any

import numpy as np

from sgdlab import arguments
from sgdlab.predictors.predictor import Prediction, Predictor

FACTOR = 2.0
"""Factor on the usual compute time of every worker that was seen, from which a step is a pause."""

LASTING = 3
"""Most consecutive pauses. What lasts longer is a change of the cluster, which has to be learned."""

_MEMORY = 20
"""Number of iterations over which the usual compute times are averaged."""


def calm(runtimes: np.ndarray, *, factor: float = FACTOR, lasting: int = LASTING) -> np.ndarray:
    """Return bool[T], the steps that are no pauses.

    A pause is a step in which every worker takes `factor` times its median or more, such as a checkpoint, and which is
    not one of more than `lasting` in a row.

    Args:
      runtimes: float64[T, N], seconds, complete.
      factor: the least factor of a pause.
      lasting: the most pauses in a row.

    Example:
      >>> calm(np.array([[1.0, 1.2], [1.1, 1.0], [7.1, 7.0], [1.0, 1.1]]))
      array([ True,  True, False,  True])
    """
    slow: Any = (runtimes >= factor * np.median(runtimes, axis=0)).all(axis=1)
    edges = np.flatnonzero(np.diff(slow, prepend=False, append=False))
    for first, end in edges.reshape(-1, 2):
        if end - first > lasting:
            slow[first:end] = False
    return ~slow


@dataclasses.dataclass(frozen=True, eq=False)
class _State:
    inner: Any  # the state of the guarded predictor
    usual: np.ndarray  # float64[N], seconds
    held: tuple[tuple[np.ndarray, float], ...] = ()  # the pauses since the last step that was learned from


class Guarded:
    r"""Hides pauses from a predictor.

    A step is a pause if every worker that was seen takes at least `factor` times its usual compute time. Workers that
    were cut off took longer than all that were seen, so that the fastest worker decides. The usual compute time of a
    worker is a moving average, in which no compute time counts for more than `factor` times the average before it:

    .. math:: u_n \leftarrow u_n + (\min(x_n, f u_n) - u_n) / 20

    If more than `lasting` steps in a row are like that, the cluster has changed: the predictor learns from all of them,
    and the usual compute times begin anew.

    Args:
      predictor: the predictor.
      factor: f, above 1.
      lasting: most consecutive steps that are taken for pauses.

    Raises:
      ValueError: if `factor` is not above 1, or `lasting` is below 1.

    Example:
      >>> from sgdlab.predictors.windowed import RunningMean
      >>> predictor = Guarded(RunningMean(window=1))
      >>> state = predictor.start(np.array([[1.0, 1.2]] * 5), seed=0)
      >>> predictor.predict(predictor.observe(state, np.array([7.0, 7.2]), 7.2)).mean
      array([1. , 1.2])
    """

    def __init__(self, predictor: Predictor, *, factor: float = FACTOR, lasting: int = LASTING):
        self._inner = predictor
        self.title = predictor.title
        self._factor = arguments.real("factor", factor, above=1)
        self._lasting = arguments.whole("lasting", lasting)

    def start(self, window: np.ndarray, *, seed: int) -> _State:
        """Return the state after a first window, in which a pause counts as a repetition of the step before it."""
        window = np.asarray(window, np.float64)
        rows = np.flatnonzero(calm(window, factor=self._factor, lasting=self._lasting))
        if rows.size:
            before = np.searchsorted(rows, np.arange(len(window)), side="right") - 1
            window = window[rows[np.maximum(before, 0)]]
        return _State(self._inner.start(window, seed=seed), np.median(window[-_MEMORY:], axis=0))

    def predict(self, state: _State, *, rate: float | None = None) -> Prediction:
        """Return the guarded predictor's prediction of the next iteration."""
        return self._inner.predict(state.inner, rate=rate)

    def observe(self, state: _State, runtimes: np.ndarray, cut_at: float) -> _State:
        """Return the state after one more iteration, the same but for a note if the iteration is a pause."""
        bound = self._factor * state.usual
        inner, usual = state.inner, state.usual
        seen = ~np.isnan(runtimes)
        if not (runtimes < bound).any():  # NaN of who was not seen is not below
            held = (*state.held, (runtimes, cut_at))
            if len(held) <= self._lasting:
                return _State(inner, usual, held)
            for row, closed in held:
                inner = self._inner.observe(inner, row, closed)
            # Those that were cut off have changed as much as the others, as far as anyone knows.
            rest = np.median(runtimes[seen] / usual[seen]) * usual
            return _State(inner, np.where(seen, runtimes, rest))
        inner = self._inner.observe(inner, runtimes, cut_at)
        return _State(inner, usual + np.where(seen, np.minimum(runtimes, bound) - usual, 0.0) / _MEMORY)
