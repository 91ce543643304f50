"""How the seven methods are drawn in the figures of Barkai et al. 2020: one colour and marker each, everywhere."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from experiments.harness import PAPER, look

_LOOKS = {name: look(name) for name in ("ASGD", "NAG-ASGD", "SA", "GA", "DANA", "DANA-SA", "DANA-GA")}
LEAST = 0.1
"""Errors in % below it are drawn there, so that an error of 0 is seen on a logarithmic axis."""


def line(method: str) -> dict[str, Any]:
    """Colour, marker and label of a method's line.

    Example:
      >>> line("SA")["color"] != line("GA")["color"], line("SA")["label"]
      (True, 'SA')
    """
    return {"color": _LOOKS[method].colour, "marker": _LOOKS[method].marker, "label": method}


def errors(panel: Axes, num_workers: Sequence[int], method: str, values: Sequence[np.ndarray]) -> None:
    """Draws a method's errors against the number of workers: the mean, and a band of a standard deviation.

    Args:
      panel: where.
      num_workers: N.
      method: its title.
      values: float64[seeds] for each N, errors in %.
    """
    banded(panel, num_workers, values, line(method), least=LEAST)


def banded(
    panel: Axes, at: Sequence[float], values: Sequence[np.ndarray], style: Mapping[str, Any], *, least: float = -np.inf
) -> None:
    """Draws the mean of values, and a band of one standard deviation.

    Args:
      panel: where.
      at: where the values are, on the horizontal axis.
      values: float64[seeds] for each of them.
      style: of the line, as `line` returns it.
      least: what is lower is drawn there.
    """
    means = np.array([np.mean(of_seeds) for of_seeds in values])
    spread = np.array([np.std(of_seeds, ddof=1) if len(of_seeds) > 1 else 0.0 for of_seeds in values])
    panel.plot(at, np.maximum(means, least), markersize=5, **style)
    low, high = np.maximum(means - spread, least), np.maximum(means + spread, least)
    panel.fill_between(at, low, high, color=style["color"], alpha=0.15, linewidth=0)


def numbers(panel: Axes, values: np.ndarray, dark: np.ndarray, *, fontsize: float) -> None:
    """Writes the values of a heat map into its cells, in white where these are dark.

    Args:
      panel: of the map.
      values: float64[rows, columns].
      dark: bool[rows, columns].
      fontsize: of the numbers.
    """
    for (row, column), value in np.ndenumerate(values):
        shade = "white" if dark[row, column] else "black"
        panel.text(column, row, f"{value:.1f}", ha="center", va="center", fontsize=fontsize, color=shade)
    panel.grid(visible=False)


def level(panel: Axes, error: float, label: str = "single worker") -> None:
    """Draws the single worker's error, in %, as a dashed line."""
    panel.axhline(max(error, LEAST), color=PAPER, linestyle="--", linewidth=1.5, label=label)


def logarithmic(panels: Iterable[Axes], num_workers: Sequence[int]) -> None:
    """Gives panels a logarithmic axis of errors in %, with plain numbers, and one of N."""
    for panel in panels:
        panel.set_yscale("log")
        drawn = np.concatenate([np.ravel(line.get_ydata()) for line in panel.get_lines()])
        low, high = np.nanmin(drawn), np.nanmax(drawn)  # of the lines: the bands of lost runs reach far below
        wide = high > 8 * low
        panel.set_yticks([digit * ten for ten in (0.1, 1, 10, 100) for digit in ((1, 2, 5) if wide else range(1, 10))])
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.set_ylim(low / 1.25, high * 1.25)
        panel.set_xticks(list(num_workers))


def legend(drawn: Figure, panel: Axes, *, columns: int = 8) -> None:
    """One legend below all panels, with the lines of one of them."""
    handles, labels = panel.get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=min(columns, len(labels)))
