"""A single worker's test accuracy against its learning rate, below and above that of `configs/digits.py`.

All methods share the hyperparameters of that configuration, as those of a single worker: the first of the cluster,
alone, with Nesterov's momentum. Here its learning rate is varied; the network, the batch, momentum,
weight decay, warm-up and epochs are the configuration's, and nothing is said of them. With each seed, a run is tested
on one of four folds of all digits, in turn, and trained on all others; the fifth fold, on which methods are tuned
elsewhere, is always among those.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from configs import digits
from experiments.beyond.sources import SGDLAB
from experiments.harness import (
    PALETTE,
    Claim,
    Count,
    Output,
    Positive,
    Scale,
    Sweep,
    all_of,
    below,
    canvas,
    figure,
    interval,
)
from experiments.thresholds import SINGLE_WORKER_CLOSE
from sgdlab.results import metric_axis, simultaneous, standing
from sgdlab.results.metric import Metric

ENTRY = "optimizer.learning_rate"
FROM_BEST, AMONG = "points from the best", "among the best"
TICKS = (20, 50, 80, 90, 95, 97, 98, 99, 99.5, 99.8)


@figure(
    SGDLAB,
    "Single worker",
    scales={
        "smoke": Scale("15 s", factors=[1.0, 3.0], seeds=1, epochs=1.0),
        "laptop": Scale("2 min"),
        "decide": Scale("4 min", seeds=24),
    },
    differs="There is no paper: this is whether the learning rate that all methods share is tuned for a single worker.",
)
def single_worker(
    *,
    factors: list[Positive] = (0.03, 0.1, 0.3, 1.0, 3.0, 4.0, 10.0),
    seeds: Count = 12,
    epochs: Positive = 20.0,
) -> Output:
    """Trains a single worker with each learning rate.

    Args:
      factors: learning rates, over that of the configuration; 1 among them.
      seeds: number of seeds; a multiple of 4 tests on each fold as often.
      epochs: epochs of a run.

    Raises:
      ValueError: where the configuration's own rate is not among them.
    """
    if 1.0 not in factors:
        raise ValueError(f"factors={','.join(f'{factor:g}' for factor in factors)} must have 1, the configuration's")
    config = digits.get_config()
    config.method, config.cluster.first_workers, config.split, config.epochs = "nag_asgd", 1, "rotating", epochs
    rates = {float(f"{factor * config.optimizer.learning_rate:.6g}"): factor for factor in sorted(set(factors))}
    runs = Sweep(config, {ENTRY: list(rates), "seed": range(seeds)}).table().sort_values([ENTRY, "seed"])
    runs["factor"] = runs[ENTRY].map(rates)
    table, claim = judged(runs)
    alike = ", ".join(f"{factor:g}" for factor in table[table[AMONG]].factor)
    notes = [
        "Test accuracy: the median over seeds with its 95 % interval, low to high (of fewer than 6 seeds, the lowest "
        "and the highest); a run that diverged counts with the accuracy it ends with. Diverged: the share of runs, %, "
        "with its interval of Clopper and Pearson.",
        "Points from the best, ±: the mean over seeds of the accuracy less that of the rate with the best mean, on the "
        "same folds, batches and first parameters. The intervals of all pairs of rates hold together, with 98 %, and "
        "are at least one test example wide to each side. Among the best are those that no other rate is told apart "
        "from as better; rates of which some run diverged are not, and are compared with none.",
        f"Among the best: {alike or 'none'} times the configuration's rate.",
    ]
    return Output(table, _drawn(table, runs), [claim], notes)


def judged(runs: pd.DataFrame) -> tuple[pd.DataFrame, Claim]:
    """Return a row for each learning rate, and what is claimed of the configuration's.

    Args:
      runs: sorted by rate and seed, with the same seeds for each rate; the rate over the configuration's as `factor`.
    """
    by_rate = [of_rate for _, of_rate in runs.groupby(ENTRY)]
    values = 100 * np.array([of_rate.test_accuracy.fillna(0.0) for of_rate in by_rate], float)
    rows = []
    for of_rate, accuracies in zip(by_rate, values, strict=True):
        lost, count = int(of_rate.diverged.sum()), len(of_rate)
        shares = [100 * end for end in (lost / count, *simultaneous.share(lost, count))]
        row = {"factor": of_rate.factor.iloc[0], "learning rate": of_rate[ENTRY].iloc[0], "seeds": count}
        row |= dict(zip(("diverged", "diverged, low", "diverged, high"), shares, strict=True))
        row |= dict(zip(("low", "high"), standing.interval(accuracies.tolist()), strict=True))
        rows.append(row | {"quantity": "test accuracy, %", "ours": np.median(accuracies), "paper": None})
    table = pd.DataFrame(rows)
    compared = ((table.diverged == 0) | (table.factor == 1)).to_numpy()
    resolution = 100 / float(runs.test_examples.min())
    found = simultaneous.compare(values[compared], higher_is_better=True, resolution=resolution)
    table.loc[compared, FROM_BEST], table.loc[compared, f"{FROM_BEST}, ±"] = found.difference, found.half
    table.loc[compared, AMONG] = found.first & (table.diverged[compared] == 0)
    table[AMONG] = table[AMONG].fillna(False).astype(bool)
    own, kept = values[table.factor == 1][0], (table.diverged == 0).to_numpy()
    others = kept & (table.factor != 1).to_numpy()
    return table, _claim(
        own, dict(zip(table.factor[others], values[others], strict=True)), resolution, kept[table.factor == 1][0]
    )


def _claim(own: np.ndarray, others: Mapping[float, np.ndarray], resolution: float, kept: bool) -> Claim:
    """Return what is claimed of the configuration's rate: nothing where runs of it diverged."""
    better = {factor: accuracies - own for factor, accuracies in others.items()}
    factor, most = max(better.items(), key=lambda item: item[1].mean(), default=(1.0, own - own))
    return Claim(
        f"the configuration's learning rate is at most {SINGLE_WORKER_CLOSE:g} point of test accuracy below any other",
        "configs/digits.py",
        ours=f"{interval(most, resolution=resolution)} points below {factor:g} times the rate"
        if kept
        else "some run of it diverged",
        holds=all_of(below(more, SINGLE_WORKER_CLOSE, resolution=resolution) for more in better.values())
        if kept
        else None,
    )


def _drawn(table: pd.DataFrame, runs: pd.DataFrame) -> Figure:
    drawn, panels = canvas(2, 1, width=8.5, height=6.5, sharex=True, height_ratios=[3, 1])
    accuracy, lost = panels[:, 0]
    metric = Metric.of({"metric": "accuracy", "higher_is_better": True})
    every = (100 * runs.test_accuracy.fillna(0.0)).tolist()
    foot, top = metric_axis.limits(metric, every)
    metric_axis.set_scale(accuracy, metric, foot, top)
    accuracy.set_yticks([tick for tick in TICKS if foot <= tick <= top])
    accuracy.plot(runs.factor, every, ".", color="0.65", markersize=5, label="one run", zorder=1)
    for row in table.to_dict("records"):
        look = {"color": PALETTE[0], "markerfacecolor": PALETTE[0] if row[AMONG] else "white", "zorder": 3}
        accuracy.plot([row["factor"]] * 2, [row["low"], row["high"]], color=PALETTE[0], zorder=2)
        accuracy.plot([row["factor"]], [row["ours"]], "o", markersize=8, **look)
    accuracy.plot([], [], "o-", color=PALETTE[0], label="median, 95 % interval: among the best")
    accuracy.plot(
        [], [], "o-", color=PALETTE[0], markerfacecolor="white", label="told apart from the best, or some lost"
    )
    ends = np.abs(table[["diverged, low", "diverged, high"]].to_numpy(float).T - table.diverged.to_numpy(float))
    lost.errorbar(table.factor, table.diverged, ends, fmt="o", color=standing.LOST)
    for panel in (accuracy, lost):
        panel.axvline(1.0, color="black", linestyle="--", linewidth=1.0, zorder=0, label="the configuration's")
    lost.set(xscale="log", ylim=(-5, 105), ylabel="diverged runs, %")
    lost.set_xlabel("learning rate, over that of the configuration")
    lost.set_xticks(table.factor, [f"{factor:g}" for factor in table.factor])
    lost.minorticks_off()
    accuracy.set(ylabel="test accuracy, %")
    accuracy.legend(loc="lower left")
    return drawn
