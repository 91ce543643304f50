"""Whether the whole cluster became slower: at a step, for a while, or gradually."""

import dataclasses
import itertools
import math

import numpy as np

from sgdlab.advice.diagnosis import change_points, trend
from sgdlab.advice.diagnosis.history import SLOWER, Episode

_WORTH = 0.8
"""Share of the absolute residuals that a better description leaves at most."""


@dataclasses.dataclass(frozen=True, eq=False)
class FleetSlowdown:
    """Slow times of the whole cluster.

    Attributes:
      episodes: the slow stretches; if it became slower gradually, one from its beginning to the end.
      gradual: whether it became slower gradually.
      factor: float64[T], how many times slower than at its best each step is; 1 outside the episodes.
    """

    episodes: tuple[Episode, ...]
    gradual: bool
    factor: np.ndarray


def find_slowdown(usual: np.ndarray) -> FleetSlowdown:
    r"""Finds when the whole cluster was slower than at its best lasting level.

    The noise of the series is taken to have the memory that remains around a few levels or a line, so that the slow
    swings of a cluster do not count as changes.

    Args:
      usual: float64[T], seconds: the median of each step over the workers that are not slow by themselves.

    Example:
      >>> find_slowdown(np.repeat([1.0, 1.5], 20)).episodes
      (Episode(first=20, last=39, factor=1.5),)
    """
    series = np.log(usual)
    noise = change_points.noise(series[:, None], memory=_memory(series))
    found = trend.fit(series, float(noise.deviation[0]), noise.critical)
    nothing = np.ones(series.size)
    if found.rise is not None:
        if found.rise < math.log(SLOWER):
            return FleetSlowdown((), True, nothing)
        factor = np.exp(found.fitted - found.fitted.min())
        end = math.exp(found.rise)
        return FleetSlowdown((Episode(found.start, series.size - 1, end),), True, factor)
    lasting = [s for s in found.stretches if s[1] - s[0] >= max(change_points.LEAST, 0.05 * series.size)]
    base = min((level for _, _, level in lasting), default=math.inf)
    episodes, factor = [], nothing
    for first, end, level in found.stretches:
        if level - base >= math.log(SLOWER):
            episodes.append(Episode(first, end - 1, math.exp(level - base)))
            factor[first:end] = math.exp(level - base)
    return FleetSlowdown(tuple(episodes), False, factor)


def _memory(series: np.ndarray) -> float:
    """Correlation of consecutive rows around the first of: one level, a line, two levels, three, without a better one.

    A description is better if it takes a fifth off the sum of the absolute residuals: a memory lets any description of
    more parameters take off some.
    """
    residual = series - np.median(series)
    if series.size >= 2 * change_points.LEAST:
        deviation = float(change_points.noise(series[:, None], memory=0.0).deviation[0])
        straight = series - trend.line(series, 0, deviation)[0]
        bounds = [0, series.size]
        for _ in range(2):
            splits = [
                first + change_points.strongest_split(series[first:end], deviation)
                for first, end in itertools.pairwise(bounds)
                if end - first >= 2 * change_points.LEAST
            ]
            if not splits:
                break
            around = [_levelled(series, sorted([*bounds, split])) for split in splits]
            best = int(np.argmin([np.abs(each).sum() for each in around]))
            bounds = sorted([*bounds, splits[best]])
            residual = _better(residual, around[best])
        residual = _better(residual, straight)
    least = _autocorrelation(residual)
    return least + max(least, 0.0) * (1 - least) / 2  # what was fitted took memory away


def _better(residual: np.ndarray, other: np.ndarray) -> np.ndarray:
    return other if np.abs(other).sum() < _WORTH * np.abs(residual).sum() else residual


def _levelled(series: np.ndarray, bounds: list[int]) -> np.ndarray:
    parts = [series[first:end] for first, end in itertools.pairwise(bounds)]
    return np.concatenate([part - np.median(part) for part in parts])


def _autocorrelation(residual: np.ndarray) -> float:
    residual = np.clip(residual, *np.quantile(residual, [0.02, 0.98]))[:, None]
    return float(change_points.correlation(residual[:-1], residual[1:])[0])
