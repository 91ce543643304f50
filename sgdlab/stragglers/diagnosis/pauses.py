"""Steps that pause all workers together: checkpoints, evaluations, garbage collection, a file system that hangs."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from sgdlab.report.words import counted, figure, ordinal, some
from sgdlab.traces import Recording

_WINDOW = 51
"""Rows around a step whose median is a worker's usual time."""

_LEAST_FACTOR, _SURE_FACTOR = 1.2, 1.5
"""A run-time is long from the first multiple of the usual on if the run-times vary little, from the second in any case
(and from `_DEVIATIONS` of the steps' medians on)."""

_DEVIATIONS, _OWN_DEVIATIONS = 6.0, 4.0
"""Deviations of the steps' medians, and of the run-times, from which a run-time is long."""

_LEAST_SHARE = 0.25
"""Least share of the workers that a pause hits."""

_CHANCE = 0.01
"""Largest expected number of steps that independent slow run-times would turn into a pause."""

_LONGEST = 5
"""Most consecutive rows of one pause; a longer stretch is a slow time of the cluster, not a pause."""

_REGULAR = 0.8
"""Share of the pauses from which a worker is hit always; least share of the pauses that follow a period, and of the
period's steps that are pauses."""

_FEWEST = 3
"""Fewest pauses from which a period, or workers that are always hit, are seen."""

_SAMPLE = 2048
"""Rows from which the deviation of the run-times is estimated."""

_WINDOWS = 1000
"""About so many windows are looked at: of many pauses, neighbours share one."""


@dataclasses.dataclass(frozen=True, eq=False)
class Pauses:
    """Steps that took much longer than the steps around them, for all workers or for many.

    Attributes:
      rows: int64[K], rows of the recording's complete steps, rising.
      extra: float64[K], seconds above the usual: the median over the workers that paused.
      usual: seconds of the median worker in a usual step.
      period: a pause comes every so many steps; None if they follow no period.
      offset: remainder of the pauses' step numbers divided by `period`; None without a period.
      workers: int64[K], number of workers that paused in each of these steps.
      fleet: N, number of all workers.
    """

    rows: np.ndarray
    extra: np.ndarray
    usual: float
    period: int | None
    offset: int | None
    workers: np.ndarray
    fleet: int

    def among(self, rows: int) -> np.ndarray:
        """bool[rows], whether each of the first `rows` rows is a pause."""
        result = np.zeros(rows, bool)
        result[self.rows[self.rows < rows]] = True
        return result

    def describe(self, steps: np.ndarray) -> str:
        """A phrase that names the steps, their length and their period; empty if there are none.

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
        guess = f"every {ordinal(self.period)} step: a checkpoint?" if self.period else "without a period"
        return f"{counted(self.rows.size, 'step')} ({which}) took {extra} s longer on {whom}, {guess}"


def find_pauses(recording: Recording) -> Pauses:
    r"""Finds the pauses among the complete steps of a recording.

    Those that come every n-th step, n at least 2, are found first (`search_period`). The usual time :math:`u_t`
    of a step is the median of the medians of the 51 other steps around it. A run-time is long if it exceeds

    .. math:: u_t \exp(\max\{6 s, \min\{\log 1.5, \max\{\log 1.2, 4 d\}\}\})

    with s the deviation (from the median absolute one) of the :math:`\log(\mathrm{median}_i x_{ti} / u_t)`, and d
    that of the :math:`\log(x_{ti} / u_t)`. A step is a pause too if so many of its workers take long that chance would
    not bring them together in one step (a binomial law with the share of the long run-times of the other steps), at
    least a quarter of them, and not always the same ones, if they are a minority. Their run-times must be long by the
    worker's own median of the 51 steps too. Steps between them that are long by half as much, and with them follow a
    period, are added. A worker paused in one of all these steps if it took more than half of the pause's seconds longer
    than its own median, or so much that the noise d explains the difference.

    Returns:
      The `Pauses`.

    Source: own definition.
    """
    runtimes, steps = recording.runtimes, recording.steps
    middle = np.median(runtimes, axis=1)
    periodic = np.zeros(len(runtimes), bool)
    periodic[search_period(middle, steps)] = True
    level = around(middle, periodic)
    noise = _noise(runtimes[~periodic], level[~periodic])
    together = _together(runtimes, middle, level, noise, periodic)
    rows = completed(np.union1d(np.flatnonzero(periodic), together), np.log(middle / level), steps)
    others = np.ones(len(runtimes), bool)
    others[rows] = False
    excess = runtimes[rows] - _own(runtimes, rows, others)
    hit = _paused(excess, noise * level[rows])
    extra = np.array([np.median(row[paused]) for row, paused in zip(excess, hit, strict=True)], float)
    period, offset = common_period(steps[rows], steps)
    usual = float(np.median(middle[others]))
    return Pauses(rows, extra, usual, period, offset, hit.sum(axis=1), runtimes.shape[1])


def _together(
    runtimes: np.ndarray, middle: np.ndarray, usual: np.ndarray, noise: float, periodic: np.ndarray
) -> np.ndarray:
    """Rows, besides the periodic ones, in which more workers took long than chance brings together."""
    steps, workers = runtimes.shape
    mild = min(max(math.log(_LEAST_FACTOR), _OWN_DEVIATIONS * noise), math.log(_SURE_FACTOR))
    shared = _deviation(np.log(middle[~periodic] / usual[~periodic]))
    factor = math.exp(min(max(_DEVIATIONS * shared, mild), 5.0))
    count = (runtimes > factor * usual[:, None]).sum(axis=1)
    few = count < workers / 2
    overall = (count[few].sum() + 1) / (few.sum() * workers + 2)
    typical = around(count.astype(float), periodic)  # around a step many may be slow by themselves
    least = np.zeros(steps)
    for number in np.unique(typical):
        rate = min(max(float(overall), number / workers), 0.99)
        least[typical == number] = max(2, math.ceil(_LEAST_SHARE * workers), _unlikely(workers, rate, _CHANCE / steps))
    least = np.minimum(least, workers)
    rows = np.flatnonzero((count >= least) & ~periodic)
    hit = runtimes[rows] > factor * np.maximum(usual[rows][:, None], _own(runtimes, rows, ~periodic))
    kept = hit.sum(axis=1) >= least[rows]
    rows, hit = rows[kept], hit[kept]
    if rows.size >= _FEWEST and _same_minority(hit):
        rows = rows[count[rows] > workers / 2]
    return _short(rows)


def _noise(runtimes: np.ndarray, usual: np.ndarray) -> float:
    """Deviation of the logarithm of a run-time from that of the usual one."""
    rows = slice(None, None, max(1, len(runtimes) // _SAMPLE))
    return _deviation(np.log(runtimes[rows] / usual[rows, None]))


def _deviation(values: np.ndarray) -> float:
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))


def _own(runtimes: np.ndarray, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """float64[K, N], seconds: each worker's median of the 51 other steps around each of the rows."""
    result = np.zeros((rows.size, runtimes.shape[1]))
    kept = np.flatnonzero(others)
    stride = 1 + rows.size // _WINDOWS
    for i in range(0, rows.size, stride):
        middle = int(np.searchsorted(kept, rows[i]))
        first = min(max(middle - _WINDOW // 2, 0), max(kept.size - _WINDOW, 0))
        result[i : i + stride] = np.median(runtimes[kept[first : first + _WINDOW]], axis=0)
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
    always = often >= _REGULAR
    return bool(always.sum() < 0.5 * hit.shape[1] and hit[:, always].sum() >= _REGULAR * hit.sum())


def _short(rows: np.ndarray) -> np.ndarray:
    """The rows that are not part of a long stretch of consecutive rows."""
    stretches = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
    kept = [stretch for stretch in stretches if stretch.size <= _LONGEST]
    return np.concatenate(kept) if kept else rows[:0]


_STRENGTH = 6.0
"""Least strength of a period, in standard deviations: chance among a million periods and remainders has less."""

_LONGER = math.log(1.1)
"""Least excess of the steps of a period that is found by its steps' mean, not by each of them."""

_LONGEST_PERIOD = 1000
"""Longest period that is searched so."""

_FEWEST_MILD = 8
"""Fewest pauses that are found by their period alone."""


def search_period(middle: np.ndarray, steps: np.ndarray) -> np.ndarray:
    r"""Finds every n-th step, n at least 2, that is at least 10 % longer than the steps around it.

    The logarithms of the medians, less the running median of their mean with the neighbours (which every second long
    step does not move), are clipped at -3 and 5 deviations. With r_t the result less its mean, and v its variance, n
    and the remainder o are those of the largest sum over their K of the T steps, in its deviations under permutation,

    .. math:: \frac{1}{\sqrt{K (1 - K / T) v}} \sum_{t \equiv o \bmod n} r_t

    if it is above 6, and if 80 % of these steps are long: more than half as far above the median of the other steps
    around them as they are at the median.

    Args:
      middle: float64[T], seconds, medians of the steps.
      steps: int64[T], numbers of the steps.

    Returns:
      int64[K], those of these steps that are long; empty if there are none.

    Source: the standardised sum of a sample without replacement; the rest is own definition.

    Example:
      >>> times = 1 + 0.01 * np.random.default_rng(0).standard_normal(200)
      >>> times[1::2] *= 1.3
      >>> search_period(times, np.arange(200))[:4].tolist()
      [1, 3, 5, 7]
    """
    logs = np.log(middle)
    nobody = np.zeros(logs.size, bool)
    padded = np.pad(logs, 1, mode="edge")
    residual = logs - around((padded[:-2] + 2 * logs + padded[2:]) / 4, nobody)
    score = np.clip(residual / max(_deviation(residual), 1e-3), -3, 5)
    spread = float(score.std())
    if spread == 0:
        return np.zeros(0, np.int64)
    score = (score - score.mean()) / spread
    best, found = _STRENGTH, np.zeros(0, np.int64)
    span = int(steps[-1] - steps[0]) + 1
    for period in range(2, min(span // _FEWEST_MILD, _LONGEST_PERIOD) + 1):
        phase = steps % period
        size = np.bincount(phase, minlength=period)
        total = np.bincount(phase, score, minlength=period)
        scale = np.sqrt(np.maximum(size * (1 - size / logs.size), 1))
        strength = np.where((size >= _FEWEST_MILD) & (size < logs.size), total / scale, 0.0)
        offset = int(strength.argmax())
        if strength[offset] > best:
            on = phase == offset
            excess = (logs - around(logs, on))[on]
            typical = float(np.median(excess))
            if typical >= _LONGER and np.mean(excess > typical / 2) >= _REGULAR:
                best, found = float(strength[offset]), np.flatnonzero(on)[excess > typical / 2]
    return found


def around(series: np.ndarray, without: np.ndarray) -> np.ndarray:
    """The running median of the rows that are not left out, interpolated in the others.

    Args:
      series: float64[T].
      without: bool[T], rows that are left out; not all.

    Returns:
      float64[T].

    Example:
      >>> around(np.array([1.0, 9.0, 1.0, 9.0]), np.array([False, True, False, True])).tolist()
      [1.0, 1.0, 1.0, 1.0]
    """
    kept = np.flatnonzero(~without)
    return np.interp(np.arange(series.size), kept, running_median(series[kept]))


def running_median(series: np.ndarray, window: int = _WINDOW) -> np.ndarray:
    """float64[T]: for each entry the median of the `window` entries around it, at the ends of the nearest window.

    Example:
      >>> running_median(np.array([1.0, 9.0, 2.0, 3.0, 4.0]), 3).tolist()
      [2.0, 2.0, 3.0, 3.0, 3.0]
    """
    if series.size <= window:
        return np.full(series.shape, np.median(series))
    inside = np.median(np.lib.stride_tricks.sliding_window_view(series, window), axis=1)
    return np.pad(inside, (window // 2, window - 1 - window // 2), mode="edge")


def common_period(pauses: np.ndarray, steps: np.ndarray) -> tuple[int | None, int | None]:
    """Period and remainder of the numbers of the pauses' steps, if they have one.

    Args:
      pauses: int64[K], numbers of the steps with a pause, rising.
      steps: int64[T], numbers of all steps.

    Example:
      >>> common_period(np.array([4, 8, 12]), np.arange(1, 13))
      (4, 0)
    """
    if pauses.size < _FEWEST:
        return None, None
    best: tuple[float, int, int] | None = None
    for period in _periods(pauses):
        remainders = pauses % period
        offset = int(np.bincount(remainders).argmax()) if period < 10**6 else int(remainders[0])
        on = np.count_nonzero(remainders == offset)
        grid = np.count_nonzero(steps % period == offset)
        followed, filled = on / pauses.size, on / grid
        if on >= _FEWEST and min(followed, filled) >= _REGULAR and (best is None or followed * filled > best[0]):
            best = followed * filled, period, offset
    return best[1:] if best else (None, None)


def completed(pauses: np.ndarray, excess: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Adds the steps of a period that the pauses follow, if they are long too, though not enough to be found alone.

    Args:
      pauses: int64[K], rows of the pauses, rising.
      excess: float64[T], logarithm of the median worker's time over the usual.
      steps: int64[T], numbers of the steps.

    Returns:
      int64[L], the rows, rising.

    Example:
      >>> excess = np.where(np.arange(12) % 3 == 0, 0.5, 0.0)
      >>> completed(np.array([0, 3, 9]), excess, np.arange(12)).tolist()
      [0, 3, 6, 9]
    """
    typical = float(np.median(excess[pauses])) if pauses.size >= _FEWEST else 0.0
    if typical < _LONGER:
        return pauses
    long = excess > typical / 2
    for period in _periods(steps[pauses]):
        remainders = steps[pauses] % period
        offset = int(np.median(remainders))
        on = steps % period == offset
        if np.mean(remainders == offset) >= _REGULAR and np.mean(long[on]) >= _REGULAR:
            return np.union1d(pauses, np.flatnonzero(on & long))
    return pauses


def _periods(pauses: np.ndarray) -> Sequence[int]:
    differences = np.diff(pauses)
    pairs = np.gcd(differences[1:], differences[:-1])
    whole = np.gcd.reduce(differences)
    return [int(n) for n in np.unique(np.concatenate([differences, pairs, [whole]])) if n > 1]
