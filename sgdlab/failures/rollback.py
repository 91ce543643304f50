"""A job that restarts from its last checkpoint: all times of a schedule move, and nothing else changes."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from sgdlab import arguments
from sgdlab.schedule import Schedule


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointCosts:
    """Holds how often a job writes checkpoints, and what they and a restart cost.

    Attributes:
      interval_seconds: of work between two checkpoints.
      checkpoint_seconds: seconds for which all wait while one is written.
      restart_seconds: from when a failed worker is up again until the job goes on, at its last checkpoint.

    Raises:
      ValueError: where a number is out of its range.
    """

    interval_seconds: float
    checkpoint_seconds: float = 0.0
    restart_seconds: float = 0.0

    def __post_init__(self) -> None:
        arguments.real("interval_seconds", self.interval_seconds, above=0)
        for name in ("checkpoint_seconds", "restart_seconds"):
            arguments.real(name, getattr(self, name), least=0)


_IN_VAIN = 100_000
"""Failures within one interval between checkpoints, after which a job is taken for one that never gets through."""


def rolled_back(schedule: Schedule, failures: Iterator[tuple[float, float]], checkpoints: CheckpointCosts) -> Schedule:
    r"""Return a schedule whose job, at each failure, restarts from its last checkpoint.

    What was computed since the checkpoint is computed again on the same batches, so that parameters are those of the
    job without failures. Every time t of the schedule becomes

    .. math:: W_k + (t - k I), \qquad k = \lceil t / I \rceil - 1

    with I the seconds between checkpoints, and W_k when the job last began the work behind its k-th checkpoint.
    What a gradient takes longer by is `paused`.

    Args:
      schedule: without failures.
      failures: intervals [down, up), seconds, of any worker, in order.
      checkpoints: how often, and what they cost.

    Raises:
      ValueError: where failures come so fast that the job never reaches its next checkpoint.

    Source: Young 1974; Daly 2006: the best interval is about :math:`\sqrt{2 C M}`, of C seconds for a checkpoint and M
    between failures.

    Example:
      >>> from sgdlab import protocols
      >>> schedule = protocols.asynchronous(np.full((6, 1), 4.0))
      >>> costs = CheckpointCosts(interval_seconds=8.0, restart_seconds=2.0)
      >>> rolled_back(schedule, iter([(14.0, 15.0)]), costs).applied[:, 0]  # that at 12 s again at 17 + 4 s
      array([ 4.,  8., 21., 25., 29., 33.])
    """
    end = max((float(np.nanmax(v)) for v in (schedule.arrived, schedule.applied) if v.size), default=0.0)
    begins, interval = _begins(end, failures, checkpoints), checkpoints.interval_seconds

    def moved(times: np.ndarray) -> np.ndarray:
        number = np.clip(np.ceil(times / interval) - 1, 0, begins.size - 1).astype(int)
        return begins[number] + (times - number * interval)

    columns = ("asked", "started", "sent", "arrived", "applied")
    given = {name: values for name in columns if (values := getattr(schedule, name)) is not None}
    changed: dict[str, Any] = {
        name: np.where(np.isnan(values), np.nan, moved(np.nan_to_num(values))) for name, values in given.items()
    }
    through = "sent" if "sent" in given else "arrived"
    after, before = (found[through].max(axis=1) - found["started"] for found in (changed, given))
    changed["paused"] = np.maximum(after - before, 0.0) + (0.0 if schedule.paused is None else schedule.paused)
    return dataclasses.replace(schedule, **changed)


def _begins(end: float, failures: Iterator[tuple[float, float]], checkpoints: CheckpointCosts) -> np.ndarray:
    """Return when the job last begins the work behind each checkpoint, as far as a time of work."""
    interval, number = checkpoints.interval_seconds, max(int(np.ceil(end / checkpoints.interval_seconds)), 1)
    begins, now = [], 0.0
    down, up = next(failures, (np.inf, np.inf))
    for index in range(number):
        seconds = min(interval, end - index * interval)
        seconds += checkpoints.checkpoint_seconds if index < number - 1 else 0.0
        for _ in range(_IN_VAIN):
            while up <= now:
                down, up = next(failures, (np.inf, np.inf))
            if now + seconds <= down:
                break
            now = up + checkpoints.restart_seconds
        else:
            raise ValueError(
                f"interval_seconds={interval:g} must be less: {_IN_VAIN:,} failures, one after the other, come before "
                f"the checkpoint at {(index + 1) * interval:g} s of work is written"
            )
        begins.append(now)
        now += seconds
    return np.array(begins)
