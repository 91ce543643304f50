"""Cutoff SGD: every update waits for as many workers as a predictor says, and interrupts the others."""

import numpy as np

from sgdlab.cutoff.online import CutoffRecord, run_online
from sgdlab.cutoff.predictor import Predictor
from sgdlab.protocols.rounds import rounds
from sgdlab.schedule import Schedule


def cutoff(
    runtimes: np.ndarray,
    predictor: Predictor,
    *,
    window: int = 20,
    objective: str = "throughput",
    history: np.ndarray | None = None,
    seed: int = 0,
) -> tuple[Schedule, CutoffRecord]:
    """Every update takes the first c gradients, with c predicted before the iteration; late workers are interrupted.

    A worker that is interrupted gives its gradient up at the update and starts afresh with all others. The first window
    waits for everybody.

    Args:
      runtimes: float64[T, N], seconds; row t holds each worker's gradient for update t.
      predictor: one of `sgdlab.cutoff`, or anything with its `start`, `predict` and `observe`.
      window: first updates, which wait for everybody.
      objective: "throughput", the paper's, or "rate", the best for the run as a whole.
      history: float64[W, N], complete iterations from before; then there is no first window.
      seed: of the predictor's random numbers.

    Returns:
      A `Schedule` of T updates and T N gradients, those interrupted dropped, and the record of predicted and true order
      statistics.

    Raises:
      ValueError: where run-times are not positive and finite, or the predictor is of another number of workers.

    Source: Teng and Wood 2018, Algorithm 1.

    Example:
      >>> import sgdlab
      >>> runtimes = np.array([[1.0, 1.0, 9.0]] * 4)
      >>> schedule, record = cutoff(runtimes, sgdlab.cutoff.RunningMean(window=1), window=2)
      >>> record.cutoff, schedule.applied[:, 0]
      (array([3, 3, 2, 2]), array([ 9., 18., 19., 20.]))
    """
    record = run_online(runtimes, predictor, window=window, objective=objective, history=history, seed=seed)
    return rounds(runtimes, at_least=record.cutoff, seconds=0.0, interrupt=True), record
