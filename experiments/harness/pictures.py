"""One style for all pictures of the papers: readable in a talk, and the same colour for the same method everywhere."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from experiments.harness.intervals import Interval
from sgdlab.results import plots
from sgdlab.results.panels import PALETTE, Style, style
from sgdlab.runs.methods import methods

STYLE = plots.STYLE | {
    "font.size": 12,
    "axes.titlesize": 12,
    "axes.labelsize": 12,
    "legend.fontsize": 10.5,
    "lines.linewidth": 2.0,
    "lines.markersize": 6,
    "errorbar.capsize": 3,
}
"""On top of the style of the reports: larger letters and thicker lines."""

PAPER = "#000000"
"""The colour of the paper's own numbers."""

_OTHERWISE = {
    "full synchrony": "synchronous", "ssgd": "synchronous", "all-reduce": "all_reduce",
    "backup workers": "backup_workers", "asynchronous": "asgd", "hogwild": "asgd", "deep markov": "cutoff",
    "push gossip": "push_gossip", "pull gossip": "pull_gossip", "elastic averaging": "elastic_averaging",
    "ga": "gap_aware", "sa": "staleness_aware",
    "nag-asgd": "nag_asgd", "dana-sa": "dana_staleness_aware", "dana-ga": "dana_gap_aware",
    "adam-sa": "adam_staleness_aware", "adam-ga": "adam_gap_aware",
}  # fmt: skip
"""Methods by what pictures call them."""

_NO_METHODS = {"order": 6, "elfving": 5, "kalman": 5, "static": 4, "oracle": 7, "reference": 7}
"""Maps what cuts off by, or is compared with, to its place in `PALETTE`."""


def look(method: str) -> Style:
    """Return the colour and the mark of a method, the same as in every report.

    Args:
      method: its name, or what pictures call it.

    Raises:
      ValueError: where there is no such method.

    Example:
      >>> look("GA") == look("gap_aware") != look("SA")
      True
    """
    known, name = methods(), _OTHERWISE.get(method.lower(), method.lower())
    if name not in known:
        raise ValueError(f"{method=} must be a method; for anything else take a colour of PALETTE")
    return style(list(known).index(name), baseline=known[name].baseline == name)


def colour(method: str) -> str:
    """Return the colour of a method, or of what it is compared with.

    Args:
      method: its name, or what pictures call it.

    Raises:
      ValueError: where it has none.

    Example:
      >>> colour("synchronous") == colour("full synchrony") != colour("Hogwild")
      True
    """
    place = _NO_METHODS.get(method.lower())
    return look(method).colour if place is None else PALETTE[place]


def bars(
    axes: Axes, at: Sequence[float], found: Iterable[Interval], *, logarithmic: bool = False, **style: Any
) -> None:
    """Draws means with their intervals as bars, or only the mean where an interval is infinite.

    Args:
      axes: of the picture.
      at: where the values are, on the horizontal axis.
      found: an interval for each of them.
      logarithmic: they are of logarithms; what is drawn is the geometric mean, as a logarithmic axis shows it.
      **style: as of `errorbar`.
    """
    low, middle, high = _ends(found, logarithmic)
    axes.errorbar(at, middle, [middle - low, high - middle], **style)


def band(
    axes: Axes, at: Sequence[float], found: Iterable[Interval], *, logarithmic: bool = False, **style: Any
) -> Line2D:
    """Draws means as a line, which is returned, and their intervals as a band; the arguments are those of `bars`."""
    low, middle, high = _ends(found, logarithmic)
    return _line_and_band(axes, at, low, middle, high, style)


def quartiles(axes: Axes, at: Sequence[float], values: ArrayLike, **style: Any) -> Line2D:
    """Draws medians over the seeds as a line, which is returned, and a band between their quartiles.

    Args:
      axes: of the picture.
      at: where the values are, on the horizontal axis, [K].
      values: float[seeds, K].
      **style: of the line.

    Example:
      >>> drawn, panels = canvas()
      >>> quartiles(panels[0, 0], [0, 1], [[1.0, 4.0], [2.0, 5.0], [9.0, 6.0]], color="black").get_ydata()
      array([2., 5.])
    """
    return _line_and_band(axes, at, *np.quantile(values, [0.25, 0.5, 0.75], axis=0), style)


def _ends(found: Iterable[Interval], logarithmic: bool) -> np.ndarray:
    """float64[3, K]: lower ends, means and upper ends; of an infinite interval three times the mean."""
    ends = np.array([(each.low, each.mean, each.high) for each in found]).reshape(-1, 3)
    ends = np.where(np.isfinite(ends), ends, ends[:, [1]]).T
    return np.exp(ends) if logarithmic else ends


def _line_and_band(
    axes: Axes, at: Sequence[float], low: np.ndarray, middle: np.ndarray, high: np.ndarray, style: Mapping[str, Any]
) -> Line2D:
    (line,) = axes.plot(at, middle, **style)
    axes.fill_between(at, low, high, color=style["color"], alpha=0.15, linewidth=0)
    return line


def canvas(
    rows: int = 1, columns: int = 1, *, width: float = 10.0, height: float = 5.0, **subplots: object
) -> tuple[Figure, np.ndarray]:
    """Return a figure, so many inches wide and high, and its panels, in the style of the papers' pictures.

    Example:
      >>> drawn, panels = canvas(1, 2, sharey=True)
      >>> panels.shape
      (1, 2)
    """
    with mpl.rc_context(STYLE):
        drawn = Figure(figsize=(width, height))
        return drawn, drawn.subplots(rows, columns, squeeze=False, **subplots)
