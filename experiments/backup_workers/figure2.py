"""Test error against the average staleness of the gradients, simulated by one worker (Chen et al. 2016, Figure 2).

As in Appendix A.1: plain SGD for 25 epochs, a rate annealed to 0, the error of the parameters' moving average (decay
0.98 at the size laptop, where 0.9999 is too slow). The best rate loses the fewest runs (diverged, or training error
above 80 %). The paper chooses the best of several runs by a validation set; here, all runs that are not lost count. Its
lower rates for a staleness of 20 and more are not printed: the best of three is chosen for each staleness.

Lost runs are counted over all seeds and cells of the table, and compared by exact tests: Fisher's, which is
conservative where cells differ, and neglects that runs of one seed have initial values and batches in common; and for
the ramp below 15 steps, of pairs of runs that differ in nothing else.
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from ml_collections import ConfigDict
from scipy.stats import binomtest

from configs import digits, mnist_cnn
from experiments import harness, papers
from experiments.backup_workers.training import Size, times, trend
from experiments.harness import (
    Claim,
    Count,
    Output,
    Positive,
    Scale,
    Sweep,
    Whole,
    above,
    all_of,
    bars,
    canvas,
    interval,
    more_often,
    share_above,
)
from experiments.thresholds import LOST_BELOW, RAMP_SHARE

PRINTED = {0: 0.36, 20: 0.47, 50: 0.79}  # staleness -> test error in % on MNIST, section 2.1
KEYS = ["ramp, epochs", "average staleness", "rate"]

TICKS = (0.25, 0.5, 1, 2, 4, 8, 16)
"""Of the axis of errors."""


@harness.figure(
    papers.CHEN,
    "Figure 2",
    scales={
        "smoke": Scale("5 s", staleness=[0, 5], rates=[0.05], seeds=1, epochs=0.5),
        "laptop": Scale("4 min"),
        "decide": Scale("20 min", seeds=30),
        "gpu": Scale(
            "50 min on one GPU, estimated",
            size="gpu",
            staleness=[0, 10, 20, 50],
            rates=[0.1, 0.03],
            seeds=2,
            decay="hold_linear",
        ),
        "paper": Scale("GPU-days, estimated; see --dry_run", size="paper", decay="hold_linear"),
    },
    differs="At the size laptop UCI digits and a smaller net, without weight normalization and augmentation: compare "
    "no levels. At gpu and paper the paper's network on MNIST, whose widths and batches are assumed.",
    stand_in="digits (8 x 8) in place of MNIST",
)
def figure2(
    *,
    size: Size = "laptop",
    staleness: list[Whole] = (0, 5, 10, 15, 20, 30, 40, 50),
    rates: list[Positive] = (0.1, 0.05, 0.02),
    seeds: Count = 3,
    epochs: Positive = 25.0,
    decay: Literal["linear", "hold_linear"] = "linear",
) -> Output:
    """Trains each staleness with the paper's ramp, from 0 over the first 3 epochs, and without it.

    Args:
      size: laptop trains on digits, with a test fold for each seed; gpu and paper train the paper's network on MNIST.
      staleness: values of the average staleness, in updates.
      rates: learning rates; the best is chosen for each staleness.
      seeds: number of seeds: 0, 1, ...
      epochs: length of each run.
      decay: of the rate to 0, over the whole run or over its last 10 epochs.
    """
    base, part = configured(size, epochs, decay), "protocol.simulated_staleness"
    over = {f"{part}.ramp_epochs": [0.0, 3.0], f"{part}.average": staleness, "optimizer.learning_rate": rates}
    runs = Sweep(base, over | {"seed": range(seeds)}).table().rename(columns=dict(zip(over, KEYS, strict=True)))
    runs["lost, %"] = 100.0 * (runs.diverged | (runs.train_accuracy.fillna(0) < LOST_BELOW))
    runs["ours"] = 100 * (1 - runs.average_accuracy).where(runs["lost, %"] == 0)
    runs["final"], runs["±"] = 100 * (1 - runs.test_accuracy).where(runs["lost, %"] == 0), runs.ours
    spread = {"lost, %": "mean", "final": "mean", "ours": "mean", "±": lambda found: interval(found.dropna()).half}
    table = runs.groupby(KEYS).agg(spread).replace(np.inf, np.nan).reset_index()
    best = table.sort_values(["lost, %", "ours"], kind="stable").drop_duplicates(KEYS[:2]).sort_values(KEYS)
    table["best rate"] = table.index.isin(best.index)
    table["paper"] = table[KEYS[1]].map(PRINTED).where(table["best rate"])
    errors, cases, higher = runs.merge(best[KEYS]).pivot(index="seed", columns=KEYS[:2], values="ours"), [], []
    example, error = 100 / runs.test_examples.min(), errors[3.0]
    logs = np.log(errors.clip(lower=example))
    for s in (20, 50):
        run = {0, s} <= set(staleness)
        higher.append(above((error[s] - error[0]).dropna(), resolution=example) if run else None)
        ratio = interval((logs[3.0, s] - logs[3.0, 0]).dropna()) if run else None
        cases.append(f"{times(ratio)} as high with {s}" if ratio else f"{s} not run")
    ratios = " and ".join(f"{PRINTED[s] / PRINTED[0]:.2f}" for s in (20, 50))
    says, paper = "The error rises with an average staleness of 20 steps, and of 50", "0.36 % to 0.47 % and 0.79 %"
    paper += f", {ratios} times"
    printed = PRINTED[0] < PRINTED[20] and PRINTED[0] < PRINTED[50]
    claims = [Claim(says, "section 2.1", ", ".join(cases), all_of(higher), paper, printed)]
    rises = trend(error.dropna().to_numpy().T)  # of seeds that are lost at no staleness
    ours = f"a rank correlation of {rises} over {rises.count} seeds" if rises.count else "no seed without a loss"
    says = "The test error degrades with increasing average staleness"
    claims.append(Claim(says, "Figure 2", ours, above(rises), paper, np.all(np.diff([*PRINTED.values()]) > 0)))
    claims += _lost(runs, rates)
    picture, ((left, right),) = canvas(1, 2, width=12)
    data = "digits (in place of MNIST)" if size == "laptop" else "MNIST"
    for ramp, label, style, shade in ((0.0, f"{data}, no ramp", "^--", 5), (3.0, f"{data}, with ramp", "o-", 0)):
        found = [interval((logs[ramp, s] - logs[3.0, min(staleness)]).dropna()) for s in staleness]
        aside = np.array(staleness) + (0.4 if ramp else -0.4)
        bars(left, aside, found, logarithmic=True, fmt=style, color=harness.PALETTE[shade], label=label)
        is_lost = (runs[runs[KEYS[0]] == ramp].set_index(KEYS[1])["lost, %"] > 0).groupby(level=0)
        shares = [binomtest(int(of.sum()), of.size).proportion_ci() for _, of in is_lost]
        ends = np.array([(share.low, share.high) for share in shares]).T
        lengths = np.abs(ends - is_lost.mean().to_numpy())
        right.errorbar(aside, 100 * is_lost.mean(), 100 * lengths, fmt=style, color=harness.PALETTE[shade])
    left.plot(PRINTED.keys(), [error / PRINTED[0] for error in PRINTED.values()], "ks", label="paper, MNIST")
    left.set(xlabel="average staleness, updates", ylabel="test error at the best rate, over that at 0", yscale="log")
    left.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
    left.minorticks_off()
    left.set_ylim(0.2, 20)
    right.set(xlabel="average staleness, updates", ylabel="lost runs over all rates, %", ylim=(0, 100))
    left.legend()
    note = (
        "Errors in %, over the seeds whose runs are not lost; ± is a 95 % confidence interval of their mean. Bars in "
        "the picture are of ratios that are paired by seed, and of shares of runs by Clopper and Pearson."
    )
    return Output(table, picture, claims, [note])


def _lost(runs: pd.DataFrame, rates: Sequence[float]) -> list[Claim]:
    """Return the claims on runs that are lost, from a row a run."""
    fast, ramp, high = runs.rate == max(rates), runs[KEYS[0]] > 0, runs[KEYS[1]] > 15
    once = ramp | (runs[KEYS[1]] > 0)  # without staleness there is no ramp: two runs are the same
    claims, is_lost = [], runs["lost, %"] > 0
    count = lambda where: (int(is_lost[where].sum()), int(where.sum()))
    for says, more, less in (
        ("Training is much less stable above 15 steps (at the largest rate)", fast & high, fast & ~high & once),
        ("The ramp is crucial above 15 steps (lost without and with it)", high & ~ramp, high & ramp),
        ("Lower rates explode less often above 15 steps", high & fast, high & ~fast),
    ):
        found = dataclasses.replace(more_often(count(more), count(less)), thresholds=(LOST_BELOW,))
        ours = f"lost: {found.about}" if more.any() and less.any() else "not run"
        if "ramp" in says:
            of = {rate: runs.rate == rate for rate in rates}
            ours += "".join(f"; {count(more & of[r])[0]} and {count(less & of[r])[0]} at the rate {r:g}" for r in rates)
        claims.append(Claim(says, "section 2.1", ours, found))
    low = runs[(runs[KEYS[1]] > 0) & (runs[KEYS[1]] < 15)]  # 15 itself is neither
    pairs = low.pivot(index=[*KEYS[1:], "seed"], columns=KEYS[0], values="lost, %")
    changed = int((pairs[0.0] != pairs[3.0]).sum()) if len(pairs) else 0
    says = f"The ramp is not relevant with a staleness of less than 15 (for {100 * RAMP_SHARE:g} % of all runs at most)"
    ours = f"of {len(pairs)} pairs of runs with and without it, one alone is lost in {changed}"
    relevant = share_above(changed, len(pairs), RAMP_SHARE)
    found = dataclasses.replace(relevant.opposite, thresholds=(RAMP_SHARE, LOST_BELOW))
    claims.append(Claim(says, "section 2.1", ours, found))
    return claims


def configured(size: Size, epochs: float, decay: str) -> ConfigDict:
    """Return what is trained: a conv net on digits, or the paper's network and settings (Appendix A.1).

    Args:
      size: "laptop", or one of the others.
      epochs: length of a run.
      decay: of the rate.

    Example:
      >>> paper = configured("paper", 25.0, "hold_linear")
      >>> paper.network.kind, paper.average_decay, paper.rate.last
      ('weight_norm_cnn', 0.9999, 10.0)
    """
    if size != "laptop":
        config = mnist_cnn.get_config()
        config.epochs, config.rate.decay = epochs, decay
        return config
    config = digits.get_config()
    config.method, config.epochs, config.batch_size, config.evaluations = "simulated_staleness", epochs, 16, 10
    config.cluster.num_workers, config.network.conv.channels = 1, (32, 64)
    config.rate.warmup_epochs, config.rate.decay, config.split = 0.0, decay, "drawn"
    return config
