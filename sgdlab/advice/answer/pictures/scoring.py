"""Two scores a worker: against the fleet and against itself."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from sgdlab.advice.answer.pictures import style
from sgdlab.advice.what_if.scores import WorkerScores
from sgdlab.results.plots import STYLE

MOST = 30
"""Workers that are drawn, the worst first."""


def scores(found: WorkerScores, workers: Sequence[str], *, named: Sequence[int] = ()) -> Figure:
    """Two bars for each worker: its median over the fleet's, and its median now over its own best.

    Args:
      found: the scores of all workers.
      workers: their names.
      named: indices of the workers whose names are emphasised.
    """
    worst = np.maximum(found.against_fleet, found.against_itself)
    shown = np.argsort(-worst, kind="stable")[:MOST]
    places = np.arange(shown.size)
    with mpl.rc_context(STYLE):
        figure = mpl.figure.Figure(figsize=(style.WIDTH, 3.6))
        axes = figure.add_subplot()
        for values, shift, colour, name in (
            (found.against_fleet, -0.2, style.BLUE, "against the fleet: its median over the median of all"),
            (found.against_itself, 0.2, style.ORANGE, "against itself: its median now over its own best"),
        ):
            axes.bar(places + shift, values[shown] - 1, bottom=1, width=0.4, color=colour, label=name)
        axes.axhline(1, color="black", linewidth=0.8)
        names = [style.short(workers[worker]) for worker in shown]
        crowded = sum(map(len, names)) > 75
        axes.set_xticks(
            places, names, fontsize="small", rotation=60 if crowded else 0, ha="right" if crowded else "center"
        )
        for tick, worker in zip(axes.get_xticklabels(), shown, strict=True):
            tick.set(**{"color": style.RED, "weight": "bold"} if worker in named else {})
        low, high = (
            float(bound([found.against_fleet[shown], found.against_itself[shown]])) for bound in (np.min, np.max)
        )
        margin = 0.08 * max(high - min(low, 1.0), 0.1)
        axes.set_ylim(min(low, 1.0) - margin, max(high, 1.05) + margin)
        axes.set_xlim(-0.6, shown.size - 0.4)
        axes.grid(axis="x", visible=False)
        axes.set_axisbelow(True)
        axes.set_ylabel("times (1: as fast)")
        axes.set_xlabel("worker" if shown.size == len(workers) else f"worker, the worst {shown.size} of {len(workers)}")
        figure.legend(loc="outside lower center", ncols=2)
    return figure
