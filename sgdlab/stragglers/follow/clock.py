"""`ArrivalClock`, how long a trace that grows is waited for: whom steps no longer wait for, and when a job hangs."""

import math
from collections.abc import Callable

import numpy as np

from sgdlab.stragglers.follow.step_collector import StepCollector

LEAST_SECONDS, USUAL_STEPS = 5.0, 10.0
"""A worker, or a step, is waited for so many seconds, and so many usual steps, whichever is longer."""

LEAST_OF_A_JOB = 30.0
"""A job is waited for so many seconds at least: it may write a checkpoint, or evaluate."""

_LONGEST = 3.0
"""And so many times as long as it has taken before: files may be written in parts, and jobs pause."""

_FORGETS = 0.999
"""Factor of the longest time each time that the trace grows: a pause is expected again for a while."""

_MOST = 600.0
"""Seconds that a pause counts at most: after a job that hung for an hour, the next one is not waited for as long."""

_BEHIND = 2
"""Steps that a worker is behind, at least, before the others are known to go on without it."""


class ArrivalClock:
    """Says who is not waited for any more, by the clock of whoever reads.

    Times are those at which rows were read, so they count from when the trace has been caught up with.

    Args:
      clock: tells seconds.

    Attributes:
      grew: when the trace grew last.
      longest: the most seconds between two times that it grew, less what is forgotten.
    """

    def __init__(self, clock: Callable[[], float]):
        self._clock = clock
        self.grew, self.longest = clock(), 0.0
        self._heard, self._gap = np.zeros(0), np.zeros(0)  # of each worker: when, and the longest time between
        self._newest = np.zeros(0, np.int64)
        self._live = False

    def read(self, steps: StepCollector, offset: int, *, grew: bool, caught_up: bool) -> None:
        """Note what a look at the trace has brought.

        Args:
          steps: what has been read of the newest epoch.
          offset: what is added to its step numbers, those of earlier epochs.
          grew: whether the trace grew.
          caught_up: whether all that is there has been read.
        """
        now = self._clock()
        if grew:
            if self._live:
                self.longest = max(_FORGETS * self.longest, min(now - self.grew, _MOST))
            self.grew = now
        more = steps.newest.size - self._newest.size
        self._heard = np.pad(self._heard, (0, more), constant_values=now)
        self._gap, self._newest = np.pad(self._gap, (0, more)), np.pad(self._newest, (0, more))
        newest = np.maximum(self._newest, steps.newest + offset)  # a worker may have no step of this epoch
        new = newest > self._newest
        if self._live:
            self._gap = np.where(new, np.maximum(self._gap, now - self._heard), self._gap)
        self._heard = np.where(new, now, self._heard)
        self._newest = newest
        self._live |= caught_up

    @property
    def latest(self) -> int:
        """Return the newest step of any worker, counted over epochs."""
        return int(self._newest.max(initial=0))

    @property
    def behind(self) -> dict[int, int]:
        """Return how many steps each worker is behind the newest; of those that are."""
        behind = self.latest - self._newest
        return {int(worker): int(behind[worker]) for worker in np.flatnonzero(behind)}

    def overdue(self, usual: float) -> np.ndarray:
        """Return the workers that steps no longer wait for, bool[N], where a usual step takes so many seconds, or nan.

        The others are ahead of them, and they have had no row for ten usual steps, at least 5 s, and three times as
        long as they ever took.
        """
        if not self._live or not self._newest.size:
            return np.zeros(self._newest.size, bool)
        silent = self._clock() - self._heard
        patience = np.maximum(self.patience(usual), _LONGEST * self._gap)
        return (silent > patience) & (self._newest + _BEHIND <= self.latest)

    def patience(self, usual: float, least: float = LEAST_SECONDS) -> float:
        """Return the seconds that a worker is waited for, whatever it has done before."""
        return max(least, USUAL_STEPS * usual if math.isfinite(usual) else least)

    def hangs(self, usual: float) -> float | None:
        """Return for how many seconds nothing has come, where that is too long; None where it is not.

        Too long is more than ten usual steps, at least 30 s, and more than three times as long as it took before.
        """
        idle = self._clock() - self.grew
        return (
            idle if self._live and idle > max(self.patience(usual, LEAST_OF_A_JOB), _LONGEST * self.longest) else None
        )
