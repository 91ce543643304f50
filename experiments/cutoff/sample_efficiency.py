"""Throughput against the number of iterations that the deep Markov model was trained on.

The paper recorded its cluster for one hour, which is about 1,720 synchronous iterations of this one, and holds that
only a model which is extremely sample efficient is of use. Here models are trained on runs of different lengths,
several runs of each, and compared on the same test runs, censored as in production. Above them stand two ceilings: the
oracle, and a predictor that knows the true law and every node's regime in the iteration before; below, the best static
cutoff, tuned on 4,000 iterations. Two deep auto-regressors, a perceptron and a GRU, are trained on the paper's hour.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from experiments import papers
from experiments.cutoff import cases, contenders, models
from experiments.cutoff.contenders import DEEP_MARKOV, INFORMED, ORACLE, REGRESSORS, STATIC
from experiments.cutoff.throughput import PRIOR_ART
from experiments.harness import (
    PALETTE,
    Claim,
    Count,
    Output,
    Scale,
    above,
    any_of,
    canvas,
    colour,
    figure,
    interval,
)
from experiments.thresholds import CUTOFF_NEAR, CUTOFF_SUBSTANTIAL

HOUR = 1720
"""Synchronous iterations of the simulated cluster in one hour, which the paper recorded (section 4.1)."""
LEARNED = (DEEP_MARKOV, *REGRESSORS)
QUANTITIES = {"share": "% of the oracle", "known": "% of the true law, regimes one late"}


@figure(
    papers.CUTOFF,
    "sample efficiency",
    scales={"smoke": Scale("5 s", iterations=[160], trainings=1, seeds=2, small=True), "laptop": Scale("10 min")},
    differs="The paper states sample efficiency and does not measure it; the cluster is simulated. The "
    "model has six additions to the paper's, see cutoff.ablation.",
    full_size=True,
)
def sample_efficiency(
    *,
    iterations: list[Count] = (250, 500, 1000, HOUR, 4000),
    trainings: Count = 3,
    seeds: Count = 3,
    small: bool = False,
) -> Output:
    """Trains models on runs of different lengths and compares them.

    Args:
      iterations: numbers of iterations that models are trained on.
      trainings: number of training runs of each length.
      seeds: number of test runs.
      small: 8 workers and models that are hardly trained, to try the code.
    """
    config = cases.configured("two_state", small=small)
    runs = measured(config, sorted(iterations), trainings, seeds)
    rows = []
    for (title, count), here in runs.groupby(["title", "iterations"], sort=False, dropna=False):
        for quantity in ("share", "known"):
            values = here.groupby("training" if title in LEARNED else "seed")[quantity].mean()
            rows.append((title, count, QUANTITIES[quantity], *contenders.spread(values)))
    table = pd.DataFrame(rows, columns=["waits for", "training iterations", "quantity", "ours", "±"])
    hour = 3600 / cases.training_run(config.cluster, config.widths.lag).max(axis=1).mean()
    notes = [
        "± is half of the 95 % confidence interval: of deep Markov and of the auto-regressors over training runs, each "
        "the mean of its test runs, and of the others over test runs.",
        f"One hour of full synchrony is {hour:.0f} iterations of the simulated cluster.",
    ]
    return Output(table.assign(paper=None), draw(runs), claims(runs, small=small), notes)


def measured(config: ConfigDict, iterations: Sequence[int], trainings: int, seeds: int) -> pd.DataFrame:
    """Return a row for each predictor, training run and test run.

    Returns:
      What `contenders.compared` returns, with `iterations` of the training, NaN where there is none, `training`, its
      number, and `known`: the gradients per second in % of those of the predictor that knows the true law.
    """
    points, configs = [(count, training) for count in iterations for training in range(trainings)], []
    for count, training in points:
        configs.append(config.copy_and_resolve_references())
        configs[-1].cluster.train_steps = count
        configs[-1].cluster.train_seed += training
    found = models.trained(configs)
    ceilings = contenders.contenders(config, found[-1])
    selected = [(title, ceilings[title]) for title in (ORACLE, INFORMED, STATIC)]
    points = [(None, 0)] * len(selected) + points
    selected += [(DEEP_MARKOV, {"kind": "deep_markov", "model": model}) for model in found]
    runs = contenders.compared(config, selected, seeds)
    runs[["iterations", "training"]] = np.repeat(np.array(points, float), seeds, axis=0)
    others = [(title, ceilings[title]) for title in REGRESSORS]
    for count, training, changed in zip(*np.array(points[3:]).T, configs, strict=True):
        if count == HOUR:
            of_hour = contenders.compared(changed, others, seeds)
            runs = pd.concat([runs, of_hour.assign(iterations=count, training=training)], ignore_index=True)
    known = runs[runs.title == INFORMED].set_index("seed").share
    return runs.assign(known=100 * (runs.share / runs.seed.map(known)))


def claims(runs: pd.DataFrame, *, small: bool) -> list[Claim]:
    """Return whether an hour of recording suffices, by intervals over training runs."""
    deep = runs[runs.title == DEEP_MARKOV]
    static = runs[runs.title == STATIC].set_index("seed").share
    deep = deep.assign(lead=deep.share - deep.seed.map(static))
    by_training = deep.groupby(["iterations", "training"])[["known", "lead"]].mean()
    means = by_training.known.groupby("iterations").mean()
    words = ", ".join(f"{known:.1f} with {count:.0f}" for count, known in means.items())
    measured_hour = HOUR in by_training.index.get_level_values("iterations") and not small
    known, lead = (interval(by_training.loc[HOUR, name] if measured_hour else ()) for name in ("known", "lead"))
    regressors = {
        title: interval(here.groupby("training").known.mean())
        for title, here in runs.groupby("title")
        if title in REGRESSORS
    }
    efficient = any_of(above(each, CUTOFF_NEAR) for each in regressors.values() if not small)
    return [
        Claim(
            "generative models are extremely sample efficient to train",
            "section 3.1.2",
            ours=f"% of a predictor that knows the true law: {words} training iterations; {known} with the "
            f"paper's hour, {HOUR:,}, where above {CUTOFF_NEAR:g} is extremely efficient",
            holds=above(known, CUTOFF_NEAR),
        ),
        Claim(
            "deep neural net auto-regressors are not extremely sample efficient (here: after one hour, none is near)",
            "section 3.1.2",
            ours=", ".join(f"{known} % ({title})" for title, known in regressors.items())
            + f" of a predictor that knows the true law, with {HOUR:,} iterations; above {CUTOFF_NEAR:g} is near",
            holds=efficient.opposite,
            because="A small one, which reads the last 20 iterations, learns enough." if efficient.holds else "",
        ),
        Claim(
            f"{PRIOR_ART} (trained on one hour, over trainings)",
            "abstract",
            ours=f"{lead} points of the oracle above the best static cutoff with {HOUR:,} iterations; above "
            f"{CUTOFF_SUBSTANTIAL:g} is substantial",
            holds=above(lead, CUTOFF_SUBSTANTIAL),
        ),
    ]


def draw(runs: pd.DataFrame) -> Figure:
    """Draws the share of the oracle by the number of training iterations, with the ceilings and the static cutoff."""
    drawn, ((axes,),) = canvas(width=9, height=5)
    by_training = runs[runs.title == DEEP_MARKOV].groupby(["iterations", "training"], as_index=False).share.mean()
    means, shade = by_training.groupby("iterations").share.mean(), colour(DEEP_MARKOV)
    axes.plot(by_training.iterations, by_training.share, "o", color=shade, alpha=0.5, label="deep Markov, trained once")
    axes.plot(means.index, means, color=shade, label="deep Markov, mean")
    for title, mark in zip(REGRESSORS, "^v", strict=True):
        of_hour = runs[runs.title == title].groupby(["iterations", "training"], as_index=False).share.mean()
        if not of_hour.empty:
            axes.plot(of_hour.iterations, of_hour.share, mark, color=PALETTE[2], alpha=0.6, label=title)
    for title, line, style in ((ORACLE, PALETTE[-1], "--"), (INFORMED, PALETTE[1], "-."), (STATIC, PALETTE[4], ":")):
        axes.axhline(runs[runs.title == title].share.mean(), color=line, linestyle=style, label=title)
    axes.axvline(HOUR, color=PALETTE[5], linewidth=1, label="the paper's hour")
    axes.set_xscale("log")
    axes.set_xticks(means.index, [f"{count:,.0f}" for count in means.index])
    axes.minorticks_off()
    axes.margins(y=0.08)
    axes.set_xlabel("iterations that the model was trained on")
    axes.set_ylabel("gradients per second,\n% of the oracle's")
    drawn.legend(loc="outside right upper")
    return drawn
