"""Heat maps: of all compute times, each relative to the median of its step; and of the stages of pipelines."""

import itertools
import warnings

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sgdlab.pipelines.job import PipelineJob
from sgdlab.pipelines.operations import COMPUTE
from sgdlab.stragglers.answer.pictures import style
from sgdlab.stragglers.recording import SplitRecording

LIMIT = 3.0
"""Ratios above are drawn as this one."""

_LEVELS = (0.5, 0.8, 1.0, 1.2, 1.5, 2.0, LIMIT)
_SHADES = (0.0, 0.28, 0.5, 0.68, 0.8, 0.9, 1.0)
"""Ratios of the colour bar, and the shades of the colour map that they have: a ratio of 1.2 is clearly not 1."""

_MOST_NAMES, _MOST_NODES, _MOST_GAPS, _MOST_PAUSES = 24, 32, 40, 60

_MOST_NUMBERS = 12
"""Most ranks, and stages, of which numbers are written into the cells."""


def heat_map(parts: SplitRecording) -> Figure:
    """Compute times of all recorded steps and workers, divided by the median of their step; missing ones are grey.

    Workers of one node stand together. Of many steps and workers, a cell is the slowest of several workers, each at its
    mean over several steps.
    """
    recording = parts.recording
    place = {node: index for index, node in enumerate(dict.fromkeys(recording.nodes))}
    order = np.argsort([place[node] for node in recording.nodes] or np.zeros(len(recording.workers)), kind="stable")
    ratios = reduced(recording.runtimes if (np.diff(order) == 1).all() else recording.runtimes[:, order])
    steps, workers = recording.runtimes.shape
    figure, (axes,) = style.panels(1.7 + np.clip(0.2 * workers, 1.1, 4.6))
    image = axes.imshow(
        ratios.T,
        aspect="auto",
        interpolation="none",  # embedded as it is, which the SVG's reader enlarges
        cmap=mpl.colormaps["RdBu_r"].with_extremes(bad="#9a9a9a"),
        norm=mpl.colors.FuncNorm(
            (lambda ratio: np.interp(ratio, _LEVELS, _SHADES), lambda shade: np.interp(shade, _SHADES, _LEVELS)),
            vmin=_LEVELS[0],
            vmax=_LEVELS[-1],
        ),
        extent=(-0.5, steps - 0.5, workers - 0.5, -0.5),
    )
    axes.grid(False)
    style.label_steps(axes, recording.steps)
    _label_workers(axes, parts, order)
    notes = _mark(axes, parts)
    split = int(np.searchsorted(recording.steps, parts.complete.steps[parts.train_steps]))
    axes.axvline(split - 0.5, color="white", linewidth=4)
    axes.axvline(split - 0.5, color="black", linewidth=1.6)
    axes.set_xlabel("; ".join(["recorded step", *notes]))
    bar = figure.colorbar(image, ax=axes, pad=0.015, ticks=_LEVELS, extend="max")
    bar.ax.set_yticklabels([f"{'≥ ' * (level == LIMIT)}{level:g}" for level in _LEVELS], fontsize="small")
    bar.set_label("times the median", fontsize="small")
    title = "Compute times over the median of their step; black line: the evaluation steps begin"
    cell = [-(-whole // few) for whole, few in zip((steps, workers), ratios.shape, strict=True)]
    if max(cell) > 1:
        title += f"\none cell: up to {cell[0]} steps (their mean) and {cell[1]} workers (the slowest of them)"
    axes.set_title(title, loc="left", pad=12 if parts.pauses.rows.size else 6)
    return figure


def _label_workers(axes: Axes, parts: SplitRecording, order: np.ndarray) -> None:
    names, nodes = parts.recording.workers, parts.recording.nodes
    positions = np.arange(order.size)
    axes.set_ylabel("worker")
    if not nodes:
        style.label(axes.set_yticks, positions, names, most=_MOST_NAMES)
        return
    ordered = [nodes[i] for i in order]
    begins = np.array([0, *(i for i in positions[1:] if ordered[i] != ordered[i - 1])])
    if begins.size <= _MOST_NODES:
        axes.hlines(begins[1:] - 0.5, -0.5, axes.get_xlim()[1], color="black", linewidth=0.7)
    if order.size <= _MOST_NAMES:
        both = [f"{ordered[i]}: {names[order[i]]}" for i in positions]
        style.label(axes.set_yticks, positions, both, most=_MOST_NAMES)
        axes.set_ylabel("node: worker")
    else:
        middles = (begins + np.append(begins[1:], order.size) - 1) / 2
        style.label(axes.set_yticks, middles, [ordered[i] for i in begins], most=_MOST_NODES)
        axes.set_ylabel("node, of several workers each")


def _mark(axes: Axes, parts: SplitRecording) -> list[str]:
    """Marks gaps and pauses; says what the marks are."""
    steps, said = parts.recording.steps, []
    gaps, rows = np.flatnonzero(np.diff(steps) > 1), np.searchsorted(steps, parts.complete.steps[parts.pauses.rows])
    if 0 < gaps.size <= _MOST_GAPS:
        axes.vlines(gaps + 0.5, -0.5, axes.get_ylim()[0], color="black", linewidth=0.8, linestyle=":")
        said.append("dotted lines: steps between were not recorded")
    if rows.size:
        marker = {"marker": "v", "markersize": 6} if rows.size <= _MOST_PAUSES else {"marker": "|", "markersize": 5}
        above = mpl.transforms.offset_copy(axes.get_xaxis_transform(), fig=axes.figure, y=4, units="points")
        given = {"color": "black", "linestyle": "none", "clip_on": False, "transform": above, "gid": "pauses"}
        axes.plot(rows, np.ones(rows.size), **marker, **given)
        said.append("marks at the top: steps slow for all workers")
    return said


def reduced(runtimes: np.ndarray, *, most_steps: int = 600, most_workers: int = 250) -> np.ndarray:
    """Divides each compute time by its step's median; a cell has the largest of its workers' means over its steps.

    A mean over the steps keeps the size of a lasting slowdown and evens out chance; the largest over the workers keeps
    a single slow worker among fast ones.

    Args:
      runtimes: float64[T, N], seconds; NaN where one is missing.
      most_steps: most cells along the steps.
      most_workers: most cells along the workers.

    Returns:
      float64[t, n], the cells; ratios above `LIMIT` count as `LIMIT`; NaN where all times of a cell are missing.

    Example:
      >>> runtimes = np.ones((4, 5))
      >>> runtimes[2:, 1] = 2.0
      >>> reduced(runtimes, most_steps=2, most_workers=2)
      array([[1., 1.],
             [2., 1.]])
    """
    steps, workers = style.cells(len(runtimes), most_steps), style.cells(runtimes.shape[1], most_workers)
    ratios = np.empty((steps.size - 1, workers.size - 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a cell, or a step, without any compute time
        # Cell by cell, so that a long recording needs no second copy.
        for cell, (first, last) in enumerate(itertools.pairwise(steps)):
            block = runtimes[first:last]
            median = np.nanmedian(block, axis=1, keepdims=True)
            means = np.nanmean(np.minimum(block / median, LIMIT), axis=0)
            ratios[cell] = np.fmax.reduceat(means, workers[:-1])
    return ratios


def stages(job: PipelineJob | None) -> Figure | None:
    """Seconds of a micro-batch, forward and backward, of each stage and rank: medians over micro-batches and steps."""
    if job is None:
        return None
    ops = job.operations
    seconds = np.array(
        [sum(np.median(job.seconds[ops.of(kind, stage)], axis=(0, 1)) for kind in COMPUTE) for stage in ops.stages]
    )
    figure, (axes,) = style.panels(1.7 + np.clip(0.35 * len(ops.stages), 0.6, 4.6))
    usual = float(np.median(seconds))
    image = axes.imshow(seconds / usual, aspect="auto", cmap="RdBu_r", norm=mpl.colors.TwoSlopeNorm(1.0, 0.5, 2.0))
    axes.grid(False)
    if max(seconds.shape) <= _MOST_NUMBERS:
        for (stage, rank), value in np.ndenumerate(seconds):
            dark = not 0.65 < value / usual < 1.5
            axes.text(rank, stage, f"{value:#.3g}", ha="center", va="center", color="white" if dark else "black")
    style.label(axes.set_xticks, np.arange(len(ops.ranks)), list(map(str, ops.ranks)), most=_MOST_NODES)
    style.label(axes.set_yticks, np.arange(len(ops.stages)), list(map(str, ops.stages)), most=_MOST_NODES)
    axes.set_xlabel("data-parallel rank")
    axes.set_ylabel("stage")
    bar = figure.colorbar(image, ax=axes, pad=0.015, ticks=[0.5, 1, 1.5, 2], extend="max")
    bar.set_label("times the median", fontsize="small")
    axes.set_title(f"Seconds of a micro-batch, forward and backward (median {usual:.3g} s)", loc="left")
    return figure
