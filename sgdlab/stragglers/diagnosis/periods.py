"""Every n-th step that takes longer: checkpoints, logging or the collection of garbage, of all workers or of some."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

REGULAR = 0.8
"""Least share of pauses that follow a period, and of the period's steps that are pauses."""

FEWEST = 3
"""Fewest pauses from which a period is seen."""

WINDOW = 51
"""Rows around a step whose median is the usual time."""

_STRENGTH = 6.0
"""Least strength of a period of all workers: chance among a million periods and remainders has less."""

_LONGER = math.log(1.1)
"""Least excess of the steps of a period that is found by its steps' mean, not by each of them."""

_LONGEST, _FEWEST_MILD = 1000, 8
"""Longest period of all workers that is searched so, and fewest pauses that are found so."""

_CLIP, _EVENT = 5.0, 2.0
"""Standard deviations at which a deviation is clipped, so that a single long step does not look like a period; and from
which a step of a worker counts as long."""

_LEAST, _SHORTEST = 4, 5
"""Smallest number of recorded steps in which a worker's period must have come by, and the shortest that is searched;
where every second or third step is longer, that is how the steps usually are."""

_HITS, _LEVEL = 0.7, 0.01
"""Share of a worker's every n-th step that must be long; and the probability of so many long steps by chance, times
the number of trials."""

_QUARTILE = 0.3186
"""Lower quartile of the absolute value of a standard normal variable."""

_WORK = 1e8
"""Largest number of additions of a search; of large recordings only the shorter periods are searched."""


class Period(NamedTuple):
    """Names every n-th step: those whose numbers have a remainder, `offset`, modulo n, `every`."""

    every: int
    offset: int

    def rows(self, steps: np.ndarray) -> np.ndarray:
        """Return int64[K], the rows of these steps among steps of these numbers."""
        return np.flatnonzero(steps % self.every == self.offset)


def strongest(
    scores: np.ndarray, steps: np.ndarray, tried: Sequence[int], fewest: int
) -> tuple[np.ndarray, list[Period]]:
    r"""Search each column for the period whose steps have the highest scores.

    With r_t the scores less their mean, and v their variance, n and the remainder o are those of the largest sum over
    their K of the T steps, in its deviations under permutation,

    .. math:: \max_{n, o} \; \frac{1}{\sqrt{K (1 - K / T) v}} \sum_{t \equiv o \bmod n} r_t

    Args:
      scores: float64[T, M].
      steps: int64[T], step numbers, rising.
      tried: the periods n to try.
      fewest: K is at least this.

    Returns:
      float64[M], these maxima, and the periods; 0 where there is none.

    Source: folding a time series by trial periods is usual in astronomy (Leahy et al. 1983, "On searches for pulsed
    emission with application to four globular cluster X-ray sources"); the statistic is the standardised sum of a
    sample without replacement.
    """
    length, columns = scores.shape
    spread = scores.std(axis=0)
    scores = ((scores - scores.mean(axis=0)) / np.where(spread > 0, spread, 1.0)).ravel()
    best, every, offset = np.zeros(columns), np.ones(columns, int), np.zeros(columns, int)
    column = np.arange(columns)
    for n in tried:
        phase = steps % n
        size = np.bincount(phase, minlength=n)
        total = np.bincount((phase[:, None] * columns + column).ravel(), scores, n * columns).reshape(n, columns)
        scale = np.sqrt(np.maximum(size * (1 - size / length), 1))
        strength = np.where((size >= fewest) & (size < length), 1 / scale, 0.0)[:, None] * total
        top = strength.argmax(axis=0)
        better = strength[top, column] > best
        best[better], every[better], offset[better] = strength[top, column][better], n, top[better]
    return best, [Period(*pair) for pair in zip(every.tolist(), offset.tolist(), strict=True)]


def of_workers(times: np.ndarray, steps: np.ndarray, tried: Sequence[int] | None = None) -> list[Period | None]:
    r"""Search each column for a period in which every n-th step is longer than the steps beside it.

    The scores (`strongest`) are the deviations of a time from the mean of the times in the rows before and after,
    clipped. A period is kept if most of its steps are long, more than chance explains among all n, o and columns that
    were tried.

    Args:
      times: float64[T, M], seconds, or ratios; a column for each worker.
      steps: int64[T], step numbers, rising.
      tried: the periods to try; None: all for which the recording is long enough.

    Returns:
      A `Period` or None for each column.

    Example:
      >>> times = np.random.default_rng(0).gamma(400.0, size=(300, 1)) / 400
      >>> times[10::30] += 0.5
      >>> of_workers(times, np.arange(300))
      [Period(every=30, offset=10)]
    """
    from scipy import special  # noqa: PLC0415 (SciPy takes a while to import)

    rows, columns = times.shape
    if tried is None:
        tried = range(_SHORTEST, int(min(rows // _LEAST, _WORK // times.size)) + 1)
    if rows < _LEAST * _SHORTEST or not tried:
        return [None] * columns
    padded = np.concatenate([times[1:2], times, times[-2:-1]])
    excess = (times - (padded[:-2] + padded[2:]) / 2).astype(np.float32)
    # The lower quartile of the absolute excess: of a period of 5, three steps in five are long, or beside one.
    scale = np.quantile(np.abs(excess), 0.25, axis=0) / _QUARTILE
    excess = np.clip(excess / np.where(scale > 0, scale, 1e-6 * np.abs(times).mean()), -_CLIP, _CLIP)
    best, found = strongest(excess, steps, tried, _LEAST)
    kept: list[Period | None] = []
    for long, strength, period in zip((excess > _EVENT).T, best, found, strict=True):
        on = period.rows(steps)
        hits = int(long[on].sum())
        # The upper tail of a binomial distribution: so many hits or more among K steps, each long with its probability.
        chance = special.betainc(hits, on.size - hits + 1, long.mean()) if hits else 1.0
        sure = strength > 0 and hits >= _HITS * on.size and chance * columns * sum(tried) < _LEVEL
        kept.append(period if sure else None)
    return kept


def of_all(middle: np.ndarray, steps: np.ndarray) -> np.ndarray:
    r"""Find every n-th step, n at least 2, that is at least 10 % longer than the steps around it.

    The scores (`strongest`) are the logarithms of the medians, less the running median of their mean with the
    neighbours (which every second long step does not move), clipped at -3 and 5 deviations. The largest sum must be
    above 6, and 80 % of these steps long: more than half as far above the median of the other steps around them as
    they are at the median.

    Args:
      middle: float64[T], seconds, medians of the steps.
      steps: int64[T], numbers of the steps.

    Returns:
      int64[K], those of these steps that are long; empty if there are none.

    Source: own definition.

    Example:
      >>> times = 1 + 0.01 * np.random.default_rng(0).standard_normal(200)
      >>> times[1::2] *= 1.3
      >>> of_all(times, np.arange(200))[:4].tolist()
      [1, 3, 5, 7]
    """
    logs = np.log(middle)
    padded = np.pad(logs, 1, mode="edge")
    residual = logs - around((padded[:-2] + 2 * logs + padded[2:]) / 4)
    scores = np.clip(residual / max(deviation(residual), 1e-3), -3, 5)
    span = int(steps[-1] - steps[0]) + 1
    tried = range(2, min(span // _FEWEST_MILD, _LONGEST) + 1)
    (strength,), (period,) = strongest(scores[:, None], steps, tried, _FEWEST_MILD)
    if strength <= _STRENGTH:
        return np.zeros(0, np.int64)
    on = period.rows(steps)
    without = np.zeros(logs.size, bool)
    without[on] = True
    excess = (logs - around(logs, without))[on]
    typical = float(np.median(excess))
    long = excess > typical / 2
    return on[long] if typical >= _LONGER and long.mean() >= REGULAR else on[:0]


def common(pauses: np.ndarray, steps: np.ndarray) -> Period | None:
    """Find the period that 80 % of the pauses follow, and of whose steps 80 % are pauses.

    Args:
      pauses: int64[K], numbers of the steps with a pause, rising.
      steps: int64[T], numbers of all steps.

    Returns:
      The period of which both shares are largest; None if there is none.

    Example:
      >>> common(np.array([4, 8, 12]), np.arange(1, 13))
      Period(every=4, offset=0)
    """
    if pauses.size < FEWEST:
        return None
    differences = np.diff(pauses)
    pairs, whole = np.gcd(differences[1:], differences[:-1]), np.gcd.reduce(differences)
    best, found = 0.0, None
    for every in np.unique(np.concatenate([differences, pairs, [whole]])).tolist():
        period = Period(every, int(np.median(pauses % every)))
        on = period.rows(pauses).size
        followed, filled = on / pauses.size, on / max(period.rows(steps).size, 1)
        if every > 1 and min(followed, filled) >= REGULAR and followed * filled > best:
            best, found = followed * filled, period
    return found


def around(series: np.ndarray, without: np.ndarray | None = None) -> np.ndarray:
    """Return the median of the 51 rows around each that are not left out, bool[T], at the ends of the nearest 51.

    Example:
      >>> around(np.array([1.0, 9.0, 1.0, 9.0]), np.array([False, True, False, True])).tolist()
      [1.0, 1.0, 1.0, 1.0]
    """
    rows = np.arange(series.size)
    kept = rows if without is None else rows[~without]
    if kept.size <= WINDOW:
        return np.full(series.shape, np.median(series[kept]))
    inside = np.median(np.lib.stride_tricks.sliding_window_view(series[kept], WINDOW), axis=1)
    return np.interp(rows, kept, np.pad(inside, WINDOW // 2, mode="edge"))


def deviation(values: np.ndarray) -> float:
    """Return the standard deviation, from the median absolute one."""
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))
