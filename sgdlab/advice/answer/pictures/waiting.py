"""Computing and waiting of each worker under full synchrony."""

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from sgdlab.advice.answer.pictures import style
from sgdlab.advice.answer.pictures.episodes import named
from sgdlab.advice.diagnosis.diagnosis import Diagnosis
from sgdlab.advice.recording import SplitRecording
from sgdlab.results.plots import STYLE


def idle(parts: SplitRecording, diagnosis: Diagnosis) -> Figure:
    """Shares of computing and waiting of each worker under full synchrony, in the evaluation steps.

    Args:
      parts: the recording.
      diagnosis: the workers that its causes name are red.
    """
    runtimes = parts.test
    workers = runtimes.shape[1]
    busy = 100 * runtimes.sum(axis=0) / runtimes.max(axis=1).sum()
    with mpl.rc_context(STYLE):
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
