"""Predictors with few numbers to choose: these are tuned on the first part of the run, as they would be in life."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from sgdlab import predictors
from sgdlab.predictors import Predictor

WINDOWS = (1, 2, 5, 10, 20, 50)
DEVIATIONS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0)
HISTORY = 20
"""Iterations that a predictor has seen before the first that it predicts; more where its window is longer."""


@dataclasses.dataclass(frozen=True, eq=False)
class Tuned:
    """A predictor, and what was chosen for it.

    Attributes:
      predictor: the predictor.
      setting: in a few words.
      window: iterations that it looks back.
      flags: that choose it in the lab's commands; none where they do not know it.
    """

    predictor: Predictor
    setting: str
    window: int = HISTORY
    flags: tuple[str, ...] = ()

    def history(self, train: np.ndarray) -> np.ndarray:
        """The end of the first part, which it begins the second with."""
        return train[-max(HISTORY, self.window) :]


def static(train: np.ndarray) -> int:
    """The number of workers that it would have been best to wait for in every iteration."""
    seconds = np.sort(train, axis=1).sum(axis=0)
    return 1 + int(np.argmax(np.arange(1, seconds.size + 1) / seconds))


def deadline(train: np.ndarray) -> Tuned:
    """Median + k MAD, k and the window tuned."""
    choices = [
        Tuned(
            predictors.Deadline(deviations=k, window=window),
            f"k = {k:g}, window {window}",
            window,
            _flags("deadline", window, f"deviations={k}"),
        )
        for window in _windows(train)
        for k in DEVIATIONS
    ]
    return _best(choices, train, "throughput")


def running_mean(train: np.ndarray, objective: str) -> Tuned:
    """The running mean of the sorted run-times, its window tuned."""
    choices = [
        Tuned(predictors.RunningMean(window), f"window {window}", window, _flags("running_mean", window))
        for window in _windows(train)
    ]
    return _best(choices, train, objective)


def elfving(train: np.ndarray, objective: str) -> Tuned:
    """Elfving's formula on the moments of a window, which is tuned."""
    choices = [
        Tuned(predictors.Elfving(window), f"window {window}", window, _flags("elfving", window))
        for window in _windows(train)
    ]
    return _best(choices, train, objective)


def kalman(train: np.ndarray) -> Tuned:
    """A Kalman filter for each worker, its law fitted."""
    return Tuned(predictors.Kalman(predictors.kalman.fit(train)), "fitted")


def _windows(train: np.ndarray) -> Sequence[int]:
    return [window for window in WINDOWS if window <= max(1, len(train) // 2)]


def _flags(predictor: str, window: int, *others: str) -> tuple[str, ...]:
    return cutoff_flags(predictor, max(5, window), f"window={window}", *others)


def cutoff_flags(predictor: str, window: int, *entries: str) -> tuple[str, ...]:
    """The flags that choose a predicted cutoff in the lab's commands.

    Args:
      predictor: its name.
      window: first iterations, which wait for all.
      *entries: of the predictor, as in "window=5".
    """
    chosen = (f"--config.predictor.kind={predictor}", f"--config.protocol.cutoff.window={window}")
    return ("--config.method=cutoff", *chosen, *(f"--config.predictor.{predictor}.{entry}" for entry in entries))


def _best(choices: Sequence[Tuned], train: np.ndarray, objective: str) -> Tuned:
    """That of most gradients per second on the first part.

    Where several are equally good, those with the longest window count, and of them the middle one: what is in the
    middle of a plateau stays on it when the cluster changes a little.
    """
    warm_up = min(HISTORY, len(train) // 2)
    rates = np.array(
        [
            predictors.run_online(train, choice.predictor, window=warm_up, objective=objective).gradients_per_second()
            for choice in choices
        ]
    )
    best = [choices[i] for i in np.flatnonzero(rates >= rates.max() * (1 - 1e-9))]
    longest = [choice for choice in best if choice.window == max(choice.window for choice in best)]
    return longest[len(longest) // 2]
