"""Predictions of the deep Markov model beside what was observed."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from sgdlab.advice.answer.pictures import style
from sgdlab.predictors import CutoffRecord
from sgdlab.results.plots import STYLE

ITERATIONS = 3
"""Number of iterations whose predictions are drawn."""


def predictions(record: CutoffRecord, steps: Sequence[int]) -> Figure:
    """Sorted run-times of some iterations, predicted by the deep Markov model and observed.

    Args:
      record: predictions, cutoffs and observations of the evaluation steps.
      steps: the recorder's numbers of these steps.
    """
    workers = record.observed.shape[1]
    shown = np.unique(np.linspace(0, len(record.cutoff) - 1, ITERATIONS).astype(int))
    count = np.arange(1, workers + 1)
    with mpl.rc_context(STYLE):
        figure = mpl.figure.Figure(figsize=(style.WIDTH, 3.6))
        panels = figure.subplots(1, shown.size, sharey=True, squeeze=False)[0]
        for axes, row in zip(panels, shown, strict=True):
            mean, std = record.mean[row], record.std[row]
            axes.fill_between(count, mean - 2 * std, mean + 2 * std, color=style.BLUE, alpha=0.2, linewidth=0)
            axes.plot(count, mean, color=style.BLUE, label="predicted, ± 2 standard deviations")
            marker = "o" if workers <= style.LABELLED else ""
            axes.plot(count, record.observed[row], color="black", marker=marker, markersize=3.5, label="observed")
            axes.axvline(
                record.cutoff[row], color=style.RED, linestyle="--", linewidth=1.2, label="workers it waits for"
            )
            axes.set_title(f"step {steps[row]}: wait for {record.cutoff[row]} of {workers}", loc="left")
            axes.set_xlabel("worker, in the order of arrival")
            axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(5, integer=True))
        panels[0].set_ylim(bottom=0)
        panels[0].set_ylabel("seconds")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure
