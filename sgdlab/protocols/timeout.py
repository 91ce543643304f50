"""Rounds with a time-out: every update waits for c gradients, then a fixed time longer."""

import numpy as np

from sgdlab import arguments
from sgdlab.protocols.family import PROTOCOLS
from sgdlab.protocols.rounds import rounds
from sgdlab.runtimes import checked
from sgdlab.schedule import Schedule


@PROTOCOLS.register(
    title="Time-out",
    source="Chen et al. 2016, section 6",
    families=("Rounds: fresh gradients",),
    rule="linear_scaling",
)
def timeout(
    runtimes: np.ndarray,
    *,
    at_least: int | float = 0.75,
    seconds: float = 4.0,
    interrupt: bool = False,
    num_gradients: int | None = None,
) -> Schedule:
    """Every update waits for c gradients on the newest version, then `seconds` more, or until all have arrived.

    With 0 seconds it takes the first c, as `backup_workers` does; with very many it is `synchronous`. An update has d
    gradients, c <= d <= N: `rules.scale_by_num_gradients` makes the step grow with d.

    Args:
      runtimes: float64[T, N], seconds; row t holds each worker's t-th gradient.
      at_least: c, gradients that an update waits for: a whole number from 1 to N, or a share of N above 0.0 and at most
        1.0.
      seconds: seconds that an update waits after its c-th gradient; one that arrives exactly at the deadline is late.
      interrupt: whether a late worker gives up its gradient at the update and begins a new one; else it finishes, its
        gradient is dropped, and it reads the newest version (it can miss several updates).
      num_gradients: how many gradients to use; the run ends with the update that reaches this number. None: those of
        T updates; a worker begins at most one gradient per update.

    Returns:
      A `Schedule`; interrupted work ends, dropped, at the update.

    Raises:
      ValueError: where run-times are not positive and finite, or another argument is out of its range.
      NotEnoughRuntimes: (a ValueError) where run-times end first; it says how many rows would be enough.

    Source: Chen et al. 2016, section 6; Algorithm 1 of the weak-synchronization paper, with one server.

    Example:
      >>> import numpy as np
      >>> schedule = timeout(np.array([[1.0, 1.5, 9.0], [1.0, 1.5, 1.0]]), at_least=1, seconds=1.0)
      >>> schedule.applied[:, 0], schedule.update[:, 0]
      (array([2., 4.]), array([ 0,  0,  1,  1, -2], dtype=int32))
    """
    runtimes = checked(runtimes)
    return rounds(
        runtimes,
        at_least=arguments.share("at_least", at_least, runtimes.shape[1], "workers"),
        seconds=arguments.real("seconds", seconds, least=0),
        interrupt=bool(interrupt),
        num_gradients=num_gradients,
    )
