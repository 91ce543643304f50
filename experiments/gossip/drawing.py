"""Draws the figures of the bounds for gossip: measured values with their bounds, and the ratios of bound and value."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.gossip.cases import Case
from experiments.gossip.margins import at_the_end, consensus_bound, corrected_bound, distance_bound, margins
from experiments.gossip.quadratic import ROUNDS, RUN_TIMES, TICKS, Measured
from sgdlab.results.plots import STYLE

COLOURS = ("#2166ac", "#d95f02", "#1b7837", "#7a7a7a")
DISAGREEMENT = r"mean of $\sum_i |\theta_i - \bar\theta|^2$"
WORDS = {"distance": r"mean of $\sum_i |\theta_i - \theta_*|^2$", "consensus": DISAGREEMENT}
UNITS = {TICKS: "ticks", ROUNDS: "rounds", RUN_TIMES: "ticks"}
Results = Mapping[Case, Measured]


def draw_bounds(cases: Sequence[Case], measured: Results) -> Figure:
    """Draws ticks and rounds: above, values and bounds for the largest number of nodes; below, all margins."""
    columns = [
        ("distance in ticks", TICKS, "distance", "together"),
        ("distance in rounds", ROUNDS, "distance", "together"),
        ("consensus in ticks", TICKS, "consensus", "apart"),
    ]
    with mpl.rc_context(STYLE):
        drawing = mpl.figure.Figure(figsize=(14.5, 9.0))
        panels = drawing.subplots(2, 3)
        for (title, mode, what, start), above, below in zip(columns, *panels, strict=True):
            of_mode = [case for case in cases if case.mode == mode]
            _curves(above, of_mode, measured, what, start, title)
            if what == "distance":
                _margins(below, of_mode, [at_the_end(case, measured[case]) for case in of_mode])
            else:
                _margins(below, of_mode, _smallest(of_mode, measured, what))
            below.set_ylim(0.7, 100)
            below.set_yscale("log")
            below.set_yticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
            below.legend(loc="upper left", ncols=2)
            below.set_title(f"{title}: {'margin at the end' if what == 'distance' else 'smallest margin'}")
        drawing.suptitle(
            "Pull gossip on a quadratic: measured means (solid) and the bounds of Jin et al. 2016 (dashed; for "
            "consensus with the appendix's lambda)"
        )
    return drawing


def draw_run_times(cases: Sequence[Case], measured: Results) -> Figure:
    """Draws the values with run-times with both bounds, and the margins of the printed bound."""
    with mpl.rc_context(STYLE):
        drawing = mpl.figure.Figure(figsize=(12.5, 4.8))
        curves, ratios = drawing.subplots(1, 2)
        _curves(curves, cases, measured, "distance", "together", "distance")
        _margins(ratios, cases, _smallest(cases, measured, "distance"))
        ratios.set_ylim(0.5, 1.1)
        ratios.legend(loc="lower right")
        ratios.set_title("printed bound: smallest margin")
        drawing.suptitle(
            "Pull gossip with run-times: measured means (solid), the printed bound (dashed) and the corrected bound "
            "(dotted)"
        )
    return drawing


def _curves(axes: Axes, cases: Sequence[Case], measured: Results, what: str, start: str, title: str) -> None:
    shown = max(case.num_nodes for case in cases)
    of_start = [case for case in cases if (case.num_nodes, case.start) == (shown, start)]
    for case, colour in zip(of_start, COLOURS, strict=False):
        values = measured[case]
        bound = (distance_bound if what == "distance" else consensus_bound)(case, values)
        axes.plot(values.step, getattr(values, what), color=colour, label=rf"$\alpha$ = {case.alpha:.3g}")
        axes.plot(values.step, bound, color=colour, linestyle="--")
        if case.mode == RUN_TIMES:
            axes.plot(values.step, corrected_bound(case, values), color=colour, linestyle=":")
    axes.set_yscale("log")
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlim(left=0)
    axes.set_xlabel(f"t, {UNITS[cases[0].mode]}")
    axes.set_ylabel(WORDS[what])
    axes.set_title(f"{title}: p = {shown}, nodes begin {start}")
    axes.legend()


def _smallest(cases: Sequence[Case], measured: Results, what: str) -> list[float]:
    return [margins(case, measured[case])[what].value for case in cases]


def _margins(axes: Axes, cases: Sequence[Case], values: Sequence[float]) -> None:
    counts, value = sorted({case.num_nodes for case in cases}), dict(zip(cases, values, strict=True))
    for count, start in dict.fromkeys((case.num_nodes, case.start) for case in cases):
        shown = sorted((c for c in cases if (c.num_nodes, c.start) == (count, start)), key=lambda case: case.alpha)
        line, marker = {"together": ("-", "o"), "apart": (":", "s")}[start]
        axes.plot(
            [case.alpha for case in shown],
            [value[case] for case in shown],
            color=COLOURS[min(counts.index(count), len(COLOURS) - 1)],
            linestyle=line,
            marker=marker,
            markersize=5,
            label=f"p = {count}, {start}",
        )
    axes.axhline(1.0, color="black", linewidth=1)
    axes.set_xscale("log")
    steps = sorted({case.alpha for case in cases})
    axes.set_xticks(steps, [f"{alpha:.3g}" for alpha in steps])
    axes.minorticks_off()
    axes.set_xlabel(r"step size $\alpha$")
    axes.set_ylabel("bound / measured; the bound fails below 1")


def draw_contraction(cases: Sequence[Case], measured: Results) -> Figure:
    """Draws the disagreement of the nodes: a column for each number of nodes, a row for each kind of case."""
    counts = sorted({case.num_nodes for case in cases})
    titles = {
        (False, "around"): "averaging only, nodes begin apart",
        (True, "around"): "small steps, nodes begin apart",
        (True, "minimum"): "small steps, nodes begin together",
    }
    rows = list(titles)
    with mpl.rc_context(STYLE):
        drawing = mpl.figure.Figure(figsize=(4.2 * len(counts), 8.6))
        panels = drawing.subplots(3, len(counts), squeeze=False)
        for case in cases:
            kind = case.fraction > 0, case.start
            axes = panels[rows.index(kind), counts.index(case.num_nodes)]
            _disagreement(axes, case, measured[case])
            axes.set_title(f"p = {case.num_nodes}: {titles[kind]}")
        for axes in panels[:, 0]:
            axes.set_ylabel(DISAGREEMENT)
        panels[0, 0].legend()
        drawing.suptitle(
            "Disagreement in ticks: the printed lambda is smaller than the contraction by averaging (bands: 2 standard "
            "errors)"
        )
    return drawing


def _disagreement(axes: Axes, case: Case, values: Measured) -> None:
    ticks = values.step / case.num_nodes
    axes.plot(ticks, values.consensus, color="#2166ac", label="measured")
    low, high = (values.consensus + sign * 2 * values.consensus_error for sign in (-1, 1))
    axes.fill_between(ticks, low, high, color="#2166ac", alpha=0.25, linewidth=0)
    proved, printed = consensus_bound(case, values), consensus_bound(case, values, printed=True)
    axes.plot(ticks, proved, color="black", linestyle="--", label="bound, appendix's lambda")
    axes.plot(ticks, printed, color="#c51b1b", linestyle="-.", label="bound, printed lambda")
    axes.set_yscale("linear" if case.start == "minimum" else "log")
    axes.set_xlabel("ticks per node")
    if case.start == "minimum":
        axes.set_ylim(bottom=0)
        axes.ticklabel_format(axis="y", scilimits=(0, 0))
