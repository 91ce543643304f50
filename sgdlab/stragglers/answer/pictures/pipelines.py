"""A heat map of the stages of pipelines: how long each computes a micro-batch, on each data-parallel rank."""

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from sgdlab.pipelines.job import PipelineJob
from sgdlab.pipelines.operations import COMPUTE
from sgdlab.results.plots import STYLE
from sgdlab.stragglers.answer.pictures import style

_MOST_NUMBERS = 12
"""Most ranks, and stages, of which numbers are written into the cells."""

_MOST_NAMES = 32


@mpl.rc_context(STYLE)
def stages(job: PipelineJob | None) -> Figure | None:
    """Seconds of a micro-batch, forward and backward, of each stage and rank: medians over micro-batches and steps."""
    if job is None:
        return None
    ops = job.operations
    seconds = np.array(
        [sum(np.median(job.seconds[ops.of(kind, stage)], axis=(0, 1)) for kind in COMPUTE) for stage in ops.stages]
    )
    figure = mpl.figure.Figure(figsize=(style.WIDTH, 1.7 + np.clip(0.35 * len(ops.stages), 0.6, 4.6)))
    axes = figure.add_subplot()
    usual = float(np.median(seconds))
    image = axes.imshow(seconds / usual, aspect="auto", cmap="RdBu_r", norm=mpl.colors.TwoSlopeNorm(1.0, 0.5, 2.0))
    axes.grid(False)
    if max(seconds.shape) <= _MOST_NUMBERS:
        for (stage, rank), value in np.ndenumerate(seconds):
            dark = not 0.65 < value / usual < 1.5
            axes.text(rank, stage, f"{value:#.3g}", ha="center", va="center", color="white" if dark else "black")
    style.label(axes.set_xticks, np.arange(len(ops.ranks)), list(map(str, ops.ranks)), most=_MOST_NAMES)
    style.label(axes.set_yticks, np.arange(len(ops.stages)), list(map(str, ops.stages)), most=_MOST_NAMES)
    axes.set_xlabel("data-parallel rank")
    axes.set_ylabel("stage")
    bar = figure.colorbar(image, ax=axes, pad=0.015, ticks=[0.5, 1, 1.5, 2], extend="max")
    bar.set_label("times the median", fontsize="small")
    axes.set_title(f"Seconds of a micro-batch, forward and backward (median {usual:.3g} s)", loc="left")
    return figure
