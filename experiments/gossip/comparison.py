"""All-reduce, elastic averaging and gossip compared run by run, as Figures 1 and 2 do: quantities, verdicts, curves."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator
from ml_collections import ConfigDict

from experiments import premises
from experiments.gossip.sizes import Targets
from experiments.harness import (
    Evidence,
    Premise,
    Sweep,
    Threshold,
    above,
    all_of,
    band,
    below,
    canvas,
    colour,
    interval,
    least,
)
from experiments.thresholds import ALIKE_TIMES, RISEN, SETTLED
from sgdlab.runs import crossing

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
RATE, TASKS, MACHINES = "optimizer.learning_rate", "cluster.gamma.task_variation", "cluster.gamma.machine_variation"
SCATTER = 0.1
"""Coefficient of variation of a node's compute times."""
KEYS = ["p", "method", "tau", "seed"]
NAMES = {"cluster.num_workers": "p", "protocol.gossip.period": "tau", RATE: "rate"}
STYLES = dict.fromkeys(TITLES, ("-", "--")) | {"pull_gossip": ("-.", ":")}
"""Method -> the styles of its lines with tau = 1 and above."""
POINTS = 100
"""Places at which a curve is drawn."""
NOTE = (
    "Losses and errors are of the nodes' average; ± is half the width of the 95 % confidence interval of the mean over "
    "seeds. A cell is empty where a target is not reached with every seed; claims take the time of the whole run for "
    "such a seed, and are open where a longer run could decide otherwise. They rest on intervals of logarithms of "
    "ratios paired by seed; values are the same where neither is over "
    f"{ALIKE_TIMES:g} times the other. The learning rate falls after each of the first two thirds of a run. "
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
        "late_loss": "test loss after three quarters of the first rate",
        "first_rate_loss": "test loss at the end of the first rate",
        "lowest_loss": "test loss, lowest",
        "test_loss": "test loss, end",
        "train_loss": "training loss, end",
        "error": "top-1 test error of the nodes' average, end, %",
        "consensus": "consensus distance, end",
        "rate": "first learning rate",
    }


def trained(
    base: ConfigDict,
    runs: Sequence[tuple[int, Run]],
    batch_size: Mapping[int, int],
    seeds: int,
    *,
    rates: Sequence[float] | None = None,
    scattered: Iterable[tuple[float, tuple[int, Run]]] = (),
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Trains all runs.

    Args:
      base: the configuration of all runs.
      runs: numbers of nodes, and methods.
      batch_size: number of nodes -> examples of a node's step.
      seeds: number of seeds.
      rates: each method takes the one with the lowest test loss at the end with a further seed, which decides nothing
        else. None: all have that of the base.
      scattered: further runs, whose compute times have another coefficient of variation.

    Returns:
      A row for each run, and a row for each evaluation, with the columns `KEYS`, `rate` and `scatter`.
    """

    def points(scatter: float, p: int, run: Run, seed: int, rate: float) -> dict[str, Any]:
        method, tau = run
        shared = {"method": method, "protocol.gossip.period": tau, "protocol.elastic_averaging.period": tau}
        pairs = {"data.digit_pairs.seed": seed} if base.data.kind == "digit_pairs" else {}
        of_nodes = {"cluster.num_workers": p, "batch_size": batch_size[p], RATE: rate, within: scatter, "seed": seed}
        return shared | pairs | of_nodes

    within = TASKS if base.cluster.gamma.heterogeneous else MACHINES
    names, rate_of = NAMES | {within: "scatter"}, dict.fromkeys(runs, base.optimizer.learning_rate)
    if rates:
        tried = [points(SCATTER, *run, seeds, rate) for run in runs for rate in rates]
        table = Sweep(base, tried).table().rename(columns=names).fillna({"test_loss": np.inf})
        rate_of = {
            (p, (m, tau)): of.set_index("rate").test_loss.idxmin() for (p, m, tau), of in table.groupby(KEYS[:-1])
        }
    listed = [*((SCATTER, run) for run in runs), *scattered]
    sweep = Sweep(base, [points(s, *run, seed, rate_of[run]) for s, run in listed for seed in range(seeds)])
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
        for loss, target in targets.items():
            known = of_run.dropna(subset=[loss])
            place = crossing.first(known.gradients, known[loss], target, higher_is_better=False)
            for x, across in (("seconds", known.seconds), ("steps", known.gradients / key[0])):
                found = math.inf if place is None else np.interp(place, range(len(known)), across)
                runs.loc[key, f"{x}_to_{loss}"] = found
        for loss, share in (("first_rate_loss", 1.0), ("late_loss", 0.75)):
            runs.loc[key, loss] = of_run.test_loss[of_run.epoch <= share * annealed * (1 + 1e-9)].iloc[-1]
        runs.loc[key, "lowest_loss"] = of_run.test_loss.min()
    steps = runs.gradients / runs.index.get_level_values("p")
    runs["seconds_a_step"], runs["steps"] = runs.seconds / steps, steps
    runs["error"] = 100 * (1 - runs.test_accuracy)
    return runs


def summarised(runs: pd.DataFrame, words: Mapping[str, str]) -> pd.DataFrame:
    """Return the table: means over seeds, and half the widths of their intervals."""
    rows = []
    for quantity, title in words.items():
        over_seeds = runs[quantity].astype(float).groupby(["p", "method", "tau"], sort=False)
        for (p, method, tau), values in over_seeds:
            if np.isfinite(values).all():
                found = interval(values)
                numbers = {"ours": found.mean, "±": found.half if np.isfinite(found.half) else np.nan}
                rows.append({"quantity": title, "p": p, "method": TITLES[method], "tau": tau} | numbers)
    return pd.DataFrame(rows).assign(paper=None)


class Compared:
    """The runs of one number of nodes, and comparisons of methods that are paired by seed.

    Args:
      runs: what `measured` returns.
      p: number of nodes.
      words: quantity -> its words.
      resolution: points of per cent that errors are known to.
    """

    def __init__(self, runs: pd.DataFrame, p: int, words: Mapping[str, str], resolution: float = 0.0):
        self.p, self._runs, self._words, self._resolution = p, runs.loc[p], words, resolution
        self.there = sorted(set(self._runs.index.droplevel("seed")), key=_order)

    def values(self, run: Run, quantity: str) -> np.ndarray:
        """float64[seeds]; where a target is never reached, what the whole run takes."""
        rows = self._runs.loc[run]
        whole = rows[quantity.partition("_to_")[0]] if "_to_" in quantity else np.inf
        return np.minimum(rows[quantity].astype(float), whole).to_numpy()

    def reached(self, run: Run, quantity: str) -> bool:
        """Return whether the target is reached with every seed; without, values are lower limits."""
        return bool(np.isfinite(self._runs.loc[run][quantity].astype(float)).all())

    def ratio(self, run: Run, other: Run, quantity: str) -> np.ndarray:
        """float64[seeds]: the logarithm of a method's quantity over another's."""
        return np.log(self.values(run, quantity) / self.values(other, quantity))

    def less(self, run: Run, others: Sequence[Run], quantity: str, factor: float = 1.0) -> Evidence:
        """Return the evidence that a method has less than so many times as much as each of others.

        Lower limits are no evidence for less of the method, nor against less than of the other.
        """
        found = []
        for other in others:
            if quantity == "error":
                apart = self.values(other, quantity) - self.values(run, quantity)
                evidence = above(apart, resolution=self._resolution)
            else:
                limit = math.log(factor)
                limit = factor.rewritten(limit) if isinstance(factor, Threshold) else limit
                evidence = below(self.ratio(run, other, quantity), limit)
            p_for = evidence.p_for if self.reached(run, quantity) else 1.0
            p_against = evidence.p_against if self.reached(other, quantity) else 1.0
            found.append(dataclasses.replace(evidence, p_for=p_for, p_against=p_against))
        return all_of(found)

    def alike(self, run: Run, others: Sequence[Run], quantity: str) -> Evidence:
        """Return the evidence that the ratios of a method and others are roughly 1."""
        pairs = [pair for other in others for pair in ((run, other), (other, run))]
        return all_of(self.less(first, [second], quantity, ALIKE_TIMES) for first, second in pairs)

    def costs(self) -> dict[str, Any]:
        """Return the premise and the cause of claims on the seconds of all-reduce and of others, for `Claim`."""
        waiting = self._runs.index.get_level_values("method") == REDUCE[0]
        idle = float(self._runs.idle_share[~waiting].astype(float).mean())
        premise = premises.messages_cost(idle)
        return {"premises": [premise], "cause": "" if premise.met else premises.FREE}

    def falls(self) -> Premise:
        """Return the premise of what is said of validation losses: they are lowest at the end, with every method."""
        risen = {run: (self.values(run, "test_loss") / self.values(run, "lowest_loss")).mean() for run in self.there}
        worst = max(risen, key=risen.get)
        ours = f"it ends at {risen[worst]:.3f} times its lowest ({name(worst)}, p = {self.p})"
        return Premise(
            "a validation loss that falls to the end", ours, met=risen[worst] <= 1 + RISEN, thresholds=(RISEN,)
        )

    def settled(self, run: Run) -> Premise:
        """Return the premise of what is said of annealing: a method has learnt, and gains little more, at first."""
        fallen = 1 - (self.values(run, "first_rate_loss") / self.values(run, "late_loss")).mean()
        ours = f"in its last quarter it falls by {100 * fallen:.2g} % ({name(run)}, p = {self.p})"
        met = fallen <= SETTLED and self.reached(run, "seconds_to_test_loss")
        return Premise("a first rate until the loss hardly falls any more", ours, met, (SETTLED,))

    def ends(self, quantity: str, runs: Sequence[Run]) -> list[Run]:
        """Those with the smallest and the largest mean."""
        ordered = sorted(runs, key=lambda run: self.values(run, quantity).mean())
        return [ordered[0], ordered[-1]]

    def words(self, quantity: str, runs: Sequence[Run]) -> str:
        """Return the quantity's means."""
        reached = {run: self.reached(run, quantity) for run in dict.fromkeys(runs)}
        shown = {run: interval(self.values(run, quantity)) if there else "not always" for run, there in reached.items()}
        return f"{self._words[quantity]}: " + ", ".join(f"{mean} ({name(run)})" for run, mean in shown.items())


def paces(table: pd.DataFrame) -> dict[int, float]:
    """Return number of nodes -> gradients per second of all of them together, if none ever waited."""
    return table.groupby("p").capacity.mean().astype(float).to_dict()


def draw(
    evaluations: pd.DataFrame, num_nodes: Sequence[int], data: str, *, pace: Mapping[int, float] | None = None
) -> Figure:
    """Return the test loss by time, and over all-reduce's at the same time: geometric means, with their intervals.

    Args:
      evaluations: a row for each evaluation.
      num_nodes: numbers of nodes, p, each with a column.
      data: what is trained on.
      pace: number of nodes -> gradients per second of all together, for the least time; None: without it.
    """
    drawn, panels = canvas(2, len(num_nodes), width=5.5 * len(num_nodes), height=8.4, sharey="row", sharex="col")
    labelled = {}
    for p, (losses, ratios) in zip(num_nodes, panels.T, strict=True):
        of_nodes = evaluations[evaluations.p == p]
        runs = {run: list(dict(iter(of.groupby("seed"))).values()) for run, of in of_nodes.groupby(["method", "tau"])}
        times = np.linspace(0, min(each.seconds.iloc[-1] for of in runs.values() for each in of), POINTS)
        logs = {run: np.array([_at(times, each) for each in of]) for run, of in runs.items()}
        for run in sorted(runs, key=_order):
            style = {"color": colour(run[0]), "linestyle": STYLES[run[0]][run[1] > 1], "label": name(run)}
            labelled[name(run)] = band(losses, times, map(interval, logs[run].T), logarithmic=True, **style)
            if REDUCE in logs:
                band(ratios, times, map(interval, (logs[run] - logs[REDUCE]).T), logarithmic=True, **style)
        if pace and REDUCE in runs:
            mean = np.mean([np.log(each.test_loss.astype(float)) for each in runs[REDUCE]], axis=0)
            floor = least.seconds(runs[REDUCE][0].gradients, pace[p])
            labelled[least.FLOOR] = least.line(losses, floor, np.exp(mean))
        losses.set(yscale="log", title=f"p = {p}: {data}")
        ratios.set(yscale="log", xlabel="virtual time, s", xlim=(0, None))
    panels[0, 0].set_ylabel("test loss")
    panels[1, 0].set_ylabel("test loss / all-reduce's at the same time")
    for axes in panels[:, 0]:
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.2, 1.5, 2, 3, 5, 7)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_locator(NullLocator())
    drawn.legend(labelled.values(), labelled, loc="outside lower center", ncols=4)
    return drawn


def _at(times: np.ndarray, run: pd.DataFrame) -> np.ndarray:
    """Return the logarithm of a run's test loss at some times."""
    return np.interp(times, run.seconds, np.log(run.test_loss.astype(float)))
