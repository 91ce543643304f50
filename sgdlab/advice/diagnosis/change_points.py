"""Change points of the level of noisy series, robust to heavy tails and to noise that has a memory."""

import dataclasses
import itertools
import math
import statistics

import numpy as np

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

_SPLITS = 64
"""Entries (in units of 1,000) of the arrays that are scanned together."""


@dataclasses.dataclass(frozen=True, eq=False)
class Noise:
    """The noise around the levels of series.

    Attributes:
      deviation: float64[N], standard deviation of a step, as independent noise of the same long-run variance had.
      critical: how many standard errors make a change or a level significant, in any of the series at any step.
    """

    deviation: np.ndarray
    critical: float


def noise(series: np.ndarray, memory: float | None = None) -> Noise:
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
    level = np.median(now, axis=0)
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
    """float64[N]: correlation over the rows of two arrays [T, N]."""
    now, following = now - now.mean(axis=0), following - following.mean(axis=0)
    scale = np.sqrt(np.mean(now**2, axis=0) * np.mean(following**2, axis=0))
    return np.divide(np.mean(now * following, axis=0), scale, out=np.zeros_like(scale), where=scale > 0)


def strongest(series: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """float64[N]: of each series the largest statistic of a change, over all splits of seeded intervals.

    Args:
      series: float64[T, N].
      deviation: float64[N].
    """
    score = _scores(series, deviation)
    return np.max([stat.max(axis=0) for stat, *_ in _scan(score)], axis=0, initial=0.0)


def strongest_split(series: np.ndarray, deviation: float) -> int:
    """First row after the change with the largest statistic over the whole series, significant or not."""
    score = _scores(series, deviation)
    sums = np.cumsum(score)[:-1]
    cuts = np.arange(1, series.size)
    stat = np.abs(sums - cuts / series.size * score.sum()) / np.sqrt(cuts * (series.size - cuts) / series.size)
    inside = stat[LEAST - 1 : series.size - LEAST]
    return int(np.argmax(inside)) + LEAST


def changes(series: np.ndarray, deviation: float, critical: float) -> list[int]:
    r"""First rows of the stretches of a series after the first stretch.

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
    # Own code instead of `ruptures`: all workers are screened at once, without a dependency and its build per Python.
    found = _split(series, deviation, critical)
    for _ in range(2):
        bounds = [0, *found, series.size]
        more = [
            first + row
            for first, end in itertools.pairwise(bounds)
            if end - first >= 2 * LEAST
            for row in _split(series[first:end], deviation, critical)
        ]
        if not more:
            break
        found = sorted({*found, *more})
    return _merged(series, _moved(series, found), deviation, critical)


def levels(series: np.ndarray, splits: list[int]) -> list[tuple[int, int, float]]:
    """First row, row after the last, and median of each stretch."""
    bounds = [0, *splits, series.size]
    return [(first, end, float(np.median(series[first:end]))) for first, end in itertools.pairwise(bounds)]


def _scores(series: np.ndarray, deviation: np.ndarray | float) -> np.ndarray:
    return np.clip((series - np.median(series, axis=0)) / deviation, -_CLIP, _CLIP)


def _scan(score: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, int]]:
    """For intervals of each length: the largest statistic [n, N] and its split [n, N], their starts, their length."""
    rows = len(score)
    sums = np.concatenate([np.zeros_like(score[:1]), np.cumsum(score, axis=0)])
    result = []
    length = min(2 * LEAST, rows)
    while length >= 2 * LEAST:
        starts = np.unique(np.append(np.arange(0, rows - length + 1, max(length // 2, 1)), rows - length))
        cuts = np.arange(LEAST, length - LEAST + 1)
        weight = np.sqrt(cuts * (length - cuts) / length)
        best, where = [], []
        together = max(1, _SPLITS * 1000 // (cuts.size * score.shape[1]))
        for first in range(0, starts.size, together):
            start = starts[first : first + together]
            begin, end = sums[start][:, None], sums[start + length][:, None]
            inner = sums[start[:, None] + cuts]
            drift = (end - begin) * (cuts / length)[None, :, None]
            stat = np.abs(inner - begin - drift) / weight[None, :, None]
            chosen = stat.argmax(axis=1)
            where.append(cuts[chosen])
            best.append(np.take_along_axis(stat, chosen[:, None], axis=1)[:, 0])
        result.append((np.concatenate(best), np.concatenate(where), starts, length))
        if length == rows:
            break
        length = min(2 * length, rows)
    return result


def _split(series: np.ndarray, deviation: float, critical: float) -> list[int]:
    if series.size < 2 * LEAST:
        return []
    parts = _scan(_scores(series, deviation)[:, None])
    stat = np.concatenate([part[0][:, 0] for part in parts])
    start = np.concatenate([part[2] for part in parts])
    split = start + np.concatenate([part[1][:, 0] for part in parts])
    end = start + np.concatenate([np.full(part[2].size, part[3]) for part in parts])
    keep = np.flatnonzero(stat > critical)
    keep = keep[np.argsort(-stat[keep], kind="stable")]
    found = []
    while keep.size:
        row = int(split[keep[0]])
        found.append(row)
        keep = keep[(end[keep] <= row) | (start[keep] >= row)]
    return sorted(found)


def _moved(series: np.ndarray, splits: list[int]) -> list[int]:
    """Each change where the absolute distances from the levels before and after it are least."""
    splits = list(splits)
    for i in range(len(splits)):
        first = splits[i - 1] if i else 0
        end = splits[i + 1] if i + 1 < len(splits) else series.size
        before, after = np.median(series[first : splits[i]]), np.median(series[splits[i] : end])
        gain = np.cumsum(np.abs(series[first:end] - before) - np.abs(series[first:end] - after))
        # a change at `first + k + 1` keeps the first k + 1 rows on the level before
        rows = np.arange(first + 1, end + 1)
        inside = (rows >= first + LEAST) & (rows <= end - LEAST)
        if inside.any():
            splits[i] = int(rows[inside][np.argmin(gain[inside])])
    return splits


def _merged(series: np.ndarray, splits: list[int], deviation: float, critical: float) -> list[int]:
    """Without the changes between levels that do not differ significantly."""
    splits = list(splits)
    while splits:
        parts = levels(series, splits)
        strength = []
        for (first, middle, before), (_, end, after) in itertools.pairwise(parts):
            error = 1.2533 * deviation * math.sqrt(1 / (middle - first) + 1 / (end - middle))
            strength.append(abs(after - before) / error if abs(after - before) >= _MERGED else 0.0)
        weakest = int(np.argmin(strength))
        if strength[weakest] >= 0.8 * critical:
            break
        del splits[weakest]
        if weakest and splits:
            splits = _moved(series, splits)
    return splits
