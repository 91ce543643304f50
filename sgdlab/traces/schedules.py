"""The run-times of schedules, as recordings."""

from typing import Any

import numpy as np

from sgdlab.schedule import Schedule
from sgdlab.traces.recording import Recording


def from_schedule(schedule: Schedule) -> Recording:
    """The run-times of a schedule: row t is each worker's t-th gradient.

    Gradients that were interrupted or are pending have no known run-time: they are missing. (A gradient that was
    dropped at the very instant of an update is taken as interrupted.)

    Args:
      schedule: of one block; with several blocks, the first arrival ends a gradient.

    Example:
      >>> from sgdlab import protocols
      >>> runtimes = np.array([[1.0, 3.0], [2.0, 1.0]])
      >>> from_schedule(protocols.synchronous(runtimes)).runtimes
      array([[1., 3.],
             [2., 1.]])
    """
    order = np.lexsort((schedule.started, schedule.worker))
    worker = schedule.worker[order]
    count = np.arange(worker.size) - np.searchsorted(worker, worker)  # each worker's own gradients, from 0
    duration = (schedule.arrived.min(axis=1) - schedule.started)[order]
    interrupted: Any = schedule.dropped().all(axis=1) & np.isin(schedule.arrived, schedule.applied).all(axis=1)
    unknown = (interrupted | schedule.pending().all(axis=1))[order]
    runtimes = np.full((int(count.max(initial=-1)) + 1, schedule.num_workers), np.nan)
    runtimes[count[~unknown], worker[~unknown]] = duration[~unknown]
    names = tuple(str(i) for i in range(schedule.num_workers))
    return Recording(runtimes, np.arange(runtimes.shape[0]), names)
