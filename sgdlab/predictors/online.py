"""`run_online`: iterations that are cut off as a predictor says, and the `CutoffRecord` of such a run."""

import dataclasses

import numpy as np

from sgdlab import arguments
from sgdlab.ordering import by_time
from sgdlab.predictors import asking
from sgdlab.predictors.predictor import Predictor
from sgdlab.runtimes import NotEnoughRuntimes, checked

OBJECTIVES = ("throughput", "rate")
"""The objective of the cutoff: gradients per second of the iteration, or of the run."""


@dataclasses.dataclass(frozen=True, eq=False)
class CutoffRecord:
    """The predicted and the actual order statistics of T iterations.

    Attributes:
      cutoff: int64[T], number of workers that each iteration waited for; all in the first window.
      mean: float64[T, N], seconds, expected order statistics; NaN in the first window.
      std: float64[T, N], seconds, their predicted standard deviations; NaN in the first window.
      observed: float64[T, N], seconds, the actual order statistics, also past the cutoff.
      warm_up: number of iterations in the first window.
    """

    cutoff: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    observed: np.ndarray
    warm_up: int

    @property
    def seconds(self) -> np.ndarray:
        """Return float64[T], seconds, the duration of each iteration."""
        return self.observed[np.arange(self.cutoff.size), self.cutoff - 1]

    def gradients_per_second(self, *, warm_up: bool = False) -> float:
        """Return the gradients used per second, over the predicted iterations.

        Args:
          warm_up: whether to include the first window.

        Raises:
          ValueError: if there is no iteration to count.
        """
        counted = slice(0 if warm_up else self.warm_up, None)
        if self.cutoff[counted].size == 0:
            raise ValueError(f"record of {self.cutoff.size} iterations must have more than its warm-up, {self.warm_up}")
        return float(self.cutoff[counted].sum() / self.seconds[counted].sum())


def run_online(
    runtimes: np.ndarray,
    predictor: Predictor,
    *,
    window: int = 20,
    objective: str = "throughput",
    censored: bool = True,
    history: np.ndarray | None = None,
    num_gradients: int | None = None,
    seed: int = 0,
) -> CutoffRecord:
    """Cut every iteration off as a predictor says.

    Args:
      runtimes: float64[T, N], seconds; row t is iteration t, which all workers begin together.
      predictor: predicts how many workers to wait for.
      window: number of first iterations that wait for all workers.
      objective: "throughput", the paper's, or "rate": c - lambda E[x_(c)], with lambda the run's gradients per second
        so far.
      censored: whether compute times past the cutoff are hidden from the predictor, as in production.
      history: float64[W, N], seconds, complete earlier iterations, which replace the first window.
      num_gradients: the run ends with the iteration in which the gradients used reach this number. None: after all T
        iterations.
      seed: seed of the random numbers of the predictor.

    Raises:
      ValueError: if an argument is out of its range.
      NotEnoughRuntimes: (a ValueError) if the compute times are too few; it says how many rows would be enough.

    Source: Teng and Wood 2018, Algorithm 1.

    Example:
      >>> from sgdlab.predictors.windowed import RunningMean
      >>> runtimes = np.array([[1.0, 1.1, 9.0]] * 25)
      >>> record = run_online(runtimes, RunningMean(window=5))
      >>> record.cutoff[[0, 19, 20, 24]], round(record.gradients_per_second(), 3)
      (array([3, 3, 2, 2]), 1.818)
    """
    runtimes = checked(runtimes)
    arguments.one_of("objective", objective, OBJECTIVES)
    arguments.whole("seed", seed, least=0)
    rows, workers = runtimes.shape
    wanted = rows * workers if num_gradients is None else arguments.whole("num_gradients", num_gradients)
    if history is None:
        # The gradients of the window alone can be enough.
        warm_up = min(arguments.whole("window", window), rows, -(-wanted // workers))
        history = runtimes[:warm_up]
    else:
        warm_up, history = 0, checked(history, name="history")
        if history.shape[1] != workers:
            raise ValueError(f"history of shape {history.shape} must have {workers} columns, as runtimes has")
    observed = np.sort(runtimes, axis=1)
    cutoff = np.full(rows, workers)
    mean, std = (np.full(runtimes.shape, np.nan) for _ in range(2))
    step, used = warm_up, warm_up * workers
    # For the rate, the history counts as synchronous iterations.
    earlier, seconds = history.size - used, float(history.max(axis=1).sum())
    now = 0.0
    for row in runtimes[:warm_up]:
        now = (now + row).max()
    state = asking.start(predictor, history, seed=seed)
    while step < rows and used < wanted:
        rate = (earlier + used) / seconds if objective == "rate" else None
        prediction = asking.predict(predictor, state, rate=rate, workers=workers)
        cutoff[step], mean[step], std[step] = prediction.cutoff, prediction.mean, prediction.std
        # Compute times that differ by less than the clock can tell come at one instant, by worker number.
        ends = now + runtimes[step]
        order = by_time(ends)
        in_time, now = order[: prediction.cutoff], ends[order[prediction.cutoff - 1]]
        closes = float(runtimes[step, in_time].max())
        used, seconds = used + prediction.cutoff, seconds + closes
        seen = np.full(workers, np.nan) if censored else np.array(runtimes[step])
        seen[in_time] = runtimes[step, in_time]
        state = asking.observe(predictor, state, seen, closes)
        step += 1
    if num_gradients is not None and used < num_gradients:
        raise NotEnoughRuntimes.after(num_gradients, rows=rows, done=used)
    return CutoffRecord(cutoff[:step], mean[:step], std[:step], observed[:step], warm_up)
