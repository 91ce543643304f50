"""Slow times of the whole cluster: since a step, for a while, or gradually."""

import dataclasses
import itertools
import math

import numpy as np

from sgdlab.stragglers.diagnosis import change_points
from sgdlab.stragglers.diagnosis.history import SLOWER, Episode

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
    found = fit_trend(series, float(noise.deviation[0]), noise.critical)
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
    """Estimate the correlation of consecutive rows around one level, a line, two levels, or three, if these are better.

    A description is better if it takes a fifth off the sum of the absolute residuals: a memory lets any description of
    more parameters take off some.
    """
    residual = series - np.median(series)
    if series.size >= 2 * change_points.LEAST:
        deviation = float(change_points.noise(series[:, None], memory=0.0).deviation[0])
        straight = series - line(series, 0, deviation)[0]
        bounds = [0, series.size]
        for _ in range(2):
            splits = [
                first + change_points.strongest_split(series[first:end], deviation)
                for first, end in itertools.pairwise(bounds)
                if end - first >= 2 * change_points.LEAST
            ]
            if not splits:
                break
            around = [series - change_points.levelled(series, sorted([*bounds[1:-1], split])) for split in splits]
            best = int(np.argmin([np.abs(each).sum() for each in around]))
            bounds = sorted([*bounds, splits[best]])
            residual = _better(residual, around[best])
        residual = _better(residual, straight)
    least = _autocorrelation(residual)
    return least + max(least, 0.0) * (1 - least) / 2  # what was fitted took memory away


def _better(residual: np.ndarray, other: np.ndarray) -> np.ndarray:
    return other if np.abs(other).sum() < _WORTH * np.abs(residual).sum() else residual


def _autocorrelation(residual: np.ndarray) -> float:
    residual = np.clip(residual, *np.quantile(residual, [0.02, 0.98]))[:, None]
    return float(change_points.correlation(residual[:-1], residual[1:])[0])


_STARTS = 32
"""Rows at which a gradual rise is tried to begin."""

_CLIP = 3.0


@dataclasses.dataclass(frozen=True, eq=False)
class Trend:
    """A description of a series that is good for its number of parameters.

    Attributes:
      stretches: first row, row after the last and median of each stretch of one level.
      rise: total rise from `start` to the end, if the series rises gradually; None if levels describe it better.
      start: first row of the gradual rise.
      fitted: float64[T], the series without its noise.
    """

    stretches: list[tuple[int, int, float]]
    rise: float | None
    start: int
    fitted: np.ndarray


def fit_trend(series: np.ndarray, deviation: float, critical: float) -> Trend:
    r"""Describes a series by levels or by a line that rises from some step on, whichever is cheaper.

    .. math:: \sum_t \min\Big(\frac{|y_t - \hat y_t|}{\sigma}, 3\Big)^2 + p \log T

    with p = 2 k - 1 for k levels, 2 for a line over all steps, and 3 for one that is level up to a step.

    Args:
      series: float64[T].
      deviation: of the noise, as if it were independent.
      critical: least statistic of a change.

    Source: Bayesian information criterion, Schwarz 1978, with clipped residuals.

    Example:
      >>> fit_trend(np.repeat([0.0, 1.0], 20), 0.1, 4.0).stretches
      [(0, 20, 0.0), (20, 40, 1.0)]
      >>> fit_trend(np.linspace(0.0, 1.0, 40), 0.1, 4.0).rise
      1.0
    """
    splits = change_points.changes(series, deviation, critical)
    stretches, fitted = change_points.levels(series, splits), change_points.levelled(series, splits)
    best = Trend(stretches, None, 0, fitted)
    if len(stretches) == 1:
        return best
    parameter = math.log(series.size)
    price = _cost(series - fitted, deviation) + (2 * len(stretches) - 1) * parameter
    last = series.size - 2 * change_points.LEAST
    for start in np.unique(np.linspace(0, last, _STARTS).astype(int)) if last > 0 else []:
        fitted, rise = line(series, int(start), deviation)
        cost = _cost(series - fitted, deviation) + (3 if start else 2) * parameter
        if cost < price:
            price, best = cost, Trend(stretches, rise, int(start), fitted)
    return best


def _cost(residual: np.ndarray, deviation: float) -> float:
    return float(np.sum(np.minimum(np.abs(residual) / deviation, _CLIP) ** 2))


def line(series: np.ndarray, start: int, deviation: float) -> tuple[np.ndarray, float]:
    """Fit a line that is level up to `start`, by weighted least squares that ignore outliers; return its rise too."""
    slope = np.maximum(np.arange(series.size) - start, 0) / (series.size - 1 - start)
    weight = np.ones(series.size)
    for _ in range(4):
        total = weight.sum()
        x, y = slope @ weight / total, series @ weight / total
        rise = (weight * (slope - x)) @ (series - y) / ((weight * (slope - x)) @ (slope - x))
        fitted = y + rise * (slope - x)
        weight = 1.0 / np.maximum(np.abs(series - fitted) / deviation, 1.0)
    return fitted, round(float(rise), 12)
