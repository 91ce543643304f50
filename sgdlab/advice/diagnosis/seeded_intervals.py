"""Statistics of a change of level at every split of seeded intervals, of many series at once."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

LEAST = 4
"""Fewest rows of a stretch with a level of its own."""

_TOGETHER = 1 << 16
"""Most splits that are scanned in one array: these arrays stay in a core's cache."""

_SHORT = 64
"""Rows up to which the sums of an interval are gathered one by one."""


class Intervals(NamedTuple):
    """The best split of each of some intervals.

    Attributes:
      series: int64[M], index of the interval's series, rising.
      start: int64[M], first row of the interval in its series.
      length: int64[M], rows of the interval.
      split: int64[M], first row, in the series, after the change with the largest statistic.
      statistic: float64[M].
    """

    series: np.ndarray
    start: np.ndarray
    length: np.ndarray
    split: np.ndarray
    statistic: np.ndarray


def scan(score: np.ndarray, sizes: np.ndarray, least: float = 0.0) -> Iterator[Intervals]:
    r"""Scans the intervals of 8, 16, 32, ... rows, half of which overlap the next, and the whole series.

    .. math:: \max_k \Big|S_k - \frac kL S_L\Big| \Big/ \sqrt{k (L - k) / L}

    Args:
      score: float64[sum of the sizes], the series one after the other, in units of their deviation.
      sizes: int64[N], rows of each series; of those with fewer than 8 nothing is scanned.
      least: statistic above which an interval is returned.

    Returns:
      Intervals by rising length, in parts; series by series within one length.

    Source: seeded binary segmentation, Kovacs, Buehlmann, Li and Munk 2023, Biometrika 110(1).
    """
    offset = np.concatenate([[0], np.cumsum(sizes + 1)])[:-1]
    sums = np.zeros(int(sizes.sum()) + sizes.size)
    first = 0
    for begin, size in zip(offset.tolist(), sizes.tolist(), strict=True):
        np.cumsum(score[first : first + size], out=sums[begin + 1 : begin + 1 + size])
        first += size
    length = 2 * LEAST
    long = np.flatnonzero(sizes >= length)
    while long.size:
        begin, spare, half = offset[long], sizes[long] - length, length // 2
        count = -(-spare // half) + 1
        number = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        start = np.minimum(number * half, np.repeat(spare, count))
        yield from _of_length(sums, np.repeat(begin, count), np.repeat(long, count), start, length, least)
        length *= 2
        long = long[sizes[long] >= length]
    odd = np.array([i for i in range(sizes.size) if sizes[i] >= 2 * LEAST and not _doubled(int(sizes[i]))], int)
    if odd.size:
        yield _whole(sums, offset[odd], odd, sizes[odd], least)


def _doubled(size: int) -> bool:
    """Whether a series of this size is itself one of the intervals of 8, 16, 32, ... rows."""
    return size & (size - 1) == 0


def _of_length(
    sums: np.ndarray, offset: np.ndarray, series: np.ndarray, start: np.ndarray, length: int, least: float
) -> Iterator[Intervals]:
    cuts = np.arange(LEAST, length - LEAST + 1)
    part, weight = (cuts / length)[:, None], np.sqrt(cuts * (length - cuts) / length)[:, None]
    together = max(1, _TOGETHER // cuts.size)
    windows = np.ndarray((sums.size - cuts.size + 1, cuts.size), buffer=sums, strides=sums.strides * 2)
    for first in range(0, start.size, together):
        own = slice(first, first + together)
        flat = offset[own] + start[own]
        begin, end = sums[flat], sums[flat + length]
        # One row of the array for each split; long intervals are copied as they lie in memory.
        stat = sums[flat + cuts[:, None]] if length <= _SHORT else windows[flat + LEAST].T
        stat -= begin
        stat -= (end - begin) * part
        np.abs(stat, out=stat)
        stat /= weight
        largest = stat.max(axis=0)
        keep = np.flatnonzero(largest > least)
        if keep.size:
            split = start[own][keep] + LEAST + stat[:, keep].argmax(axis=0)
            yield Intervals(series[own][keep], start[own][keep], np.full(keep.size, length), split, largest[keep])


def _whole(sums: np.ndarray, offset: np.ndarray, series: np.ndarray, size: np.ndarray, least: float) -> Intervals:
    """Of each series the interval of all its rows."""
    count = size - 2 * LEAST + 1
    first = np.cumsum(count) - count
    cuts = np.arange(count.sum()) - np.repeat(first, count) + LEAST
    rows, flat = np.repeat(size, count), np.repeat(offset, count)
    begin, end = sums[flat], sums[flat + rows]
    stat = np.abs(sums[flat + cuts] - begin - (end - begin) * (cuts / rows)) / np.sqrt(cuts * (rows - cuts) / rows)
    largest = np.maximum.reduceat(stat, first)
    keep = np.flatnonzero(largest > least)
    best = [int(stat[first[i] : first[i] + count[i]].argmax()) for i in keep]
    split = np.array(best, int) + LEAST
    return Intervals(series[keep], np.zeros_like(split), size[keep], split, largest[keep])
