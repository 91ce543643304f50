"""Figure 3 of Teng and Wood 2018: predicted and observed order statistics of run-times, of a small and a large cluster.

    python -m experiments.cutoff.figure3 --workdir=runs/cutoff --clusters=two_state,large

About half a minute on two cores, and more where throughput or another figure has not left the trained models in
runs/cutoff/two_state and runs/cutoff/large yet (one minute and about six); a training that was killed continues.

Every iteration of a run that was not trained on is predicted from the 20 before it. The panels show what the model
expects of the j-th run-time to come, +- 2 standard deviations of its 64 draws, what came, and the cutoff that follows.
Top: 158 workers on 4 nodes, in the run of figure2 (one node is slow until iteration 61). Bottom: 2175 workers on 32
nodes, in the first test run of throughput, at iterations with as many slow nodes as possible, a middling number, right
after it changed most, and as few as possible.

The table is of whole test runs of throughput, 980 and 380 predictions: how many of the observed order statistics lie
within +- 2 standard deviations, and how far off the means are, uncensored (as the paper's panels) and censored (as in
production: run-times past the cutoff are not seen but filled in). Beside it one who knows the true law and the regimes
of the iteration before, from 256 draws: what he misses is noise, and regimes that change.

Expected: of 158 workers 95.5 % of the order statistics are within +- 2 standard deviations, and the means are off by
5.5 %, censored or not; for one who knows the law it is 95.9 % and 5.7 %. Just after the change the panel's right-hand
side is wrong, and once only. Of 2175 workers it is 70 % and 4.6 % (censored 78 % and 4.2 %), short of the 94 % and
1.8 % of the law: the model is too sure of itself, and blurs the slow nodes' end of the curve, past the cutoff.

Leaves figure3.md, .csv, .png and .svg.
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
"""Those of configs/cutoff.py with regimes that the paper's figure shows."""
WIDTH = 2.0
"""Standard deviations."""
SHOWN = {30: "one node slow", 61: "its last slow one", 62: "the first after", 150: "long after"}
"""Iterations of the run of figure2, and what is to be seen there."""

UNCENSORED, CENSORED, INFORMED = "deep Markov", "deep Markov, censored", "true law, regimes one late"
COLOURS = {"mean": "#2166ac", "observed": "#2b2b2b", "cutoff": "#c51b1b"}


@dataclasses.dataclass(frozen=True, eq=False)
class Panel:
    """One iteration.

    Attributes:
      title: which, and what is to be seen.
      mean: float64[N], seconds, expected order statistics.
      std: float64[N], seconds.
      observed: float64[N], seconds, those that came.
      cutoff: c, predicted.
    """

    title: str
    mean: np.ndarray
    std: np.ndarray
    observed: np.ndarray
    cutoff: int

    @classmethod
    def of(cls, record: CutoffRecord, row: int, title: str) -> "Panel":
        """Row `row` of a record."""
        return cls(title, record.mean[row], record.std[row], record.observed[row], int(record.cutoff[row]))


def main(argv: Sequence[str]) -> None:
    """Trains the models where they are missing, and draws the figure."""
    del argv
    names = list(dict.fromkeys(flags.FLAGS.clusters))
    if not names or not set(names) <= set(CLUSTERS):
        raise UsageError(f"--clusters={','.join(names)} must be one or both of {', '.join(CLUSTERS)}")
    path = figure.directory(figure2.DEFAULT_WORKDIR)
    configs = {name: configurations.get_config(name) for name in names}
    make(path, {name: (config, models.kept(config, path / name)) for name, config in configs.items()})


def make(path: pathlib.Path, trained: Mapping[str, tuple[ConfigDict, TrainedModel]]) -> list[figure.Row]:
    """Predicts and publishes; returns the table's rows.

    Args:
      path: where to.
      trained: configurations of configs/cutoff.py with regimes and the models of their clusters, by name, two_state's
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
        "standard deviations and absolute error of the predicted means; uncut: those that the cutoff waits for",
        reading=reading(rows),
        figure=draw(panels),
    )
    return rows


def predicted(config: ConfigDict, deep: DeepMarkov) -> dict[str, CutoffRecord]:
    """One-step predictions of a whole test run, by the model uncensored and censored, and by one who knows the law."""
    (test,) = cases.case(config, 1).tests

    def run(predictor: Predictor, *, censored: bool) -> CutoffRecord:
        return run_online(test.runtimes, predictor, window=config.widths.lag, censored=censored)

    return {
        UNCENSORED: run(deep, censored=False),
        CENSORED: run(deep, censored=True),
        INFORMED: run(Informed(test.draw), censored=False),
    }


def row(workers: int, which: str, record: CutoffRecord) -> figure.Row:
    """What one predictor misses, of all order statistics and of those up to its cutoff."""
    seen = slice(record.warm_up, None)
    mean, std, observed = record.mean[seen], record.std[seen], record.observed[seen]
    error = np.abs(observed - mean)
    within, relative = error <= WIDTH * std, error / observed
    uncut = np.arange(1, mean.shape[1] + 1) <= record.cutoff[seen, None]
    closes = np.arange(mean.shape[0]), record.cutoff[seen] - 1
    return {
        "workers": workers,
        "predictor": which,
        "within, %": 100 * float(within.mean()),
        "error, s": float(error.mean()),
        "error, %": 100 * float(relative.mean()),
        "uncut: within, %": 100 * float(within[uncut].mean()),
        "uncut: error, s": float(error[uncut].mean()),
        "at the cutoff: error, %": 100 * float(relative[closes].mean()),
    }


def of_figure2(config: ConfigDict, deep: DeepMarkov) -> list[Panel]:
    """Panels of the run that figure2 shows."""
    run = figure2.shown_run(config, max(SHOWN), seed=0)
    record = run_online(run.runtimes, deep, history=run.history, censored=False, seed=0)
    return [Panel.of(record, number - 1, f"iteration {number}: {words}") for number, words in SHOWN.items()]


def of_the_law(config: ConfigDict, record: CutoffRecord) -> list[Panel]:
    """Panels of the first test run of a cluster, chosen by its number of slow nodes."""
    law = cases.law_of(config.cluster)
    slow = (law.run(config.cluster.test_steps, seed=0).states == law.warning_steps + 1).sum(axis=1)
    return [
        Panel.of(record, at, f"iteration {at + 1}: {slow[at]} of {law.num_nodes} nodes slow{words}")
        for at, words in chosen(slow, record.warm_up).items()
    ]


def chosen(slow: np.ndarray, first: int) -> dict[int, str]:
    """Iterations, counted from 0, to show, and what more is to be said of each.

    Args:
      slow: int[T], how many nodes are slow.
      first: the first iteration that was predicted.

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
    """What the table says beside the paper's words."""
    found = {(line["workers"], line["predictor"]): line for line in rows}
    ours = []
    for workers in dict.fromkeys(line["workers"] for line in rows):
        seen, unseen, law = (found[workers, which] for which in (UNCENSORED, CENSORED, INFORMED))
        ours.append(
            f"{workers} workers: {seen['within, %']:.1f} % of the observed order statistics are within +- {WIDTH:g} "
            f"standard deviations, censored {unseen['within, %']:.1f} %, for one who knows the law "
            f"{law['within, %']:.1f} %; the means are off by {seen['error, %']:.1f} %, {unseen['error, %']:.1f} % and "
            f"{law['error, %']:.1f} %."
        )
    return [
        "The paper: both models display high performance on validation sets; with exceptionally slow workers the "
        "cutoff proceeds without any of them; filling in run-times that were not seen leads to still accurate "
        "predictions. "
        "Here:",
        *ours,
        "Order statistics of an iteration move together, with the noise that a node's workers share: an iteration is "
        "inside the band nearly everywhere, or outside it over long stretches. One who knows the law is not told this "
        "noise, which lasts for some iterations: a model that follows it can be nearer than he is.",
    ]


def draw(panels: Sequence[Sequence[Panel]]) -> Figure:
    """A row for each cluster."""
    with mpl.rc_context(STYLE):
        columns = max(map(len, panels))
        drawn = mpl.figure.Figure(figsize=(3.5 * columns, 3.2 * len(panels) + 0.5))
        axes = drawn.subplots(len(panels), columns, squeeze=False)
        for line, here in zip(axes, panels, strict=True):
            highest = max((panel.mean + WIDTH * panel.std).max() for panel in here)
            for each, panel in zip(line, here, strict=False):
                _draw_panel(each, panel)
                each.set_ylim(0, 1.05 * highest)
            for each in line[len(here) :]:
                each.set_axis_off()
            line[0].set_ylabel(f"{here[0].mean.size} workers\nrun-time, s")
        for each in axes[-1]:
            each.set_xlabel("j-th to come")
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
