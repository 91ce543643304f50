"""Rennala SGD: every update averages the first gradients on the newest version (Tyurin and Richtarik 2023)."""

import numpy as np

from sgdlab import arguments
from sgdlab.protocols.collector import collected
from sgdlab.protocols.family import PROTOCOLS
from sgdlab.schedule import Schedule


@PROTOCOLS.register(
    title="Rennala SGD", source="Tyurin and Richtarik 2023", families=("Rounds: fresh gradients",), rule="nag_asgd"
)
def rennala(runtimes: np.ndarray, *, gradients_per_update: int = 4, num_gradients: int | None = None) -> Schedule:
    """Every update averages the first n gradients on the newest version, of any workers.

    A worker that has sent one begins another on the same version, so fast workers may fill an update by themselves; a
    gradient on an older version is ignored, and its worker begins again on the newest.

    Args:
      runtimes: float64[T, N], seconds; row t holds each worker's t-th gradient.
      gradients_per_update: n, number of gradients that one update averages.
      num_gradients: how many gradients to use, rounded up to whole updates. None: whole updates, until a worker that
        has to begin again runs out of run-times.

    Returns:
      A `Schedule` of updates with n fresh gradients each.

    Raises:
      ValueError: where run-times are not positive and finite, or a number is below 1.
      NotEnoughRuntimes: (a ValueError) where a worker runs out of rows first; it says how many would be enough.

    Source: Tyurin and Richtarik 2023, Rennala SGD.

    Example:
      >>> import numpy as np
      >>> schedule = rennala(np.array([[1.0, 2.5], [1.0, 2.5], [1.0, 2.5], [1.0, 2.5]]), gradients_per_update=2)
      >>> schedule.worker, schedule.update[:, 0]
      (array([0, 0, 1, 0, 0, 1], dtype=int32), array([ 0,  0, -1,  1,  1, -2], dtype=int32))
    """
    size = arguments.whole("gradients_per_update", gradients_per_update)
    return collected(runtimes, size=size, max_delay=1, interrupt=False, num_gradients=num_gradients)
