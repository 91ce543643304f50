"""When the named workers were slow, and all together, and how long each worker waits."""

import itertools
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sgdlab.report.words import counted, some
from sgdlab.results.plots import STYLE
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


class _Panel(NamedTuple):
    """Describes what one panel shows.

    Attributes:
      name: of a worker, or of several that are slow together.
      workers: their indices.
      stretches: when they were slow.
    """

    name: str
    workers: tuple[int, ...]
    stretches: tuple[Episode, ...]


@mpl.rc_context(STYLE)
def histories(parts: SplitRecording, diagnosis: Diagnosis) -> Figure | None:
    """Run-time of the named workers over the median of their step; the stretches in which they were slow are shaded.

    Workers that one cause names together, such as those of a node, share a panel, which shows their median.

    Returns:
      The figure; None where no worker is named.
    """
    shown = _panels(parts, diagnosis)[:MOST]
    if not shown:
        return None
    runtimes, steps = parts.complete.runtimes, parts.complete.steps
    median = np.median(runtimes, axis=1)
    ratios = [np.median(runtimes[:, panel.workers], axis=1) / median for panel in shown]
    figure = mpl.figure.Figure(figsize=(style.WIDTH, 1.3 + 1.2 * len(shown)))
    panels = figure.subplots(len(shown), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, panel, ratio in zip(panels, shown, ratios, strict=True):
        _draw(axes, ratio, panel.stretches)
        axes.axvline(parts.train_steps - 0.5, color="black", linewidth=1.2, linestyle="--")
        axes.set_title(_title(panel, steps), loc="left")
    panels[0].set_xlim(-0.5, steps.size - 0.5)
    panels[0].set_ylim(0, min(heat.LIMIT, 1.1 * max(1.3, float(np.quantile(ratios, 0.999)))))
    style.label_steps(panels[-1], steps)
    panels[-1].set_xlabel("step (dashed: the evaluation steps begin)")
    figure.supylabel("times the median", fontsize="medium")
    return figure


def named(diagnosis: Diagnosis) -> list[int]:
    """Indices of the workers that the causes name, those of the first cause first, each once."""
    return list(dict.fromkeys(worker for cause in diagnosis.causes for worker in cause.workers))


def smoothed(ratio: np.ndarray, window: int, every: int = 1) -> np.ndarray:
    """Running median over an odd number of steps; at the ends, over those that there are.

    Args:
      ratio: float64[T].
      window: number of steps, odd.
      every: only for each such step, from the first on.

    Example:
      >>> smoothed(np.array([1.0, 9.0, 1.0, 1.0, 2.0, 2.0]), 3).tolist()
      [5.0, 1.0, 1.0, 1.0, 2.0, 2.0]
    """
    half = window // 2
    padded = np.pad(ratio, half, constant_values=np.nan)
    return np.nanmedian(np.lib.stride_tricks.sliding_window_view(padded, window)[::every], axis=1)


def _panels(parts: SplitRecording, diagnosis: Diagnosis) -> list[_Panel]:
    nodes, found = parts.complete.nodes, {}
    for cause in diagnosis.causes:
        if len(cause.workers) == 1:
            (worker,) = cause.workers
            name = f"worker {style.short(parts.workers[worker])}"
            name += f" on {style.short(nodes[worker])}" if nodes else ""
            stretches = cause.episodes or diagnosis.histories[worker]
        elif cause.workers:
            names = some([style.short(parts.workers[worker]) for worker in cause.workers])
            name = (
                f"workers {names}"
                if cause.node is None
                else f"{style.short(cause.node)} ({len(cause.workers)} workers)"
            )
            stretches = cause.episodes
        if cause.workers:
            found.setdefault(cause.workers, _Panel(name, cause.workers, stretches))
    return list(found.values())


def _draw(axes: Axes, ratio: np.ndarray, stretches: tuple[Episode, ...]) -> None:
    rows = np.arange(ratio.size)
    every = max(1, -(-ratio.size // _DOTS))
    axes.plot(
        rows[::every],
        np.minimum(ratio, heat.LIMIT)[::every],
        ".",
        color=style.GREY,
        markersize=3.5,
        alpha=0.6,
        markeredgewidth=0,
    )
    window = max(3, ratio.size // 60) | 1
    every = max(1, -(-ratio.size // _POINTS))
    line = smoothed(ratio, window, every) if ratio.size > window else ratio[::every]
    axes.plot(rows[::every], line, color=style.BLUE)
    axes.axhline(1, color="black", linewidth=0.7)
    for stretch in stretches:
        axes.axvspan(stretch.first - 0.5, stretch.last + 0.5, color=style.RED, alpha=0.14, linewidth=0)
    if stretches and stretches[-1].last == ratio.size - 1:
        axes.axvline(stretches[-1].first - 0.5, color=style.RED, linewidth=1.4)


def _title(panel: _Panel, steps: np.ndarray) -> str:
    name, stretches = panel.name, panel.stretches
    if not stretches:
        return name
    if len(stretches) > _FEW:
        number = sum(stretch.last - stretch.first + 1 for stretch in stretches)
        factor = float(np.median([stretch.factor for stretch in stretches]))
        return f"{name}: {factor:.2f} times the others at times, in {number} of {steps.size} steps"
    last = stretches[-1]
    lasts = last.last == steps.size - 1
    if lasts and last.first == 0:
        when = "all along"
    elif lasts:
        when = f"since step {steps[last.first]}"
    else:
        when = f"from step {steps[last.first]} to {steps[last.last]}"
    earlier = f"; before that, in {len(stretches) - 1} more" if len(stretches) > 1 else ""
    return f"{name}: {last.factor:.2f} times the others {when}{earlier}"


_HEAD = 1.7
"""Longest step that is drawn, relative to the 99 % quantile of the others: what is above would flatten the rest."""


@mpl.rc_context(STYLE)
def step_medians(parts: SplitRecording, diagnosis: Diagnosis) -> Figure:
    """Median and maximum of the run-times of each complete step; pauses and changes of the whole cluster are marked."""
    runtimes = parts.complete.runtimes
    rows, pauses = np.arange(len(runtimes)), np.asarray(parts.pauses.rows, int)
    usual = np.setdiff1d(rows, pauses) if pauses.size < rows.size else rows
    middle, longest = np.median(runtimes, axis=1), runtimes.max(axis=1)
    top = min(longest.max() * 1.05, _HEAD * np.quantile(longest[usual], 0.99))
    figure = mpl.figure.Figure(figsize=(style.WIDTH, 3.2))
    axes = figure.add_subplot()
    edges = np.linspace(0, usual.size, min(usual.size, _POINTS) + 1).astype(int)
    spans = list(itertools.pairwise(edges))
    where = usual[edges[:-1]]
    several = " (of several steps)" * (len(spans) < usual.size)
    slowest = np.array([longest[usual[first:last]].max() for first, last in spans])
    middles = np.array([np.median(middle[usual[first:last]]) for first, last in spans])
    axes.plot(where, slowest, color=style.ORANGE, linewidth=0.8, alpha=0.7, label=f"slowest worker{several}")
    axes.plot(where, middles, color=style.BLUE, label=f"median of the workers{several}")
    _pauses(axes, parts, middle[pauses], top)
    _changes(axes, diagnosis, len(rows))
    axes.axvline(parts.train_steps - 0.5, color="black", linewidth=1.2, linestyle="--", label="evaluation begins")
    axes.set_xlim(-0.5, rows.size - 0.5)
    axes.set_ylim(0, top)
    style.label_steps(axes, parts.complete.steps)
    axes.set_xlabel("step")
    axes.set_ylabel("seconds of work")
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def _pauses(axes: mpl.axes.Axes, parts: SplitRecording, middle: np.ndarray, top: float) -> None:
    rows = np.asarray(parts.pauses.rows, int)
    if not rows.size:
        return
    above = np.count_nonzero(middle > top)
    beyond = " (above the scale)" if above else ""
    axes.plot(
        rows,
        np.minimum(middle, 0.97 * top),
        "^" if rows.size <= style.LABELLED else ".",
        color=style.RED,
        markersize=7 if rows.size <= style.LABELLED else 4,
        linestyle="none",
        clip_on=False,
        zorder=3,
        label=f"slow for all: {counted(rows.size, 'step')}, +{np.median(parts.pauses.extra):.3g} s{beyond}",
    )


def _changes(axes: mpl.axes.Axes, diagnosis: Diagnosis, steps: int) -> None:
    for cause in diagnosis.causes:
        if cause.kind in (causes.ALL_SLOWER, causes.DRIFT) and not cause.workers and cause.since is not None:
            last = steps - 1 if cause.until is None else cause.until
            axes.axvspan(cause.since - 0.5, last + 0.5, color=style.RED, alpha=0.1, linewidth=0)
            axes.axvline(
                cause.since - 0.5, color=style.RED, linewidth=1.2, label=f"all slower: {cause.factor:.2f} times"
            )


@mpl.rc_context(STYLE)
def idle(parts: SplitRecording, diagnosis: Diagnosis) -> Figure:
    """Shares of computing and waiting of each worker under full synchrony, in the evaluation steps."""
    runtimes = parts.test
    workers = runtimes.shape[1]
    busy = 100 * runtimes.sum(axis=0) / runtimes.max(axis=1).sum()
    figure = mpl.figure.Figure(figsize=(style.WIDTH, 3.4))
    axes = figure.add_subplot()
    positions = np.arange(workers)
    few = workers <= style.LABELLED
    blamed = np.isin(positions, named(diagnosis))
    if few:
        axes.bar(positions, busy, color=np.where(blamed, style.RED, style.BLUE), width=0.85)
        axes.bar(positions, 100 - busy, bottom=busy, color=style.PALE, width=0.85)
        axes.set_xlim(-0.6, workers - 0.4)
    else:  # a bar is less than a pixel: one outline for all, and a line for each that is named
        edges = np.arange(workers + 1) - 0.5
        axes.stairs(np.full(workers, 100.0), edges, fill=True, color=style.PALE)
        axes.stairs(busy, edges, fill=True, color=style.BLUE)
        axes.vlines(positions[blamed], 0, busy[blamed], color=style.RED, linewidth=1.5)
        axes.set_xlim(-0.5, workers - 0.5)
    style.label(axes.set_xticks, positions, parts.workers, most=style.LABELLED if few else 16)
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
