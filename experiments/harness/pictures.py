"""One style for all pictures of the papers: readable in a talk, and the same colour for the same method everywhere."""

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from sgdlab.results import plots

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

PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#332288", "#7a7a7a")
"""Colours that red-green colour blind readers can tell apart; black is the paper's own numbers."""

PAPER = "#000000"
"""The colour of the paper's own numbers."""

_FAMILIES = (
    ("synchronous", "full synchrony", "all_reduce", "all-reduce", "ssgd"),
    ("asynchronous", "asgd", "hogwild", "nag_asgd"),
    ("cutoff", "deep markov", "backup_workers", "backup workers"),
    ("push_gossip", "push gossip", "gap_aware", "ga"),
    ("pull_gossip", "pull gossip", "staleness_aware", "sa", "static"),
    ("elastic_averaging", "elastic averaging", "dana_ga", "order"),
    ("dana", "elfving", "kalman"),
    ("oracle", "reference"),
)
"""Methods that share a colour; no picture shows two of one row."""


def colour(method: str) -> str:
    """Return the colour of a method, the same in every picture.

    Args:
      method: its name or title.

    Raises:
      ValueError: where the method has none.

    Example:
      >>> colour("synchronous") == colour("all-reduce") != colour("Hogwild")
      True
    """
    for shade, names in zip(PALETTE, _FAMILIES, strict=True):
        if method.lower() in names:
            return shade
    known = ", ".join(name for names in _FAMILIES for name in names)
    raise ValueError(f"{method=} must be one of {known}; for anything else take a colour of PALETTE")


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
