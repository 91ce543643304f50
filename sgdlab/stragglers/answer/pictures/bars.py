"""Pictures of rows and bars: every protocol, and the scores and the waiting of each worker."""

import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sgdlab.stragglers.answer.pictures import style
from sgdlab.stragglers.answer.table import Measurements
from sgdlab.stragglers.answer.verdict import Verdict
from sgdlab.stragglers.comparison.protocol import CEILING, DRAINED, HINDSIGHT, STALE
from sgdlab.stragglers.recording import SplitRecording
from sgdlab.stragglers.what_if.scores import WorkerScores

_COLOURS = {HINDSIGHT: style.GREY, STALE: style.GREY, CEILING: "black", DRAINED: style.ORANGE}

_NAME_WIDTH = 42  # characters

_MOST = 30
"""Workers whose scores are drawn, the worst first."""


def _rows(names: Sequence[str], rest: float) -> tuple[Figure, Axes, np.ndarray]:
    """A figure with a row for each name, the middles of the rows, and so many inches besides."""
    wrapped = [textwrap.fill(style.plain(name), _NAME_WIDTH) for name in names]
    heights = np.array([1 + 0.7 * name.count("\n") for name in wrapped])
    places = np.cumsum(heights) - heights / 2
    figure, (axes,) = style.panels(rest + 0.34 * heights.sum())
    axes.set_yticks(places, wrapped, fontsize="small")
    axes.set_ylim(heights.sum(), 0)
    axes.grid(axis="y", visible=False)
    return figure, axes, places


def _beside(axes: Axes, text: str, x: float, y: float) -> None:
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    axes.annotate(text, (x, y), xytext=(8, 0), textcoords="offset points", va="center", fontsize="small", bbox=box)


def protocols(table: Measurements, verdict: Verdict) -> Figure:
    """Gradients per second of every protocol relative to full synchrony, with intervals."""
    shown = table.shown()
    names = []
    for protocol in shown:
        setting = protocol.setting.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
        name = f"{protocol.title} ({setting})" if setting else protocol.title
        names.append(f"recommended: {name}" if verdict.is_of(protocol) else name)
    figure, axes, places = _rows(names, 1.6)
    for place, protocol in zip(places, shown, strict=True):
        relative, low, high = table.relative(protocol.result)
        colour = style.GREEN if verdict.is_of(protocol) else _COLOURS.get(protocol.role, style.BLUE)
        axes.plot([low, high], 2 * [place], color=colour, linewidth=5, alpha=0.35, solid_capstyle="butt")
        axes.plot(relative, place, "o", color=colour, markersize=6)
        right = max(high, relative)
        if protocol.by_rate is not None:
            by_rate = table.relative(protocol.by_rate.result)[0]
            axes.plot(by_rate, place, "D", color=colour, markerfacecolor="none", markersize=8)
            right = max(right, by_rate)
        _beside(axes, f"{relative:.3f}", right, place)
    ceiling = table.relative(table.comparison.by_role(CEILING)[0].result)[0]
    axes.axvline(ceiling, color="black", linestyle="--", linewidth=1, zorder=0.9)
    axes.axvline(1, color=style.GREY, linewidth=1, zorder=0.9)
    left, right = axes.get_xlim()
    axes.set_xlim(left, right + 0.09 * (right - left))
    axes.set_xlabel("gradients per second relative to full synchrony (bars: 90 % intervals)")
    roles = {protocol.role for protocol in shown if not verdict.is_of(protocol)}
    dot = {"marker": "o", "linestyle": "none", "markersize": 6}
    diamond = dot | {"marker": "D", "markersize": 7, "markerfacecolor": "none"}
    key = [
        (True, style.GREEN, "recommended", dot),
        (DRAINED in roles, style.ORANGE, "fewer machines", dot),
        (roles & {HINDSIGHT, STALE}, style.GREY, "chosen afterwards, or gradients are stale", dot),
        (any(p.by_rate for p in shown), style.BLUE, "the same, tuned for the rate of the run", diamond),
        (True, "black", "bound: best number in every step", {"linestyle": "--", "linewidth": 1}),
    ]
    handles = [Line2D([], [], color=colour, label=label, **kind) for drawn, colour, label, kind in key if drawn]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


def scores(found: WorkerScores, workers: Sequence[str], *, named: Sequence[int] = ()) -> Figure:
    """Two bars for each worker: its median over the fleet's, and its median now over its own best."""
    both = np.array([found.against_fleet, found.against_itself])
    shown = np.argsort(-both.max(axis=0), kind="stable")[:_MOST]
    both, places = both[:, shown], np.arange(shown.size)
    figure, (axes,) = style.panels(3.6)
    for values, shift, colour, name in (
        (both[0], -0.2, style.BLUE, "against the fleet: its median over the median of all"),
        (both[1], 0.2, style.ORANGE, "against itself: its median now over its own best"),
    ):
        axes.bar(places + shift, values - 1, bottom=1, width=0.4, color=colour, label=name)
    axes.axhline(1, color="black", linewidth=0.8)
    names = [style.short(workers[worker]) for worker in shown]
    crowded = sum(map(len, names)) > 75
    axes.set_xticks(places, names, fontsize="small", rotation=60 if crowded else 0, ha="right" if crowded else "center")
    for tick, worker in zip(axes.get_xticklabels(), shown, strict=True):
        tick.set(**{"color": style.RED, "weight": "bold"} if worker in named else {})
    low, high = min(both.min(), 1.0), both.max()
    margin = 0.08 * max(high - low, 0.1)
    axes.set_ylim(low - margin, max(high, 1.05) + margin)
    axes.set_xlim(-0.6, shown.size - 0.4)
    axes.grid(axis="x", visible=False)
    axes.set_axisbelow(True)
    axes.set_ylabel("times (1: as fast)")
    axes.set_xlabel("worker" if shown.size == len(workers) else f"worker, the worst {shown.size} of {len(workers)}")
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def idle(parts: SplitRecording, named: Sequence[int] = ()) -> Figure:
    """Shares of computing and waiting of each worker under full synchrony, in the evaluation steps."""
    workers = len(parts.workers)
    busy = 100 * parts.test.sum(axis=0) / parts.test.max(axis=1).sum()
    figure, (axes,) = style.panels(3.4)
    places = np.arange(workers)
    few = workers <= style.LABELLED
    blamed = np.isin(places, named)
    if few:
        axes.bar(places, busy, color=np.where(blamed, style.RED, style.BLUE), width=0.85)
        axes.bar(places, 100 - busy, bottom=busy, color=style.PALE, width=0.85)
        axes.set_xlim(-0.6, workers - 0.4)
    else:  # a bar is less than a pixel: one outline for all, and a line for each that is named
        edges = np.arange(workers + 1) - 0.5
        axes.stairs(np.full(workers, 100.0), edges, fill=True, color=style.PALE)
        axes.stairs(busy, edges, fill=True, color=style.BLUE)
        axes.vlines(places[blamed], 0, busy[blamed], color=style.RED, linewidth=1.5)
        axes.set_xlim(-0.5, workers - 0.5)
    style.label(axes.set_xticks, places, parts.workers, most=style.LABELLED if few else 16)
    axes.grid(axis="x", visible=False)
    axes.set_ylim(0, 100)
    axes.set_axisbelow(True)
    axes.set_xlabel("worker")
    axes.set_ylabel("share of the time, %")
    slow = "; red: named as slow" if blamed.any() else ""
    axes.set_title(
        f"Full synchrony, evaluation steps: computing (dark), waiting (light, {100 - busy.mean():.1f} %){slow}",
        loc="left",
    )
    return figure
