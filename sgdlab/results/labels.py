"""Places labels of points: beside their points if nothing is there, else in a column, evenly apart."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import optimize


class Box(NamedTuple):
    """A rectangle, in pixels."""

    left: float
    bottom: float
    right: float
    top: float

    def meets(self, other: "Box") -> bool:
        """Return whether two rectangles overlap."""
        return (
            self.left < other.right and other.left < self.right and self.bottom < other.top and other.bottom < self.top
        )

    def within(self, other: "Box") -> bool:
        """Return whether this rectangle lies in the other."""
        return (
            other.left <= self.left
            and self.right <= other.right
            and other.bottom <= self.bottom
            and self.top <= other.top
        )


_SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))
"""Of a point on which a label may stand, in the order in which they are tried: right, left, above, below, corners."""


def beside(
    points: np.ndarray, sizes: Sequence[tuple[float, float]], *, area: Box, taken: Sequence[Box], away: float
) -> list[Box | None]:
    """Places labels beside their points, one after the other, where they cover nothing.

    Args:
      points: float64[P, 2], pixels.
      sizes: width and height of each label, pixels.
      area: labels stay within it.
      taken: rectangles that labels must not cover, those of the points themselves among them.
      away: pixels between a point and its label.

    Returns:
      The rectangle of each label; None where all sides of its point are taken.

    Example:
      >>> area, other = Box(0, 0, 100, 100), Box(60, 40, 90, 60)
      >>> beside(np.array([[50.0, 50.0]]), [(20.0, 10.0)], area=area, taken=[other], away=5)
      [Box(left=25.0, bottom=45.0, right=45.0, top=55.0)]
    """
    occupied, found = list(taken), []
    for (x, y), (width, height) in zip(points.tolist(), sizes, strict=True):
        boxes = (
            _box(x + right * (away + width / 2), y + up * (away + height / 2), width, height) for right, up in _SIDES
        )
        free = (box for box in boxes if box.within(area) and not any(box.meets(other) for other in occupied))
        box = next(free, None)
        found.append(box)
        if box is not None:
            occupied.append(box)
    return found


def _box(x: float, y: float, width: float, height: float) -> Box:
    return Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)


def apart(wanted: Sequence[float], spacing: float, low: float, high: float) -> np.ndarray:
    r"""Heights of labels in a column, as near as possible to those wanted, but at least `spacing` apart.

    .. math:: \min_h \sum_i (h_i - w_i)^2 \quad \text{subject to} \quad h_{i+1} - h_i \ge s, \; l \le h_i \le u

    With :math:`g_i = h_i - i s` this is isotonic regression.

    Args:
      wanted: w, in any order.
      spacing: s.
      low: l, of the lowest label; where the column is too short for all, they begin there and go beyond its end.
      high: u, of the highest.

    Returns:
      float64[P], in the order of `wanted`.

    Example:
      >>> apart([10.0, 10.0, 50.0], 4.0, 0.0, 100.0)
      array([ 8., 12., 50.])
    """
    order = np.argsort(wanted, kind="stable")
    heights = np.empty(len(order))
    if order.size:
        steps = spacing * np.arange(order.size)
        level = optimize.isotonic_regression(np.asarray(wanted, float)[order] - steps).x
        heights[order] = np.clip(level, low, max(high - steps[-1], low)) + steps
    return heights
