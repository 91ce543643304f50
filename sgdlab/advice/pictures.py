"""The plots of `advise`: run-times, protocols, numbers of backup workers, idle time and predictions."""

from collections.abc import Callable, Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sgdlab.advice import measured
from sgdlab.advice.comparison import CEILING, FINISHING, HINDSIGHT, INTERRUPTED, STALE, Comparison, Sweep
from sgdlab.advice.recording import Parts
from sgdlab.advice.stragglers import Stragglers
from sgdlab.advice.table import Table
from sgdlab.advice.verdict import Verdict
from sgdlab.predictors import CutoffRecord
from sgdlab.results.plots import STYLE

BLUE, ORANGE, GREEN, GREY, RED = "#2166ac", "#d95f02", "#1b7837", "#7a7a7a", "#c51b1b"
SWEEP_COLOURS = {INTERRUPTED: BLUE, FINISHING: ORANGE}
LABELLED = 40
"""Most workers, or steps, that are all labelled; of more, only some are."""

ITERATIONS = 3
"""Number of iterations whose predictions are drawn."""


def heat_map(parts: Parts) -> Figure:
    """Run-times of all recorded steps and workers; missing ones are grey.

    Args:
      parts: the recording, split into tuning and evaluation steps.
    """
    recording = parts.recording
    steps, workers = recording.runtimes.shape
    times = recording.runtimes[~np.isnan(recording.runtimes)]
    colours = mpl.colormaps["viridis"].with_extremes(bad="#bbbbbb")
    with mpl.rc_context(STYLE):
        figure = mpl.figure.Figure(figsize=(8.4, 1.6 + min(0.2 * workers, 4.6)))
        axes = figure.add_subplot()
        image = axes.imshow(
            recording.runtimes.T,
            aspect="auto",
            interpolation="nearest",
            cmap=colours,
            vmin=times.min(),
            vmax=np.quantile(times, 0.995),
        )
        axes.grid(False)
        _label(axes.set_xticks, np.arange(steps), [str(step) for step in recording.steps], most=14)
        _label(axes.set_yticks, np.arange(workers), recording.workers, most=24)
        gaps = np.flatnonzero(np.diff(recording.steps) > 1)
        xlabel = "recorded step"
        if 0 < gaps.size <= LABELLED:
            axes.vlines(gaps + 0.5, -0.5, workers - 0.5, color="white", linewidth=0.8)
            xlabel += " (white lines: gaps, steps that were not recorded)"
        split = int(np.searchsorted(recording.steps, parts.complete.steps[len(parts.train)]))
        axes.axvline(split - 0.5, color="white", linewidth=5)
        axes.axvline(split - 0.5, color=RED, linewidth=2)
        axes.set_xlabel(xlabel)
        axes.set_ylabel("worker")
        axes.set_title("Run-times; red line: from the tuning steps to the evaluation steps", loc="left")
        figure.colorbar(image, ax=axes, label="seconds", extend="max", pad=0.015)
    return figure


def protocols(table: Table, verdict: Verdict) -> Figure:
    """Gradients per second of every protocol relative to full synchrony, with intervals.

    Args:
      table: the measurements.
      verdict: the recommendation, which is highlighted.
    """
    shown = list(table.comparison.protocols)
    with mpl.rc_context(STYLE):
        figure = mpl.figure.Figure(figsize=(8.4, 1.3 + 0.36 * len(shown)))
        axes = figure.add_subplot()
        for position, protocol in enumerate(shown):
            line = table.line(protocol, "throughput")
            colour = {HINDSIGHT: GREY, STALE: GREY, CEILING: "black"}.get(protocol.role, BLUE)
            colour = GREEN if verdict.is_of(protocol) else colour
            axes.plot(
                [line.low, line.high],
                [position, position],
                color=colour,
                linewidth=5,
                alpha=0.35,
                solid_capstyle="butt",
            )
            axes.plot(line.relative, position, "o", color=colour, markersize=6)
            if protocol.has_objective:
                by_rate = table.line(protocol, "rate").relative
                axes.plot(by_rate, position, "D", color=colour, markerfacecolor="none", markersize=8)
            axes.annotate(
                f"{line.relative:.3f}",
                (max(line.high, line.relative), position),
                xytext=(7, 0),
                textcoords="offset points",
                va="center",
                fontsize="small",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
            )
        ceiling = table.line(table.comparison.by_role(CEILING)[0], "throughput").relative
        axes.axvline(ceiling, color="black", linestyle="--", linewidth=1, zorder=0.9)
        axes.axvline(1, color=GREY, linewidth=1, zorder=0.9)
        axes.set_yticks(np.arange(len(shown)), [_named(p.title, p.setting, verdict.is_of(p)) for p in shown])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        left, right = axes.get_xlim()
        axes.set_xlim(left, right + 0.09 * (right - left))
        axes.set_xlabel("gradients per second relative to full synchrony")
        figure.suptitle(
            "Bars: 90 % intervals; diamonds: objective is the rate of the run; dashed: oracle", fontsize="medium"
        )
    return figure


def numbers_waited_for(table: Table, verdict: Verdict) -> Figure:
    """Gradients per second against the number of workers that an update waits for.

    Args:
      table: the measurements.
      verdict: the recommendation, which is marked.
    """
    comparison = table.comparison
    workers = max(comparison.sweeps[0].test) + 1
    with mpl.rc_context(STYLE):
        figure = mpl.figure.Figure(figsize=(8.4, 4.6))
        axes = figure.add_subplot()
        for sweep in comparison.sweeps:
            _sweep(axes, sweep, workers, comparison)
        ceiling = comparison.by_role(CEILING)[0].paper
        axes.axhline(ceiling.gradients_per_second, color="black", linestyle="--", linewidth=1, label="oracle")
        chosen = verdict.chosen.paper
        axes.plot(
            chosen.waited_for,
            chosen.gradients_per_second,
            "o",
            color=GREEN,
            markersize=11,
            markerfacecolor="none",
            markeredgewidth=2,
            label="recommended",
        )
        axes.set_xlabel(f"workers that an update waits for, of {workers}")
        axes.set_ylabel("gradients per second")
        axes.set_ylim(bottom=0)
        if workers <= LABELLED:
            axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(integer=True))
        figure.legend(loc="outside lower center", ncols=3)
    return figure


def idle(parts: Parts, stragglers: Stragglers) -> Figure:
    """Shares of computing and waiting of each worker under full synchrony.

    Args:
      parts: the recording.
      stragglers: whose persistent ones are red.
    """
    runtimes = parts.complete.runtimes
    workers = runtimes.shape[1]
    busy = 100 * runtimes.sum(axis=0) / runtimes.max(axis=1).sum()
    with mpl.rc_context(STYLE):
        figure = mpl.figure.Figure(figsize=(8.4, 3.4))
        axes = figure.add_subplot()
        positions = np.arange(workers)
        colours = np.where(np.isin(positions, stragglers.persistent), RED, BLUE)
        axes.bar(positions, busy, color=colours, width=0.85 if workers <= LABELLED else 1.0)
        axes.bar(positions, 100 - busy, bottom=busy, color="#e4dfd3", width=0.85 if workers <= LABELLED else 1.0)
        _label(axes.set_xticks, positions, parts.workers, most=LABELLED if workers <= LABELLED else 16)
        axes.grid(axis="x", visible=False)
        axes.set_ylim(0, 100)
        axes.set_axisbelow(True)
        axes.set_xlabel("worker")
        axes.set_ylabel("share of the time, %")
        share = 100 * measured.interrupted(runtimes, workers).idle
        slow = "; red: persistently slow" if stragglers.persistent.size else ""
        axes.set_title(
            f"Full synchrony, all complete steps: computing (dark), waiting (light, {share:.1f} %){slow}", loc="left"
        )
    return figure


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
        figure = mpl.figure.Figure(figsize=(8.4, 3.6))
        panels = figure.subplots(1, shown.size, sharey=True, squeeze=False)[0]
        for axes, row in zip(panels, shown, strict=True):
            mean, std = record.mean[row], record.std[row]
            axes.fill_between(count, mean - 2 * std, mean + 2 * std, color=BLUE, alpha=0.2, linewidth=0)
            axes.plot(count, mean, color=BLUE, label="predicted, ± 2 std")
            marker = "o" if workers <= LABELLED else ""
            axes.plot(count, record.observed[row], color="black", marker=marker, markersize=3.5, label="observed")
            axes.axvline(record.cutoff[row], color=RED, linestyle="--", linewidth=1.2, label="cutoff")
            axes.set_title(f"step {steps[row]}: wait for {record.cutoff[row]}", loc="left")
            axes.set_xlabel("rank in the order of arrival")
            axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(5, integer=True))
        panels[0].set_ylabel("seconds")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def _sweep(axes: Axes, sweep: Sweep, workers: int, comparison: Comparison) -> None:
    colour = SWEEP_COLOURS[sweep.title]
    waited, rates = _curve(sweep.test, workers)
    marker = "." if workers <= LABELLED else ""
    axes.plot(waited, rates, color=colour, marker=marker, label=f"{sweep.title}, evaluation steps")
    axes.plot(
        *_curve(sweep.train, workers), color=colour, linewidth=1, linestyle=":", label=f"{sweep.title}, tuning steps"
    )
    tuned = sweep.test[sweep.tuned]
    axes.plot(
        workers - sweep.tuned,
        tuned.gradients_per_second,
        "s",
        color=colour,
        markersize=6,
        label=f"b = {sweep.tuned}, tuned",
    )


def _curve(results: Mapping[int, measured.Measured], workers: int) -> tuple[list[int], list[float]]:
    numbers = sorted(results, reverse=True)
    return [workers - b for b in numbers], [results[b].gradients_per_second for b in numbers]


def _named(title: str, setting: str, recommended: bool) -> str:
    name = f"{title} ({setting})" if setting else title
    return f"recommended: {name}" if recommended else name


def _label(set_ticks: Callable[..., object], positions: np.ndarray, names: Sequence[str], *, most: int) -> None:
    """Labels at most `most` evenly spaced positions, so that they do not overlap."""
    every = -(-positions.size // most)
    set_ticks(positions[::every], list(names)[::every], fontsize="small")
