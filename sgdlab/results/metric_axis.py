"""The vertical axis of a metric: better is always higher up."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes

from sgdlab.results import accuracy_axis
from sgdlab.results.metric import Metric

_MARGIN = 0.08
"""Between the outermost values and the ends, as a share of their distance."""

_LEAST_CHANGE = 0.05
"""From one end to the other, as a share of the values, so that small differences do not look large."""

_FREE_OF_TICKS = 0.02
"""Share of the axis at each end that has no labels."""

_STEPS = ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))
"""Labels within each power of ten of a logarithmic axis, from few to many."""

_FEW_TICKS = 4
"""With fewer, labels are evenly apart instead."""

_MOST_EVEN = 10
"""So many labels are enough where they are evenly apart."""


def limits(metric: Metric, values: Sequence[float]) -> tuple[float, float]:
    """The foot and the top of an axis that shows all values, with a margin.

    Args:
      metric: by which they are measured.
      values: as in the records, times the metric's scale. Those that are not finite are left out.

    Returns:
      Foot and top; the foot is the larger where lower is better.

    Example:
      >>> foot, top = limits(Metric.of({"metric": "perplexity", "higher_is_better": False}), [30.0, 120.0])
      >>> bool(top < 30 < 120 < foot)
      True
    """
    if metric.is_share:
        return accuracy_axis.limits(values)
    finite = [value for value in values if np.isfinite(value)] or [1.0]
    low, high = min(finite), max(finite)
    logarithmic = _is_logarithmic(metric, low)
    least = np.log1p(_LEAST_CHANGE) if logarithmic else _LEAST_CHANGE * max(abs(low), abs(high))
    low, high = _widened(low, high, _MARGIN, least=least or 1.0, logarithmic=logarithmic)
    return (low, high) if metric.higher_is_better else (high, low)


def set_scale(axes: Axes, metric: Metric, foot: float, top: float, *, most_ticks: int = 9) -> None:
    """Makes the y axis one of a metric between two ends.

    Args:
      axes: whose points are values of the records, times the metric's scale.
      metric: of the values.
      foot: value at the foot.
      top: value at the top.
      most_ticks: so many labels have space.
    """
    if metric.is_share:
        accuracy_axis.set_scale(axes, foot, top, most_ticks=most_ticks)
        return
    low, high = sorted((foot, top))
    logarithmic = _is_logarithmic(metric, low)
    # A label at the very foot would meet what stands below the panel.
    inside = _widened(low, high, -_FREE_OF_TICKS, logarithmic=logarithmic)
    axes.set_yscale("log" if logarithmic else "linear")
    axes.set_ylim(foot, top)
    axes.yaxis.set_major_locator(mpl.ticker.FixedLocator(ticks(*inside, most_ticks, logarithmic=logarithmic)))
    axes.yaxis.set_minor_locator(mpl.ticker.NullLocator())
    axes.yaxis.set_major_formatter(mpl.ticker.StrMethodFormatter("{x:g}"))


def ticks(low: float, high: float, most: int, *, logarithmic: bool) -> list[float]:
    """Round values between two ends.

    Args:
      low: lower end.
      high: higher end.
      most: so many labels have space along the axis.
      logarithmic: whether the axis is.

    Example:
      >>> ticks(20.0, 2000.0, 8, logarithmic=True)
      [20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0]
      >>> ticks(2.9, 3.3, 5, logarithmic=False)
      [2.9, 3.0, 3.1, 3.2, 3.3]
    """
    if logarithmic:
        powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
        for steps in reversed(_STEPS):
            inside = [t for t in np.outer(powers, steps).ravel().tolist() if low <= t <= high * (1 + 1e-9)]
            if _FEW_TICKS <= len(inside) <= most:
                return inside
        if len(inside) > most:
            return inside[:: -(-len(inside) // most)]
    bins = min(most, _MOST_EVEN) - 1
    even = mpl.ticker.MaxNLocator(bins, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high).round(12).tolist()
    return [tick for tick in even if low <= tick <= high]


def _widened(low: float, high: float, share: float, *, least: float = 0.0, logarithmic: bool) -> tuple[float, float]:
    """Two ends, each moved outwards by a share of their distance, or by more until that is at least `least`."""
    ends = np.log([low, high]) if logarithmic else np.array([low, high])
    extent = float(ends[1] - ends[0])
    margin = max(share * extent, 0.5 * (least - extent))
    found = np.add(ends, (-margin, margin))
    first, last = (np.exp(found) if logarithmic else found).tolist()
    return first, last


def _is_logarithmic(metric: Metric, least: float) -> bool:
    return metric.logarithmic and least > 0
