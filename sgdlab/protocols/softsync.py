"""Softsync: the server averages n gradients of any age, and nobody waits (Zhang et al. 2015b)."""

import numpy as np

from sgdlab import arguments
from sgdlab.protocols.arrivals import arrivals
from sgdlab.protocols.family import PROTOCOLS
from sgdlab.schedule import PENDING, Schedule


@PROTOCOLS.register(
    title="Softsync", source="Zhang et al. 2015b", families=("Staleness, limited or not",), rule="nag_asgd"
)
def softsync(runtimes: np.ndarray, *, gradients_per_update: int = 4, num_gradients: int | None = None) -> Schedule:
    """Every n gradients that arrive are one update; their workers read the newest parameters and begin again at once.

    With n = 1 it is `asynchronous`. With N workers the mean staleness is about N / n, counted in updates.

    Args:
      runtimes: float64[T, N], seconds; row t holds each worker's t-th gradient.
      gradients_per_update: n, number of gradients that one update averages.
      num_gradients: how many gradients to use, rounded up to whole updates. None: whole updates, until the first
        worker runs out of run-times.

    Returns:
      A `Schedule` of updates with n gradients each, then the pending ones.

    Raises:
      ValueError: where run-times are not positive and finite, or a number is below 1.
      NotEnoughRuntimes: (a ValueError) where a worker runs out of rows first; it says how many would be enough.

    Example:
      >>> import numpy as np
      >>> schedule = softsync(np.array([[2.0, 3.0], [2.0, 3.0], [2.0, 3.0]]), gradients_per_update=2)
      >>> schedule.update[:, 0], schedule.read[:, 0]
      (array([ 0,  0,  1,  1, -2], dtype=int32), array([0, 0, 0, 1, 1], dtype=int32))
    """
    size = arguments.whole("gradients_per_update", gradients_per_update)
    gradients = arrivals(runtimes, num_gradients, multiple=size)
    rows = np.arange(gradients.worker.size)
    return Schedule(
        worker=gradients.worker,
        read=gradients.seen[:, None] // size,
        update=np.where(rows < gradients.count, rows // size, PENDING)[:, None],
        started=gradients.started,
        arrived=gradients.arrived[:, None],
        applied=gradients.arrived[size - 1 : gradients.count : size, None],
        num_workers=gradients.num_workers,
    )
