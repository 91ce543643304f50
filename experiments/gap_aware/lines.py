"""Draws the seven methods in the figures of Barkai et al. 2020: one colour and marker each, everywhere."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from experiments.harness import PAPER, interval, look, pictures

_LOOKS = {name: look(name) for name in ("ASGD", "NAG-ASGD", "SA", "GA", "DANA", "DANA-SA", "DANA-GA")}


def line(method: str) -> dict[str, Any]:
    """Colour, marker and label of a method's line.

    Example:
      >>> line("SA")["color"] != line("GA")["color"], line("SA")["label"]
      (True, 'SA')
    """
    dashes = "-." if method.startswith("DANA-") else "-"  # SA and DANA-SA have one colour
    return {"color": _LOOKS[method].colour, "marker": _LOOKS[method].marker, "linestyle": dashes, "label": method}


def errors(panel: Axes, num_workers: Sequence[int], method: str, values: Sequence[np.ndarray]) -> None:
    """Draws a method's errors, or losses, against the number of workers, for a logarithmic axis.

    Args:
      panel: where.
      num_workers: N.
      method: its title.
      values: float64[seeds] for each N.
    """
    banded(panel, num_workers, values, line(method), logarithmic=True)


def banded(
    panel: Axes,
    at: Sequence[float],
    values: Sequence[np.ndarray],
    style: Mapping[str, Any],
    *,
    logarithmic: bool = False,
) -> None:
    """Draws the mean of values, and a band: its 95 % interval, or nothing of a single value.

    Args:
      panel: where.
      at: where the values are, on the horizontal axis.
      values: float64[seeds] for each of them.
      style: of the line, as `line` returns it.
      logarithmic: the mean is the geometric one, as a logarithmic axis shows it.
    """
    found = [interval(np.log(of_seeds) if logarithmic else of_seeds) for of_seeds in values]
    pictures.band(panel, at, found, logarithmic=logarithmic, markersize=5, **style)


def bars(
    panel: Axes,
    at: Sequence[float],
    values: Sequence[np.ndarray],
    style: Mapping[str, Any],
    *,
    logarithmic: bool = False,
) -> None:
    """Draws means of differences, or geometric means of ratios, with their 95 % intervals as bars.

    Its arguments are those of `banded`; a ratio is given as its logarithm.
    """
    found = map(interval, values)
    pictures.bars(panel, at, found, logarithmic=logarithmic, markersize=5, linewidth=1.4, **style)


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
    """Draws the single worker's error as a dashed line."""
    panel.axhline(error, color=PAPER, linestyle="--", linewidth=1.5, label=label)


def logarithmic(panels: Iterable[Axes], num_workers: Sequence[int]) -> None:
    """Gives panels a logarithmic axis of errors or losses, with plain numbers, and one of N."""
    for panel in panels:
        panel.set_yscale("log")
        drawn = np.concatenate([np.ravel(line.get_ydata()) for line in panel.get_lines()])
        low, high = np.nanmin(drawn), np.nanmax(drawn)  # of the lines: the bands of lost runs reach far below
        wide, tens = high > 8 * low, [10.0**power for power in range(-6, 3)]
        panel.set_yticks([digit * ten for ten in tens for digit in ((1, 2, 5) if wide else range(1, 10))])
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.set_ylim(low / 1.25, high * 1.25)
        panel.set_xticks(list(num_workers))


def legend(drawn: Figure, panel: Axes, *, columns: int = 8) -> None:
    """One legend below all panels, with the lines of one of them."""
    handles, labels = panel.get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside lower center", ncols=min(columns, len(labels)))
