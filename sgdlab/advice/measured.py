"""What one protocol makes of the run-times: gradients, seconds, waiting and lost work."""

import dataclasses

import numpy as np

from sgdlab import protocols
from sgdlab.schedule import Schedule


@dataclasses.dataclass(frozen=True, eq=False)
class Measured:
    """One protocol on the second part of the run.

    Gradients per second are the sum over the columns of `gradients` / `seconds`: one column where all workers wait for
    each other, one a worker where nobody waits.

    Attributes:
      gradients: float64[T, M], used in each iteration.
      seconds: float64[T, M], that each iteration took.
      lost: share of the computed worker-seconds whose gradients were thrown away.
      idle: share of all worker-seconds in which a worker waited.
      staleness: mean number of updates between the reading of the parameters and the use of the gradient.
      updates_per_second: of the parameters.
    """

    gradients: np.ndarray
    seconds: np.ndarray
    lost: float
    idle: float
    staleness: float
    updates_per_second: float

    @property
    def gradients_per_second(self) -> float:
        """Used, per second."""
        return float((self.gradients.sum(axis=0) / self.seconds.sum(axis=0)).sum())

    @property
    def iteration_seconds(self) -> float:
        """Mean, from one update to the next."""
        return 1 / self.updates_per_second

    @property
    def waited_for(self) -> float:
        """Mean number of gradients in an update."""
        return self.gradients_per_second / self.updates_per_second


def interrupted(runtimes: np.ndarray, cutoff: np.ndarray | int) -> Measured:
    """Every iteration waits for the first c workers, and interrupts the others.

    Args:
      runtimes: float64[T, N], seconds; all workers begin row t together.
      cutoff: c, from 1 to N, or int[T], one for each iteration.
    """
    steps, workers = runtimes.shape
    used = np.broadcast_to(cutoff, steps).astype(int)
    ordered = np.sort(runtimes, axis=1)
    rows = np.arange(steps)
    seconds = ordered[rows, used - 1]
    useful = np.cumsum(ordered, axis=1)[rows, used - 1].sum()
    thrown = ((workers - used) * seconds).sum()
    return Measured(
        gradients=used[:, None].astype(float),
        seconds=seconds[:, None],
        lost=float(thrown / (useful + thrown)),
        idle=float(1 - (useful + thrown) / (workers * seconds.sum())),
        staleness=0.0,
        updates_per_second=float(steps / seconds.sum()),
    )


def finishing(runtimes: np.ndarray, backups: int) -> Measured:
    """Backup workers: every update takes the first N - b gradients, later ones are finished first and then dropped."""
    schedule = protocols.backup_workers(runtimes, backups=backups)
    applied = schedule.applied[:, 0]
    return Measured(
        gradients=np.full((applied.size, 1), float(runtimes.shape[1] - backups)),
        seconds=np.diff(applied, prepend=0.0)[:, None],
        lost=_lost(schedule),
        idle=float(schedule.idle_share().mean()),
        staleness=0.0,
        updates_per_second=schedule.updates_per_second(),
    )


def asynchronous(runtimes: np.ndarray) -> Measured:
    """Nobody waits: the long-run rates of all workers add up.

    The schedule that staleness is read from ends where the first worker has used up its run-times. Gradients per second
    are those of an endless run with the same run-times over and over, so that they do not depend on who is in the
    middle of a gradient at the end.
    """
    schedule = protocols.asynchronous(runtimes)
    rate = float((len(runtimes) / runtimes.sum(axis=0)).sum())
    return Measured(
        gradients=np.ones(runtimes.shape),
        seconds=runtimes,
        lost=_lost(schedule),
        idle=0.0,
        staleness=float(schedule.staleness().mean()),
        updates_per_second=rate,
    )


def _lost(schedule: Schedule) -> float:
    return float(schedule.wasted_share().sum() / schedule.busy_share().sum())
