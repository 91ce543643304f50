"""Reproduces Figure 3 of Teng and Wood 2018: predicted and observed order statistics of run-times, on two clusters.

    python -m experiments.cutoff.figure3 --workdir=runs/cutoff --clusters=two_state,large

Writes figure3.md, .csv, .png and .svg to the work directory. Takes about half a minute on two cores, and one and about
six minutes more if runs/cutoff/two_state and runs/cutoff/large do not have the trained models of throughput or another
figure yet; a training that was killed continues.

Every iteration of a test run is predicted from the 20 iterations before it. The panels show the model's mean of the
j-th shortest run-time, +- 2 standard deviations of its 64 draws, the observed run-time, and the resulting cutoff. Top:
158 workers on 4 nodes, in the run of figure2 (one node is slow until iteration 61). Bottom: 2175 workers on 32 nodes,
in the first test run of throughput, at the iterations with the most slow nodes, with a medium number, after the largest
change, and with the fewest.

The table is computed on whole test runs of throughput, 980 and 380 predictions: the share of the observed order
statistics within +- 2 standard deviations, and the errors of the means, uncensored (as in the paper's panels) and
censored (as in production: run-times after the cutoff are not observed but imputed). It also has a predictor that knows
the true law and the regimes of the previous iteration, with 256 draws; its errors are due to noise and to regimes that
change.

Results: of 158 workers 95.5 % of the order statistics are within +- 2 standard deviations, and the error of the means
is 5.5 %, censored or not; with the true law these are 95.9 % and 5.7 %. In the panels the prediction is wrong for slow
workers only in the first iteration after the change. Of 2175 workers they are 70 % and 4.6 % (censored 78 % and 4.2 %),
and 94 % and 1.8 % with the true law: the predicted standard deviations are too small, and the prediction is inaccurate
for slow nodes, whose run-times are after the cutoff.
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from absl import flags
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from configs import cutoff as configurations
from experiments import figure
from experiments.cutoff import cases, figure2, models
from sgdlab.commands import launch
from sgdlab.deep_markov import DeepMarkov, TrainedModel
from sgdlab.errors import UsageError
from sgdlab.predictors import CutoffRecord, Informed, Predictor, best_cutoff, run_online
from sgdlab.results.plots import STYLE

CLUSTERS = ("two_state", "large")
"""Clusters of configs/cutoff.py that the figure can show; both have regimes."""
WIDTH = 2.0
"""Half-width of the band in standard deviations."""
SHOWN = {30: "one node slow", 61: "last slow one", 62: "first after the change", 150: "no node slow"}
"""Iterations of the run of figure2 that are shown -> description."""

UNCENSORED, CENSORED, INFORMED = "deep Markov", "deep Markov, censored", "true law, regimes one late"
COLOURS = {"mean": "#2166ac", "observed": "#2b2b2b", "cutoff": "#c51b1b"}


@dataclasses.dataclass(frozen=True, eq=False)
class Panel:
    """The prediction and the observation of one iteration.

    Attributes:
      title: iteration and description.
      mean: float64[N], predicted means of the order statistics in seconds.
      std: float64[N], predicted standard deviations in seconds.
      observed: float64[N], observed order statistics in seconds.
      cutoff: c, predicted.
    """

    title: str
    mean: np.ndarray
    std: np.ndarray
    observed: np.ndarray
    cutoff: int

    @classmethod
    def of(cls, record: CutoffRecord, row: int, title: str) -> "Panel":
        """The panel of iteration `row` of a record, counted from 0."""
        return cls(title, record.mean[row], record.std[row], record.observed[row], int(record.cutoff[row]))


def main(argv: Sequence[str]) -> None:
    """Trains the missing models and draws the figure."""
    del argv
    names = list(dict.fromkeys(flags.FLAGS.clusters))
    if not names or not set(names) <= set(CLUSTERS):
        raise UsageError(f"--clusters={','.join(names)} must be one or both of {', '.join(CLUSTERS)}")
    path = figure.directory(figure2.DEFAULT_WORKDIR)
    configs = {name: configurations.get_config(name) for name in names}
    make(path, {name: (config, models.kept(config, path / name)) for name, config in configs.items()})


def make(path: pathlib.Path, trained: Mapping[str, tuple[ConfigDict, TrainedModel]]) -> list[figure.Row]:
    """Predicts the order statistics and publishes the figure; returns the rows of its table.

    Args:
      path: directory for the results.
      trained: name -> a configuration of configs/cutoff.py with regimes and the model of its cluster; two_state is
        shown in the run of figure2.
    """
    rows: list[figure.Row] = []
    panels: list[list[Panel]] = []
    for name, (config, model) in trained.items():
        print(f"Predicting {config.cluster.num_workers} workers", flush=True)
        deep = DeepMarkov(model, samples=config.samples)
        records = predicted(config, deep)
        rows += [row(config.cluster.num_workers, which, record) for which, record in records.items()]
        shown = name == figure2.CLUSTER
        panels.append(of_figure2(config, deep) if shown else of_the_law(config, records[UNCENSORED]))
    figure.publish(
        path,
        "figure3",
        rows,
        title=f"Figure 3: order statistics of the next iteration's run-times, share within +- {WIDTH:g} predicted "
        "standard deviations and absolute error of the predicted means; uncut: those up to the cutoff",
        reading=reading(rows),
        figure=draw(panels),
    )
    return rows


def predicted(config: ConfigDict, deep: DeepMarkov) -> dict[str, CutoffRecord]:
    """One-step predictions of a test run, by the model uncensored and censored, and with the true law."""
    (test,) = cases.case(config, 1).tests

    def run(predictor: Predictor, *, censored: bool) -> CutoffRecord:
        return run_online(test.runtimes, predictor, window=config.widths.lag, censored=censored)

    return {
        UNCENSORED: run(deep, censored=False),
        CENSORED: run(deep, censored=True),
        INFORMED: run(Informed(test.draw), censored=False),
    }


def row(workers: int, which: str, record: CutoffRecord) -> figure.Row:
    """A row of the table: errors of a predictor for all order statistics and for those up to its cutoff."""
    after = slice(record.warm_up, None)
    mean, std, observed = record.mean[after], record.std[after], record.observed[after]
    error = np.abs(observed - mean)
    within, relative = error <= WIDTH * std, error / observed
    uncut = np.arange(1, mean.shape[1] + 1) <= record.cutoff[after, None]
    at_cutoff = np.arange(mean.shape[0]), record.cutoff[after] - 1
    return {
        "workers": workers,
        "predictor": which,
        "within, %": 100 * float(within.mean()),
        "error, s": float(error.mean()),
        "error, %": 100 * float(relative.mean()),
        "uncut: within, %": 100 * float(within[uncut].mean()),
        "uncut: error, s": float(error[uncut].mean()),
        "at the cutoff: error, %": 100 * float(relative[at_cutoff].mean()),
    }


def of_figure2(config: ConfigDict, deep: DeepMarkov) -> list[Panel]:
    """The panels of the run that figure2 shows."""
    run = figure2.shown_run(config, max(SHOWN), seed=0)
    record = run_online(run.runtimes, deep, history=run.history, censored=False, seed=0)
    return [Panel.of(record, number - 1, f"iteration {number}: {words}") for number, words in SHOWN.items()]


def of_the_law(config: ConfigDict, record: CutoffRecord) -> list[Panel]:
    """The panels of the first test run of a cluster, chosen by the number of slow nodes."""
    law = cases.law_of(config.cluster)
    slow = (law.run(config.cluster.test_steps, seed=0).states == law.warning_steps + 1).sum(axis=1)
    return [
        Panel.of(record, at, f"iteration {at + 1}: {slow[at]} of {law.num_nodes} nodes slow{words}")
        for at, words in chosen(slow, record.warm_up).items()
    ]


def chosen(slow: np.ndarray, first: int) -> dict[int, str]:
    """Chooses the iterations to show: most slow nodes, a medium number, after the largest change, and fewest.

    Args:
      slow: int[T], number of slow nodes in each iteration.
      first: first iteration that was predicted.

    Returns:
      Iteration, counted from 0 -> suffix of its title: the change of the number of slow nodes, if it is the largest.

    Example:
      >>> chosen(np.array([1, 1, 2, 2, 7, 1, 0]), first=1)
      {4: '', 1: '', 5: ' (-6)', 6: ''}
    """
    after = slow[first:]
    change = np.abs(np.diff(slow))[first - 1 :]
    jump = int(change.argmax())
    more = int(after[jump] - slow[first + jump - 1])
    middling = np.abs(after - np.median(np.unique(after))) + 0.1 * (change > 0)
    words = {
        int(after.argmax()): "",
        int(middling.argmin()): "",
        int(after.argmin()): "",
        jump: f" ({more:+d})",
    }
    order = (int(after.argmax()), int(middling.argmin()), jump, int(after.argmin()))
    return {first + at: words[at] for at in order}


def reading(rows: Sequence[figure.Row]) -> list[str]:
    """Sentences for the table: the paper's statements and the results."""
    by_predictor = {(each["workers"], each["predictor"]): each for each in rows}
    results = []
    for workers in dict.fromkeys(each["workers"] for each in rows):
        full, censored, law = (by_predictor[workers, which] for which in (UNCENSORED, CENSORED, INFORMED))
        results.append(
            f"{workers} workers: {full['within, %']:.1f} % of the observed order statistics are within +- {WIDTH:g} "
            f"standard deviations, {censored['within, %']:.1f} % censored, and {law['within, %']:.1f} % with the true "
            f"law; the errors of the means are {full['error, %']:.1f} %, {censored['error, %']:.1f} % and "
            f"{law['error, %']:.1f} %."
        )
    return [
        "The paper: both models display high performance on validation sets; with exceptionally slow workers the "
        "cutoff proceeds without any of them; imputing run-times that were not observed still leads to accurate "
        "predictions. The results here:",
        *results,
        "The order statistics of an iteration are correlated through the noise that the workers of a node share: an "
        "iteration is either within the band almost everywhere or outside it for many j. The predictor with the true "
        "law does not know this noise, which lasts for several iterations, so a model that follows the noise can be "
        "more accurate.",
    ]


def draw(panels: Sequence[Sequence[Panel]]) -> Figure:
    """Draws the panels, with a row for each cluster."""
    with mpl.rc_context(STYLE):
        columns = max(map(len, panels))
        drawn = mpl.figure.Figure(figsize=(3.5 * columns, 3.2 * len(panels) + 0.5))
        axes = drawn.subplots(len(panels), columns, squeeze=False)
        for axes_of_row, of_cluster in zip(axes, panels, strict=True):
            highest = max((panel.mean + WIDTH * panel.std).max() for panel in of_cluster)
            for each, panel in zip(axes_of_row, of_cluster, strict=False):
                _draw_panel(each, panel)
                each.set_ylim(0, 1.05 * highest)
            for each in axes_of_row[len(of_cluster) :]:
                each.set_axis_off()
            axes_of_row[0].set_ylabel(f"{of_cluster[0].mean.size} workers\nrun-time, s")
        for each in axes[-1]:
            each.set_xlabel("j, workers in order of run-time")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        drawn.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return drawn


def _draw_panel(axes: Axes, panel: Panel) -> None:
    j = np.arange(1, panel.mean.size + 1)
    low, high = (panel.mean + sign * WIDTH * panel.std for sign in (-1, 1))
    axes.fill_between(j, low, high, color=COLOURS["mean"], alpha=0.25, linewidth=0, label=f"+- {WIDTH:g} std")
    axes.plot(j, panel.mean, color=COLOURS["mean"], label="predicted")
    axes.plot(j, panel.observed, color=COLOURS["observed"], linestyle="--", linewidth=1.2, label="observed")
    axes.axvline(panel.cutoff, color=COLOURS["cutoff"], label="cutoff")
    best = best_cutoff(panel.observed)
    axes.axvline(best, color=COLOURS["cutoff"], linestyle=":", linewidth=1.2, label="oracle's cutoff")
    axes.set_xlim(1, panel.mean.size)
    axes.set_title(panel.title, fontsize="small")


if __name__ == "__main__":
    flags.DEFINE_list("clusters", list(CLUSTERS), f"One or both of {', '.join(CLUSTERS)}.")
    launch.run(main, __doc__, configured=False)
