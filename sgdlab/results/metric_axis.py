"""The vertical axis of a metric: better is always higher up, and of accuracies, errors are to a logarithmic scale."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes

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

_TICKS = (0, 10, 20, 30, 40, 50, 60, 70, 80, 85, 90, 92, 94, 95, 96, 97, 98, 99, 99.5, 99.8, 99.9, 99.95, 99.98, 99.99)
"""Labels of accuracies; where fewer than `_FEW_TICKS` fit, multiples of `_FINER_TICKS` are labelled too."""

_FINER_TICKS = (5, 1, 0.5, 0.2)
"""In %; each is tried where those before leave too few labels."""

_FIRST_TICKS = (50, 90, 95, 99, 99.9)
"""Labelled before the others where there is no space for all."""

_LEAST_ERROR = 0.005
"""In %; accuracies of 100 % are drawn as if they had it."""

_LEAST_ERRORS = 1.5
"""From one end of an axis of accuracies to the other, as a ratio of the errors."""


def limits(metric: Metric, values: Sequence[float]) -> tuple[float, float]:
    """Return the foot and the top of an axis that shows all values, with a margin.

    Values are as in the records, times the metric's scale; those that are not finite are left out. Without any, an
    axis of accuracies goes from 0 to 99 %.

    Returns:
      Foot and top; the foot is the larger where lower is better.

    Example:
      >>> foot, top = limits(Metric.of({"metric": "perplexity", "higher_is_better": False}), [30.0, 120.0])
      >>> bool(top < 30 < 120 < foot)
      True
    """
    finite = [value for value in values if np.isfinite(value)]
    if metric.is_share:
        ends = height(np.array([min(finite, default=0.0), max(finite, default=99.0)]))
        low, high = (100.0 - 10.0**-end for end in _moved_out(ends, _MARGIN, least=np.log10(_LEAST_ERRORS)))
        return max(float(low), 0.0), float(high)
    low, high = min(finite, default=1.0), max(finite, default=1.0)
    logarithmic = _is_logarithmic(metric, low)
    least = np.log1p(_LEAST_CHANGE) if logarithmic else _LEAST_CHANGE * max(abs(low), abs(high))
    low, high = _widened(low, high, _MARGIN, least=least or 1.0, logarithmic=logarithmic)
    return (low, high) if metric.higher_is_better else (high, low)


def set_scale(
    axes: Axes, metric: Metric, foot: float, top: float, *, most_ticks: int = 9, across: bool = False
) -> None:
    """Makes the y axis, or the x axis (`across`), one of a metric between two ends."""
    axis = axes.xaxis if across else axes.yaxis
    scale = axes.set_xscale if across else axes.set_yscale
    if metric.is_share:
        scale("function", functions=(height, lambda h: 100.0 - 10.0 ** -np.asarray(h, float)))
        labels = accuracy_ticks(foot, top, most_ticks)
    else:
        low, high = sorted((foot, top))
        logarithmic = _is_logarithmic(metric, low)
        # A label at the very foot would meet what stands below the panel.
        inside = _widened(low, high, -_FREE_OF_TICKS, logarithmic=logarithmic)
        scale("log" if logarithmic else "linear")
        labels = ticks(*inside, most_ticks, logarithmic=logarithmic)
    (axes.set_xlim if across else axes.set_ylim)(foot, top)
    axis.set_major_locator(mpl.ticker.FixedLocator(labels))
    axis.set_minor_locator(mpl.ticker.NullLocator())
    axis.set_major_formatter(mpl.ticker.StrMethodFormatter("{x:g}"))


def ticks(low: float, high: float, most: int, *, logarithmic: bool) -> list[float]:
    """Return round values between two ends, at most so many, to a linear or a logarithmic scale.

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


def height(accuracy: np.ndarray | float) -> np.ndarray:
    r"""Return the position of an accuracy, in %, on its axis: half the error is always the same distance higher.

    .. math:: h(a) = -\log_{10} \max(100 - a,\, 0.005)

    Example:
      >>> height(np.array([90.0, 99.0, 100.0])).round(1)
      array([-1. , -0. ,  2.3])
    """
    return -np.log10(np.maximum(100.0 - np.asarray(accuracy, float), _LEAST_ERROR))


def accuracy_ticks(low: float, high: float, most: int) -> list[float]:
    """Return round accuracies between two ends, in %, at most about so many, their labels apart from one another.

    Example:
      >>> accuracy_ticks(50, 99.2, 8)
      [50, 80, 90, 95, 98, 99]
      >>> accuracy_ticks(0, 27, 7)
      [0, 5.0, 10, 15.0, 20, 25.0]
    """
    least = 0.999 * float(height(high) - height(low)) / most
    multiples = [(np.arange(np.ceil(low / step), high / step) * step).round(1).tolist() for step in _FINER_TICKS]
    whole = _apart((*_FIRST_TICKS, *reversed(_TICKS)), low, high, least)
    finer = (_apart((*whole, *choices), low, high, least) for choices in ([], *multiples))
    return sorted(next((found for found in finer if len(found) >= _FEW_TICKS), whole))


def _apart(choices: Sequence[float], low: float, high: float, least: float) -> list[float]:
    """Return of the choices between two ends those that are far enough from all before them."""
    found: list[float] = []
    for tick in choices:
        if low <= tick <= high and all(abs(height(tick) - height(other)) >= least for other in found):
            found.append(tick)
    return found


def _widened(low: float, high: float, share: float, *, least: float = 0.0, logarithmic: bool) -> tuple[float, float]:
    found = _moved_out(np.log([low, high]) if logarithmic else np.array([low, high]), share, least=least)
    first, last = (np.exp(found) if logarithmic else found).tolist()
    return first, last


def _moved_out(ends: np.ndarray, share: float, *, least: float) -> np.ndarray:
    """Return two ends, each moved outwards by a share of their distance, or by more until that is at least `least`."""
    extent = float(ends[1] - ends[0])
    margin = max(share * extent, 0.5 * (least - extent))
    return np.add(ends, (-margin, margin))


def _is_logarithmic(metric: Metric, least: float) -> bool:
    return metric.logarithmic and least > 0
