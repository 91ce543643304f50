"""ASGD with and without clipped gradients, where half of the workers are slow (Erickson and Johansson 2026).

Half of the workers are a number of times as slow as the others, and the largest delay grows with that number; the
reference has the fast half alone, so that the delays of most gradients are alike. Workers clip the norm of their
gradients, or do not. The step size is constant; it and the norm are those of a grid with which one seed's training loss
is lowest in the end, of each slowness by itself. All runs use as many gradients: what is compared is the oracle
complexity, not the time.

Its abstract and introduction are what was read of the paper: the network and the data are not its own.
"""

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from configs import digits
from experiments.beyond import by_time
from experiments.beyond.sources import ERICKSON
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
    all_of,
    below,
    canvas,
    figure,
    goes_by,
    interval,
    quartiles,
)
from experiments.thresholds import CLIPPED_ALIKE
from sgdlab import cluster, protocols, rules
from sgdlab.runs import resolve
from sgdlab.runs.plan import make_plan

RATES = (1.6, 0.8, 0.4, 0.2, 0.1, 0.05, 0.025, 0.0125)
NORMS = (0.25, 1.0, 4.0)
ALONE = 0.0
"""In place of how slow half of the workers are: there is the other half alone."""
WAYS = {False: "ASGD", True: "ASGD, clipped gradients"}


@figure(
    ERICKSON,
    "Stragglers",
    scales={
        "smoke": Scale("15 s", num_workers=4, slow=[10.0], gradients=200, hidden=8, seeds=1, rates=1, norms=1),
        "laptop": Scale("3 min"),
        "decide": Scale("8 min", seeds=40),
        "gpu": Scale("1 h on one GPU, estimated", images="mnist", gradients=200_000),
        "paper": Scale("1 day on one GPU, estimated", images="mnist", gradients=2_000_000, num_workers=64),
    },
    differs="The paper's networks and data were not at hand; here digits are classified.",
    stand_in="digits (8 x 8) in place of the paper's data",
)
def clipping(
    *,
    images: str = "digits",
    num_workers: Count = 16,
    slow: list[Positive] = (10.0, 100.0, 500.0),
    gradients: Count = 8000,
    hidden: Count = 32,
    seeds: Count = 10,
    rates: Count = 8,
    norms: Count = 3,
) -> Output:
    """Tunes both ways with one seed, and runs them with others.

    Args:
      images: the data set.
      num_workers: number of workers.
      slow: how many times as long half of the workers take for a gradient.
      gradients: of all workers together.
      hidden: hidden units.
      seeds: number of seeds besides the one that rates and norms are tuned with.
      rates: most rates of the grid that are tried, the largest first.
      norms: most norms of the grid that are tried, the smallest first.
    """
    base = {"images": images, "num_workers": num_workers, "gradients": gradients, "hidden": hidden}
    slow = [ALONE, *sorted(slow)]
    grid = {False: [None], True: list(NORMS[:norms])}
    points = [
        {"slow": factor, "norm": norm, "rate": rate, "seed": 0}
        for clipped in WAYS
        for factor, norm, rate in itertools.product(slow, grid[clipped], RATES[:rates])
    ]
    tuned = _runs(base, points).sort_values("end").groupby(["slow", "clipped"]).first()
    best = {case: {"norm": found.norm if case[1] else None, "rate": found.rate} for case, found in tuned.iterrows()}
    points = [{"slow": f, "seed": seed, **best[f, way]} for way in WAYS for f in slow for seed in range(1, seeds + 1)]
    runs = _runs(base, points)
    rows = [
        {
            "workers": WAYS[clipped],
            "half of them": _words(factor),
            "largest delay": int(found.delay.max()),
            "rate": best[factor, clipped]["rate"],
            "norm": best[factor, clipped]["norm"],
            "ours": float(found.end.median()),
        }
        for (clipped, factor), found in runs.groupby(["clipped", "slow"])
    ]
    ends = runs[runs.slow == slow[-1]].groupby("clipped").end.median()
    notes = [
        f"Training losses after {gradients:,} gradients: medians over seeds. With the slowest workers clipping takes "
        f"it from {ends[False]:.3g} to {ends[True]:.3g}."
    ]
    edges = [
        f"{WAYS[clipped]} ({_words(factor)})"
        for (factor, clipped), found in best.items()
        if rates > 1 and found["rate"] in (RATES[0], RATES[rates - 1])
    ]
    if edges:
        notes.append(f"The best rate is at an edge of the grid for {', '.join(edges)}: others may be better.")
    return Output(pd.DataFrame(rows).assign(paper=None), _drawn(runs, gradients, images), claims(runs), notes)


def _runs(base: dict[str, Any], points: list[dict[str, Any]]) -> pd.DataFrame:
    found = Sweep(base, points, work=trained, together=("norm",)).table()
    return found.assign(clipped=[point["norm"] is not None for point in points], end=[each[-1] for each in found.loss])


@goes_by(digits.get_config, by_time.measured, cluster.Fixed, protocols.asynchronous, rules.asgd)
def trained(
    *,
    images: str,
    num_workers: int,
    gradients: int,
    hidden: int,
    slow: float,
    norm: float | None,
    rate: float,
    seed: int,
) -> dict[str, Any]:
    """Trains one run of a given number of gradients.

    Returns:
      What `by_time.measured` returns, without norms, and the largest `delay` of a gradient that was used.
    """
    config = digits.get_config()
    config.data.kind, config.seed = images, seed
    config.protocol.kind, config.rule.kind, config.cluster.kind = "asynchronous", "asgd", "fixed"
    seconds = (1.0,) * (num_workers - num_workers // 2) + ((slow,) * (num_workers // 2) if slow else ())
    config.cluster.num_workers, config.cluster.fixed.seconds = len(seconds), seconds
    config.network.kind, config.network.mlp.widths = "mlp", (hidden,)
    config.batch_size, config.evaluations, config.average_decay, config.mode = 8, 40, None, "event"
    config.optimizer.learning_rate, config.optimizer.clip_norm = rate, norm
    config.optimizer.weight_decay, config.optimizer.momentum, config.optimizer.nesterov = 0.0, 0.0, False
    config.rate.of, config.rate.warmup_epochs, config.rate.decay = "update", 0.0, "constant"
    config.epochs = (gradients - 0.5) / resolve(config).data.batches_per_epoch
    plan = make_plan(config)
    return by_time.measured(plan, norms=False) | {"delay": int(plan.schedule.staleness().max())}


def claims(runs: pd.DataFrame) -> list[Claim]:
    """Return what the abstract says of the largest delay.

    Args:
      runs: with columns clipped, slow, seed and end.
    """
    factors = sorted(set(runs.slow))
    logs = {key: np.log(of.sort_values("seed").end.to_numpy(float)) for key, of in runs.groupby(["clipped", "slow"])}
    more = {way: [logs[way, factor] - logs[way, ALONE] for factor in factors[1:]] for way in WAYS}
    at = ", ".join(f"{factor:g}" for factor in factors[1:])
    words = {
        way: f"logarithm of the ratio of the losses to that of the fast half alone, {at} times as slow: "
        + ", ".join(str(interval(each)) for each in more[way])
        for way in WAYS
    }
    negatively = above(more[False][-1])
    return [
        Claim(
            "with constant step sizes asynchronous SGD is affected by slow workers: as many gradients, a higher loss "
            "(the slowest workers here)",
            "abstract",
            ours=words[False],
            holds=negatively,
        ),
        Claim(
            "with clipped gradients it does not depend on the largest delay: as many gradients, the same loss",
            "abstract",
            ours=words[True],
            holds=all_of(below(each, CLIPPED_ALIKE.rewritten(math.log1p(CLIPPED_ALIKE))) for each in more[True]),
        ),
        Claim(
            "slow workers cost less with clipped gradients than without (the slowest here)",
            "abstract: clipping removes the dependence on the largest delay",
            ours=f"logarithm of the ratio {interval(more[False][-1] - more[True][-1])} less",
            holds=above(more[False][-1] - more[True][-1]),
            premises=[Premise("slow workers cost ASGD something", words[False], negatively.holds is not False)],
        ),
    ]


def _words(factor: float) -> str:
    return f"{factor:g} times as slow" if factor else "not there"


def _drawn(runs: pd.DataFrame, gradients: int, images: str) -> Figure:
    drawn, panels = canvas(1, 2, width=11.0, height=4.6, sharey=True)
    factors = sorted(set(runs.slow))
    for panel, (way, title) in zip(panels[0], WAYS.items(), strict=True):
        for shade, factor in zip(PALETTE, factors, strict=False):
            losses = [np.array(each) for each in runs[(runs.clipped == way) & (runs.slow == factor)].loss]
            done = np.linspace(0, gradients, len(losses[0]))
            quartiles(panel, done, losses, color=shade, label=_words(factor))
        panel.set(yscale="log", title=title, xlabel="gradients", xlim=(0, gradients))
    panels[0, 0].set_ylabel("training loss")
    drawn.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(factors))
    drawn.suptitle(f"{images}, half of the workers slow, or not there: medians over seeds, bands between quartiles")
    return drawn
