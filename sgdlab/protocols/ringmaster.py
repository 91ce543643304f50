"""Ringmaster ASGD: gradients more than `max_delay` updates old are ignored (Maranjyan et al. 2025)."""

import numpy as np

from sgdlab import arguments
from sgdlab.protocols.collector import collected
from sgdlab.protocols.family import PROTOCOLS
from sgdlab.runtimes import checked
from sgdlab.schedule import Schedule


@PROTOCOLS.register(
    title="Ringmaster ASGD", source="Maranjyan et al. 2025", families=("Staleness, limited or not",), rule="asgd"
)
def ringmaster(
    runtimes: np.ndarray, *, max_delay: int | None = None, interrupt: bool = False, num_gradients: int | None = None
) -> Schedule:
    """Every gradient is an update of its own, unless its delay (staleness + 1) is more than `max_delay`.

    A worker whose gradient was ignored begins again on the newest version. With `max_delay` of the number of gradients
    or more it is `asynchronous`; with 1 it takes the first gradient on every version.

    Args:
      runtimes: float64[T, N], seconds; row t holds each worker's t-th gradient.
      max_delay: R, the largest delay of a gradient that is used: the paper's condition is staleness < R. None: N.
      interrupt: whether a worker restarts as soon as its gradient is too old (the paper's Algorithm 5, with calculation
        stops), rather than when it has finished it (Algorithm 4).
      num_gradients: how many gradients to apply. None: until a worker that has to begin again runs out of
        run-times.

    Returns:
      A `Schedule`; ignored and interrupted work is dropped.

    Raises:
      ValueError: where run-times are not positive and finite, or `max_delay` is below 1.
      NotEnoughRuntimes: (a ValueError) where a worker runs out of rows first; it says how many would be enough.

    Source: Maranjyan, Tyurin and Richtarik 2025, Algorithms 4 and 5.

    Example:
      >>> import numpy as np
      >>> schedule = ringmaster(np.array([[1.0, 2.5], [1.0, 2.5], [1.0, 2.5], [1.0, 2.5]]), max_delay=2)
      >>> schedule.worker, schedule.update[:, 0]
      (array([0, 0, 1, 0, 0, 1], dtype=int32), array([ 0,  1, -1,  2,  3, -2], dtype=int32))
    """
    runtimes = checked(runtimes)
    limit = runtimes.shape[1] if max_delay is None else arguments.whole("max_delay", max_delay)
    return collected(runtimes, size=1, max_delay=limit, interrupt=bool(interrupt), num_gradients=num_gradients)
