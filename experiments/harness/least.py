r"""The line "no loss" in pictures of loss by time, as in the reports: when workers who never wait could be there.

.. math:: T = \frac{K}{\sum_i 1 / \tau_i}

with K gradients and :math:`\tau_i` the mean seconds of a gradient of worker i (`sgdlab.theory.without_waiting`). K is
what the single worker needs, where one was trained, as in the reports. Else it is what full synchrony needs, whose
gradients are never stale: in theory :math:`N L \Delta / \epsilon + \sigma^2 L \Delta / \epsilon^2`, so that T is the
least time of all methods with a server, up to a constant, where workers are equally fast
(`sgdlab.theory.homogeneous`). A method that needs fewer gradients can be earlier on a single problem.
"""

from collections.abc import Iterable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from sgdlab.results.target import FLOOR

SINGLE, SYNCHRONOUS = "the single worker", "full synchrony"
"""The method whose gradients are counted."""
_DOTS = (":", (0, (1, 4)), (0, (3, 2, 1, 2)), (0, (5, 1, 1, 1)))


def seconds(gradients: ArrayLike, pace: float) -> np.ndarray:
    """float64[.]: when workers who never wait have computed so many gradients.

    Args:
      gradients: used ones; infinite where a target is not reached.
      pace: gradients per second of all workers together, the sum of 1 / tau_i.

    Example:
      >>> seconds([0, 30, np.inf], pace=2.0)
      array([ 0., 15., inf])
    """
    return np.asarray(gradients, np.float64) / pace


def line(axes: Axes, x: Iterable[float], y: Iterable[float], *, of: str = "", index: int = 0) -> Line2D:
    """Draws it, dotted in black.

    Args:
      axes: of the picture.
      x: of its points.
      y: of its points.
      of: what it belongs to, in the legend, such as a number of workers, where there are several; "_": no entry.
      index: its place among several, which have dots of their own; one of 0 to 3.
    """
    label = "_" if of == "_" else f"{FLOOR}, {of}" if of else FLOOR
    (drawn,) = axes.plot(x, y, color="black", linestyle=_DOTS[index], linewidth=1.3, label=label, zorder=4)
    return drawn


def note(whose: str, taken: str) -> str:
    """Return what the line means, for the notes of a figure.

    Args:
      whose: gradients are counted: `SINGLE` or `SYNCHRONOUS`.
      taken: how the seconds of a gradient are known.

    Example:
      >>> note(SINGLE, "all machines are equally fast").endswith("ever waiting; all machines are equally fast.")
      True
    """
    return f'Dotted, "{FLOOR}": the gradients of {whose}, computed by all workers, none ever waiting; {taken}.'
