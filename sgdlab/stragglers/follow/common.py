"""Changes of all workers together: single steps that are slow for all, and a cluster that has become slower."""

import itertools
import math
from typing import Any

import numpy as np

from sgdlab.stragglers.follow.charts import CLIP, LEAST_FACTOR, LEAST_SIGMA, THRESHOLD, of_differences

PAUSE_FACTOR = 1.5
"""A step is slow for all where its median is so many times the usual one, at least."""
PAUSE_SIGMAS = 8.0
LONGEST = 10
"""More slow steps in a row are no pause, but a slower cluster: an evaluation may take some."""
_HISTORY, _LEAST_BLOCKS, _LEVELS = 200, 20, 5
_HALF_OF_DIFFERENCES = 0.954
"""The median absolute difference of two draws of a Gaussian with standard deviation 1."""


class PauseCounter:
    """Counts the steps that are slow for all workers.

    Attributes:
      count: of pauses; successive slow steps are one.
      first: the number of the first one's step; None before.
      factor: how many times longer than usual the median of its slowest step was.
      period: every how many steps they come; None while that is unknown.
      named: the period that was said last.
    """

    def __init__(self) -> None:
        self.count, self.factor = 0, 1.0
        self.first: Any = None
        self.period: int | None = None
        self.named: int | None = None
        self._gaps: list[int] = []
        self._last = 0
        self._run: list[tuple[int, float, bool]] = []  # steps in a row: number, factor, whether it was slow for all

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


class Common:
    """Tests whether the whole cluster has become slower, and learns what a usual step takes.

    The chart is that of `sgdlab.stragglers.follow.charts`, of the mean logarithm of the steps' medians.

    Attributes:
      slow: whether the cluster is slower than it was.
      since: the block in which that began; or, after it, in which it was back.
      normal: what is normal, a mean logarithm of seconds.
    """

    def __init__(self) -> None:
        self.slow, self.since, self.normal = False, 0, 0.0
        self.block = 0
        self._levels: list[float] = []
        self._count, self._spread = 0, 0.0
        self._blocks_seen, self._between_steps = 0, 0.0
        self._sums = {"slower": 0.0, "back": 0.0, "faster": 0.0}
        self._began = dict.fromkeys(self._sums, 0)

    def pauses(self, medians: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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

    def observe(self, medians: np.ndarray, left_out: np.ndarray) -> None:
        """Adds a block.

        Args:
          medians: float[B], logarithms of the steps' medians; NaN where there is none.
          left_out: bool[B], the pauses among these steps.
        """
        self.block += 1
        values = zip(medians.tolist(), left_out.tolist(), strict=True)
        used = [median for median, is_pause in values if not is_pause and math.isfinite(median)]
        if used:
            level = sum(used) / len(used)
            if self._count >= _LEAST_BLOCKS:
                self._test(level)
            self._learn(level)
            self._levels = [*self._levels[1 - _LEVELS :], level]

    def _sigma(self) -> float:
        return max(float(of_differences(self._spread)), LEAST_SIGMA)

    def _test(self, level: float) -> None:
        sigma = self._sigma()
        allowance = max(math.log(LEAST_FACTOR), (0.5 + 2.5 / math.sqrt(self._count)) * sigma)
        self._add("slower", (level - self.normal - allowance) / sigma)
        self._add("faster", (self.normal - level - allowance) / sigma)
        self._add("back", (self.normal + 0.5 * allowance - level) / sigma if self.slow else -math.inf)
        if not self.slow and self._sums["slower"] >= THRESHOLD:
            self.slow, self.since = True, self._began["slower"]
        elif self.slow and self._sums["back"] >= CLIP:
            self.slow, self.since = False, self._began["back"]
            self._sums["slower"] = 0.0

    def _add(self, name: str, gain: float) -> None:
        self._sums[name] = max(0.0, min(self._sums[name], THRESHOLD) + min(gain, CLIP))
        if self._sums[name] == 0:
            self._began[name] = self.block

    def _learn(self, level: float) -> None:
        if self._sums["faster"] >= THRESHOLD:  # what is normal is learned anew
            newest = [*self._levels, level][self._began["faster"] - self.block :]
            self.normal = sum(newest) / len(newest)
            self._sums["faster"] = 0.0
        if self.slow or self._sums["slower"] >= THRESHOLD / 3:
            return
        self._count += 1
        self.normal += (level - self.normal) / min(self._count, _HISTORY)
        if self._levels:
            step = abs(level - self._levels[-1])
            if self._count > _LEAST_BLOCKS:
                step = min(step, 4 * self._sigma())
            self._spread += (step - self._spread) / min(max(self._count - 1, 1), _HISTORY)
