"""The pictures of a comparison: metric, loss, staleness and gap; and of one run."""

import itertools
import pathlib
from collections.abc import Callable, Iterator, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sgdlab import files
from sgdlab.report.words import counted
from sgdlab.results import metric_axis
from sgdlab.results.metric import Metric
from sgdlab.results.panels import Style, panels, styles
from sgdlab.results.records import Records
from sgdlab.results.summary import Group, compared, largest, metric_of, single_workers

STYLE = {
    "figure.constrained_layout.use": True,
    "figure.dpi": 110,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.titlesize": "medium",
    "legend.frameon": False,
    "legend.fontsize": "small",
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "svg.fonttype": "path",
    "svg.hashsalt": "sgdlab",
}

DASHES = ("--", ":", "-.")
"""Of the single workers."""

_FEW_SEEDS = 5
"""Up to so many are drawn as points; more as a band."""

_MOST_POINTS = 60
"""Most points of a curve of the training loss, which is noisy: those of more are means of neighbours."""

_LOOKS = {"training": "0.6", "test": "C0", "test, Polyak average": "C1"}
"""Colours of the curves of one run, the same in every panel."""

_MARKED = 6
"""Markers on a curve: enough to tell it by, not so many as to hide it."""


def save(figure: Figure, path: pathlib.Path, kinds: Sequence[str] = ("png", "svg")) -> None:
    """Writes a figure, laid out once, as files of some kinds, each whole or not at all; endings follow the path."""
    for kind in kinds:
        with mpl.rc_context(STYLE), files.replacing(path.with_suffix(f".{kind}")) as file:
            figure.savefig(file, format=kind, metadata={"Date": None} if kind == "svg" else None)
        figure.set_layout_engine("none")  # kept for the next kind: it takes as long as drawing


def metric_by_workers(groups: Sequence[Group]) -> Figure:
    """Mean final metric on the test set against the number of workers, with a small point for each seed.

    With more than five seeds, the standard deviation is drawn in place of the points. Better is always higher up, and
    the scale is the same in all panels (`metric_axis`). A cross at the foot is a number of workers at which some seed
    diverged. One number of workers is `standing`'s.
    """
    ours, metric = compared(groups), metric_of(groups)
    ends = [level for group in groups if not group.num_diverged for level in _levels(group)]
    lost = ["x at the foot: some seed diverged"] if any(group.num_diverged for group in ours) else []
    equal = "equal virtual time" if any(group.ends_by_time for group in ours) else "an equal number of used gradients"
    title = f"{metric.title.capitalize()} at {equal}"
    with mpl.rc_context(STYLE):
        figure = by_workers(groups, [title, *lost], metric.test_label, _metric_line, _single_workers)
        for axes in figure.axes:
            metric_axis.set_scale(axes, metric, *metric_axis.limits(metric, ends))
    return figure


def by_workers(
    groups: Sequence[Group],
    titles: Sequence[str],
    up: str,
    line: Callable[[Axes, list[Group], Style, list[float]], None],
    references: Callable[[Axes, Sequence[Group], Sequence[Group]], None],
) -> Figure:
    """Draws a line for each method against the number of workers.

    Args:
      groups: single workers and methods.
      titles: above the figure, and in brackets below that.
      up: label of the vertical axes.
      line: draws one method: its groups, style, and their positions.
      references: draws black lines to compare with: all groups, and those of the panel.
    """
    ours, style = compared(groups), styles(groups)
    counts = sorted({group.num_workers for group in ours})
    figure, drawn = figure_of(ours)
    for axes, here in drawn:
        lines = [list(found) for _, found in itertools.groupby(here, key=lambda group: group.method)]
        for index, found in enumerate(lines):
            # Sideways, so that several methods' seeds and crosses stand side by side.
            shift = 2 ** (0.05 * (index - (len(lines) - 1) / 2))
            line(axes, found, style[found[0].method], [shift * group.num_workers for group in found])
        references(axes, groups, here)
        dress(axes, "workers", up)
    first = figure.axes[0]
    first.set_xscale("log", base=2)
    first.set_xticks(counts, [str(count) for count in counts])
    first.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    # In one line they would be cut off.
    figure.suptitle("\n".join([titles[0], *(f"({title})" for title in titles[1:])]))
    return figure


def mark(axes: Axes, style: Style, seeds: Sequence[tuple[float, float]], lost: Sequence[float], height: float) -> None:
    """Draws a small point for each seed, and crosses at a height that is a share of the panel, where runs were lost."""
    if seeds:
        axes.scatter(*zip(*seeds, strict=True), s=9, color=style.colour, alpha=0.5, linewidths=0)
    if lost:
        cross = {"color": style.colour, "marker": "x", "linestyle": "none", "markersize": 8}
        axes.plot(lost, [height] * len(lost), transform=axes.get_xaxis_transform(), **cross)


def loss_by_time(groups: Sequence[Group]) -> Figure:
    """Training loss against virtual time at the largest number of workers, the mean of neighbouring points."""
    ours, style = largest(groups), styles(groups)
    with mpl.rc_context(STYLE):
        figure, drawn = figure_of(ours)
        for axes, here in drawn:
            for group in here:
                _curve(axes, *_smoothed(*group.curve("seconds", "train_loss")), style[group.method], _labelled(group))
            dress(axes, "virtual time, s", "training loss")
        first = figure.axes[0]
        first.set_yscale("log")
        starts = [loss for group in ours for loss in group.curve("epoch", "test_loss")[1][:1]]
        first.set_ylim(top=min(first.get_ylim()[1], max(10, *starts)))  # a diverging run would flatten all others
        plain_ticks(first)
        figure.suptitle(f"Training loss over virtual time, {ours[0].num_workers} workers")
    return figure


def staleness_and_gap(groups: Sequence[Group]) -> Figure | None:
    """Mean delay and mean gap of the gradients over training, at the largest number of workers.

    Returns:
      The figure; None where no method has a gap (methods without a server have none).
    """
    ours = [group for group in largest(groups) if group.curve("epoch", "gap")[0]]
    if not ours:
        return None
    style = styles(groups)
    with mpl.rc_context(STYLE):
        figure, drawn = figure_of(ours)
        for axes, here in drawn:
            delays = (group.curve("epoch", "staleness") for group in here if group.never_waits)
            epochs, staleness = next((curve for curve in delays if curve[0]), ([], []))
            if epochs:
                axes.plot(epochs, np.add(staleness, 1), color="black", linestyle=":", label="delay without waiting")
            for group in here:
                _curve(axes, *group.curve("epoch", "gap"), style[group.method], f"gap, {_labelled(group)}")
            dress(axes, "epoch of used gradients", "delay (updates), gap (steps)")
        first = figure.axes[0]
        first.set_yscale("log", base=2)
        first.yaxis.set_major_formatter(mpl.ticker.StrMethodFormatter("{x:g}"))
        first.set_ylim(0.9, max(first.get_ylim()[1], 2.2))  # neither is ever below 1
        figure.suptitle(f"How stale the gradients are, {ours[0].num_workers} workers")
    return figure


def figure_of(groups: Sequence[Group]) -> tuple[Figure, Iterator[tuple[Axes, list[Group]]]]:
    """A figure with one panel or one for each family, all to one scale; its axes with the groups drawn there."""
    found = panels(groups)
    columns = min(len(found), 2)
    rows = -(-len(found) // columns)
    figure = mpl.figure.Figure(figsize=(max(5.2 * columns, 8.0), 4.1 * rows + 0.3))

    def axes() -> Iterator[tuple[Axes, list[Group]]]:
        for index, panel in enumerate(found, start=1):
            first = figure.axes[0] if figure.axes else None
            made = figure.add_subplot(rows, columns, index, title=panel.title, sharex=first, sharey=first)
            here = [group for group in groups if group.method in panel.methods]
            yield made, sorted(here, key=lambda group: (panel.methods.index(group.method), group.num_workers))

    return figure, axes()


def plain_ticks(axes: Axes) -> None:
    """Labels 0.1, 1 or 100 on a logarithmic y axis, rather than powers of ten."""
    bottom, top = axes.get_ylim()
    axes.yaxis.set_major_locator(mpl.ticker.LogLocator(subs=(1,) if top > 100 * bottom else (1, 2, 5)))
    axes.yaxis.set_major_formatter(mpl.ticker.StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(mpl.ticker.NullFormatter())


def dress(axes: Axes, across: str, up: str) -> None:
    """Labels, and the legend below the panel, where it hides nothing."""
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.2), ncols=2, borderaxespad=0)


def _levels(group: Group) -> list[float]:
    """Final metric on the test set of each seed that did not diverge, as it is drawn."""
    found = [summary[group.metric.test] for summary in group.summaries if not summary["diverged"]]
    return [group.metric.scale * value for value in found if value is not None]


def _metric_line(axes: Axes, found: list[Group], style: Style, at: list[float]) -> None:
    """One method: means, and seeds or their deviation, at positions on the x axis."""
    # No line through a number of workers at which the method was lost.
    spreads, scale = [None if group.num_diverged else group.test for group in found], found[0].metric.scale
    mean, std = (
        np.array([np.nan if s is None else scale * getattr(s, name) for s in spreads]) for name in ("mean", "std")
    )
    axes.plot(at, mean, color=style.colour, marker=style.marker, label=found[0].title)
    seeds = []
    if max(len(group.runs) for group in found) <= _FEW_SEEDS:
        seeds = [(x, level) for x, group in zip(at, found, strict=True) for level in _levels(group)]
    else:
        axes.fill_between(at, mean - std, mean + std, color=style.colour, alpha=0.15, linewidth=0)
    mark(axes, style, seeds, [x for x, group in zip(at, found, strict=True) if group.num_diverged], 0.02)


def _single_workers(axes: Axes, groups: Sequence[Group], here: Sequence[Group]) -> None:
    """A line for each single worker that methods of a panel are compared with, dashed alike in every panel."""
    wanted = {group.baseline for group in here}
    for group, dash in zip(single_workers(groups).values(), itertools.cycle(DASHES), strict=False):
        if group.method in wanted and group.test:
            axes.axhline(group.level, color="black", linestyle=dash, linewidth=1, label=group.title)


def _smoothed(x: Sequence[float], y: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """Return the means of neighbouring points where there are more than `_MOST_POINTS`."""
    if len(x) <= _MOST_POINTS:
        return x, y
    seconds, loss = ([part.mean() for part in np.array_split(values, _MOST_POINTS)] for values in (x, y))
    return seconds, loss


def _curve(axes: Axes, x: Sequence[float], y: Sequence[float], style: Style, label: str) -> None:
    every = max(len(x) // _MARKED, 1)
    axes.plot(x, y, color=style.colour, marker=style.marker, markevery=(every // 2, every), label=label)


def _labelled(group: Group) -> str:
    lost, seeds = group.num_diverged, len(group.runs)
    several = f"{lost} of {seeds} " if lost < seeds else ""
    return f"{group.title} ({several}diverged)" if lost else group.title


def training(records: Records) -> Figure:
    """Loss and metric of one run, by its records, over time, which is virtual but for a run on real workers."""
    evaluations, metric = records[1:-1], Metric.of(records[0])
    finals = {metric.test: "test", f"average_{metric.name}": "test, Polyak average"}
    seconds = [evaluation["seconds"] for evaluation in evaluations]
    with mpl.rc_context(STYLE):
        figure = mpl.figure.Figure(figsize=(10.4, 3.6))
        losses, others = figure.subplots(1, 2)
        for axes, unit, scale, curves in (
            (losses, "loss", 1, {"train_loss": "training", "test_loss": "test"}),
            (others, metric.label, metric.scale, finals),
        ):
            for entry, label in curves.items():
                values = [np.nan if (value := e.get(entry)) is None else scale * value for e in evaluations]
                if not np.isnan(values).all():
                    axes.plot(seconds, values, label=label, color=_LOOKS[label])
            axes.set_xlabel("time, s" if records[0].get("live") else "virtual time, s")
            axes.set_ylabel(unit)
            axes.legend()
        losses.set_yscale("log")
        plain_ticks(losses)
        if metric.logarithmic and not metric.is_share:
            others.set_yscale("log")
            plain_ticks(others)
        workers = records[0]["num_workers"]
        figure.suptitle(f"{records[0]['title']}, {counted(workers, 'worker')}")
    return figure
