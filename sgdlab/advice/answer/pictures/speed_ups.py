"""Gradients per second of every protocol relative to full synchrony."""

import textwrap

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sgdlab.advice.answer.pictures import style
from sgdlab.advice.answer.table import Measurements
from sgdlab.advice.answer.verdict import Verdict
from sgdlab.advice.comparison.comparison import CEILING, DRAINED, HINDSIGHT, STALE, Protocol
from sgdlab.results.plots import STYLE

_COLOURS = {HINDSIGHT: style.GREY, STALE: style.GREY, CEILING: "black", DRAINED: style.ORANGE}
_NAME_WIDTH = 42


def protocols(table: Measurements, verdict: Verdict) -> Figure:
    """Gradients per second of every protocol relative to full synchrony, with intervals.

    Args:
      table: the measurements.
      verdict: the recommendation, which is highlighted.
    """
    shown = table.shown()
    names = [_named(protocol, verdict.is_of(protocol)) for protocol in shown]
    heights = np.array([1 + 0.7 * name.count("\n") for name in names])
    positions = np.cumsum(heights) - heights / 2
    with mpl.rc_context(STYLE):
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
