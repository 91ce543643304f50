"""The median run-time of each step, with the steps that were slow for all workers and changes of the whole cluster."""

import itertools

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from sgdlab.advice.answer.pictures import style
from sgdlab.advice.diagnosis import causes
from sgdlab.advice.diagnosis.diagnosis import Diagnosis
from sgdlab.advice.recording import SplitRecording
from sgdlab.report.words import counted
from sgdlab.results.plots import STYLE

_POINTS = 1200
"""Most points of a line; of more steps, one stands for the median or the largest of several."""

_HEAD = 1.7
"""Longest step that is drawn, relative to the 99 % quantile of the others: what is above would flatten the rest."""


def step_medians(parts: SplitRecording, diagnosis: Diagnosis) -> Figure:
    """Median and maximum of the run-times of each complete step; pauses and changes of the whole cluster are marked.

    Args:
      parts: the recording.
      diagnosis: its causes, of which those that concern all workers are marked.
    """
    runtimes = parts.complete.runtimes
    rows, pauses = np.arange(len(runtimes)), np.asarray(parts.pauses.rows, int)
    usual = np.setdiff1d(rows, pauses) if pauses.size < rows.size else rows
    middle, longest = np.median(runtimes, axis=1), runtimes.max(axis=1)
    top = min(longest.max() * 1.05, _HEAD * np.quantile(longest[usual], 0.99))
    with mpl.rc_context(STYLE):
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
