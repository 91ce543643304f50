"""Measures one protocol on given run-times: gradients per second, idle time, lost work and staleness."""

import dataclasses

import numpy as np

from sgdlab import protocols
from sgdlab.schedule import Schedule


@dataclasses.dataclass(frozen=True, eq=False)
class Measured:
    """The measurements of one protocol.

    The gradients per second are the sum over columns of sum(gradients) / sum(seconds). A synchronous protocol has one
    column (M = 1), an asynchronous one has a column for each worker (M = N).

    Attributes:
      gradients: float64[T, M], number of gradients used in each iteration.
      seconds: float64[T, M], duration of each iteration.
      lost: share of the computing worker-seconds whose gradients were discarded.
      idle: share of all worker-seconds in which a worker waits.
      staleness: mean number of updates between reading the parameters and using the gradient.
      updates_per_second: updates of the parameters per second.
    """

    gradients: np.ndarray
    seconds: np.ndarray
    lost: float
    idle: float
    staleness: float
    updates_per_second: float

    @property
    def gradients_per_second(self) -> float:
        """Used gradients per second, of the whole cluster."""
        return float((self.gradients.sum(axis=0) / self.seconds.sum(axis=0)).sum())

    @property
    def iteration_seconds(self) -> float:
        """Mean seconds from one update to the next."""
        return 1 / self.updates_per_second

    @property
    def waited_for(self) -> float:
        """Mean number of gradients in an update."""
        return self.gradients_per_second / self.updates_per_second


def interrupted(runtimes: np.ndarray, cutoff: np.ndarray | int) -> Measured:
    """Measures a cutoff: every iteration waits for the first c workers and interrupts the others.

    Args:
      runtimes: float64[T, N], seconds; all workers begin iteration t at the same time.
      cutoff: c, from 1 to N; or int[T], a value for each iteration.
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
    """Measures backup workers: an update takes the first N - b gradients; late workers finish theirs, which is dropped.

    Args:
      runtimes: float64[T, N], seconds.
      backups: b, from 0 to N - 1.
    """
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
    """Measures asynchronous SGD, in which no worker waits.

    Gradients per second are those of an infinite run that repeats the run-times, that is the sum of the workers' mean
    rates, so that they do not depend on the gradients in flight at the end. The staleness is that of the schedule up to
    the first worker that runs out of run-times.

    Args:
      runtimes: float64[T, N], seconds.
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
