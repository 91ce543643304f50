"""Whether a series jumps between levels or rises gradually."""

import dataclasses
import math

import numpy as np

from sgdlab.advice.diagnosis import change_points

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


def fit(series: np.ndarray, deviation: float, critical: float) -> Trend:
    r"""Describes a series by levels or by a line that rises from some step on, whichever is cheaper.

    .. math:: \sum_t \min\Big(\frac{|y_t - \hat y_t|}{\sigma}, 3\Big)^2 + p \log T

    with p = 2 k - 1 for k levels, 2 for a line over all steps, and 3 for one that is level up to a step.

    Args:
      series: float64[T].
      deviation: of the noise, as if it were independent.
      critical: least statistic of a change.

    Source: Bayesian information criterion, Schwarz 1978, with clipped residuals.

    Example:
      >>> fit(np.repeat([0.0, 1.0], 20), 0.1, 4.0).stretches
      [(0, 20, 0.0), (20, 40, 1.0)]
      >>> fit(np.linspace(0.0, 1.0, 40), 0.1, 4.0).rise
      1.0
    """
    stretches = change_points.levels(series, change_points.changes(series, deviation, critical))
    fitted = np.concatenate([np.full(end - first, level) for first, end, level in stretches])
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
    """The line that is level up to `start`, by weighted least squares that ignore outliers, and its total rise."""
    slope = np.maximum(np.arange(series.size) - start, 0) / (series.size - 1 - start)
    weight = np.ones(series.size)
    for _ in range(4):
        total = weight.sum()
        x, y = slope @ weight / total, series @ weight / total
        rise = (weight * (slope - x)) @ (series - y) / ((weight * (slope - x)) @ (slope - x))
        fitted = y + rise * (slope - x)
        weight = 1.0 / np.maximum(np.abs(series - fitted) / deviation, 1.0)
    return fitted, round(float(rise), 12)
