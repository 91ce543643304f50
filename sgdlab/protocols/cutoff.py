"""Cutoff SGD: every update waits for as many workers as a predictor says, and interrupts the others."""

from collections.abc import Callable

import numpy as np

from sgdlab.predictors.online import CutoffRecord, run_online
from sgdlab.predictors.predictor import Predictor
from sgdlab.protocols.rounds import rounds
from sgdlab.registry import PROTOCOLS
from sgdlab.runtimes import checked
from sgdlab.schedule import Schedule


@PROTOCOLS.register(
    title="Cutoff SGD",
    source="Teng and Wood 2018, Alg. 1",
    families=("Rounds: fresh gradients",),
    rule="nag_asgd",
)
def cutoff(
    runtimes: np.ndarray,
    *,
    predictor: Predictor | Callable[..., Predictor],
    window: int = 20,
    objective: str = "throughput",
    num_gradients: int | None = None,
    seed: int = 0,
) -> Schedule:
    """Every update takes the first c gradients, with c predicted before the iteration; late workers are interrupted.

    A worker that is interrupted gives its gradient up at the update and starts afresh with all others. The first window
    waits for everybody.

    Args:
      runtimes: float64[T, N], seconds; row t holds each worker's gradient for update t.
      predictor: one of `sgdlab.predictors`, or anything with its `start`, `predict` and `observe`; or a function that
        makes one from `runtimes`.
      window: first updates, which wait for everybody.
      objective: "throughput", the paper's, or "rate", the best for the run as a whole.
      num_gradients: how many gradients to use: the last update is the one that brings them to as many. None: those of
        T updates.
      seed: of the predictor's random numbers.

    Returns:
      A `Schedule`; interrupted gradients are dropped.

    Raises:
      ValueError: where run-times are not positive and finite, or the predictor is of another number of workers.
      NotEnoughRuntimes: (a ValueError) where run-times end first; it says how many rows would be enough.

    Source: Teng and Wood 2018, Algorithm 1.

    Example:
      >>> from sgdlab import predictors
      >>> runtimes = np.array([[1.0, 1.0, 9.0]] * 4)
      >>> cutoff(runtimes, predictor=predictors.RunningMean(window=1), window=2).applied[:, 0]
      array([ 9., 18., 19., 20.])
    """
    return cutoff_with_record(
        runtimes, predictor=predictor, window=window, objective=objective, num_gradients=num_gradients, seed=seed
    )[0]


def cutoff_with_record(
    runtimes: np.ndarray,
    *,
    predictor: Predictor | Callable[..., Predictor],
    window: int = 20,
    objective: str = "throughput",
    history: np.ndarray | None = None,
    num_gradients: int | None = None,
    seed: int = 0,
) -> tuple[Schedule, CutoffRecord]:
    """The schedule of `cutoff`, and what was predicted in it.

    Args:
      runtimes: as in `cutoff`.
      predictor: as in `cutoff`.
      window: as in `cutoff`.
      objective: as in `cutoff`.
      history: float64[W, N], seconds, complete iterations from before; then there is no first window.
      num_gradients: as in `cutoff`.
      seed: as in `cutoff`.

    Returns:
      The `Schedule`, and the record of predicted and true order statistics of its updates.

    Raises:
      ValueError: as in `cutoff`.
      NotEnoughRuntimes: as in `cutoff`.

    Example:
      >>> from sgdlab import predictors
      >>> runtimes = np.array([[1.0, 1.0, 9.0]] * 4)
      >>> _, record = cutoff_with_record(runtimes, predictor=predictors.RunningMean(window=1), window=2)
      >>> record.cutoff
      array([3, 3, 2, 2])
    """
    runtimes = checked(runtimes)
    record = run_online(
        runtimes,
        predictor if hasattr(predictor, "start") else predictor(runtimes),
        window=window,
        objective=objective,
        history=history,
        num_gradients=num_gradients,
        seed=seed,
    )
    schedule = rounds(runtimes[: record.cutoff.size], at_least=record.cutoff, seconds=0.0, interrupt=True)
    return schedule, record
