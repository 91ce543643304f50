"""Every n-th step that takes longer: garbage collection, checkpoints or logging, of all workers or of some."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from scipy.special import betainc

_CLIP = 5.0
"""Standard deviations at which a deviation is clipped, so that a single long step does not look like a period."""

_EVENT = 2.0
"""Standard deviations from which a step counts as long."""

_LEAST = 4
"""Smallest number of recorded steps in which a period must have come by."""

_SHORTEST = 5
"""Shortest period that is searched; where every second or third step is longer, that is how the steps usually are."""

_HITS = 0.7
"""Share of every n-th step that must be long."""

_LEVEL = 0.01
"""Probability of a period where there is none: that of so many long steps by chance, times the number of trials."""

_QUARTILE = 0.3186
"""Lower quartile of the absolute value of a standard normal variable."""

_WORK = 1e8
"""Largest number of additions of a search; of large recordings only the shorter periods are searched."""


@dataclasses.dataclass(frozen=True, eq=False)
class Period:
    """Every n-th step is longer.

    Attributes:
      every: n.
      offset: remainder of the step numbers modulo n.
      rows: int64[K], the rows of these steps.
    """

    every: int
    offset: int
    rows: np.ndarray


def find_periods(times: np.ndarray, steps: np.ndarray, tried: Sequence[int] | None = None) -> list[Period | None]:
    r"""Searches each column for a period in which every n-th step is longer than the steps beside it.

    With d_t the deviation of a time from the mean of the times in the rows before and after, clipped and standardised,
    the n and the remainder o with the largest sum over its K steps, divided by its standard deviation, are chosen,

    .. math:: \max_{n, o} \; K^{-1/2} \sum_{t \equiv o \bmod n} d_t

    and are kept if most of these steps are long, more than chance explains among all n, o and columns that were tried.

    Args:
      times: float64[T, M], seconds, or ratios; a column for each worker, or one with the medians of the steps.
      steps: int64[T], step numbers, rising.
      tried: the periods to try; None: all for which the recording is long enough.

    Returns:
      A `Period` or None for each column.

    Source: folding a time series by trial periods is usual in astronomy (Leahy et al. 1983, "On searches for pulsed
    emission with application to four globular cluster X-ray sources"); statistic and test are this package's own.

    Example:
      >>> times = np.random.default_rng(0).gamma(400.0, size=(300, 1)) / 400
      >>> times[10::30] += 0.5
      >>> (period,) = find_periods(times, np.arange(300))
      >>> period.every, period.offset, period.rows.size
      (30, 10, 10)
    """
    rows, columns = times.shape
    if tried is None:
        tried = range(_SHORTEST, int(min(rows // _LEAST, _WORK // times.size)) + 1)
    if rows < _LEAST * _SHORTEST or not tried:
        return [None] * columns
    deviation = _deviations(times)
    long = deviation > _EVENT
    deviation = _standardised(deviation)
    best, every, offset = np.full(columns, -np.inf), np.zeros(columns, int), np.zeros(columns, int)
    for n in tried:
        remainder = steps % n
        order = np.argsort(remainder, kind="stable")
        present, starts, counts = np.unique(remainder[order], return_index=True, return_counts=True)
        enough = counts >= _LEAST
        if not enough.any():
            continue
        sums = np.add.reduceat(deviation[order], starts, axis=0)[enough] / np.sqrt(counts[enough, None])
        top = sums.argmax(axis=0)
        score = sums[top, np.arange(columns)]
        better = score > best
        best[better], every[better], offset[better] = score[better], n, present[enough][top[better]]
    trials = columns * sum(tried)
    return [_kept(long[:, i], steps, int(every[i]), int(offset[i]), trials) for i in range(columns)]


def _deviations(times: np.ndarray) -> np.ndarray:
    """Return each time's excess over the mean of its neighbours, in standard deviations: float32[T, M]."""
    padded = np.concatenate([times[1:2], times, times[-2:-1]])
    deviation = (times - (padded[:-2] + padded[2:]) / 2).astype(np.float32)
    # The lower quartile of the absolute deviations: of a period of 5, three steps in five are long, or beside one.
    scale = np.quantile(np.abs(deviation), 0.25, axis=0) / _QUARTILE
    return np.clip(deviation / np.where(scale > 0, scale, 1e-6 * np.abs(times).mean()), -_CLIP, _CLIP)


def _standardised(deviation: np.ndarray) -> np.ndarray:
    spread = deviation.std(axis=0)
    return (deviation - deviation.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


def _kept(long: np.ndarray, steps: np.ndarray, n: int, offset: int, trials: float) -> Period | None:
    if n == 0:
        return None
    rows = np.flatnonzero(steps % n == offset)
    hits, share = int(long[rows].sum()), long.mean()
    if hits < _HITS * rows.size or hits == 0:
        return None
    # The upper tail of a binomial distribution: so many hits or more among K steps, each long with this probability.
    tail = betainc(hits, rows.size - hits + 1, share)
    return Period(n, offset, rows) if tail * trials < _LEVEL else None
