"""Synchronous SGD, with or without backup workers (Chen et al. 2016, Algorithms 3 and 4)."""

import numpy as np

from sgdlab import arguments
from sgdlab.protocols.family import PROTOCOLS
from sgdlab.protocols.rounds import rounds
from sgdlab.runtimes import checked
from sgdlab.schedule import Schedule


@PROTOCOLS.register(
    title="Synchronous SGD", source="Chen et al. 2016", families=("Rounds: fresh gradients",), rule="nag_asgd"
)
def synchronous(runtimes: np.ndarray, *, num_gradients: int | None = None) -> Schedule:
    """Every update waits for one gradient of every worker, all of them computed on the newest version.

    Args:
      runtimes: float64[T, N], seconds; row t holds each worker's gradient for update t.
      num_gradients: how many gradients to use, rounded up to whole updates. None: all T N.

    Returns:
      A `Schedule` of updates with N gradients each, none of them dropped or pending.

    Raises:
      ValueError: where run-times are not positive and finite, or `num_gradients` is below 1.
      NotEnoughRuntimes: (a ValueError) where run-times end first; it says how many rows would be enough.

    Example:
      >>> import numpy as np
      >>> synchronous(np.array([[1.0, 3.0], [2.0, 1.0]])).applied[:, 0]
      array([3., 5.])
    """
    return backup_workers(runtimes, backups=0, num_gradients=num_gradients)


@PROTOCOLS.register(
    title="Backup workers", source="Chen et al. 2016, Alg. 3-4", families=("Rounds: fresh gradients",), rule="nag_asgd"
)
def backup_workers(runtimes: np.ndarray, *, backups: int = 1, num_gradients: int | None = None) -> Schedule:
    """Every update takes the first N of N + b gradients on the newest version; later ones are dropped.

    A late worker is not interrupted: it finishes its stale gradient, the server drops it, and the worker reads the
    newest version and begins again. It can miss several updates.

    Args:
      runtimes: float64[T, N + b], seconds; row t holds each worker's t-th gradient.
      backups: b, how many workers an update does not wait for.
      num_gradients: how many gradients to use, rounded up to whole updates. None: those of T updates; a worker begins
        at most one gradient per update.

    Returns:
      A `Schedule` of updates with N gradients each.

    Raises:
      ValueError: where run-times are not positive and finite, `backups` is not from 0 to N + b - 1, or
        `num_gradients` is below 1.
      NotEnoughRuntimes: (a ValueError) where run-times end first; it says how many rows would be enough.

    Example:
      >>> import numpy as np
      >>> schedule = backup_workers(np.array([[1.0, 1.0, 2.5], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]), backups=1)
      >>> schedule.worker, schedule.update[:, 0]
      (array([0, 1, 0, 1, 2, 0, 1, 2], dtype=int32), array([ 0,  0,  1,  1, -1,  2,  2, -2], dtype=int32))
    """
    runtimes = checked(runtimes)
    workers = runtimes.shape[1]
    why = f"there are {workers} workers, and an update needs at least one"
    backups = arguments.whole("backups", backups, least=0, most=workers - 1, why=why)
    return rounds(runtimes, at_least=workers - backups, seconds=0.0, interrupt=False, num_gradients=num_gradients)
