"""All-reduce, elastic averaging and gossip compared run by run, as Figures 1 and 2 do: quantities, verdicts, curves."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from experiments.gossip.sizes import Targets
from experiments.harness import Sweep, above, all_of, below, canvas, colour, interval, least

TITLES = {
    "all_reduce": "All-reduce",
    "elastic_averaging": "Elastic averaging",
    "push_gossip": "Push gossip",
    "pull_gossip": "Pull gossip",
}
Run = tuple[str, int]
"""Method and tau."""
REDUCE, PUSH, PULL = ("all_reduce", 1), ("push_gossip", 1), ("pull_gossip", 1)
ELASTIC = ("elastic_averaging", 10)
ELASTICS = (("elastic_averaging", 1), ELASTIC)
KEYS = ["p", "method", "tau", "seed"]
ALIKE = 1.1
"""Two values are roughly the same where neither is larger than the other by more than this factor."""
PANELS = [("seconds", "test_loss"), ("seconds", "error"), ("seconds", "train_loss")]
PANELS += [("epoch", "test_loss"), ("epoch", "error"), ("epoch", "consensus")]
LABELS = {"seconds": "virtual time, s", "epoch": "epoch", "test_loss": "test loss", "error": "top-1 test error, %"}
LABELS |= {"train_loss": "training loss at the nodes", "consensus": "consensus distance"}
STYLES = dict.fromkeys(TITLES, ("-", "--")) | {"pull_gossip": ("-.", ":")}
"""Method -> the styles of its lines with tau = 1 and above; the colour of pull gossip is near that of all-reduce."""
ERRORS = (2, 3, 5, 10, 20, 30, 50)
NOTE = (
    "Losses and errors are of the nodes' average; ± is one standard deviation over seeds. A cell is empty where a "
    "target is not reached with every seed, or where all nodes are the same; claims take the time of the whole run for "
    "such a seed, and are open where a longer run could decide otherwise. They rest on 95 % intervals of differences "
    f"or ratios paired by seed; values are the same where neither is over {ALIKE:g} times the other. "
    "Grey dotted lines in the picture are where the learning rate falls. "
    + least.note("all-reduce", "the mean of each node's run-times, which are alike")
)


def name(run: Run) -> str:
    """Return a method with its tau, as the legend has it."""
    return TITLES[run[0]] + (f", tau = {run[1]}" if run != REDUCE else "")


def _order(run: Run) -> tuple[int, int]:
    """In which methods are listed."""
    return list(TITLES).index(run[0]), run[1]


def quantities(targets: Targets) -> dict[str, str]:
    """Return the columns of `measured` -> their words in the table."""
    return {
        "seconds_to_test_loss": f"seconds to a test loss of {targets.test_loss:g}",
        "seconds_to_train_loss": f"seconds to a training loss of {targets.train_loss:g}",
        "steps_to_train_loss": f"steps of a node to a training loss of {targets.train_loss:g}",
        "seconds_a_step": "seconds a step",
        "first_rate_loss": "test loss at the end of the first rate",
        "lowest_loss": "test loss, lowest",
        "test_loss": "test loss, end",
        "train_loss": "training loss, end",
        "error": "top-1 test error of the nodes' average, end, %",
        "consensus": "consensus distance, end",
    }


def trained(
    base: ConfigDict, runs: Iterable[tuple[int, Run]], batch_size: Mapping[int, int], seeds: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Trains all runs.

    Returns:
      A row for each run, and a row for each evaluation, with the columns `KEYS`.
    """
    points = [
        {
            "method": method,
            "protocol.gossip.period": tau,
            "protocol.elastic_averaging.period": tau,
            "cluster.num_workers": p,
            "batch_size": batch_size[p],
            "seed": seed,
        }
        for p, (method, tau) in runs
        for seed in range(seeds)
    ]
    sweep = Sweep(base, points)
    names = {"cluster.num_workers": "p", "protocol.gossip.period": "tau"}
    return sweep.table().rename(columns=names), sweep.evaluations().rename(columns=names)


def measured(
    runs: pd.DataFrame, evaluations: pd.DataFrame, *, annealed: float, targets: Mapping[str, float]
) -> pd.DataFrame:
    """Return the runs, by p, method, tau and seed, with what is measured of their evaluations.

    Args:
      runs: a row for each run.
      evaluations: a row for each evaluation.
      annealed: epoch at which the first learning rate ends.
      targets: test_loss and train_loss to which times and steps are measured.
    """
    runs = runs.set_index(KEYS).sort_index()
    for key, of_run in evaluations.groupby(KEYS):
        for loss, x in itertools.product(targets, ("seconds", "steps")):
            across = of_run.seconds if x == "seconds" else of_run.gradients / key[0]
            runs.loc[key, f"{x}_to_{loss}"] = first_at(across, of_run[loss], targets[loss])
        runs.loc[key, "first_rate_loss"] = of_run.test_loss[of_run.epoch <= annealed * (1 + 1e-9)].iloc[-1]
        runs.loc[key, "lowest_loss"] = of_run.test_loss.min()
    steps = runs.gradients / runs.index.get_level_values("p")
    runs["seconds_a_step"], runs["steps"] = runs.seconds / steps, steps
    runs["error"] = 100 * (1 - runs.test_accuracy)
    return runs


def first_at(x: Sequence[float], loss: Sequence[float], target: float) -> float:
    """Where a loss first reaches its target, interpolated between evaluations; infinite if it never does.

    Example:
      >>> first_at([0.0, 10.0, 20.0], [2.0, 0.2, 0.1], 0.15), first_at([0.0, 1.0], [2.0, 1.0], 0.5)
      (15.0, inf)
    """
    points = [(float(at), float(value)) for at, value in zip(x, loss, strict=True) if not math.isnan(value)]
    for (before, high), (after, low) in itertools.pairwise(points):
        if low <= target:
            return before + (max(high - target, 0.0) / (high - low) if high > target else 0.0) * (after - before)
    return math.inf


def summarised(runs: pd.DataFrame, words: Mapping[str, str]) -> pd.DataFrame:
    """Return the table: means and standard deviations over seeds."""
    rows = []
    for quantity, title in words.items():
        over_seeds = runs[quantity].astype(float).groupby(["p", "method", "tau"], sort=False)
        for (p, method, tau), values in over_seeds:
            if np.isfinite(values).all():
                numbers = {"ours": values.mean(), "±": values.std()}
                rows.append({"quantity": title, "p": p, "method": TITLES[method], "tau": tau} | numbers)
    return pd.DataFrame(rows).assign(paper=None)


class Compared:
    """The runs of one number of nodes, and comparisons of methods that are paired by seed."""

    def __init__(self, runs: pd.DataFrame, p: int, words: Mapping[str, str]):
        self.p, self._runs, self._words = p, runs.loc[p], words
        self.there = sorted(set(self._runs.index.droplevel("seed")), key=_order)

    def values(self, run: Run, quantity: str) -> np.ndarray:
        """float64[seeds]; where a target is never reached, what the whole run takes."""
        rows = self._runs.loc[run]
        whole = rows[quantity.partition("_to_")[0]] if "_to_" in quantity else np.inf
        return np.minimum(rows[quantity].astype(float), whole).to_numpy()

    def reached(self, run: Run, quantity: str) -> bool:
        """Return whether the target is reached with every seed; without, values are lower limits."""
        return bool(np.isfinite(self._runs.loc[run][quantity].astype(float)).all())

    def less(self, run: Run, others: Sequence[Run], quantity: str) -> bool | None:
        """Return whether a method has less of a quantity than each of others; open where lower limits do not decide."""
        own, found = self.values(run, quantity), []
        for other in others:
            verdict = above(self.values(other, quantity) - own)
            found.append(verdict if self.reached(other if verdict is False else run, quantity) else None)
        return all_of(found)

    def alike(self, run: Run, others: Sequence[Run], quantity: str) -> bool | None:
        """Return whether the ratios of a method and others are roughly 1; open where lower limits do not decide."""
        own, limit, found = np.log(self.values(run, quantity)), math.log(ALIKE), []
        for other in others:
            ratio = interval(own - np.log(self.values(other, quantity)))
            smaller, larger = below(ratio, limit), above(ratio, -limit)
            found.append(smaller if self.reached(run if smaller else other, quantity) else None)
            found.append(larger if self.reached(other if larger else run, quantity) else None)
        return all_of(found)

    def ends(self, quantity: str, runs: Sequence[Run]) -> list[Run]:
        """Those with the smallest and the largest mean."""
        ordered = sorted(runs, key=lambda run: self.values(run, quantity).mean())
        return [ordered[0], ordered[-1]]

    def words(self, quantity: str, runs: Sequence[Run]) -> str:
        """Return the quantity's means."""
        means = {run: self._runs.loc[run][quantity].astype(float).mean() for run in runs}
        shown = (f"{mean:.4g}" if math.isfinite(mean) else "not always reached" for mean in means.values())
        pairs = zip(shown, runs, strict=True)
        return f"{self._words[quantity]}: " + ", ".join(f"{mean} ({name(run)})" for mean, run in pairs)


def paces(table: pd.DataFrame) -> dict[int, float]:
    """Return number of nodes -> gradients per second of all of them together, if none ever waited."""
    return table.groupby("p").capacity.mean().astype(float).to_dict()


def draw(
    evaluations: pd.DataFrame,
    num_nodes: Sequence[int],
    annealed: Sequence[float],
    targets: Targets,
    *,
    shown: Sequence[tuple[str, str]] = PANELS,
    columns: int = 3,
    pace: Mapping[int, float] | None = None,
) -> Figure:
    """Losses, top-1 error and consensus by time and by epochs.

    Args:
      evaluations: a row for each evaluation.
      num_nodes: numbers of nodes, p.
      annealed: epochs at which the learning rate falls.
      targets: whose ticks the axes of losses have.
      shown: what the panels of a number of nodes have across and up.
      columns: panels in a row.
      pace: number of nodes -> gradients per second of all together, for the least time; None: without it.
    """
    rows = len(num_nodes) * len(shown) // columns
    drawn, panels = canvas(rows, columns, width=5 * columns, height=4.2 * rows + 0.8)
    evaluations = evaluations.assign(error=100 * (1 - evaluations.test_accuracy))
    labelled = {}
    for p, block in zip(num_nodes, panels.reshape(len(num_nodes), -1), strict=True):
        for axes, (x, y) in zip(block, shown, strict=True):
            of_nodes = dict(iter(evaluations[evaluations.p == p].groupby(["method", "tau"])))
            for method, tau in sorted(of_nodes, key=_order):
                of_run = of_nodes[method, tau]
                mean = of_run.groupby(of_run.groupby("seed").cumcount())[[x, y]].mean()[1:]
                label, style = name((method, tau)), STYLES[method][tau > 1]
                (labelled[label],) = axes.plot(mean[x], mean[y], linestyle=style, color=colour(method), label=label)
            if x == "seconds" and pace and REDUCE in of_nodes:
                of_run = of_nodes[REDUCE]
                mean = of_run.groupby(of_run.groupby("seed").cumcount())[["gradients", y]].mean()[1:]
                labelled[least.FLOOR] = least.line(axes, least.seconds(mean.gradients, pace[p]), mean[y])
            if x == "epoch":
                for epoch in annealed:
                    axes.axvline(epoch, color="#7a7a7a", linestyle=":", linewidth=1)
            axes.set(xscale="log", yscale="log", title=f"p = {p}", xlabel=LABELS[x], ylabel=LABELS[y])
            low, high = axes.get_ylim()
            if y in ("test_loss", "error"):
                ticks = targets.ticks if y == "test_loss" else ERRORS
                axes.set_yticks([tick for tick in ticks if low <= tick <= high])
                axes.yaxis.set_major_formatter("{x:g}")
            axes.minorticks_off()
    drawn.legend(labelled.values(), labelled, loc="outside lower center", ncols=4)
    return drawn
