"""DropCompute: synchronous rounds of M micro-batches a worker, cut at a compute threshold (Giladi et al. 2023)."""

import functools

import numpy as np

from sgdlab import arguments
from sgdlab.protocols.effective_speedup import best_threshold
from sgdlab.protocols.family import PROTOCOLS
from sgdlab.protocols.threshold import Limits, limits, threshold_rounds
from sgdlab.schedule import Schedule


@PROTOCOLS.register(
    title="DropCompute",
    source="Giladi et al. 2023",
    families=("Rounds by the clock",),
    rule="expected_count",
    expected_gradients=lambda entries, num_workers: num_workers * entries["micro_batches"],
)
def dropcompute(
    runtimes: np.ndarray,
    *,
    micro_batches: int = 4,
    seconds: float | None = None,
    window: int = 20,
    interrupt: bool = False,
    communication: float = 0.0,
    num_gradients: int | None = None,
) -> Schedule:
    r"""Every update takes M micro-batches of every worker, or those that it has computed when time is up.

    .. math:: \bar g_k = \frac{1}{N M} \sum_{i=1}^N \sum_{m=1}^M \nabla f(\theta_k; \xi_{i,m}) \,
        1\{T_i^{(m)} < \tau\}

    T is when worker i ends its m-th micro-batch, since the round began. A micro-batch is a gradient of the schedule.
    With an infinite threshold it is synchronous SGD whose workers accumulate M gradients. `rules.expected_count`
    divides by N M, as here; any other rule divides by the number of micro-batches that were kept.

    A round in which no micro-batch was finished makes no update, and the next one is on the same version.

    Args:
      runtimes: float64[T, N], seconds; row t holds each worker's t-th micro-batch.
      micro_batches: M, gradients of a worker for one update.
      seconds: tau, the compute threshold, from the beginning of a round; infinity: none. None: the one with the largest
        effective speed-up (`protocols.best_threshold`) in the first rounds, which have none.
      window: number of rounds without a threshold from which it is chosen.
      interrupt: whether a micro-batch is given up at the threshold, as in the equation; else one that was begun by then
        is finished and kept, as in the authors' code, whose check follows a micro-batch.
      communication: T_c, seconds from the end of a round's last micro-batch to its update.
      num_gradients: how many micro-batches to use; the run ends with the update that reaches this number. None: whole
        updates, until a worker that has to begin again runs out of run-times.

    Returns:
      A `Schedule`; micro-batches that were given up are dropped, none is pending.

    Raises:
      ValueError: where run-times are not positive and finite, or another argument is out of its range.
      NotEnoughRuntimes: (a ValueError) where run-times end first; it says how many rows would be enough.

    Source: Giladi et al. 2023, DropCompute (NeurIPS). Read in the authors' code: the check after a micro-batch, the
    division by M, and how the threshold is chosen. The equation is a reconstruction.

    Example:
      >>> import numpy as np
      >>> schedule = dropcompute(np.array([[1.0, 1.0], [1.0, 3.0], [1.0, 1.0]]), micro_batches=2, seconds=2.5,
      ...     interrupt=True, num_gradients=1)
      >>> schedule.worker, schedule.update[:, 0], schedule.applied[:, 0]
      (array([0, 1, 0, 1], dtype=int32), array([ 0,  0,  0, -1], dtype=int32), array([2.5]))
    """
    rounds = limits_of(
        micro_batches=micro_batches, seconds=seconds, window=window, interrupt=interrupt, communication=communication
    )
    return threshold_rounds(runtimes, rounds, num_gradients=num_gradients)


def limits_of(
    *, micro_batches: int, seconds: float | None, window: int, interrupt: bool, communication: float
) -> Limits:
    """When the workers stop; its arguments are those of `dropcompute`."""
    most = arguments.whole("micro_batches", micro_batches)
    return limits(
        patient=most,
        most=most,
        seconds=seconds,
        window=window,
        interrupt=interrupt,
        communication=communication,
        choose=functools.partial(best_threshold, communication=communication, interrupt=bool(interrupt)),
    )
