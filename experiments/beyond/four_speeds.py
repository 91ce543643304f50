"""Asynchronous local steps with four speeds: delayed Nesterov and fewer steps for slow workers (Liu et al. 2024).

Four workers take 0.58, 0.75, 1.51 and 3.33 seconds for a step, as in the authors' notebook
(google-deepmind/asyncdiloco), and send what 20 steps of AdamW have changed. The server makes a step of Nesterov's
momentum 0.9: with the mean of all four (DiLoCo, which waits), with each message as it comes (naive), or with momentum
that moves once in four messages (DN); with dynamic local updates (DyLU), slow workers make fewer steps. The server's
rate is the one of a grid with which one seed's test loss is lowest in the end, of each method by itself; the workers'
rate is the same for all. Compared are runs of as many steps of all workers together. How many steps the paper makes was
not at hand, and it may decide: runs of several lengths are compared at decide (--epochs).

The notebook classifies mixtures of Gaussians; here it is digits, each worker drawing from all of them.
"""

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from configs import digits
from experiments.beyond.sources import LIU
from experiments.harness import (
    PALETTE,
    Claim,
    Count,
    Output,
    Positive,
    Premise,
    Scale,
    Sweep,
    above,
    band,
    below,
    canvas,
    figure,
    interval,
    least,
)
from experiments.harness.regions import for_only, given, throughout
from experiments.thresholds import FOUR_SPEEDS_ALIKE

SECONDS = (0.58, 0.75, 1.51, 3.33)
NAMES = ("protocol.kind", "rule.kind", "local.by_speed")
"""The settings in which the methods differ."""
METHODS = {
    "sync": ("DiLoCo", ("synchronous", "nag_asgd", False)),
    "naive": ("naive", ("asynchronous", "nag_asgd", False)),
    "dn": ("DN", ("asynchronous", "delayed_nesterov", False)),
    "dylu": ("DyLU", ("asynchronous", "nag_asgd", True)),
    "dn_dylu": ("DN + DyLU", ("asynchronous", "delayed_nesterov", True)),
}
"""Name -> title, and the values of `NAMES`."""
FEW = "Each message is a step of the server, and not one of four, which counts in short runs; it fails if in all."
GRID = (0.03, 0.1, 0.3, 0.7)


@figure(
    LIU,
    "Four speeds",
    scales={
        "smoke": Scale("15 s", epochs=[1.0], steps=5, seeds=1, rates=1, network="mlp"),
        "laptop": Scale("5 min"),
        "decide": Scale("40 min", epochs=[20.0, 80.0], seeds=20),
        "gpu": Scale("1 h on one GPU, estimated", images="mnist", epochs=[10.0]),
        "paper": Scale("1 day on one GPU, estimated", images="cifar10", epochs=[100.0]),
    },
    differs="The paper trains language models of up to 150 million parameters on C4; here digits are classified.",
    stand_in="digits (8 x 8) in place of C4",
)
def four_speeds(
    *,
    images: str = "digits",
    epochs: list[Positive] = (20.0,),
    steps: Count = 20,
    seeds: Count = 5,
    rates: Count = 4,
    network: str = "conv",
) -> Output:
    """Tunes the server's rate of each method with one seed, and runs it with others.

    Args:
      images: the data set.
      epochs: of the steps of all workers together, of runs of each length; the picture shows the longest.
      steps: H, steps of the fastest worker between two messages.
      seeds: number of seeds besides the one that rates are tuned with.
      rates: most rates of the grid that are tried, the smallest first.
      network: kind of the network.
    """
    found = [of_length(configured(images, epochs=each, steps=steps, network=network), seeds, rates) for each in epochs]
    runs, evaluations = (
        pd.concat([each[k].assign(length=length) for each, length in zip(found, epochs, strict=True)]) for k in (0, 1)
    )
    words = {"test_loss": "test loss, end", "seconds": "seconds of the whole run", "updates": "updates of the server"}
    rows = [
        {"epochs": length, "method": METHODS[m][0], "rate": here.rate.iloc[0], "quantity": words[name]}
        | _numbers(here[name])
        for length, of_length_ in runs.groupby("length")
        for name in words
        for m, here in of_length_.groupby("name", sort=False)
    ]
    notes = [
        f"± is one standard deviation over seeds. Losses match where one is at most "
        f"{100 * FOUR_SPEEDS_ALIKE:g} % above the other."
    ]
    notes.append(
        least.note(
            "DiLoCo (each step counts)",
            "a step takes what it takes on each worker, " + "; ".join(f"{seconds:g} s" for seconds in SECONDS),
        )
        + " It is no lower limit for all methods: where workers are unequal, some of them may be enough."
    )
    longest = [each[each.length == max(epochs)] for each in (evaluations, runs)]
    return Output(pd.DataFrame(rows).assign(paper=None), _drawn(*longest), claims(runs), notes)


def of_length(base: ConfigDict, seeds: int, rates: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the runs of a configuration, of each method with its best rate for seed 0, and their evaluations."""
    points = [_point(m, rate, 0) for m in METHODS for rate in sorted(GRID)[:rates]]
    tuned = named(Sweep(base, points).table())
    best = {m: float(found.set_index("rate").test_loss.idxmin()) for m, found in tuned.groupby("name")}
    sweep = Sweep(base, [_point(m, best[m], seed) for m in METHODS for seed in range(1, seeds + 1)])
    return named(sweep.table()), named(sweep.evaluations())


def configured(images: str, *, epochs: float, steps: int, network: str) -> ConfigDict:
    """Return the configuration of all runs."""
    config = digits.get_config()
    config.data.kind, config.network.kind, config.epochs = images, network, epochs
    config.split = "drawn" if images == "digits" else "own"
    config.cluster.kind, config.cluster.num_workers, config.cluster.fixed.seconds = "fixed", 4, SECONDS
    config.local.steps, config.local.optimizer, config.local.learning_rate = steps, "adamw", 0.001
    config.local.weight_decay, config.local.keep_state = 0.001, True
    config.optimizer.momentum, config.average_decay, config.evaluations = 0.9, None, 40
    config.rate.warmup_epochs, config.rate.decay = 0.0, "constant"
    return config


def named(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with the name of their method, and the server's rate as `rate`.

    Args:
      runs: with a column for each of `NAMES`.
    """
    of = {values: name for name, (_, values) in METHODS.items()}
    names = [of[row] for row in runs[list(NAMES)].itertuples(index=False, name=None)]
    return runs.assign(name=names, rate=runs["local.server_learning_rate"])


def claims(runs: pd.DataFrame) -> list[Claim]:
    """Return what the abstract says of the naive way and of the paper's own.

    Args:
      runs: with a column `length`, the epochs of a run; of a single one, nothing counts against the paper.
    """
    behind, closed, better, words = [], [], [], {}
    for length, found in runs.groupby("length"):
        of = {m: np.log(rows.sort_values("seed").test_loss.to_numpy(float)) for m, rows in found.groupby("name")}
        gap, left = of["naive"] - of["sync"], of["dn_dylu"] - of["sync"]
        behind.append(above(gap))
        closed.append(given(above(gap), below(left, FOUR_SPEEDS_ALIKE.rewritten(math.log1p(FOUR_SPEEDS_ALIKE)))))
        better.append(above(gap - left))
        for name, values in (("gap", gap), ("left", left), ("better", gap - left)):
            words.setdefault(name, []).append(f"{interval(100 * values)} % after {length:g} epochs")
    words = {name: f"logarithm of the ratio of the test losses {', '.join(told)}" for name, told in words.items()}
    behind, closed, better = (
        for_only(each) if len(gaps) == 1 else each
        for gaps, each in ((found, throughout(found)) for found in (behind, closed, better))
    )
    seconds = {m: found.sort_values(["length", "seed"]).seconds.to_numpy(float) for m, found in runs.groupby("name")}
    return [
        Claim(
            "naive asynchronous local steps need more iterations than synchronous ones: as many steps, a higher loss",
            "abstract",
            ours=words["gap"],
            holds=behind,
            because="" if behind.holds else FEW,
        ),
        Claim(
            "delayed Nesterov with dynamic local updates closes the gap: as many steps, the loss of synchronous ones",
            "abstract",
            ours=words["left"],
            holds=closed,
            because="" if closed.holds else "Without a gap there is nothing to close.",
            premises=[Premise("the naive way is behind", words["gap"], behind.holds is not False)],
        ),
        Claim(
            "it is better than the naive way",
            "abstract",
            ours=words["better"],
            holds=better,
            because="" if better.holds else FEW,
        ),
        Claim(
            "it takes far less time than synchronous local steps (here: at most half)",
            "abstract",
            ours=f"{seconds['dn_dylu'].mean():.4g} s against {seconds['sync'].mean():.4g} s: the schedule says it",
            holds=bool((2 * seconds["dn_dylu"] <= seconds["sync"]).all()),
            identity=True,
        ),
    ]


def _point(method: str, rate: float, seed: int) -> dict[str, Any]:
    return dict(zip(NAMES, METHODS[method][1], strict=True)) | {"local.server_learning_rate": rate, "seed": seed}


def _numbers(values: pd.Series) -> dict[str, float]:
    values = values.astype(float)
    return {"ours": values.mean(), "±": values.std()}


def _drawn(evaluations: pd.DataFrame, runs: pd.DataFrame) -> Figure:
    drawn, panels = canvas(1, 3, width=15, height=4.4)
    steps, ratio, seconds = panels[0]
    numbered = evaluations.assign(place=evaluations.groupby(["name", "seed"]).cumcount())
    losses = numbered.pivot(index=["name", "place"], columns="seed", values="test_loss").astype(float)
    for shade, (method, (title, _)) in zip(PALETTE, METHODS.items(), strict=False):
        mean = numbered[numbered.name == method].groupby("place")[["seconds", "epoch", "test_loss"]].mean()
        for panel, x in ((steps, "epoch"), (seconds, "seconds")):
            panel.plot(mean[x], mean.test_loss, color=shade, label=title)
        if method == "sync":
            count = mean.epoch * float((runs[runs.name == method].steps / runs[runs.name == method].epochs).mean())
            least.line(seconds, least.seconds(count, sum(1 / np.array(SECONDS))), mean.test_loss)
            ratio.axhline(1.0, color=shade)
        else:
            logarithms = np.log(losses.loc[method] / losses.loc["sync"])
            band(ratio, mean.epoch, [interval(row) for _, row in logarithms.iterrows()], logarithmic=True, color=shade)
    for panel in (steps, seconds):
        panel.set(yscale="log", ylabel="test loss, mean of the seeds")
    ratio.set(yscale="log", ylabel="test loss over that of DiLoCo,\nthe same seeds, 95 % intervals")
    ratio.set_yticks([0.5, 0.7, 1.0, 1.4], ["0.5", "0.7", "1", "1.4"])
    ratio.minorticks_off()
    for panel in (steps, ratio):
        panel.set_xlabel("epochs of all steps")
    seconds.set_xlabel("virtual time, s")
    seconds.legend()
    return drawn
