"""Asking a predictor, and what is asked of its answers: the message names the predictor, and what it must return."""

import inspect
from typing import Any

import numpy as np

from sgdlab import arguments
from sgdlab.errors import with_place
from sgdlab.predictors.predictor import Prediction, Predictor

_CALLS = {
    "start": (("window",), ("seed",)),
    "predict": (("state",), ("rate",)),
    "observe": (("state", "runtimes", "cut_at"), ()),
}
"""Arguments of each method, in order and by keyword."""

_ROUNDING = 1e-9
"""So much less than the one before it, in proportion to the largest, an expected order statistic may be."""


def start(predictor: Predictor, window: np.ndarray, *, seed: int) -> Any:
    """Look at a predictor, and return its state after the first window.

    Raises:
      ValueError: where it lacks a method, or one does not take what it is given.

    Example:
      >>> class Mine:
      ...     def begin(self, window, *, seed): ...
      >>> start(Mine(), np.ones((2, 3)), seed=0)
      Traceback (most recent call last):
      ...
      ValueError: predictor Mine must have a method `start(window, *, seed)`; it has `begin`
    """
    for method, (given, keyword) in _CALLS.items():
        written = f"{method}({', '.join((*given, *(('*', *keyword) if keyword else ())))})"
        function = getattr(predictor, method, None)
        if function is None:
            theirs = [name for name in vars(type(predictor)) if not name.startswith("_") and name not in _CALLS]
            has = ", ".join(f"`{name}`" for name in theirs if callable(getattr(predictor, name)))
            raise ValueError(f"{_name(predictor)} must have a method `{written}`{has and f'; it has {has}'}")
        try:
            inspect.signature(function).bind(*given, **dict.fromkeys(keyword))
        except TypeError as error:
            raise ValueError(f"{_name(predictor)}: its `{method}` must be `{written}`: {error}") from error
    return predictor.start(window, seed=seed)


def predict(predictor: Predictor, state: Any, *, rate: float | None, workers: int) -> Prediction:
    """Return the prediction of the next iteration, as `Predictor.predict` does.

    Raises:
      ValueError: where it is no prediction of so many workers, or its expected order statistics fall.
    """
    try:
        found = predictor.predict(state, rate=rate)
    except ValueError as error:
        raise ValueError(f"{_name(predictor)}: {with_place(error)}") from error
    if not isinstance(found, Prediction):
        missing = ": is `return` missing?" if found is None else ""
        raise ValueError(f"{_name(predictor)}: `predict` must return a Prediction, and returned {found!r}{missing}")
    arguments.whole("cutoff", found.cutoff, most=workers, why=f"predicted by {_title(predictor)}")
    for what, values in (("mean", found.mean), ("std", found.std)):
        if np.shape(values) not in ((), (1,), (workers,)):
            raise ValueError(
                f"{_name(predictor)}: `predict` must return a Prediction whose {what} is float64[{workers}], one for "
                f"each worker, and returned {what} of shape {np.shape(values)}"
            )
    # One number, such as NaN of a predictor that knows the cutoff alone, is that of all workers.
    mean, std = (_of_all(values, workers) for values in (found.mean, found.std))
    if (mean[1:] < mean[:-1]).any():
        with np.errstate(invalid="ignore"):  # of two that are infinite none is above the other
            falls = np.diff(mean) < -_ROUNDING * np.abs(mean).max()
        if falls.any():
            first = int(np.argmax(falls))
            raise ValueError(
                f"{_name(predictor)}: `predict` must return expected order statistics, which rise (np.sort), and "
                f"mean[{first + 1}]={mean[first + 1]:g} is below mean[{first}]={mean[first]:g}"
            )
    return found._replace(mean=mean, std=std)


def _of_all(values: Any, workers: int) -> np.ndarray:
    array = np.asarray(values, float)
    return array if array.shape == (workers,) else np.broadcast_to(array, workers)


def observe(predictor: Predictor, state: Any, runtimes: np.ndarray, cut_at: float) -> Any:
    """Return the state after one more iteration; raises a `ValueError` where it is None, and that before was not."""
    found = predictor.observe(state, runtimes, cut_at)
    if found is None and state is not None:
        raise ValueError(
            f"{_name(predictor)}: `observe` must return the next state, and returned None: is `return` missing?"
        )
    return found


def _title(predictor: Predictor) -> str:
    return getattr(predictor, "title", type(predictor).__name__)


def _name(predictor: Predictor) -> str:
    return f"predictor {type(predictor).__name__}"
