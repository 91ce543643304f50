"""The picture of the time to the target, with that of an ideal speed-up, without waiting and staleness."""

import itertools
import statistics
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sgdlab.results import facts, floor
from sgdlab.results.answer import short_title
from sgdlab.results.panels import Style
from sgdlab.results.plots import STYLE, by_workers, mark, plain_ticks
from sgdlab.results.summary import Group, compared, single_workers

FLOOR = "no loss"
"""Name of the line of the least time in legends."""

_MEANING = "dotted: the single worker's gradients, computed by all workers, none ever waiting"

_DOTS = (":", (0, (1, 4)), (0, (3, 2, 1, 2)))


def seconds_to_target(groups: Sequence[Group]) -> Figure | None:
    """Mean virtual seconds to the target against the number of workers, with a small point for each seed.

    A method has a point where all seeds reach the target; elsewhere a cross at the top. Dotted, for the single worker
    that a panel's methods are compared with: its gradients, computed by all workers without waiting (`floor`). The
    scale is the same in all panels. One number of workers is `standing`'s.

    Returns:
      The figure; None where there is no target, or no method reaches it in every run.
    """
    ours, least = compared(groups), floor.seconds(groups)
    if not any(group.target is not None and group.spread("seconds_to_target") for group in ours):
        return None
    goal = facts.goal(ours)
    titles = [f"Virtual seconds to {goal}"] + [_MEANING] * bool(least)
    if any(group.spread("seconds_to_target") is None for group in ours):
        titles.append("x at the top: not reached by every run")
    with mpl.rc_context(STYLE):
        figure = by_workers(groups, titles, "virtual seconds", _line, _floors)
        figure.axes[0].set_yscale("log")
        plain_ticks(figure.axes[0])
    return figure


def _line(axes: Axes, found: Sequence[Group], style: Style, at: Sequence[float]) -> None:
    """One method: means, and seeds, at positions on the x axis."""
    spreads = [group.spread("seconds_to_target") for group in found]
    mean = [np.nan if spread is None else spread.mean for spread in spreads]
    axes.plot(at, mean, color=style.colour, marker=style.marker, label=found[0].title)
    seeds = [
        (x, summary["seconds_to_target"])
        for x, group in zip(at, found, strict=True)
        for summary in group.summaries
        if summary["seconds_to_target"] is not None
    ]
    mark(axes, style, seeds, [x for x, spread in zip(at, spreads, strict=True) if spread is None], 0.98)


def _floors(axes: Axes, groups: Sequence[Group], here: Sequence[Group]) -> None:
    """A line for each single worker that the methods of a panel are compared with, dotted alike in every panel."""
    wanted, alone, least = {group.baseline for group in here}, single_workers(groups), floor.seconds(groups)
    several = len(alone) > 1
    for (name, group), dots in zip(alone.items(), itertools.cycle(_DOTS), strict=False):
        points = {count: seconds for (of, count), seconds in least.items() if of == name}
        if name not in wanted or not points:
            continue
        label = f"{FLOOR}, {short_title(group.title)}" if several else FLOOR
        if len(points) == 1:
            axes.axhline(statistics.fmean(points.values()), color="black", linestyle=dots, linewidth=1.2, label=label)
        else:
            axes.plot(list(points), list(points.values()), color="black", linestyle=dots, linewidth=1.2, label=label)
