"""One style for all pictures of the papers: readable in a talk, and the same colour for the same method everywhere."""

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

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
