"""Pictures of the protocols' speed-ups over full synchrony: each, by numbers of workers, and as predicted."""

import textwrap
from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sgdlab.predictors import CutoffRecord
from sgdlab.results.plots import STYLE
from sgdlab.stragglers.answer.pictures import style
from sgdlab.stragglers.answer.table import Measurements
from sgdlab.stragglers.answer.verdict import Verdict
from sgdlab.stragglers.comparison.measured import Measured
from sgdlab.stragglers.comparison.protocol import CEILING, DRAINED, HINDSIGHT, STALE, Protocol
from sgdlab.stragglers.comparison.sweeps import FINISHING, INTERRUPTED, BackupSweep

_COLOURS = {HINDSIGHT: style.GREY, STALE: style.GREY, CEILING: "black", DRAINED: style.ORANGE}
_NAME_WIDTH = 42


@mpl.rc_context(STYLE)
def protocols(table: Measurements, verdict: Verdict) -> Figure:
    """Gradients per second of every protocol relative to full synchrony, with intervals."""
    shown = table.shown()
    names = [_named(protocol, verdict.is_of(protocol)) for protocol in shown]
    heights = np.array([1 + 0.7 * name.count("\n") for name in names])
    positions = np.cumsum(heights) - heights / 2
    figure = mpl.figure.Figure(figsize=(style.WIDTH, 1.6 + 0.33 * heights.sum()))
    axes = figure.add_subplot()
    for position, protocol in zip(positions, shown, strict=True):
        relative, low, high = table.relative(protocol.measured["throughput"])
        colour = style.GREEN if verdict.is_of(protocol) else _COLOURS.get(protocol.role, style.BLUE)
        axes.plot([low, high], 2 * [position], color=colour, linewidth=5, alpha=0.35, solid_capstyle="butt")
        axes.plot(relative, position, "o", color=colour, markersize=6)
        right = max(high, relative)
        if protocol.has_objective:
            by_rate = table.relative(protocol.measured["rate"])[0]
            axes.plot(by_rate, position, "D", color=colour, markerfacecolor="none", markersize=8)
            right = max(right, by_rate)
        axes.annotate(
            f"{relative:.3f}",
            (right, position),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            fontsize="small",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )
    ceiling = table.relative(table.comparison.by_role(CEILING)[0].measured["throughput"])[0]
    axes.axvline(ceiling, color="black", linestyle="--", linewidth=1, zorder=0.9)
    axes.axvline(1, color=style.GREY, linewidth=1, zorder=0.9)
    axes.set_yticks(positions, names, fontsize="small")
    axes.set_ylim(heights.sum(), 0)
    axes.grid(axis="y", visible=False)
    left, right = axes.get_xlim()
    axes.set_xlim(left, right + 0.09 * (right - left))
    axes.set_xlabel("gradients per second relative to full synchrony (bars: 90 % intervals)")
    figure.legend(handles=_key(shown, verdict), loc="outside lower center", ncols=3)
    return figure


def _named(protocol: Protocol, recommended: bool) -> str:
    setting = protocol.setting.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
    name = f"{protocol.title} ({setting})" if setting else protocol.title
    return textwrap.fill(style.plain(f"recommended: {name}" if recommended else name), _NAME_WIDTH)


def _key(shown: list[Protocol], verdict: Verdict) -> list[Line2D]:
    """Handles of the legend: only of what is drawn."""
    roles = {protocol.role for protocol in shown if not verdict.is_of(protocol)}
    dot = {"marker": "o", "linestyle": "none", "markersize": 6}
    handles = [Line2D([], [], color=style.GREEN, label="recommended", **dot)]
    if DRAINED in roles:
        handles.append(Line2D([], [], color=style.ORANGE, label="fewer machines", **dot))
    if roles & {HINDSIGHT, STALE}:
        handles.append(Line2D([], [], color=style.GREY, label="chosen afterwards, or gradients are stale", **dot))
    if any(protocol.has_objective for protocol in shown):
        diamond = dot | {"marker": "D", "markersize": 7, "markerfacecolor": "none"}
        handles.append(Line2D([], [], color=style.BLUE, label="the same, tuned for the rate of the run", **diamond))
    handles.append(Line2D([], [], color="black", linestyle="--", linewidth=1, label="bound: best number in every step"))
    return handles


_KINDS = {INTERRUPTED: (style.BLUE, "late workers interrupted"), FINISHING: (style.ORANGE, "late workers finish")}


@mpl.rc_context(STYLE)
def numbers_waited_for(table: Measurements, verdict: Verdict) -> Figure:
    """Gradients per second against the number of workers that an update waits for."""
    comparison = table.comparison
    workers = max(comparison.sweeps[0].test) + 1
    figure = mpl.figure.Figure(figsize=(style.WIDTH, 4.8))
    axes = figure.add_subplot()
    for sweep in comparison.sweeps:
        _sweep(axes, sweep, workers)
    ceiling = comparison.by_role(CEILING)[0].paper
    axes.axhline(
        ceiling.gradients_per_second, color="black", linestyle="--", linewidth=1, label="best number in every step"
    )
    chosen = verdict.chosen.paper
    axes.plot(
        chosen.waited_for,
        chosen.gradients_per_second,
        "o",
        color=style.GREEN,
        markersize=11,
        markerfacecolor="none",
        markeredgewidth=2,
        label="recommended (mean number)",
    )
    axes.set_xlabel(f"workers that an update waits for, of {workers}")
    axes.set_ylabel("gradients per second")
    axes.set_ylim(bottom=0)
    if workers <= style.LABELLED:
        axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(integer=True))
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def _sweep(axes: Axes, sweep: BackupSweep, workers: int) -> None:
    colour, name = _KINDS[sweep.title]
    waited, rates = _curve(sweep.test, workers)
    marker = "." if workers <= style.LABELLED else ""
    axes.plot(waited, rates, color=colour, marker=marker, label=f"{name}, evaluation steps")
    axes.plot(*_curve(sweep.train, workers), color=colour, linewidth=1, linestyle=":", label=f"{name}, tuning steps")
    axes.plot(
        workers - sweep.tuned,
        sweep.test[sweep.tuned].gradients_per_second,
        "s",
        color=colour,
        markersize=6,
        label=f"the number chosen: {workers - sweep.tuned} of {workers}",
    )


def _curve(results: Mapping[int, Measured], workers: int) -> tuple[list[int], list[float]]:
    numbers = sorted(results, reverse=True)
    return [workers - b for b in numbers], [results[b].gradients_per_second for b in numbers]


ITERATIONS = 3
"""Number of iterations whose predictions are drawn."""


@mpl.rc_context(STYLE)
def predictions(record: CutoffRecord, steps: Sequence[int]) -> Figure:
    """Sorted run-times of some iterations, predicted by the deep Markov model and observed."""
    workers = record.observed.shape[1]
    shown = np.unique(np.linspace(0, len(record.cutoff) - 1, ITERATIONS).astype(int))
    count = np.arange(1, workers + 1)
    figure = mpl.figure.Figure(figsize=(style.WIDTH, 3.6))
    panels = figure.subplots(1, shown.size, sharey=True, squeeze=False)[0]
    for axes, row in zip(panels, shown, strict=True):
        mean, std = record.mean[row], record.std[row]
        axes.fill_between(count, mean - 2 * std, mean + 2 * std, color=style.BLUE, alpha=0.2, linewidth=0)
        axes.plot(count, mean, color=style.BLUE, label="predicted, ± 2 standard deviations")
        marker = "o" if workers <= style.LABELLED else ""
        axes.plot(count, record.observed[row], color="black", marker=marker, markersize=3.5, label="observed")
        axes.axvline(record.cutoff[row], color=style.RED, linestyle="--", linewidth=1.2, label="workers it waits for")
        axes.set_title(f"step {steps[row]}: wait for {record.cutoff[row]} of {workers}", loc="left")
        axes.set_xlabel("worker, in the order of arrival")
        axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(5, integer=True))
    panels[0].set_ylim(bottom=0)
    panels[0].set_ylabel("seconds")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure
