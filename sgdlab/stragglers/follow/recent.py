"""`Recent`, the last steps of a trace, and what they say of each worker: its two scores, since when, and how often."""

import dataclasses
import math

import numpy as np

from sgdlab import arrays

BLOCK = 10
"""Steps that are tested together."""
STEPS = 500
"""So many of the last steps are kept."""
WINDOW = 100
"""A worker's recent compute time is its median over so many steps."""


@dataclasses.dataclass(frozen=True, eq=False)
class RecentScores:
    """Tells who is late now.

    Attributes:
      seconds: float64[N], the median of each worker's last compute times; NaN without any.
      against_fleet: float64[N], that over the median of all workers; 1 is as fast as the others.
      against_itself: float64[N], that over its own best, the least of its medians over some windows of steps so far.
    """

    seconds: np.ndarray
    against_fleet: np.ndarray
    against_itself: np.ndarray


class Recent:
    """The last `STEPS` steps, and each of N workers' best; its size does not depend on how many steps there were."""

    def __init__(self, workers: int):
        self._runtimes = np.full((STEPS, workers), np.nan, np.float32)
        self._medians = np.full(STEPS, np.nan, np.float32)
        self._numbers = np.zeros(STEPS, np.int64)
        self._paused = np.zeros(STEPS, bool)
        self._best = np.full(workers, np.inf, np.float32)
        self.count = 0
        self._of_others: tuple[tuple[int, bytes], tuple[np.ndarray, np.ndarray, np.ndarray]] | None = None

    def grow(self, workers: int) -> None:
        """Adds workers, up to so many."""
        more = workers - self._best.size
        self._runtimes = np.pad(self._runtimes, [(0, 0), (0, more)], constant_values=np.nan)
        self._best = np.pad(self._best, (0, more), constant_values=np.inf)

    def add(self, steps: np.ndarray, runtimes: np.ndarray, medians: np.ndarray, paused: np.ndarray) -> None:
        """Adds a block.

        Args:
          steps: int64[BLOCK], their numbers.
          runtimes: float32[BLOCK, N], seconds, NaN where missing.
          medians: float32[BLOCK], over the workers.
          paused: bool[BLOCK], which steps were slow for all.
        """
        at = self.count % STEPS
        rows = slice(at, at + BLOCK)
        self._runtimes[rows], self._medians[rows] = runtimes, medians
        self._numbers[rows], self._paused[rows] = steps, paused
        self.count += BLOCK
        if self.count == WINDOW or self.count % STEPS == 0:
            self._best = np.fmin(self._best, self._window())

    def rows(self, last: int = STEPS, *, pauses: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the last steps, R at most: their numbers int64[R], compute times float32[R, N] and medians float32[R].

        Those that were slow for all are left out, unless `pauses` is true.
        """
        kept = min(self.count, STEPS, last)
        order = np.arange(self.count - kept, self.count) % STEPS
        if not pauses:
            order = order[~self._paused[order]]
        return self._numbers[order], self._runtimes[order], self._medians[order]

    def chance(self, seconds: float, workers: int) -> float:
        """Return the chance that independent workers are slow together as often as in the last steps and once more.

        Of a binomial law with the share of slow compute times, and Poisson's for the number of steps.

        Args:
          seconds: a longer compute time is slow.
          workers: number of those that are slow in a step, nearly all.
        """
        from scipy import special  # noqa: PLC0415 (SciPy takes a while to import)

        runtimes = self.rows()[1]
        slow, known = runtimes > seconds, np.isfinite(runtimes).sum()
        rate, there = (slow.sum() + 1) / (known + 2), max(round(known / max(len(slow), 1)), workers)
        often = (slow.sum(axis=1) >= workers).sum()
        # Both laws' functions are the chance of more than their first argument.
        return float(special.pdtrc(often, len(slow) * special.bdtrc(workers - 1, there, rate)))

    def scores(self, blamed: np.ndarray | None = None) -> RecentScores:
        """Return the two scores of every worker.

        Args:
          blamed: bool[N], workers whose compute times say nothing of what is usual, unless they are all.
        """
        seconds = self._window().astype(np.float64)
        there = np.isfinite(seconds)
        usual = there if blamed is None else there & ~blamed
        fleet = float(np.median(seconds[usual if usual.any() else there])) if there.any() else math.nan
        best = np.fmin(self._best, seconds)
        return RecentScores(seconds, seconds / fleet, np.where(there, seconds / best, np.nan))

    def against_best(self, workers: np.ndarray, since: int) -> float | None:
        """Return the median of some workers' compute times over their own best, from a step on; None without any."""
        numbers, runtimes, _ = self.rows()
        ratios = runtimes[numbers >= since][:, workers] / self._best[workers]
        score = float(arrays.known_medians(ratios.reshape(1, -1))[0])
        return score if math.isfinite(score) and score > 0 else None

    def others(self, blamed: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """As `rows`; the medians are those of the workers that are not blamed, where there are some."""
        key = self.count, blamed.tobytes()
        if self._of_others is None or self._of_others[0] != key:  # many workers may be asked about at once
            numbers, runtimes, medians = self.rows()
            if blamed.any() and not blamed.all():
                usual = arrays.known_medians(np.ascontiguousarray(runtimes[:, ~blamed]))
                medians = np.where(np.isfinite(usual), usual, medians)
            self._of_others = key, (numbers, runtimes, medians)
        return self._of_others[1]

    def ratios(self, workers: np.ndarray, blamed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Numbers int64[R] of the last steps that workers have, and their ratios to the others' medians, float64[R].

        The ratios of several workers are averaged, geometrically.
        """
        numbers, runtimes, medians = self.others(blamed)
        with np.errstate(invalid="ignore", divide="ignore"):
            logs = np.log(runtimes[:, workers] / medians[:, None])
        there = np.isfinite(logs)
        counts = there.sum(axis=1)
        mean = np.where(there, logs, 0.0).sum(axis=1)[counts > 0] / counts[counts > 0]
        return numbers[counts > 0], np.exp(mean.astype(np.float64))

    def since(self, worker: int, *, there: bool) -> int:
        """Return the first of the newest steps in a row that a worker has; or that it lacks, if that is asked for."""
        numbers, runtimes, _ = self.rows(pauses=True)
        is_so = np.isfinite(runtimes[:, worker]) == there
        before = np.flatnonzero(~is_so[: np.flatnonzero(is_so)[-1]])
        return int(numbers[before[-1] + 1 if before.size else 0])

    def _window(self) -> np.ndarray:
        """Return each worker's median over the last `WINDOW` steps that were not slow for all, float32[N]; or NaN."""
        _, runtimes, _ = self.rows(WINDOW)
        return arrays.known_medians(np.ascontiguousarray(runtimes.T))
