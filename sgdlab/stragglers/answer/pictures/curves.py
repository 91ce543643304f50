"""Curves of the speed by the number of workers that are waited for, and of predicted compute times."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sgdlab.predictors import CutoffRecord
from sgdlab.stragglers.answer.pictures import style
from sgdlab.stragglers.answer.table import Measurements
from sgdlab.stragglers.answer.verdict import Verdict
from sgdlab.stragglers.comparison.measured import Measured
from sgdlab.stragglers.comparison.protocol import CEILING
from sgdlab.stragglers.comparison.sweeps import FINISHING, INTERRUPTED

_KINDS = {INTERRUPTED: (style.BLUE, "late workers interrupted"), FINISHING: (style.ORANGE, "late workers finish")}

_ITERATIONS = 3
"""Number of iterations whose predictions are drawn."""


def numbers_waited_for(table: Measurements, verdict: Verdict) -> Figure:
    """Gradients per second against the number of workers that an update waits for."""
    comparison = table.comparison
    workers = max(comparison.sweeps[0].test) + 1
    few = workers <= style.LABELLED

    def curve(results: Mapping[int, Measured]) -> tuple[list[int], list[float]]:
        numbers = sorted(results, reverse=True)
        return [workers - b for b in numbers], [results[b].gradients_per_second for b in numbers]

    figure, (axes,) = style.panels(4.8)
    for sweep in comparison.sweeps:
        colour, name = _KINDS[sweep.title]
        axes.plot(*curve(sweep.test), color=colour, marker="." if few else "", label=f"{name}, evaluation steps")
        axes.plot(*curve(sweep.train), color=colour, linewidth=1, linestyle=":", label=f"{name}, tuning steps")
        waits, rate = workers - sweep.tuned, sweep.test[sweep.tuned].gradients_per_second
        axes.plot(waits, rate, "s", color=colour, markersize=6, label=f"the number chosen: {waits} of {workers}")
    ceiling = comparison.by_role(CEILING)[0].result.gradients_per_second
    axes.axhline(ceiling, color="black", linestyle="--", linewidth=1, label="best number in every step")
    chosen, ring = verdict.chosen.result, {"markersize": 11, "markerfacecolor": "none", "markeredgewidth": 2}
    label = "recommended (mean number)"
    axes.plot(chosen.waited_for, chosen.gradients_per_second, "o", color=style.GREEN, label=label, **ring)
    axes.set_xlabel(f"workers that an update waits for, of {workers}")
    axes.set_ylabel("gradients per second")
    axes.set_ylim(bottom=0)
    if few:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(loc="outside lower center", ncols=3)
    return figure


def predictions(record: CutoffRecord | None, steps: np.ndarray) -> Figure | None:
    """Sorted compute times of some iterations, predicted by the deep Markov model, if there is one, and observed."""
    if record is None:
        return None
    workers = record.observed.shape[1]
    shown = np.unique(np.linspace(0, len(record.cutoff) - 1, _ITERATIONS).astype(int))
    count = np.arange(1, workers + 1)
    figure, panels = style.panels(3.6, columns=shown.size)
    for axes, row in zip(panels, shown, strict=True):
        mean, std = record.mean[row], record.std[row]
        axes.fill_between(count, mean - 2 * std, mean + 2 * std, color=style.BLUE, alpha=0.2, linewidth=0)
        axes.plot(count, mean, color=style.BLUE, label="predicted, ± 2 standard deviations")
        marker = "o" if workers <= style.LABELLED else ""
        axes.plot(count, record.observed[row], color="black", marker=marker, markersize=3.5, label="observed")
        axes.axvline(record.cutoff[row], color=style.RED, linestyle="--", linewidth=1.2, label="workers it waits for")
        axes.set_title(f"step {steps[row]}: wait for {record.cutoff[row]} of {workers}", loc="left")
        axes.set_xlabel("worker, in the order of arrival")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    panels[0].set_ylim(bottom=0)
    panels[0].set_ylabel("seconds")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure
