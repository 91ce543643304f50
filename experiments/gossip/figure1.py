"""Loss and top-1 error of all-reduce, elastic averaging and gossip with 8 and 16 nodes (Jin et al. 2016, Figure 1).

As published (on arXiv; not legible in the available text) the aggregate minibatch of all nodes is 256 (32 a node at
p = 8, 16 at p = 16), Nesterov momentum 0.9, weight decay 1e-4, beta = 0.8 / p, and elastic averaging and gossip average
before every step (tau = 1) or every tenth (tau = 10). The learning rate 0.1 is multiplied by 0.1 twice, here after each
of the first two thirds of the run. It is that of a node's own step, and of all-reduce's step along the averaged
gradient; there is no warm-up.

Speed is the virtual time until the test loss of the nodes' average, or the training loss at the nodes, is at a target
that is reached at the first learning rate or soon after. Run-times are gamma-distributed with 10 % scatter, and their
mean in seconds is the number of examples of a node's batch. Differences between methods are paired by seed, since
machines are drawn for each seed and are the same for all methods.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from configs import digits
from experiments import papers
from experiments.harness import (
    Claim,
    Count,
    Output,
    Positive,
    Scale,
    Sweep,
    above,
    all_of,
    below,
    canvas,
    colour,
    figure,
    interval,
)
from experiments.harness.options import Bound

TITLES = {
    "all_reduce": "All-reduce",
    "elastic_averaging": "Elastic averaging",
    "push_gossip": "Push gossip",
    "pull_gossip": "Pull gossip",
}
RUNS = [("all_reduce", 1), *itertools.product(["elastic_averaging", "push_gossip", "pull_gossip"], [1, 10])]
"""Method and tau."""
REDUCE, PUSH, ELASTIC = RUNS[0], ("push_gossip", 1), ("elastic_averaging", 10)
KEYS = ["p", "method", "tau", "seed"]
TARGETS = {"test_loss": 0.15, "train_loss": 0.05}
ALIKE = 1.1
"""Two values are roughly the same where neither is larger than the other by more than this factor."""
LARGER = 32
"""Nodes from which on scales are larger ones: the fewest of Figure 2, as published."""
QUANTITIES = {
    "seconds_to_test_loss": f"seconds to a test loss of {TARGETS['test_loss']}",
    "seconds_to_train_loss": f"seconds to a training loss of {TARGETS['train_loss']}",
    "steps_to_train_loss": f"steps of a node to a training loss of {TARGETS['train_loss']}",
    "seconds_a_step": "seconds a step",
    "first_rate_loss": "test loss at the end of the first rate",
    "lowest_loss": "test loss, lowest",
    "test_loss": "test loss, end",
    "train_loss": "training loss, end",
    "error": "top-1 test error of the nodes' average, end, %",
    "consensus": "consensus distance, end",
}
PANELS = [("seconds", "test_loss"), ("seconds", "error"), ("seconds", "train_loss")]
PANELS += [("epoch", "test_loss"), ("epoch", "error"), ("epoch", "consensus")]
LABELS = {"seconds": "virtual time, s", "epoch": "epoch", "test_loss": "test loss", "error": "top-1 test error, %"}
LABELS |= {"train_loss": "training loss at the nodes", "consensus": "consensus distance"}
TICKS = {"test_loss": (0.1, 0.2, 0.5, 1, 2), "error": (2, 3, 5, 10, 20, 50)}
Nodes = Annotated[int, Bound(least=2)]
Run = tuple[str, int]


@figure(
    papers.GOSSIP,
    "Figure 1",
    scales={
        "smoke": Scale("12 s", num_nodes=[8], seeds=1, epochs=1.0, pull=False, network="mlp"),
        "laptop": Scale("4 min"),
    },
    differs="UCI digits and a small conv net instead of ImageNet and ResNet-18, 660 iterations instead of more than "
    "300,000, and messages that take no time: all-reduce waits for stragglers but never for messages.",
)
def figure1(
    *,
    num_nodes: list[Nodes] = (8, 16),
    seeds: Count = 6,
    epochs: Positive = 120.0,
    aggregate: Count = 256,
    heterogeneous: bool = False,
    pull: bool = True,
    network: Literal["conv", "mlp"] = "conv",
) -> Output:
    """Trains all methods and compares them.

    Args:
      num_nodes: numbers of nodes, p, which divide the aggregate minibatch.
      seeds: number of seeds.
      epochs: epochs of each run, counting used gradients.
      aggregate: examples of one step of all nodes.
      heterogeneous: whether machines differ in speed.
      pull: whether pull gossip is trained too, which the paper's figure does not show.
      network: kind of the network.
    """
    for p in num_nodes:
        if aggregate % p:
            raise ValueError(f"num_nodes={p} must divide aggregate={aggregate}")
    points = [
        {
            "method": method,
            "protocol.gossip.period": tau,
            "protocol.elastic_averaging.period": tau,
            "cluster.num_workers": p,
            "batch_size": aggregate // p,
            "seed": seed,
        }
        for p, (method, tau), seed in itertools.product(num_nodes, RUNS, range(seeds))
        if pull or method != "pull_gossip"
    ]
    sweep = Sweep(base_config(epochs, heterogeneous=heterogeneous, network=network), points)
    names = {"cluster.num_workers": "p", "protocol.gossip.period": "tau"}
    evaluations = sweep.evaluations().rename(columns=names)
    runs = measured(sweep.table().rename(columns=names), evaluations, annealed=epochs / 3)
    notes = [
        "Losses and errors are of the nodes' average; ± is one standard deviation over seeds. A cell is empty where a "
        "target is not reached with every seed, or where all nodes are the same; claims take the time of the whole run "
        "for such a seed, and are open where a longer run could decide otherwise. They rest on 95 % intervals of "
        f"differences or ratios paired by seed; values are the same where neither is over {ALIKE:g} times the other.",
        "Each averaging moves a node towards the center by the share 0.8 / p, so with tau = 10 it takes 12.5 p steps "
        "of a node to come close to it: 100 at p = 8 and 200 at p = 16, when the first rate ends after "
        f"{runs.steps.mean() / 3:.0f}; the paper's ends after 150,000.",
    ]
    return Output(summarised(runs), draw(evaluations, num_nodes, epochs), claims(runs), notes)


def base_config(epochs: float, *, heterogeneous: bool, network: str) -> ConfigDict:
    """What all runs share."""
    config = digits.get_config()
    config.epochs, config.evaluations = epochs, 60
    config.network.kind, config.network.conv.channels, config.network.mlp.widths = network, (8, 16), (16,)
    config.cluster.gamma.heterogeneous = heterogeneous
    config.optimizer.learning_rate, config.optimizer.momentum, config.optimizer.weight_decay = 0.1, 0.9, 1e-4
    config.rate.of, config.rate.warmup_epochs, config.rate.decay, config.rate.factor = "update", 0.0, "step", 0.1
    config.rate.steps = (epochs / 3, 2 * epochs / 3)
    return config


def measured(runs: pd.DataFrame, evaluations: pd.DataFrame, *, annealed: float) -> pd.DataFrame:
    """The runs, by p, method, tau and seed, with what is measured of their evaluations.

    Args:
      runs: a row for each run.
      evaluations: a row for each evaluation.
      annealed: epoch at which the first learning rate ends.
    """
    runs = runs.set_index(KEYS)
    for key, of_run in evaluations.groupby(KEYS):
        for loss, x in itertools.product(TARGETS, ("seconds", "steps")):
            across = of_run.seconds if x == "seconds" else of_run.gradients / key[0]
            runs.loc[key, f"{x}_to_{loss}"] = first_at(across, of_run[loss], TARGETS[loss])
        runs.loc[key, "first_rate_loss"] = of_run.test_loss[of_run.epoch <= annealed * (1 + 1e-9)].iloc[-1]
        runs.loc[key, "lowest_loss"] = of_run.test_loss.min()
    steps = runs.gradients / runs.index.get_level_values("p")
    runs["seconds_a_step"], runs["steps"] = runs.seconds / steps, steps
    runs["error"] = 100 * (1 - runs.test_accuracy)
    return runs.sort_index()


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


def summarised(runs: pd.DataFrame) -> pd.DataFrame:
    """The table: means and standard deviations over seeds."""
    rows = []
    for quantity, title in QUANTITIES.items():
        over_seeds = runs[quantity].astype(float).groupby(["p", "method", "tau"], sort=False)
        for (p, method, tau), values in over_seeds:
            if np.isfinite(values).all():
                numbers = {"ours": values.mean(), "±": values.std()}
                rows.append({"quantity": title, "p": p, "method": TITLES[method], "tau": tau} | numbers)
    return pd.DataFrame(rows).assign(paper=None)


class Compared:
    """The runs of one number of nodes, and comparisons of methods that are paired by seed.

    Args:
      runs: as `measured` returns them.
      p: number of nodes.
    """

    def __init__(self, runs: pd.DataFrame, p: int):
        self.p, self._runs = p, runs.loc[p]
        self.there = [run for run in RUNS if run in self._runs.index.droplevel("seed")]

    def values(self, run: Run, quantity: str) -> np.ndarray:
        """float64[seeds]; where a target is never reached, what the whole run takes."""
        rows = self._runs.loc[run]
        whole = rows[quantity.partition("_to_")[0]] if "_to_" in quantity else np.inf
        return np.minimum(rows[quantity].astype(float), whole).to_numpy()

    def reached(self, run: Run, quantity: str) -> bool:
        """Whether the target is reached with every seed; without, values are lower limits."""
        return bool(np.isfinite(self._runs.loc[run][quantity].astype(float)).all())

    def less(self, run: Run, others: Sequence[Run], quantity: str) -> bool | None:
        """Whether a method has less of a quantity than each of others; open where lower limits do not decide."""
        own, found = self.values(run, quantity), []
        for other in others:
            verdict = above(self.values(other, quantity) - own)
            found.append(verdict if self.reached(other if verdict is False else run, quantity) else None)
        return all_of(found)

    def alike(self, run: Run, others: Sequence[Run], quantity: str) -> bool | None:
        """Whether the ratios of a method and others are roughly 1; open where lower limits do not decide."""
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
        """The quantity's means."""
        means = {run: self._runs.loc[run][quantity].astype(float).mean() for run in runs}
        shown = (f"{mean:.4g}" if math.isfinite(mean) else "not always reached" for mean in means.values())
        pairs = zip(shown, runs, strict=True)
        return f"{QUANTITIES[quantity]}: " + ", ".join(f"{mean} ({name(run)})" for mean, run in pairs)


def name(run: Run) -> str:
    """A method with its tau, as the legend has it."""
    return TITLES[run[0]] + (f", tau = {run[1]}" if run != REDUCE else "")


def claims(runs: pd.DataFrame) -> list[Claim]:
    """The paper's statements about 8 and 16 nodes, and about the largest number of nodes."""
    speed, lowest, pace, steps = "seconds_to_test_loss", "lowest_loss", "seconds_a_step", "steps_to_train_loss"
    slow = "With tau = 10 nodes come close to the center only after 12.5 p of their steps."
    fitted = "All-reduce is the first to fit the 1,437 training examples, and its test loss stays higher then."
    found, counts = [], sorted(set(runs.index.get_level_values("p")))

    def add(
        at: Compared, says: str, quantity: str, shown: Sequence[Run], holds: bool | None, because: str = ""
    ) -> None:
        ours = at.words(quantity, shown)
        found.append(Claim(f"p = {at.p}: {says}", "section 4", ours, holds, because=because if holds is False else ""))

    if 8 in counts:
        at = Compared(runs, 8)
        others, both = [run for run in at.there if run != ELASTIC], [REDUCE, PUSH]
        shown = [ELASTIC, *at.ends(speed, others)]
        ahead = at.less(ELASTIC, others, speed)
        add(at, "elastic averaging with tau = 10 performs ahead of the other methods", speed, shown, ahead, slow)
        add(at, "all-reduce is as fast as gossiping", speed, both, at.alike(REDUCE, [PUSH], speed))
        waits = at.alike(REDUCE, [PUSH], pace)
        because = "Run-times scatter by 10 %, and all-reduce waits for the slowest of 8 nodes."
        add(at, "all-reduce has practically no synchronization overhead", pace, both, waits, because)
        shown, alike = at.ends(lowest, at.there), at.alike(REDUCE, at.there[1:], lowest)
        add(at, "all methods converge to roughly the same minimum loss value", lowest, shown, alike, fitted)
    if 16 in counts:
        at = Compared(runs, 16)
        for first, second, because in ((PUSH, ELASTIC, ""), (PUSH, REDUCE, ""), (ELASTIC, REDUCE, slow)):
            says, ahead = f"{name(first)} converges faster than {name(second)}", at.less(first, [second], speed)
            add(at, says, speed, [first, second], ahead, because)
        elastic = [run for run in at.there if run[0] == ELASTIC[0]]
        free = [run for run in at.there if run not in elastic]
        stuck = all_of(at.less(run, elastic, "test_loss") for run in free)
        says = (
            "elastic averaging with both tau = 1 and 10 has trouble converging to the loss of the other methods once "
        )
        shown = [*elastic, *at.ends("test_loss", free)]
        add(at, f"{says}the step size has been annealed", "test_loss", shown, stuck)
    at = Compared(runs, max(counts))
    small = at.p < LARGER
    factors = (at.words(quantity, [PUSH, REDUCE]) for quantity in (pace, steps, "seconds_to_train_loss"))
    found.append(
        Claim(
            "At larger scales the asynchronous methods require more iterations to convergence despite a lower time per "
            "iteration; training time is the product",
            "section 4",
            ours=f"p = {at.p}: {'; '.join(factors)}",
            holds=None if small else all_of([at.less(PUSH, [REDUCE], pace), at.less(REDUCE, [PUSH], steps)]),
            because=f"The paper's larger scales begin at {LARGER} nodes." if small else "",
        )
    )
    found.append(
        Claim(
            "All-reduce, run for many epochs, typically converges to a lower optimal validation loss than either "
            "elastic averaging or gossiping",
            "section 4",
            ours=f"p = {at.p}: {at.words(lowest, [REDUCE, *at.ends(lowest, at.there[1:])])}",
            holds=(ahead := at.less(REDUCE, at.there[1:], lowest)),
            because=fitted if ahead is False else "",
            paper="68.7 % top-1 accuracy of all-reduce after over a million iterations",
        )
    )
    return found


def draw(evaluations: pd.DataFrame, num_nodes: Sequence[int], epochs: float) -> Figure:
    """Losses, top-1 error and consensus by time and by epochs; two rows of panels for each number of nodes."""
    drawn, panels = canvas(2 * len(num_nodes), 3, width=15, height=8.4 * len(num_nodes) + 0.8)
    evaluations = evaluations.assign(error=100 * (1 - evaluations.test_accuracy))
    for p, block in zip(num_nodes, panels.reshape(len(num_nodes), -1), strict=True):
        for axes, (x, y) in zip(block, PANELS, strict=True):
            for method, tau in RUNS:
                of_run = evaluations.query("p == @p and method == @method and tau == @tau")
                if of_run.empty:
                    continue
                mean = of_run.groupby(of_run.groupby("seed").cumcount())[[x, y]].mean()[1:]
                line = "--" if tau > 1 else "-"
                axes.plot(mean[x], mean[y], linestyle=line, color=colour(method), label=name((method, tau)))
            if x == "epoch":
                for epoch in (epochs / 3, 2 * epochs / 3):
                    axes.axvline(epoch, color="#7a7a7a", linestyle=":", linewidth=1)
            axes.set(xscale="log", yscale="log", title=f"p = {p}", xlabel=LABELS[x], ylabel=LABELS[y])
            low, high = axes.get_ylim()
            if y in TICKS:
                axes.set_yticks([tick for tick in TICKS[y] if low <= tick <= high])
                axes.yaxis.set_major_formatter("{x:g}")
            axes.minorticks_off()
    drawn.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return drawn
