"""Gradients per second against the number of workers that an update waits for."""

from collections.abc import Mapping

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sgdlab.advice.answer.pictures import style
from sgdlab.advice.answer.table import Measurements
from sgdlab.advice.answer.verdict import Verdict
from sgdlab.advice.comparison.comparison import CEILING, FINISHING, INTERRUPTED, BackupSweep
from sgdlab.advice.comparison.measured import Measured
from sgdlab.results.plots import STYLE

_KINDS = {INTERRUPTED: (style.BLUE, "late workers interrupted"), FINISHING: (style.ORANGE, "late workers finish")}


def numbers_waited_for(table: Measurements, verdict: Verdict) -> Figure:
    """Gradients per second against the number of workers that an update waits for.

    Args:
      table: the measurements.
      verdict: the recommendation, which is marked.
    """
    comparison = table.comparison
    workers = max(comparison.sweeps[0].test) + 1
    with mpl.rc_context(STYLE):
        figure = mpl.figure.Figure(figsize=(style.WIDTH, 4.8))
        axes = figure.add_subplot()
        for sweep in comparison.sweeps:
            _sweep(axes, sweep, workers)
        ceiling = comparison.by_role(CEILING)[0].paper
        axes.axhline(
            ceiling.gradients_per_second, color="black", linestyle="--", linewidth=1, label="best number in every step"
        )
        chosen = verdict.chosen.paper
        axes.plot(
            chosen.waited_for,
            chosen.gradients_per_second,
            "o",
            color=style.GREEN,
            markersize=11,
            markerfacecolor="none",
            markeredgewidth=2,
            label="recommended (mean number)",
        )
        axes.set_xlabel(f"workers that an update waits for, of {workers}")
        axes.set_ylabel("gradients per second")
        axes.set_ylim(bottom=0)
        if workers <= style.LABELLED:
            axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(integer=True))
        figure.legend(loc="outside lower center", ncols=3)
    return figure


def _sweep(axes: Axes, sweep: BackupSweep, workers: int) -> None:
    colour, name = _KINDS[sweep.title]
    waited, rates = _curve(sweep.test, workers)
    marker = "." if workers <= style.LABELLED else ""
    axes.plot(waited, rates, color=colour, marker=marker, label=f"{name}, evaluation steps")
    axes.plot(*_curve(sweep.train, workers), color=colour, linewidth=1, linestyle=":", label=f"{name}, tuning steps")
    axes.plot(
        workers - sweep.tuned,
        sweep.test[sweep.tuned].gradients_per_second,
        "s",
        color=colour,
        markersize=6,
        label=f"the number chosen: {workers - sweep.tuned} of {workers}",
    )


def _curve(results: Mapping[int, Measured], workers: int) -> tuple[list[int], list[float]]:
    numbers = sorted(results, reverse=True)
    return [workers - b for b in numbers], [results[b].gradients_per_second for b in numbers]
