"""Cutoff SGD: a predictor chooses how many workers an update waits for; the others are interrupted."""

from collections.abc import Callable

import numpy as np

from sgdlab.predictors.online import CutoffRecord, run_online
from sgdlab.predictors.predictor import Predictor
from sgdlab.protocols.family import PROTOCOLS
from sgdlab.protocols.rounds import rounds
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

    An interrupted worker gives up its gradient at the update and begins a new one with all others. The first `window`
    updates wait for all workers.

    Args:
      runtimes: float64[T, N], seconds; row t holds each worker's gradient for update t.
      predictor: one of `sgdlab.predictors`, or anything with its `start`, `predict` and `observe`; or a function that
        makes one from `runtimes`.
      window: number of updates, from the first, that wait for all workers.
      objective: what the cutoff maximises: gradients per second of the iteration ("throughput", the paper's), or of the
        whole run ("rate").
      num_gradients: how many gradients to use; the run ends with the update that reaches this number. None: those of
        T updates.
      seed: of the predictor's random numbers.

    Returns:
      A `Schedule`; interrupted gradients are dropped.

    Raises:
      ValueError: where run-times are not positive and finite, or the predictor is for another number of workers.
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
    """The schedule of `cutoff`, and a record of its predictions.

    Args:
      runtimes: as in `cutoff`.
      predictor: as in `cutoff`.
      window: as in `cutoff`.
      objective: as in `cutoff`.
      history: float64[W, N], seconds, earlier iterations, complete; they replace the first window.
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
        # pyrefly: ignore[bad-argument-type]  # `hasattr` tells a predictor from what makes one
        predictor if hasattr(predictor, "start") else predictor(runtimes),
        window=window,
        objective=objective,
        history=history,
        num_gradients=num_gradients,
        seed=seed,
    )
    schedule = rounds(runtimes[: record.cutoff.size], at_least=record.cutoff, seconds=0.0, interrupt=True)
    return schedule, record
