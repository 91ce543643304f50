"""Pictures along the steps: when the named workers were slow, and all together."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import ndimage

from sgdlab.report.words import counted, some
from sgdlab.stragglers.answer.pictures import heat, style
from sgdlab.stragglers.diagnosis import causes
from sgdlab.stragglers.diagnosis.diagnosis import Diagnosis
from sgdlab.stragglers.diagnosis.history import Episode
from sgdlab.stragglers.recording import SplitRecording

MOST = 6
"""Panels; those of the first causes come first."""

_POINTS, _DOTS = 1200, 3000
"""Most points of a line, of which one stands for several steps where there are more; and most dots."""

_FEW = 3
"""Most stretches of which the last one is described; with more, a worker is slow at times."""

_HEAD = 1.7
"""Longest step that is drawn, relative to the 99 % quantile of the others: what is above would flatten the rest."""


def histories(parts: SplitRecording, diagnosis: Diagnosis) -> Figure | None:
    """Time of the named workers over the median of their step; the stretches in which they were slow are shaded.

    Workers that one cause names together, such as those of a node, share a panel, which shows their median.

    Returns:
      The figure; None where no worker is named.
    """
    shown = {}
    for cause in diagnosis.causes:
        if cause.workers and cause.workers not in shown and len(shown) < MOST:
            alone = diagnosis.histories[cause.workers[0]] if len(cause.workers) == 1 else ()
            shown[cause.workers] = _name(parts, cause), cause.episodes or alone
    if not shown:
        return None
    runtimes, steps = parts.complete.runtimes, parts.complete.steps
    ratios = [np.median(runtimes[:, workers], axis=1) / parts.complete.medians for workers in shown]
    figure, panels = style.panels(1.3 + 1.2 * len(shown), rows=len(shown))
    for axes, (name, stretches), ratio in zip(panels, shown.values(), ratios, strict=True):
        _draw(axes, ratio, stretches)
        axes.axvline(parts.train_steps - 0.5, color="black", linewidth=1.2, linestyle="--")
        axes.set_title(f"{name}{_when(stretches, steps)}", loc="left")
    panels[0].set_xlim(-0.5, steps.size - 0.5)
    panels[0].set_ylim(0, min(heat.LIMIT, 1.1 * max(1.3, float(np.quantile(ratios, 0.999)))))
    style.label_steps(panels[-1], steps)
    panels[-1].set_xlabel("step (dashed: the evaluation steps begin)")
    figure.supylabel("times the median", fontsize="medium")
    return figure


def _name(parts: SplitRecording, cause: causes.Cause) -> str:
    names, nodes = [style.short(parts.workers[worker]) for worker in cause.workers], parts.complete.nodes
    if len(names) == 1:
        return f"worker {names[0]}" + (f" on {style.short(nodes[cause.workers[0]])}" if nodes else "")
    return f"workers {some(names)}" if cause.node is None else f"{style.short(cause.node)} ({len(names)} workers)"


def _draw(axes: Axes, ratio: np.ndarray, stretches: tuple[Episode, ...]) -> None:
    rows = np.arange(ratio.size)
    every = max(1, -(-ratio.size // _DOTS))
    dots = np.minimum(ratio, heat.LIMIT)[::every]
    axes.plot(rows[::every], dots, ".", color=style.GREY, markersize=3.5, alpha=0.6, markeredgewidth=0)
    window = max(3, ratio.size // 60) | 1
    every = max(1, -(-ratio.size // _POINTS))
    axes.plot(rows[::every], ndimage.median_filter(ratio, window)[::every], color=style.BLUE)
    axes.axhline(1, color="black", linewidth=0.7)
    for stretch in stretches:
        axes.axvspan(stretch.first - 0.5, stretch.last + 0.5, color=style.RED, alpha=0.14, linewidth=0)
    if stretches and stretches[-1].last == ratio.size - 1:
        axes.axvline(stretches[-1].first - 0.5, color=style.RED, linewidth=1.4)


def _when(stretches: tuple[Episode, ...], steps: np.ndarray) -> str:
    """Say how slow a worker was, and when; empty where it never was."""
    if not stretches:
        return ""
    if len(stretches) > _FEW:
        number = sum(stretch.rows for stretch in stretches)
        factor = float(np.median([stretch.factor for stretch in stretches]))
        return f": {factor:.2f} times the others at times, in {number} of {steps.size} steps"
    last = stretches[-1]
    when = f"from step {steps[last.first]} to {steps[last.last]}"
    if last.last == steps.size - 1:
        when = f"since step {steps[last.first]}" if last.first else "all along"
    earlier = f"; before that, in {len(stretches) - 1} more" if len(stretches) > 1 else ""
    return f": {last.factor:.2f} times the others {when}{earlier}"


def step_medians(parts: SplitRecording, diagnosis: Diagnosis) -> Figure:
    """Median and maximum of the times of each complete step; pauses and changes of the whole cluster are marked."""
    runtimes = parts.complete.runtimes
    rows, pauses = np.arange(len(runtimes)), np.asarray(parts.pauses.rows, int)
    usual = np.setdiff1d(rows, pauses) if pauses.size < rows.size else rows
    middle, longest = parts.complete.medians, runtimes.max(axis=1)
    top = min(longest.max() * 1.05, _HEAD * np.quantile(longest[usual], 0.99))
    figure, (axes,) = style.panels(3.2)
    edges = style.cells(usual.size, _POINTS)
    where = usual[edges[:-1]]
    slowest = np.maximum.reduceat(longest[usual], edges[:-1])
    middles = [np.median(several) for several in np.split(middle[usual], edges[1:-1])]
    several = " (of several steps)" * (where.size < usual.size)
    axes.plot(where, slowest, color=style.ORANGE, linewidth=0.8, alpha=0.7, label=f"slowest worker{several}")
    axes.plot(where, middles, color=style.BLUE, label=f"median of the workers{several}")
    if pauses.size:
        few = pauses.size <= style.LABELLED
        beyond = " (above the scale)" if (middle[pauses] > top).any() else ""
        axes.plot(
            pauses,
            np.minimum(middle[pauses], 0.97 * top),
            "^" if few else ".",
            color=style.RED,
            markersize=7 if few else 4,
            linestyle="none",
            clip_on=False,
            zorder=3,
            label=f"slow for all: {counted(pauses.size, 'step')}, +{np.median(parts.pauses.extra):.3g} s{beyond}",
        )
    for cause in diagnosis.causes:
        if cause.kind in (causes.ALL_SLOWER, causes.DRIFT) and not cause.workers and cause.since is not None:
            first, last = cause.since - 0.5, (rows.size - 1 if cause.until is None else cause.until) + 0.5
            axes.axvspan(first, last, color=style.RED, alpha=0.1, linewidth=0)
            axes.axvline(first, color=style.RED, linewidth=1.2, label=f"all slower: {cause.factor:.2f} times")
    axes.axvline(parts.train_steps - 0.5, color="black", linewidth=1.2, linestyle="--", label="evaluation begins")
    axes.set_xlim(-0.5, rows.size - 0.5)
    axes.set_ylim(0, top)
    style.label_steps(axes, parts.complete.steps)
    axes.set_xlabel("step")
    axes.set_ylabel("seconds of work")
    figure.legend(loc="outside lower center", ncols=3)
    return figure
