"""Staleness without a cluster: one worker whose gradients are computed on old parameters (Chen et al. 2016)."""

import numpy as np

from sgdlab import arguments
from sgdlab.bounds import Count, NotNegative
from sgdlab.protocols.family import PROTOCOLS
from sgdlab.protocols.in_seconds import in_seconds
from sgdlab.runtimes import NotEnoughRuntimes, checked
from sgdlab.schedule import Schedule


@PROTOCOLS.register(
    title="Simulated staleness",
    source="Chen et al. 2016, section 2.1",
    families=("Sources of staleness",),
    rule="asgd",
    no_policy="its staleness is drawn, and comes from no worker's pace",
)
@in_seconds
def simulated_staleness(
    runtimes: np.ndarray,
    *,
    num_gradients: Count | None = None,
    average: NotNegative | None = None,
    ramp_epochs: NotNegative = 3.0,
    gradients_per_epoch: float | None = None,
) -> Schedule:
    r"""Gradient k enters update k, computed on parameters that are on average so many updates old.

    .. math:: s_k = \min(k,\; \lfloor A_k \rfloor - \lfloor A_{k-1} \rfloor), \qquad
        A_k = \sum_{i \le k} a \min(1, i / (ramp \cdot epoch))

    The staleness is a whole number next to the average, so chosen that its sum over any interval after the ramp is
    within 1 of the average's. It rises linearly over the first epochs: training could diverge if it began large.

    Args:
      runtimes: float64[T, N], seconds; those of the first worker are the compute times of all gradients.
      num_gradients: G, gradients and updates. None: T.
      average: a, mean staleness after the ramp, in updates; 0 is serial SGD. None: N - 1, that of N equal workers.
      ramp_epochs: epochs over which the staleness rises from 0.
      gradients_per_epoch: number of gradients in one epoch of data; required if there is a ramp.

    Returns:
      A `Schedule` of one worker.

    Raises:
      ValueError: where times are not positive and finite, a number is out of its range, or a ramp has no length.
      NotEnoughRuntimes: (a ValueError) where compute times end first; it says how many rows would be enough.

    Source: Chen et al. 2016, section 2.1 and Figure 2.

    Example:
      >>> schedule = simulated_staleness(np.ones((8, 3)), ramp_epochs=1, gradients_per_epoch=4)
      >>> schedule.staleness().compressed()
      array([0, 0, 1, 2, 2, 2, 2, 2], dtype=int32)
    """
    runtimes = checked(runtimes)
    rows, workers = runtimes.shape
    count = rows if num_gradients is None else num_gradients
    average = workers - 1.0 if average is None else average
    length = 0.0
    if ramp_epochs:
        if gradients_per_epoch is None:
            why = f"must be given where ramp_epochs={ramp_epochs:g}: how many gradients an epoch has"
            raise ValueError(f"gradients_per_epoch=None {why}")
        length = ramp_epochs * arguments.real("gradients_per_epoch", gradients_per_epoch, above=0)
    if count > rows:
        raise NotEnoughRuntimes.after(count, rows=rows, done=rows)
    step = np.arange(count)
    wanted = average * np.minimum(1.0, step / length) if length else np.full(count, average)
    # Every step corrects the rounding of those before, so that the mean is exact.
    total = np.floor(np.cumsum(wanted) + 1e-9)
    staleness = np.minimum(np.diff(total, prepend=0.0), step).astype(np.int64)
    ends = np.cumsum(runtimes[:count, 0])
    return Schedule(
        worker=np.zeros(count, np.int32),
        read=(step - staleness)[:, None],
        update=step[:, None],
        started=np.concatenate([[0.0], ends[:-1]]),
        arrived=ends[:, None],
        applied=ends[:, None],
        num_workers=1,
    )
