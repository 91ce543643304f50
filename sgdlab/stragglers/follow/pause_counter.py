"""`PauseCounter`, single steps that are slow for all workers, and how often they come."""

import itertools
import math
from typing import Any

import numpy as np

PAUSE_FACTOR = 1.5
"""A step is slow for all where its median is so many times the usual one, at least."""
PAUSE_SIGMAS = 8.0
LONGEST = 10
"""More slow steps in a row are no pause, but a slower cluster: an evaluation may take some."""
_HISTORY, _LEVELS = 200, 5
_HALF_OF_DIFFERENCES = 0.954
"""The median absolute difference of two draws of a Gaussian with standard deviation 1."""


class PauseCounter:
    """Finds and counts the steps that are slow for all workers.

    Attributes:
      count: of pauses; successive slow steps are one.
      first: the number of the first one's step; None before.
      factor: how many times longer than usual the median of its slowest step was.
      period: every how many steps they come; None while that is unknown.
    """

    def __init__(self) -> None:
        self.count, self.factor = 0, 1.0
        self.first: Any = None
        self.period: int | None = None
        self._gaps: list[int] = []
        self._last = 0
        self._run: list[tuple[int, float, bool]] = []  # steps in a row: number, factor, whether it was slow for all
        self._levels: list[float] = []
        self._blocks_seen, self._between_steps = 0, 0.0

    def find(self, medians: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find the steps of a block that are slow for all (bool[B]), and by what factor (float[B]).

        Args:
          medians: float[B], logarithms of the steps' medians; NaN where there is none.
        """
        # Ten numbers: plain Python is faster than arrays.
        known = [median for median in medians.tolist() if math.isfinite(median)]
        if not known:
            return np.zeros(medians.size, bool), np.ones(medians.size)
        levels = sorted(self._levels or known)
        level = 0.5 * (levels[(len(levels) - 1) // 2] + levels[len(levels) // 2])
        # Half of the differences between steps are less than this; pauses, which are few, do not change it.
        differences = sorted(abs(one - other) for one, other in itertools.pairwise(known))
        difference = differences[len(differences) // 2] if differences else 0.0
        self._blocks_seen += 1
        self._between_steps += (difference - self._between_steps) / min(self._blocks_seen, _HISTORY)
        least = max(math.log(PAUSE_FACTOR), PAUSE_SIGMAS * self._between_steps / _HALF_OF_DIFFERENCES)
        if max(known) - level <= least:
            return np.zeros(medians.size, bool), np.ones(medians.size)
        above = np.where(np.isfinite(medians), medians, level) - level
        return above > least, np.exp(above)

    def level(self, medians: np.ndarray, left_out: np.ndarray) -> float:
        """Return the mean logarithm of a block's medians, and learn from it what is usual; NaN where there is none.

        Args:
          medians: float[B], logarithms of the steps' medians; NaN where there is none.
          left_out: bool[B], the pauses among these steps.
        """
        values = zip(medians.tolist(), left_out.tolist(), strict=True)
        used = [median for median, is_pause in values if not is_pause and math.isfinite(median)]
        if not used:
            return math.nan
        self._levels = [*self._levels[1 - _LEVELS :], sum(used) / len(used)]
        return self._levels[-1]

    def observe(self, steps: np.ndarray, high: np.ndarray, slow: np.ndarray, factors: np.ndarray) -> int:
        """Adds a block, and returns how many pauses ended in it.

        Args:
          steps: int64[B], their numbers.
          high: bool[B], in which the median of the workers was slow; a pause ends where it is not.
          slow: bool[B], which were slow for all, as one step of a pause must be.
          factors: float[B], of each over what is usual.
        """
        if not self._run and not high.any():
            return 0
        before = self.count
        for row, is_high in enumerate(high.tolist()):
            if not is_high:
                self._end()
            elif len(self._run) <= LONGEST:
                self._run.append((int(steps[row]), float(factors[row]), bool(slow[row])))
        return self.count - before

    def _end(self) -> None:
        run, self._run = self._run, []
        if not 1 <= len(run) <= LONGEST or not any(slow for _, _, slow in run):
            return
        begin = run[0][0]
        self.count += 1
        if self.first is None:
            self.first, self.factor = begin, max(factor for _, factor, _ in run)
        else:
            self._gaps = [*self._gaps[-4:], begin - self._last]
            usual = sorted(self._gaps)[len(self._gaps) // 2]
            # A pause may be missed or be in a step that was not recorded: gaps of several periods agree.
            off = [abs(gap - usual * max(1, round(gap / usual))) for gap in self._gaps]
            self.period = usual if len(off) >= 2 and max(off) <= max(1, 0.05 * usual) else None
        self._last = begin
