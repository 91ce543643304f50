"""An axis of accuracies on which errors are to a logarithmic scale."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes

_TICKS = (0, 10, 20, 30, 40, 50, 60, 70, 80, 85, 90, 92, 94, 95, 96, 97, 98, 99, 99.5, 99.8, 99.9, 99.95, 99.98, 99.99)
_FIRST_TICKS = (50, 90, 95, 99, 99.9)
"""Labelled before the others where there is no space for all."""

_FEW_TICKS = 4
"""With fewer, halves and then fifths of a percent are labelled too."""

_LEAST_ERROR = 0.005
"""In %; accuracies of 100 % are drawn as if they had it."""


def height(accuracy: np.ndarray | float) -> np.ndarray:
    r"""The position of an accuracy on the axis.

    .. math:: h(a) = -\log_{10} \max(100 - a,\, 0.005)

    Args:
      accuracy: in %.

    Returns:
      Of the same shape; half the error is always the same distance higher.

    Example:
      >>> height(np.array([90.0, 99.0, 100.0])).round(1)
      array([-1. , -0. ,  2.3])
    """
    return -np.log10(np.maximum(100.0 - np.asarray(accuracy, float), _LEAST_ERROR))


def limits(accuracies: Sequence[float]) -> tuple[float, float]:
    """The ends of an axis that shows all accuracies, with a margin of 8 % and at least a factor 1.5 in the error.

    Args:
      accuracies: in %. With none of them the axis goes from 0 to 99 %.

    Example:
      >>> low, high = limits([90.0, 99.0])
      >>> bool(low < 90 and 99 < high < 100)
      True
    """
    finite = [value for value in accuracies if np.isfinite(value)]
    ends = height(np.array([min(finite, default=0.0), max(finite, default=99.0)]))
    margin = max(0.08 * (ends[1] - ends[0]), 0.5 * (np.log10(1.5) - (ends[1] - ends[0])))
    low, high = (100.0 - 10.0**-end for end in (ends[0] - margin, ends[1] + margin))
    return max(float(low), 0.0), float(high)


def set_scale(axes: Axes, low: float, high: float, *, most_ticks: int = 9) -> None:
    """Makes the y axis one of accuracies between two ends.

    Args:
      axes: with the labels of its ticks in %.
      low: accuracy at the foot, in %.
      high: accuracy at the top, in %.
      most_ticks: so many labels have space.
    """
    axes.set_yscale("function", functions=(height, lambda h: 100.0 - 10.0 ** -np.asarray(h, float)))
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(mpl.ticker.FixedLocator(ticks(low, high, most_ticks)))
    axes.yaxis.set_minor_locator(mpl.ticker.NullLocator())
    axes.yaxis.set_major_formatter(mpl.ticker.StrMethodFormatter("{x:g}"))


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round accuracies between two ends, none so near to another that their labels would touch.

    Args:
      low: in %.
      high: in %.
      most: so many labels have space along the axis.

    Example:
      >>> ticks(50, 99.2, 8)
      [50, 80, 90, 95, 98, 99]
    """
    least = 0.999 * float(height(high) - height(low)) / most
    halves, fifths = ((np.arange(np.ceil(low * n), high * n) / n).round(1).tolist() for n in (2, 5))
    whole = _apart((*_FIRST_TICKS, *reversed(_TICKS)), low, high, least)
    finer = (_apart((*whole, *choices), low, high, least) for choices in ([], halves, fifths))
    return sorted(next((found for found in finer if len(found) >= _FEW_TICKS), whole))


def _apart(choices: Sequence[float], low: float, high: float, least: float) -> list[float]:
    """Of the choices between two ends, those that are far enough from all before them."""
    found: list[float] = []
    for tick in choices:
        if low <= tick <= high and all(abs(height(tick) - height(other)) >= least for other in found):
            found.append(tick)
    return found
