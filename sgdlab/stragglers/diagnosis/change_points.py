"""Change points of the level of noisy series, robust to heavy tails and to noise that has a memory."""

import dataclasses
import functools
import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sgdlab import arrays

LEAST = 4
"""Fewest rows of a stretch with a level of its own."""

_CLIP = 3.0
"""Deviations at which a value's distance from the level is clipped, so that no single value makes a change."""

FLOOR = 2e-3
"""Smallest deviation of a logarithm that is believed; clocks are coarse."""

_FALSE = 0.005
"""Probability of a false change in any of the series, if noise were normal."""

_MERGED = 0.02
"""Two neighbouring levels that differ by less are one."""

_OF_MEMORIES = 0.25
"""Quantile over the series of their correlation between consecutive rows; half of them may change their level."""

_ENOUGH = 2048
"""Rows from which a deviation or quantile is estimated."""


@dataclasses.dataclass(frozen=True, eq=False)
class Noise:
    """The noise around the levels of series.

    Attributes:
      deviation: float64[N], standard deviation of a step, as independent noise of the same long-run variance had.
      critical: how many standard errors make a change or a level significant, in any of the series at any step.
    """

    deviation: np.ndarray
    critical: float


def noise(series: np.ndarray, memory: Any = None) -> Noise:
    r"""Estimates the noise from the differences of consecutive rows, which few changes of level affect.

    .. math:: d_i = \frac{1}{\sqrt 2} \max\Big(\frac{Q_{0.5}}{0.6745}, \frac{Q_{0.8}}{1.2816}\Big)
        |y_{t+1,i} - y_{ti}|, \qquad \sigma_i = \max(d_i, \mathrm{median}_j d_j) \frac{\sqrt{1 + \rho}}{1 - \rho}

    Q are quantiles over t; that of 0.8 serves where clocks are coarse or one of three workers is the median itself. The
    last factor makes of d the standard deviation of independent noise with the long-run variance of an AR(1) process of
    coefficient :math:`\rho`, the lower quartile over the series, since changes of level add memory.

    Args:
      series: float64[T, N].
      memory: the coefficient, if it is known.

    Source: own definition; Falk 1999 for the median absolute deviation of differences.
    """
    rows, workers = series.shape
    first = sampled(rows - 1)
    now, following = series[first], series[first + 1]
    change = np.abs(following - now)
    steps = np.maximum(*np.quantile(change, [0.5, 0.8], axis=0) / np.array([[0.6745], [1.2816]])) / math.sqrt(2.0)
    steps = np.maximum(np.maximum(steps, np.median(steps)), FLOOR)
    level = arrays.median(now, axis=0)
    now, following = (np.clip((part - level) / steps, -_CLIP, _CLIP) for part in (now, following))
    if memory is None:
        memory = float(np.quantile(correlation(now, following), _OF_MEMORIES))
        memory += (1 + 3 * memory) / rows  # estimates from short series are too low
    memory = min(max(memory, 0.0), 0.95)
    spread = np.sqrt(np.mean((following - now) ** 2, axis=0) / 2)  # above 1 where tails are heavy
    deviation = steps * np.maximum(spread, 1.0) * math.sqrt(1 + memory) / (1 - memory)
    deviation *= 1 + 1 / math.sqrt(rows)  # estimates from short series vary
    tests = workers * max(rows / LEAST, 2.0) * 2
    return Noise(deviation, statistics.NormalDist().inv_cdf(1 - _FALSE / tests))


def sampled(rows: int) -> np.ndarray:
    """Indices of rows, evenly spaced and few enough that a median over them is quick; all of few rows."""
    return np.unique(np.linspace(0, rows - 1, min(rows, _ENOUGH)).astype(int))


def correlation(now: np.ndarray, following: np.ndarray) -> np.ndarray:
    """Return the correlation over the rows of two arrays [T, N], float64[N]."""
    now, following = now - now.mean(axis=0), following - following.mean(axis=0)
    scale = np.sqrt(np.mean(now**2, axis=0) * np.mean(following**2, axis=0))
    return np.divide(np.mean(now * following, axis=0), scale, out=np.zeros_like(scale), where=scale > 0)


def strongest(series: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Return the largest statistic of a change of each series, float64[T, N], over all seeded intervals, float64[N]."""
    result = np.zeros(series.shape[1])
    for _, _, _, statistic in scan([_scores(series, deviation)]):
        np.maximum(result, statistic.max(axis=(1, 2)), out=result)
    return result


def strongest_split(series: np.ndarray, deviation: float) -> int:
    """Return the first row after the change with the largest statistic over the whole series, significant or not."""
    sums = _summed(_scores(series[:, None], deviation))
    return int(_statistic(sums, np.zeros(1, int), series.size).argmax()) + LEAST


def changes(series: np.ndarray, deviation: float, critical: float) -> list[int]:
    r"""Find the first rows of the stretches of a series after the first stretch.

    The statistic of a split k of an interval of length L is :math:`|S_k - \frac kL S_L| / \sqrt{k (L - k) / L}`, with S
    the cumulated clipped scores. The largest is accepted, then the largest of an interval without an accepted split,
    and so on; each stretch is searched again around its own level; each change is moved to where the sum of absolute
    distances from the two levels is least; and neighbours whose levels do not differ significantly are merged.

    Args:
      series: float64[T].
      deviation: of the noise.
      critical: least statistic of a change.

    Source: seeded binary segmentation, Kovacs, Buehlmann, Li and Munk 2023, Biometrika 110(1); clipping, the search
      around the stretches' own levels and the merging are our own.

    Example:
      >>> changes(np.array([0.0, 0.1, 0.0, 0.1, 0.0, 2.0, 2.1, 2.0, 2.1, 2.0]), 0.1, 4.0)
      [5]
    """
    return changes_of_all([series], [deviation], critical)[0]


def changes_of_all(
    series: Sequence[np.ndarray], deviations: Sequence[float] | np.ndarray, critical: float
) -> list[list[int]]:
    """Find the changes of many series, each with its deviation: as `changes`, in a tenth of its time for each."""
    # Own code instead of `ruptures`: all workers are screened at once, without a dependency and its build per Python.
    medians = [_Medians(each) for each in series]
    found: list[list[int]] = [[] for _ in series]
    searched: set[tuple[int, int, int]] = set()
    for _ in range(3):
        stretches = [
            (number, first, end)
            for number, each in enumerate(series)
            for first, end in itertools.pairwise([0, *found[number], each.size])
            if end - first >= 2 * LEAST and (number, first, end) not in searched
        ]
        scores = [
            (series[number][first:end] - medians[number].of(first, end)) / float(deviations[number])
            for number, first, end in stretches
        ]
        for (number, first, _), splits in zip(stretches, _splits(scores, critical), strict=True):
            found[number] = sorted([*found[number], *(first + split for split in splits)])
        searched.update(stretches)
    return [
        _merged(of_one, _moved(of_one, splits), float(deviation), critical)
        for of_one, splits, deviation in zip(medians, found, deviations, strict=True)
    ]


def levels(series: np.ndarray, splits: list[int]) -> list[tuple[int, int, float]]:
    """Return the first row, the row after the last, and the median of each stretch."""
    bounds = [0, *splits, series.size]
    return [(first, end, float(arrays.median(series[first:end]))) for first, end in itertools.pairwise(bounds)]


def levelled(series: np.ndarray, splits: list[int]) -> np.ndarray:
    """Return the series without its noise, float64[T]: the median of its stretch in each row."""
    return np.concatenate([np.full(end - first, level) for first, end, level in levels(series, splits)])


def first_row_after(series: np.ndarray, before: float, after: float, least: int = 0) -> int:
    """Find the row from which on one level follows another, by the least sum of absolute distances from the two.

    Args:
      series: float64[T].
      before: the level of the rows before it.
      after: the level from it on.
      least: so many rows, at least, each has; 0: all rows may be on the level after, and the last one is.

    Example:
      >>> first_row_after(np.array([1.0, 1.1, 0.9, 1.6, 1.5, 1.7]), 1.0, 1.6)
      3
    """
    distances = np.cumsum(np.abs(series - before) - np.abs(series - after))
    distances = np.concatenate([[0.0], distances[:-1]])  # of the rows before each
    return least + int(np.argmin(distances[least : series.size - least + 1]))


def _scores(series: np.ndarray, deviation: np.ndarray | float) -> np.ndarray:
    return np.clip((series - arrays.median(series, axis=0)) / deviation, -_CLIP, _CLIP)


class _Medians:
    """The medians of stretches of a series, and where a change between two of them is best, each computed once."""

    def __init__(self, series: np.ndarray):
        def best(first: int, split: int, end: int) -> int:
            """Return the row to which the change at `split` is moved, between the changes before and after it."""
            if end - first < 2 * LEAST:
                return split
            return first + first_row_after(series[first:end], of(first, split), of(split, end), LEAST)

        of = functools.cache(lambda first, end: float(arrays.median(series[first:end])))
        self.series, self.of, self.best = series, of, functools.cache(best)


def _splits(scores: Sequence[np.ndarray], critical: float) -> list[list[int]]:
    """Find the significant changes of stretches: the largest of disjoint intervals.

    Args:
      scores: float64[T_i], a stretch in units of the noise's deviation.
      critical: least statistic of a change.

    Returns:
      Of each stretch its rows that begin a level.
    """
    found: list[list[int]] = [[] for _ in scores]
    intervals = []
    for stretch, start, length, statistic in scan([np.clip(score, -_CLIP, _CLIP)[:, None] for score in scores]):
        largest = statistic[0].max(axis=1)
        keep = np.flatnonzero(largest > critical)
        if keep.size:
            first, best = start[keep], statistic[0, keep].argmax(axis=1)
            intervals.append((stretch[keep], first, first + length, first + LEAST + best, largest[keep]))
    if not intervals:
        return found
    stretch, start, end, split, largest = (np.concatenate(each) for each in zip(*intervals, strict=True))
    order = np.lexsort((start, end - start, -largest, stretch))
    for own in np.split(order, np.flatnonzero(np.diff(stretch[order])) + 1):
        begins, ends, rows = start[own], end[own], split[own]
        while rows.size:
            row = int(rows[0])
            found[stretch[own[0]]].append(row)
            left = (ends <= row) | (begins >= row)
            begins, ends, rows = begins[left], ends[left], rows[left]
    return found


def _moved(medians: _Medians, splits: list[int]) -> list[int]:
    """Move each change to where the absolute distances from the levels before and after it are least."""
    bounds = [0, *splits, medians.series.size]
    for i in range(1, len(bounds) - 1):
        bounds[i] = medians.best(bounds[i - 1], bounds[i], bounds[i + 1])
    return bounds[1:-1]


def _merged(medians: _Medians, splits: list[int], deviation: float, critical: float) -> list[int]:
    """Remove the changes between levels that do not differ significantly."""
    splits = list(splits)
    while splits:
        bounds = [0, *splits, medians.series.size]
        strength = []
        for first, middle, end in zip(bounds, bounds[1:], bounds[2:], strict=False):
            step = abs(medians.of(middle, end) - medians.of(first, middle))
            error = 1.2533 * deviation * math.sqrt(1 / (middle - first) + 1 / (end - middle))
            strength.append(step / error if step >= _MERGED else 0.0)
        weakest = strength.index(min(strength))
        if strength[weakest] >= 0.8 * critical:
            break
        del splits[weakest]
        if weakest and splits:
            splits = _moved(medians, splits)
    return splits


_TOGETHER = 1 << 15
"""Most splits that are scanned in one array: these arrays stay in a core's cache."""


def scan(scores: Sequence[np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray, int, np.ndarray]]:
    r"""Scans the intervals of 8, 16, 32, ... rows of stretches, half of which overlap the next, and whole stretches.

    .. math:: \max_k \Big|S_k - \frac kL S_L\Big| \Big/ \sqrt{k (L - k) / L}

    Args:
      scores: float64[T_i, N], stretches of series in units of their deviation; of fewer than 8 rows nothing is scanned.

    Returns:
      In parts of one length L: int64[K], numbers of stretches; int64[K], first rows of intervals in them; L; and
      float64[N, K, L - 7], the statistic of each split of the intervals, that after the fourth row first.

    Source: seeded binary segmentation, Kovacs, Buehlmann, Li and Munk 2023, Biometrika 110(1).
    """
    # All stretches together: a call of NumPy for each short stretch takes several times as long as its arithmetic.
    if not scores:
        return
    rows = np.array([len(score) for score in scores])
    before = np.cumsum(rows + 1) - rows - 1  # of each stretch in the sums
    sums = np.concatenate([_summed(score) for score in scores], axis=1)
    workers, length = len(sums), 2 * LEAST
    while length <= rows.max():
        wide, half = np.flatnonzero(rows >= length), length // 2
        spare = rows[wide] - length
        count = -(-spare // half) + 1
        start = np.minimum(_within(count) * half, np.repeat(spare, count))
        stretch = np.repeat(wide, count)
        together = max(1, _TOGETHER // (length * workers))
        for first in range(0, start.size, together):
            part, begin = stretch[first : first + together], start[first : first + together]
            yield part, begin, length, _statistic(sums, before[part] + begin, length)
        length *= 2
    for length in np.unique(rows[(rows >= 2 * LEAST) & (rows & (rows - 1) != 0)]).tolist():  # others were above
        whole, together = np.flatnonzero(rows == length), max(1, _TOGETHER // (length * workers))
        for first in range(0, whole.size, together):
            part = whole[first : first + together]
            yield part, np.zeros(part.size, int), length, _statistic(sums, before[part], length)


def _within(count: np.ndarray) -> np.ndarray:
    """Return 0, 1, ... up to each count, one after another: of [2, 3], [0, 1, 0, 1, 2]."""
    return np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)


def _summed(score: np.ndarray) -> np.ndarray:
    """Return the sums of the first rows of series, float64[T, N], from those of none on: float64[N, T + 1]."""
    sums = np.zeros((score.shape[1], len(score) + 1))
    np.cumsum(score.T, axis=1, out=sums[:, 1:])
    return sums


def _statistic(sums: np.ndarray, start: np.ndarray, length: int) -> np.ndarray:
    """Return the statistic of all splits of the intervals of one length, float64[N, K, length - 7]."""
    share, weight = _shares_and_weights(length)
    begin, end = sums[:, start, None], sums[:, start + length, None]
    each = sums.strides[1]
    windows = np.lib.stride_tricks.as_strided(
        sums[:, LEAST:], (len(sums), sums.shape[1] - length, share.size), (sums.strides[0], each, each), writeable=False
    )
    result, line = windows[:, start], (end - begin) * share
    line += begin
    result -= line
    np.abs(result, out=result)
    result *= weight
    return result


@functools.lru_cache(maxsize=64)
def _shares_and_weights(length: int) -> tuple[np.ndarray, np.ndarray]:
    cuts = np.arange(LEAST, length - LEAST + 1)
    return cuts / length, np.sqrt(length / (cuts * (length - cuts)))
