"""Pictures of `what_if`: the time that repairs save one after the other, and the two scores of each worker."""

import textwrap
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from sgdlab.report.words import number
from sgdlab.results.plots import STYLE
from sgdlab.stragglers.answer.pictures import style
from sgdlab.stragglers.what_if.scores import WorkerScores
from sgdlab.stragglers.what_if.what_if import WhatIf

_MOST_REPAIRS, _LEAST_SHARE = 14, 0.002
"""Bars of repairs, and the share of the time from which one has a bar of its own."""

_NAME_WIDTH = 40


@mpl.rc_context(STYLE)
def waterfall(what_if: WhatIf) -> Figure | None:
    """Bars from the recorded time by way of each repair to what is left; they add up.

    Returns:
      The figure; None where nothing can be repaired.
    """
    lines = list(what_if.lines)
    if not lines:
        return None
    large = [line for line in lines if line.in_turn >= _LEAST_SHARE * what_if.recorded][:_MOST_REPAIRS]
    small = [line for line in lines if line not in large]
    bars = [(line.title, line.in_turn) for line in large]
    if small:
        title = small[0].title if len(small) == 1 else f"{len(small)} smaller ones"
        bars.append((title, sum(line.in_turn for line in small)))
    names = ["recorded", *(title for title, _ in bars), "what is left"]
    saved = [seconds for _, seconds in bars]
    after = what_if.recorded - np.cumsum(saved)
    left = [0.0, *after, 0.0]
    width = [what_if.recorded, *saved, what_if.left]
    colours = [style.GREY, *([style.ORANGE] * len(saved)), style.GREEN]
    names = [textwrap.fill(style.plain(name), _NAME_WIDTH) for name in names]
    heights = np.array([1 + 0.7 * name.count("\n") for name in names])
    places = np.cumsum(heights) - heights / 2
    figure = mpl.figure.Figure(figsize=(style.WIDTH, 0.9 + 0.34 * heights.sum()))
    axes = figure.add_subplot()
    axes.barh(places, width, left=left, color=colours, height=0.7)
    ends = np.array(left) + width
    for above, below, at in zip(places[:-1], places[1:], [what_if.recorded, *after], strict=True):
        axes.plot([at, at], [above + 0.35, below - 0.35], color="black", linewidth=0.6)
    for place, end, seconds, colour in zip(places, ends, width, colours, strict=True):
        axes.annotate(
            f"{'-' * (colour == style.ORANGE)}{number(seconds)} s, {100 * seconds / what_if.recorded:.1f} %",
            (end, place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize="small",
        )
    axes.set_yticks(places, names, fontsize="small")
    axes.set_ylim(heights.sum(), 0)
    axes.set_xlim(0, 1.22 * what_if.recorded)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("seconds of full synchrony, all complete steps (orange: saved by repairing this next)")
    return figure


MOST = 30
"""Workers that are drawn, the worst first."""


@mpl.rc_context(STYLE)
def scores(found: WorkerScores, workers: Sequence[str], *, named: Sequence[int] = ()) -> Figure:
    """Two bars for each worker: its median over the fleet's, and its median now over its own best."""
    worst = np.maximum(found.against_fleet, found.against_itself)
    shown = np.argsort(-worst, kind="stable")[:MOST]
    places = np.arange(shown.size)
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
    axes.set_xticks(places, names, fontsize="small", rotation=60 if crowded else 0, ha="right" if crowded else "center")
    for tick, worker in zip(axes.get_xticklabels(), shown, strict=True):
        tick.set(**{"color": style.RED, "weight": "bold"} if worker in named else {})
    low, high = (float(bound([found.against_fleet[shown], found.against_itself[shown]])) for bound in (np.min, np.max))
    margin = 0.08 * max(high - min(low, 1.0), 0.1)
    axes.set_ylim(min(low, 1.0) - margin, max(high, 1.05) + margin)
    axes.set_xlim(-0.6, shown.size - 0.4)
    axes.grid(axis="x", visible=False)
    axes.set_axisbelow(True)
    axes.set_ylabel("times (1: as fast)")
    axes.set_xlabel("worker" if shown.size == len(workers) else f"worker, the worst {shown.size} of {len(workers)}")
    figure.legend(loc="outside lower center", ncols=2)
    return figure
