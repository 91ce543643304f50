"""A predictor at work: iteration after iteration is cut off where it says, and it sees what came in time."""

import dataclasses

import numpy as np

from sgdlab import arguments
from sgdlab.predictors.predictor import Predictor
from sgdlab.runtimes import NotEnoughRuntimes, checked

OBJECTIVES = ("throughput", "rate")
"""What the cutoff maximises: the iteration's own gradients per second, or those of the run."""


@dataclasses.dataclass(frozen=True, eq=False)
class CutoffRecord:
    """What was predicted, and what came, in T iterations.

    Attributes:
      cutoff: int64[T], how many workers each iteration waited for; all of them in the first window.
      mean: float64[T, N], seconds, expected order statistics; NaN in the first window.
      std: float64[T, N], seconds, of the order statistics; likewise.
      observed: float64[T, N], seconds, the order statistics that came, those past the cutoff among them.
      warm_up: iterations in the first window.
    """

    cutoff: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    observed: np.ndarray
    warm_up: int

    @property
    def seconds(self) -> np.ndarray:
        """float64[T], how long each iteration took."""
        return self.observed[np.arange(self.cutoff.size), self.cutoff - 1]

    def gradients_per_second(self, *, warm_up: bool = False) -> float:
        """Gradients used over seconds: of the predicted iterations, or of all.

        Raises:
          ValueError: where there is no iteration to count.
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
    """Cuts every iteration off where a predictor says.

    Args:
      runtimes: float64[T, N], seconds; row t is iteration t, which all workers begin together.
      predictor: says how many workers to wait for.
      window: first iterations, in which all are waited for.
      objective: "throughput", the paper's, or "rate": c - lambda E[x_(c)], with lambda the run's gradients per second
        so far.
      censored: the predictor does not see run-times past the cutoff, as in production.
      history: float64[W, N], complete iterations from before; then there is no first window.
      num_gradients: the run ends with the iteration that brings the gradients used to as many. None: all T iterations.
      seed: of the predictor's random numbers.

    Returns:
      The record.

    Raises:
      ValueError: where an argument is out of its range.
      NotEnoughRuntimes: (a ValueError) where run-times end first; it says how many rows would be enough.

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
        # The window itself can bring gradients enough.
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
    # The history counts for the rate as it was, synchronous.
    earlier, seconds = history.size - used, float(history.max(axis=1).sum())
    state = predictor.start(history, seed=seed)
    while step < rows and used < wanted:
        rate = (earlier + used) / seconds if objective == "rate" else None
        prediction = predictor.predict(state, rate=rate)
        arguments.whole("cutoff", prediction.cutoff, most=workers, why=f"predicted by {predictor.title}")
        cutoff[step], mean[step], std[step] = prediction.cutoff, prediction.mean, prediction.std
        closes = observed[step, prediction.cutoff - 1]
        used, seconds = used + prediction.cutoff, seconds + closes
        seen = np.array(runtimes[step])
        if censored:
            seen[np.argsort(seen, kind="stable")[prediction.cutoff :]] = np.nan
        state = predictor.observe(state, seen, closes)
        step += 1
    if num_gradients is not None and used < num_gradients:
        raise NotEnoughRuntimes.after(num_gradients, rows=rows, done=used)
    return CutoffRecord(cutoff[:step], mean[:step], std[:step], observed[:step], warm_up)
