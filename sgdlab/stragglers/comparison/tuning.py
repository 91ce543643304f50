"""Tunes the predictors that have few parameters, on the tuning steps alone: float64[T1, N], seconds.

An objective is "throughput", of each iteration by itself, or "rate", that of the whole run.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sgdlab import predictors
from sgdlab.predictors import Predictor

WINDOWS = (1, 2, 5, 10, 20, 50)
DEVIATIONS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0)
HISTORY = 20
"""Iterations that a predictor has observed before its first prediction, unless its window is longer."""

WIDE, MANY_DRAWS, FEW_DRAWS = 512, 64, 16
"""From this many workers on, the last number of draws is enough for a prediction instead of the one before it, since
order statistics vary less."""

_WARM_UP = 5
"""Least number of first updates that wait for all workers in a run without history."""

_MOST_STEPS, _MOST_RUNTIMES = 2000, 192_000
"""Most tuning steps, and times in them, that predictors are tuned on; of more, evenly spaced blocks of steps."""

_BLOCK = 32
"""Predicted steps of a block."""


@dataclasses.dataclass(frozen=True, eq=False)
class Tuned:
    """A predictor with its tuned parameters.

    Attributes:
      predictor: the predictor.
      setting: the tuned parameters as tables show them.
      window: number of past iterations that it uses.
      flags: flags of `sgdlab train` that select it; empty if no flags do.
      parameters: its parameters by their names, where they are tuned.
    """

    predictor: Predictor
    setting: str
    window: int = HISTORY
    flags: tuple[str, ...] = ()
    parameters: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def warm_up(self) -> int:
        """Number of first updates that wait for all workers where no history is known."""
        return max(_WARM_UP, self.window)

    def history(self, train: np.ndarray) -> np.ndarray:
        """The last tuning steps, which the predictor has observed when the evaluation steps begin."""
        return train[-max(HISTORY, self.window) :]


def static(train: np.ndarray) -> int:
    """The best fixed number of workers to wait for, by gradients per second."""
    seconds = np.sort(train, axis=1).sum(axis=0)
    return 1 + int(np.argmax(np.arange(1, seconds.size + 1) / seconds))


def fixed(train: np.ndarray) -> Tuned:
    """The best fixed number of workers to wait for, as a predictor."""
    return Tuned(predictors.Static(static(train)), "fixed")


def kalman(train: np.ndarray, objective: str = "throughput") -> Tuned:
    """A Kalman filter for each worker, with fitted parameters, whatever the objective."""
    del objective
    samples = FEW_DRAWS if train.shape[1] >= WIDE else MANY_DRAWS
    return Tuned(predictors.Kalman(predictors.kalman.fit(train), samples=samples), "fitted")


def _searched(
    train: np.ndarray, objective: str = "throughput", *, kind: str, make: Callable[..., Predictor], deviations: Any
) -> Tuned:
    """A predictor that flags select by its kind, with the window and the deviations, if it has any, tuned."""
    choices = []
    for window, k in itertools.product(_windows(train), deviations):
        parameters = {"window": window} if k is None else {"window": window, "deviations": k}
        setting = f"window {window}" if k is None else f"k = {k:g}, window {window}"
        entries = (f"{name}={value}" for name, value in parameters.items())
        flags = cutoff_flags(kind, max(_WARM_UP, window), *entries)
        choices.append(Tuned(make(**parameters), setting, window, flags, parameters))
    return _best(choices, train, objective)


def _windows(train: np.ndarray) -> Sequence[int]:
    return [window for window in WINDOWS if window <= max(1, len(train) // 2)]


TUNED: Mapping[str, Callable[..., Tuned]] = {
    title: functools.partial(_searched, kind=kind, make=make, deviations=deviations)
    for title, kind, make, deviations in (
        ("median + k MAD", "deadline", predictors.Deadline, DEVIATIONS),
        ("running mean", "running_mean", predictors.RunningMean, (None,)),
        ("Elfving", "elfving", predictors.Elfving, (None,)),
    )
} | {"Kalman filter": kalman}
"""Title of a predictor -> its tuning, `(train, objective="throughput") -> Tuned`."""


def cutoff_flags(predictor: str, window: int, *entries: str) -> tuple[str, ...]:
    """The flags of `sgdlab train` that select a predicted cutoff.

    Args:
      predictor: name of the predictor.
      window: number of first iterations that wait for all workers.
      *entries: parameters of the predictor, as in "window=5".
    """
    chosen = (f"--config.predictor.kind={predictor}", f"--config.protocol.cutoff.window={window}")
    return ("--config.method=cutoff", *chosen, *(f"--config.predictor.{predictor}.{entry}" for entry in entries))


def _best(choices: Sequence[Tuned], train: np.ndarray, objective: str) -> Tuned:
    """The choice with the most gradients per second in the tuning steps.

    Of several equally good choices it is the middle one of those with the longest window: the middle of a plateau is
    least sensitive to small changes of the cluster.
    """
    parts = _blocks(train)
    rates = np.array([_rate(choice.predictor, parts, objective) for choice in choices])
    best = [choices[i] for i in np.flatnonzero(rates >= rates.max() * (1 - 1e-9)).tolist()]
    longest = [choice for choice in best if choice.window == max(choice.window for choice in best)]
    return longest[len(longest) // 2]


def predicted_steps(steps: int, workers: int) -> int:
    """Return the number of tuning steps that are predicted by each choice of parameters."""
    return min(steps, _most(workers))


def _most(workers: int) -> int:
    return max(_BLOCK, min(_MOST_STEPS, _MOST_RUNTIMES // workers))


def _blocks(train: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pairs of history and the steps after it, which are predicted: all tuning steps, or blocks of too many ones."""
    steps, workers = train.shape
    most = _most(workers)
    count = most // _BLOCK
    history = max(HISTORY, *WINDOWS)
    if steps <= max(most, history + _BLOCK):
        warm_up = min(HISTORY, steps // 2)
        return [(train[:warm_up], train[warm_up:])]
    firsts = np.linspace(history, steps - _BLOCK, count).astype(int)
    return [(train[first - history : first], train[first : first + _BLOCK]) for first in firsts]


def _rate(predictor: Predictor, blocks: Sequence[tuple[np.ndarray, np.ndarray]], objective: str) -> float:
    """Gradients per second of a predictor in all blocks together."""
    used = seconds = 0.0
    for history, rows in blocks:
        record = predictors.run_online(rows, predictor, objective=objective, history=history)
        used, seconds = used + record.cutoff.sum(), seconds + record.seconds.sum()
    return used / seconds
