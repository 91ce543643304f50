"""Predictors that are tuned again every n evaluation steps, on as many steps before as there were tuning steps."""

from collections.abc import Callable

import numpy as np

from sgdlab import predictors
from sgdlab.predictors import Guarded
from sgdlab.predictors.guarded import calm
from sgdlab.stragglers.comparison import measured, tuning
from sgdlab.stragglers.comparison.protocol import DEPLOYABLE, Protocol
from sgdlab.stragglers.comparison.sweeps import INTERRUPTED
from sgdlab.stragglers.comparison.tuning import Tuned
from sgdlab.stragglers.recording import SplitRecording

_MOST_COST, _OVERHEAD = 6_000_000, 150
"""Most cost of all re-fits, and the cost of a step besides that of its workers."""


def least(parts: SplitRecording) -> int:
    """Return the fewest steps between two fits: more fits would take too long."""
    steps, workers = parts.train.shape
    most = max(1, _MOST_COST // (tuning.predicted_steps(steps, workers) * (workers + _OVERHEAD)))
    return -(-len(parts.test) // most)


def why_not(parts: SplitRecording, every: int) -> str:
    """Say why the re-fits are left out; empty if they are not."""
    if every >= least(parts):
        return ""
    return (
        f"Every {every} steps means {-(-len(parts.test) // every)} fits, too many for this number of workers; "
        f"--refit={least(parts)} or more works."
    )


def rows(parts: SplitRecording, every: int, *, seed: int, rejoin_seconds: float = 0.0) -> list[Protocol]:
    """The fixed number of backup workers and the predictors with few parameters, with the paper's objective."""
    chosen = {
        title: cutoffs(parts.train, parts.test, every, tuned, seed=seed)
        for title, tuned in {INTERRUPTED: tuning.fixed, **tuning.TUNED}.items()
    }
    results = {title: measured.interrupted(parts.test, cut, rejoin_seconds) for title, cut in chosen.items()}
    return [
        Protocol(title, f"every {every} steps", DEPLOYABLE, result, refitted=True) for title, result in results.items()
    ]


def cutoffs(
    train: np.ndarray, test: np.ndarray, every: int, tuned: Callable[[np.ndarray], Tuned], *, seed: int
) -> np.ndarray:
    """The cutoffs of a predictor that is tuned again every n steps, on the complete compute times of the steps before.

    The steps between two fits are cut off, and the predictor sees of them what production sees. The complete compute
    times for the fit are those of the recording; a job has them if it waits for all workers now and then.

    Args:
      train: float64[T1, N], seconds, the tuning steps.
      test: float64[T2, N], seconds, the evaluation steps.
      every: n.
      tuned: makes a tuned predictor of tuning steps.
      seed: of the predictor's random draws.

    Returns:
      int64[T2].

    Example:
      >>> before, after = np.tile([1.0, 1.0, 4.0], (4, 1)), np.tile([1.0, 1.0, 1.0], (6, 1))
      >>> cutoffs(before, after, 4, tuning.fixed, seed=0)
      array([2, 2, 2, 2, 3, 3])
    """
    whole, fits = np.concatenate([train, test]), []
    for first in range(0, len(test), every):
        before = whole[first : first + len(train)]
        before = before[calm(before)]
        found, chunk = tuned(before), test[first : first + every]
        history = found.history(before)
        fits.append(predictors.run_online(chunk, Guarded(found.predictor), history=history, seed=seed).cutoff)
    return np.concatenate(fits)
