"""Steps that pause all workers together: checkpoints, evaluations, garbage collection, a file system that hangs."""

import dataclasses
import math

import numpy as np

from sgdlab.report.words import counted, figure, ordinal, some
from sgdlab.stragglers.diagnosis import history, periods
from sgdlab.stragglers.diagnosis.periods import Period
from sgdlab.traces import Recording

_LEAST_FACTOR, _SURE_FACTOR = 1.2, 1.5
"""A compute time is long from the first multiple of the usual on if the compute times vary little, from the second in
any case (and from `_DEVIATIONS` of the steps' medians on)."""

_DEVIATIONS, _OWN_DEVIATIONS = 6.0, 4.0
"""Deviations of the steps' medians, and of the compute times, from which a compute time is long."""

_LEAST_SHARE = 0.25
"""Least share of the workers that a pause hits."""

_CHANCE = 0.01
"""Largest expected number of steps that independent slow compute times would turn into a pause."""

_LONGEST = 5
"""Most consecutive rows of one pause; a longer stretch is a slow time of the cluster, not a pause."""

_OFTEN = 0.8
"""Share of the pauses from which a worker is hit always."""

_SAMPLE = 2048
"""Rows from which the deviation of the compute times is estimated."""

_WINDOWS = 1000
"""About so many windows are looked at: of many pauses, neighbours share one."""


@dataclasses.dataclass(frozen=True, eq=False)
class Pauses:
    """Holds the steps that took much longer than the steps around them, for all workers or for many.

    Attributes:
      rows: int64[K], rows of the recording's complete steps, rising.
      extra: float64[K], seconds above the usual: the median over the workers that paused.
      usual: seconds of the median worker in a usual step.
      period: that they follow; None if they follow none.
      workers: int64[K], number of workers that paused in each of these steps.
      fleet: N, number of all workers.
    """

    rows: np.ndarray
    extra: np.ndarray
    usual: float
    period: Period | None
    workers: np.ndarray
    fleet: int

    def among(self, rows: int) -> np.ndarray:
        """Return bool[T], which of the T rows of the recording are pauses."""
        result = np.zeros(rows, bool)
        result[self.rows] = True
        return result

    def removed(self, runtimes: np.ndarray, chosen: slice | np.ndarray = slice(None)) -> np.ndarray:
        """Return compute times, float64[T, N], without the seconds of all pauses, or of those that are chosen, bool[K].

        A worker that did not take part in a pause is not made faster than a usual step.

        Example:
          >>> pauses = Pauses(np.array([1]), np.array([6.0]), 1.0, None, np.array([2]), 2)
          >>> pauses.removed(np.array([[1.0, 1.25], [7.0, 7.25], [1.0, 1.5]]))
          array([[1.  , 1.25],
                 [1.  , 1.25],
                 [1.  , 1.5 ]])
        """
        repaired, rows = runtimes.copy(), self.rows[chosen]
        paused = runtimes[rows]
        repaired[rows] = np.maximum(paused - self.extra[chosen, None], np.minimum(paused, self.usual))
        return repaired

    def describe(self, steps: np.ndarray) -> str:
        """Name the steps, their length and their period in a phrase; empty if there are none.

        Args:
          steps: int64[T], numbers of the complete steps.

        Example:
          >>> times = np.ones([12, 4]) + 6.0 * (np.arange(12) % 4 == 3)[:, None]
          >>> recording = Recording(times, np.arange(1, 13), tuple("abcd"))
          >>> find_pauses(recording).describe(recording.steps)
          '3 steps (4, 8 and 12) took 6.0 s longer on all workers, every 4th step: a checkpoint?'
        """
        if not self.rows.size:
            return ""
        which, extra = some([str(step) for step in steps[self.rows]]), figure(float(np.median(self.extra)), 2)
        hit = float(np.median(self.workers))
        whom = "all workers" if hit >= 0.9 * self.fleet else f"about {hit:.0f} of {self.fleet} workers"
        if self.rows.size == 1:
            guess = "the first step: a compilation?" if self.rows[0] == 0 else "once: a checkpoint or an evaluation?"
            return f"step {which} took {extra} s longer on {whom}, {guess}"
        guess = f"every {ordinal(self.period.every)} step: a checkpoint?" if self.period else "without a period"
        return f"{counted(self.rows.size, 'step')} ({which}) took {extra} s longer on {whom}, {guess}"


def find_pauses(recording: Recording) -> Pauses:
    r"""Find the pauses among the complete steps of a recording.

    Those that come every n-th step, n at least 2, are found first (`periods.of_all`). The usual time :math:`u_t`
    of a step is the median of the medians of the 51 other steps around it. A compute time is long if it exceeds

    .. math:: u_t \exp(\max\{6 s, \min\{\log 1.5, \max\{\log 1.2, 4 d\}\}\})

    with s the deviation (from the median absolute one) of the :math:`\log(\mathrm{median}_i x_{ti} / u_t)`, and d
    that of the :math:`\log(x_{ti} / u_t)`. A step is a pause too if so many of its workers take long that chance would
    not bring them together in one step (a binomial law with the share of the long compute times of the other steps), at
    least a quarter of them, and not always the same ones, if they are a minority. Their compute times must be long by
    the worker's own median of the 51 steps too. A worker paused in one of all these steps if it took more than half of
    the pause's seconds longer than its own median, or so much that the noise d explains the difference.

    Returns:
      The `Pauses`.

    Source: own definition.
    """
    runtimes, steps = recording.runtimes, recording.steps
    middle = recording.medians
    periodic = np.zeros(len(runtimes), bool)
    periodic[periods.of_all(middle, steps)] = True
    level = periods.around(middle, periodic)
    sample = np.flatnonzero(~periodic)[:: max(1, int((~periodic).sum()) // _SAMPLE)]
    noise = periods.deviation(np.log(runtimes[sample] / level[sample, None]))
    together = _together(runtimes, middle, level, noise, periodic)
    rows = np.union1d(np.flatnonzero(periodic), together)
    others = np.ones(len(runtimes), bool)
    others[rows] = False
    excess = runtimes[rows] - _own(runtimes, rows, others)
    hit = _paused(excess, noise * level[rows])
    extra = np.array([np.median(row[paused]) for row, paused in zip(excess, hit, strict=True)], float)
    usual = float(np.median(middle[others]))
    return Pauses(rows, extra, usual, periods.common(steps[rows], steps), hit.sum(axis=1), runtimes.shape[1])


def _together(
    runtimes: np.ndarray, middle: np.ndarray, usual: np.ndarray, noise: float, periodic: np.ndarray
) -> np.ndarray:
    """Rows, besides the periodic ones, in which more workers took long than chance brings together."""
    steps, workers = runtimes.shape
    mild = min(max(math.log(_LEAST_FACTOR), _OWN_DEVIATIONS * noise), math.log(_SURE_FACTOR))
    shared = periods.deviation(np.log(middle[~periodic] / usual[~periodic]))
    factor = math.exp(min(max(_DEVIATIONS * shared, mild), 5.0))
    count = (runtimes > factor * usual[:, None]).sum(axis=1)
    few = count < workers / 2
    overall = (count[few].sum() + 1) / (few.sum() * workers + 2)
    typical = periods.around(count.astype(float), periodic)  # around a step many may be slow by themselves
    least = np.zeros(steps)
    for number in np.unique(typical):
        rate = min(max(float(overall), number / workers), 0.99)
        least[typical == number] = max(2, math.ceil(_LEAST_SHARE * workers), _unlikely(workers, rate, _CHANCE / steps))
    least = np.minimum(least, workers)
    rows = np.flatnonzero((count >= least) & ~periodic)
    hit = runtimes[rows] > factor * np.maximum(usual[rows][:, None], _own(runtimes, rows, ~periodic))
    kept = hit.sum(axis=1) >= least[rows]
    rows, hit = rows[kept], hit[kept]
    if rows.size >= periods.FEWEST and _same_minority(hit):
        rows = rows[count[rows] > workers / 2]
    return _short(rows)


def _own(runtimes: np.ndarray, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """float64[K, N], seconds: each worker's median of the 51 other steps around each of the rows."""
    result = np.zeros((rows.size, runtimes.shape[1]))
    kept = np.flatnonzero(others)
    stride = 1 + rows.size // _WINDOWS
    for i in range(0, rows.size, stride):
        middle = int(np.searchsorted(kept, rows[i]))
        first = min(max(middle - periods.WINDOW // 2, 0), max(kept.size - periods.WINDOW, 0))
        result[i : i + stride] = np.median(runtimes[kept[first : first + periods.WINDOW]], axis=0)
    return result


def _paused(excess: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """bool[K, N]: the workers with more than half of the pause's seconds, or with so many that noise explains it.

    The pause's seconds are those of the eighth of the workers that took longest: a pause hits at least a quarter.
    """
    if not excess.size:
        return np.zeros(excess.shape, bool)
    longest = np.quantile(excess, 1 - _LEAST_SHARE / 2, axis=1, keepdims=True)
    return excess >= np.minimum(longest / 2, longest - _OWN_DEVIATIONS * noise[:, None])


def _unlikely(workers: int, rate: float, level: float) -> int:
    """The least k such that k or more of the workers are hit independently with probability below `level`."""
    from scipy import special  # noqa: PLC0415 (SciPy takes a while to import)

    return 1 + int((special.bdtrc(np.arange(workers), workers, rate) > level).sum())


def _same_minority(hit: np.ndarray) -> bool:
    """Return whether the same few workers are hit always: then they are slow at times, and nobody else pauses."""
    often = hit.mean(axis=0)
    always = often >= _OFTEN
    return bool(always.sum() < 0.5 * hit.shape[1] and hit[:, always].sum() >= _OFTEN * hit.sum())


def _short(rows: np.ndarray) -> np.ndarray:
    """The rows that are not part of a long stretch of consecutive rows."""
    short = [np.arange(first, last + 1) for first, last in history.runs(rows) if last - first < _LONGEST]
    return np.concatenate([rows[:0], *short])
