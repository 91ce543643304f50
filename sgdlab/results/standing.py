"""The picture of who is first: a row for each method, sorted by its time to the target, with its accuracy beside it."""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
import scipy.stats
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from sgdlab.report.words import counted
from sgdlab.results import answer, facts, floor, metric_axis, ranking, simultaneous
from sgdlab.results.panels import Style, styles
from sgdlab.results.plots import STYLE
from sgdlab.results.summary import Group, compared, metric_of, single_workers

ROW = 0.19
"""Height of a row, inches."""

_LEVEL = 0.95

_DASHES = {"dashed": "--", "dash-dotted": "-."}
"""Of the single workers, in their order, and what they are called."""

LOST = "#c51b1b"
"""Colour of the share of diverged runs."""


def standing(groups: Sequence[Group], *, speeds: bool = False) -> Figure:
    """Draw the median time to the target, the median metric and the share of diverged runs of each method.

    Rows are sorted by the time; each number of workers has a half of its own. Lines are intervals of the median
    (`interval`), over all runs: a run that diverged or misses the target counts as the worst. A cross at the edge is a
    median that is beyond it: half of the runs or more miss the target, or are lost. Bold and filled are those that are
    statistically indistinguishable from the fastest (`ranking.by_time`) and, in the panel of the metric, from the best.
    Dotted is the time of an ideal speed-up, in which nobody waits (`floor`), dashed the single worker; of several, each
    has its own dashes.

    With `speeds`, gradients per second over those of synchronous SGD are drawn besides: which methods lose none to
    waiting.

    Returns:
      The figure. Without a target that some run reaches it has no panel of times, and rows are sorted by the metric.
    """
    ours = compared(groups)
    counts = sorted({group.num_workers for group in ours})
    by_count = [[group for group in ours if group.num_workers == count] for count in counts]
    rows, least = max(map(len, by_count)), floor.seconds(groups)
    timed = any(ranking.by_time(here) for here in by_count)
    width = ((9.2 if timed else 6.2) + 1.6 * speeds) * len(counts)
    with mpl.rc_context(STYLE):
        figure = mpl.figure.Figure(figsize=(width, ROW * rows + 1.8))
        halves = figure.subfigures(1, len(counts), squeeze=False)[0]
        for half, here in zip(halves, by_count, strict=True):
            soonest = [s for (_, n), s in least.items() if n == here[0].num_workers]
            _half(half, here, groups, soonest, timed=timed, speeds=speeds)
        metric = metric_of(groups)
        title = f"Time to {facts.goal(ours)}, and {metric.title} in the end" if timed else metric.title
        figure.suptitle("\n".join([title[0].upper() + title[1:], *_meanings(groups, by_count, timed)]))
    return figure


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return an interval of the median, by a sample whose infinite values are the worst: two of them, by their order.

    The narrowest pair that is symmetric and holds the median with 95 %; of fewer than six values the first and the
    last, which hold it with 1 - 2^(1 - n).

    Example:
      >>> interval([3.0, 1.0, 2.0]), interval(range(20))
      ((1.0, 3.0), (5, 14))
    """
    ordered, count = sorted(values), len(values)
    below = max(int(scipy.stats.binom.ppf((1 - _LEVEL) / 2, count, 0.5)), 1)
    return ordered[below - 1], ordered[count - below]


def name_rows(axes: Axes, titles: Sequence[str] = ()) -> None:
    """Make the vertical axis one of rows at 0, 1, ..., from the top down; without titles, of a panel that shares it."""
    if titles:
        axes.set_ylim(len(titles) - 0.4, -0.6)
        axes.set_yticks(range(len(titles)), titles)
    axes.tick_params(axis="y", length=0, labelleft=bool(titles))
    axes.grid(False, axis="y")
    for row in range(0, len(axes.get_yticks()), 2):
        axes.axhspan(row - 0.5, row + 0.5, color="#f4f4f4", zorder=0, linewidth=0)


class _Row(NamedTuple):
    """A method, as it is drawn in every panel: filled where it is one of the first there."""

    group: Group
    style: Style
    filled: bool


def _half(
    half: SubFigure,
    here: Sequence[Group],
    groups: Sequence[Group],
    least: Sequence[float],
    *,
    timed: bool,
    speeds: bool,
) -> None:
    """Draw one number of workers: names, the panel of times, that of the metric, bars of speeds and diverged runs."""
    marks, alone = styles(groups), list(single_workers(groups).values())
    ordered = sorted(here, key=lambda group: _order(group, timed))
    by_time, by_metric = (
        [_Row(group, marks[group.method], _is_first(ranked, group)) for group in ordered]
        for ranked in (ranking.by_time(here), ranking.by_metric(here))
    )
    lost = any(group.num_diverged for group in here)
    ratios = [*([1.25] if timed else []), 1.0, *([0.4] if speeds else []), *([0.22] if lost else [])]
    panels = half.subplots(1, len(ratios), sharey=True, squeeze=False, gridspec_kw={"width_ratios": ratios})[0].tolist()
    if timed:
        _times(panels[0], by_time, least, alone)
    _levels(panels[timed], by_metric, alone)
    if speeds:
        _speeds(panels[timed + 1], by_metric)
    if lost:
        _bars(panels[-1], ordered)
    name_rows(panels[0], [group.label() for group in ordered])
    for label, row in zip(panels[0].get_yticklabels(), by_time if timed else by_metric, strict=True):
        if row.filled:
            label.set_fontweight("bold")
    for axes in panels[1:]:
        name_rows(axes)
    half.suptitle(counted(here[0].num_workers, "worker"), fontsize="medium")


def _times(axes: Axes, rows: Sequence[_Row], least: Sequence[float], alone: Sequence[Group]) -> None:
    """Draw the median times to the target, misses beyond the right edge."""
    times = [ranking.times(row.group.summaries) for row in rows]
    lines = [(spread := group.spread("seconds_to_target")) and spread.mean for group in alone]
    found = [t for values in (*times, lines) for t in values if t is not None and math.isfinite(t)] + [*least]
    low, high = (min(found) / 1.15, max(found) * 1.15) if found else (1.0, 10.0)
    edge = high * (high / low) ** 0.06
    for at, (row, values) in enumerate(zip(rows, times, strict=True)):
        _draw(axes, at, row, values, interval(values), (0.0, edge))
    _lines(axes, lines, least)
    axes.set_xscale("log")
    axes.set_xlim(low, edge * (high / low) ** 0.03)
    ticks = metric_axis.ticks(low, high, 5, logarithmic=True)
    axes.set_xticks(ticks, [f"{tick:,g}" for tick in ticks])
    axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    axes.set_xlabel("virtual seconds to the target")


def _levels(axes: Axes, rows: Sequence[_Row], alone: Sequence[Group]) -> None:
    """Draw the median metrics; the scale is that of the methods without lost runs, which leave others no space."""
    metric, levels = rows[0].group.metric, [_metrics(row.group) for row in rows]
    lines = [group.level if group.test else None for group in alone]
    sound = [v for row, values in zip(rows, levels, strict=True) if not row.group.num_diverged for v in values]
    foot, top = metric_axis.limits(metric, [*(sound or itertools.chain(*levels)), *filter(None, lines)])
    metric_axis.set_scale(axes, metric, foot, top, most_ticks=7, across=True)
    # In the middle of the margin at the foot.
    edge = axes.transData.inverted().transform(axes.transAxes.transform((0.025, 0.0)))[0]
    bounds = (min(edge, top), max(edge, top))
    for at, (row, values) in enumerate(zip(rows, levels, strict=True)):
        low, high = interval(values)
        if len(values) > 1:
            half, middle = 0.5 * metric.scale * ranking.example(row.group), float(np.median(values))
            low, high = min(low, middle - half), max(high, middle + half)
        _draw(axes, at, row, values, (low, high), bounds)
    _lines(axes, lines)
    axes.set_xlabel(metric.test_label)


_Ends = tuple[float, float]


def _draw(axes: Axes, at: int, row: _Row, values: Sequence[float], ends: _Ends, bounds: _Ends) -> None:
    """Draw the median with its interval, within bounds."""
    style, middle = row.style, float(np.median(values))
    inside = [float(np.clip(value, *bounds)) for value in (*ends, middle)]
    if len(values) > 1:
        axes.plot(inside[:2], [at, at], color=style.colour, linewidth=1.6, alpha=0.7, solid_capstyle="butt", zorder=2)
    look = {"marker": style.marker if inside[2] == middle else "x", "markersize": 5.5, "zorder": 3}
    face = style.colour if row.filled else "white"
    axes.plot(inside[2:], [at], color=style.colour, markerfacecolor=face, **look)


def _lines(axes: Axes, single: Sequence[float | None], least: Sequence[float] = ()) -> None:
    """Draw a line for each single worker that has a value, dashed alike in every panel, and dotted ones."""
    lines = [(value, dashes, 1.0) for value, dashes in zip(single, itertools.cycle(_DASHES.values()), strict=False)]
    for value, dashes, width in (*lines, *((value, ":", 1.2) for value in least)):
        if value is not None:
            axes.axvline(value, color="black", linestyle=dashes, linewidth=width, zorder=1)


def _speeds(axes: Axes, rows: Sequence[_Row]) -> None:
    """Draw the mean gradients per second, relative to synchronous SGD; nothing where some run has none."""
    found = [0.0 if (speed := row.group.spread("speedup")) is None else speed.mean for row in rows]
    axes.barh(range(len(rows)), found, height=0.45, color=[row.style.colour for row in rows], alpha=0.7, zorder=2)
    axes.set_xlabel("gradients/s,\nx sync. SGD")


def _bars(axes: Axes, ordered: Sequence[Group]) -> None:
    """Draw the share of diverged runs and, where there are some, its 95 % interval (Clopper and Pearson)."""
    shares = [100 * group.num_diverged / len(group.runs) for group in ordered]
    axes.barh(range(len(ordered)), shares, height=0.45, color=LOST, zorder=2)
    for row, group in enumerate(ordered):
        if group.num_diverged:
            ends = [100 * end for end in simultaneous.share(group.num_diverged, len(group.runs))]
            axes.plot(ends, [row, row], color="black", linewidth=0.8, zorder=3)
    axes.set_xlim(0, 100)
    axes.set_xticks([0, 100])
    axes.set_xlabel("diverged, %")


def _metrics(group: Group) -> list[float]:
    """Return the metric of each run as it is drawn, infinitely bad where there is none."""
    found, metric = (summary[group.metric.test] for summary in group.summaries), group.metric
    return [-metric.sign * math.inf if value is None else metric.scale * value for value in found]


def _order(group: Group, timed: bool) -> tuple[float, float, int]:
    """Return what rows are sorted by: the median time or, without, the median metric; then the rank."""
    time = float(np.median(ranking.times(group.summaries))) if timed else 0.0
    return time, -group.metric.sign * float(np.median(_metrics(group))), group.rank


def _is_first(ranked: ranking.Ranking | None, group: Group) -> bool:
    return ranked is not None and len(ranked.groups) > 1 and ranked.is_first(group)


def _meanings(groups: Sequence[Group], by_count: Sequence[Sequence[Group]], timed: bool) -> list[str]:
    """Return how to read the picture: only of what is in it."""
    ours, alone = compared(groups), list(single_workers(groups).values())
    rankings = [rank(here) for here in by_count for rank in (ranking.by_time, ranking.by_metric)]
    decided = any(ranked.decides and len(ranked.groups) > 1 for ranked in rankings if ranked)
    seeds = min(len(group.runs) for group in ours)
    intervals = "95 % intervals" if seeds >= 6 else "ranges of the seeds"
    first = ["bold, filled: indistinguishable from the best"] if decided else []
    first += [f"medians and {intervals}"] if max(len(group.runs) for group in ours) > 1 else []
    names = ", ".join(answer.short_title(group.title) for group in alone)
    dashes = ", ".join(dict.fromkeys(word for _, word in zip(alone, itertools.cycle(_DASHES), strict=False)))
    second = [f"{dashes}: the single worker{f's {names}' * (len(alone) > 1)}"] if alone else []
    second += ["dotted: ideal speed-up"] if timed and floor.seconds(groups) else []
    lost = any(
        group.num_diverged or (timed and group.num_with("seconds_to_target") < len(group.runs)) for group in ours
    )
    second += ["x at the edge: missed or lost"] if lost else []
    return [f"({'; '.join(line)})" for line in (first, second) if line]
