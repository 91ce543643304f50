"""Steps that pause all workers together: checkpoints, evaluations, garbage collection, a file system that hangs."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from sgdlab.advice.words import counted, figure, some
from sgdlab.traces import Recording

_WINDOW = 51
"""Rows around a step whose median is its usual time."""

_LEAST_FACTOR = 1.5
"""A run-time counts as paused from this multiple of the usual on, or from `_DEVIATIONS` of the steps' medians."""

_DEVIATIONS = 6.0
_LEAST_SHARE = 0.25
"""Least share of the workers that a pause hits."""

_CHANCE = 0.01
"""Largest expected number of steps that independent slow run-times would turn into a pause."""

_LONGEST = 5
"""Most consecutive rows of one pause; a longer stretch is a slow time of the cluster, not a pause."""

_REGULAR = 0.8
"""Least share of the pauses that follow the period, and of the period's steps that are pauses."""

_FEWEST, _FEWEST_MILD = 3, 8
"""Fewest pauses with a period, and fewest that are found by their period alone."""


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
          >>> find(recording).describe(recording.steps)
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
        guess = f"every {_ordinal(self.period)} step: a checkpoint?" if self.period else "without a period"
        return f"{counted(self.rows.size, 'step')} ({which}) took {extra} s longer on {whom}, {guess}"


def find(recording: Recording) -> Pauses:
    r"""Finds the pauses among the complete steps of a recording.

    The usual time :math:`u_t` of a step is the median of the medians of the 51 steps around it. A run-time is paused if
    it exceeds :math:`u_t \max(1.5, e^{6 s})`, where s is the deviation (from the median absolute one) of
    :math:`\log(\mathrm{median}_i x_{ti} / u_t)`. A step is a pause if so many of its workers are paused that chance
    would not bring them together in one step (a binomial law with the share of the paused run-times of the other
    steps), at least a quarter of them, and not always the same ones, if they are a minority. Their run-times must be
    long by the worker's own median of the 51 steps too. Milder pauses are found by their period alone.

    Args:
      recording: in which no run-time is missing.

    Returns:
      The `Pauses`.

    Source: own definition.
    """
    runtimes = recording.runtimes
    steps, workers = runtimes.shape
    middle = np.median(runtimes, axis=1)
    usual = running_median(middle)
    residual = np.log(middle / usual)
    deviation = 1.4826 * float(np.median(np.abs(residual - np.median(residual))))
    factor = max(_LEAST_FACTOR, math.exp(min(_DEVIATIONS * deviation, 5.0)))
    hit = runtimes > factor * usual[:, None]
    count = hit.sum(axis=1)
    few = count < workers / 2
    overall = (hit[few].sum() + 1) / (few.sum() * workers + 2)
    typical = running_median(count.astype(float))  # around a step many may be slow by themselves
    together = np.zeros(steps)
    for number in np.unique(typical):
        rate = min(max(float(overall), number / workers), 0.99)
        together[typical == number] = max(
            2, math.ceil(_LEAST_SHARE * workers), _unlikely(workers, rate, _CHANCE / steps)
        )
    rows = np.flatnonzero(count >= np.minimum(together, workers))
    hit[rows] &= _above_own(runtimes, rows, factor)
    rows = rows[hit[rows].sum(axis=1) >= np.minimum(together, workers)[rows]]
    if rows.size >= _FEWEST and _same_minority(hit[rows]):
        rows = rows[count[rows] > workers / 2]
    rows = _short(rows)
    if not rows.size:
        rows = _periodic(residual, deviation, recording.steps)
        hit = np.ones_like(hit)
    excess = np.where(hit[rows], runtimes[rows] - usual[rows][:, None], np.nan)
    extra = np.nanmedian(excess, axis=1) if rows.size else np.zeros(0)
    period, offset = _period(recording.steps[rows], recording.steps)
    others = np.delete(middle, rows)
    return Pauses(rows, extra, float(np.median(others)), period, offset, hit[rows].sum(axis=1), workers)


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


def _above_own(runtimes: np.ndarray, rows: np.ndarray, factor: float) -> np.ndarray:
    """bool[K, N]: whether a run-time is long for the worker itself too, in the steps around."""
    result = np.zeros((rows.size, runtimes.shape[1]), bool)
    for i, row in enumerate(rows):
        first = min(max(row - _WINDOW // 2, 0), max(len(runtimes) - _WINDOW, 0))
        result[i] = runtimes[row] > factor * np.median(runtimes[first : first + _WINDOW], axis=0)
    return result


def _unlikely(workers: int, rate: float, level: float) -> int:
    """The least k such that k or more of the workers are hit independently with probability below `level`."""
    tail = 0.0
    for count in range(workers, 0, -1):
        log = math.lgamma(workers + 1) - math.lgamma(count + 1) - math.lgamma(workers - count + 1)
        tail += math.exp(log + count * math.log(rate) + (workers - count) * math.log1p(-min(rate, 1 - 1e-12)))
        if tail > level:
            return count + 1
    return 1


def _same_minority(hit: np.ndarray) -> bool:
    """Whether it is always the same few workers that are hit: then they are slow at times, and nobody else pauses."""
    often = hit.mean(axis=0)
    always = often >= _REGULAR
    return bool(always.sum() < 0.5 * hit.shape[1] and hit[:, always].sum() >= _REGULAR * hit.sum())


def _short(rows: np.ndarray) -> np.ndarray:
    """The rows that are not part of a long stretch of consecutive rows."""
    stretches = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
    kept = [stretch for stretch in stretches if stretch.size <= _LONGEST]
    return np.concatenate(kept) if kept else rows[:0]


def _periodic(residual: np.ndarray, deviation: float, steps: np.ndarray) -> np.ndarray:
    """Rows of mild pauses: at least 10 % longer than the usual, every n-th step, n at least 5."""
    nothing = np.zeros(0, np.int64)
    deviation = max(deviation, float(np.quantile(np.abs(residual), 0.8)) / 1.2816, 1e-3)
    score = np.clip(residual / deviation, -3, 5)
    best, found = _DEVIATIONS, nothing
    span = int(steps[-1] - steps[0]) + 1
    for period in range(5, min(span // _FEWEST_MILD, 1000) + 1):
        phase = steps % period
        size = np.bincount(phase, minlength=period)
        total = np.bincount(phase, score, minlength=period)
        strength = np.where(size >= _FEWEST_MILD, total / np.sqrt(np.maximum(size, 1)), 0.0)
        offset = int(strength.argmax())
        if strength[offset] > best:
            rows = np.flatnonzero(phase == offset)
            excess = float(np.median(residual[rows]))
            if excess >= math.log(1.1) and np.mean(residual[rows] > excess / 2) >= _REGULAR:
                best, found = float(strength[offset]), rows
    return found


def _period(pauses: np.ndarray, steps: np.ndarray) -> tuple[int | None, int | None]:
    """Period and remainder of the numbers of the pauses' steps, if they have one."""
    if pauses.size < _FEWEST:
        return None, None
    best: tuple[float, int, int] | None = None
    for period in _candidates(pauses):
        remainders = pauses % period
        offset = int(np.bincount(remainders).argmax()) if period < 10**6 else int(remainders[0])
        on = np.count_nonzero(remainders == offset)
        grid = np.count_nonzero(steps % period == offset)
        followed, filled = on / pauses.size, on / grid
        if on >= _FEWEST and min(followed, filled) >= _REGULAR and (best is None or followed * filled > best[0]):
            best = followed * filled, period, offset
    return best[1:] if best else (None, None)


def _candidates(pauses: np.ndarray) -> Sequence[int]:
    differences = np.diff(pauses)
    pairs = np.gcd(differences[1:], differences[:-1])
    whole = np.gcd.reduce(differences)
    return [int(n) for n in np.unique(np.concatenate([differences, pairs, [whole]])) if n > 1]


def _ordinal(number: int) -> str:
    teen = 10 <= number % 100 <= 20
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
