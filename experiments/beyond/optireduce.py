"""Time to accuracy where gradients come late now and then: cutoff and time-out against full synchrony (OptiReduce).

OptiReduce (Warraich et al. 2025) bounds how long a collective waits: what comes later is left out. Its cloud
environments are named by the 99th percentile over the median of a message's latency, 1.5 and 3. Here the same ratios
are those of a gradient's compute time, log-normal and independent, with a median of 1 s; whole gradients are left out
and not packets of them, and nothing is lost on the way. Full synchrony waits for all; cutoff SGD predicts how many to
wait for, from the mean of the last updates; the time-out waits for three quarters of the workers, then a fifth of the
median longer. All share the hyperparameters of `configs/digits.py`, and use as many gradients.

The paper's claim is of time to accuracy, but its cause are tails of messages, of which a ring all-reduce waits for many
in a row. So the time of a used gradient, which waiting alone decides, is judged too, and what could be saved of it is
simulated: by the best fixed number of workers to wait for, and by one who knows all compute times in advance; and what
the tails of its messages cost a ring. (The predictor of cutoff SGD, a running mean of five updates, has learned all it
can: in ten times as many updates it waits for as many of 8 workers, 6.3 at the longer tail, where 6 are best.)
"""

import functools
import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from configs import digits
from experiments.beyond.sources import OPTIREDUCE
from experiments.harness import (
    Claim,
    Count,
    Output,
    Positive,
    Premise,
    Scale,
    Share,
    Sweep,
    above,
    below,
    canvas,
    colour,
    figure,
    interval,
    least,
)

METHODS = {"synchronous": "full synchrony", "cutoff": "cutoff SGD", "timeout": "time-out"}
GAIN = 30.0
"""Per cent by which OptiReduce is faster than NCCL, on average over its shared cloud environments."""
MOST = "time that could be saved, %"
SAVINGS = {
    "fixed": "best fixed number of workers",
    "known": "all run-times known in advance",
    "ring": "messages of a ring, were all of median length",
}
_DRAWS = 20_000
_NORMAL_99 = 2.3263478740408408
"""The 99th percentile of a standard normal number."""
SHOWN = {
    "seconds_to_target": "seconds to the target",
    "gain": "time to the target saved against full synchrony, %",
    "faster": "time of a used gradient saved against full synchrony, %",
    "speedup": "used gradients per second over full synchrony",
    "accuracy": "test accuracy in the end, %",
}


@figure(
    OPTIREDUCE,
    "Tails",
    scales={
        "smoke": Scale("10 s", num_workers=4, epochs=2.0, seeds=1, network="mlp", target=0.5),
        "laptop": Scale("3 min"),
        "gpu": Scale("30 min on one GPU, estimated", images="mnist", epochs=3.0, target=0.98, seeds=5),
        "paper": Scale("6 h on one GPU, estimated", images="cifar10", epochs=60.0, target=0.7, seeds=5),
    },
    differs=(
        "The paper's tails are of messages between 8 machines that train VGG, BERT and GPT-2; here gradients are late, "
        "those of a small conv net. So the size of a gain cannot be compared, only that there is one."
    ),
    stand_in="digits (8 x 8) in place of the data of VGG, BERT and GPT-2",
)
def optireduce(
    *,
    images: str = "digits",
    num_workers: Count = 8,
    ratios: list[Positive] = (1.5, 3.0),
    epochs: Positive = 20.0,
    target: Share = 0.95,
    seeds: Count = 8,
    network: str = "conv",
) -> Output:
    """Trains with each way to wait.

    Args:
      images: the data set.
      num_workers: number of workers; OptiReduce's clusters have 8.
      ratios: 99th percentiles over the median.
      epochs: epochs of used gradients.
      target: test accuracy to reach.
      seeds: number of seeds.
      network: kind of the network.
    """
    base = configured(images, num_workers=num_workers, epochs=epochs, target=target, network=network)
    points = [
        {"method": method, "cluster.long_tailed.spread": math.log(ratio) / _NORMAL_99, "seed": seed}
        for method in METHODS
        for ratio in sorted(ratios)
        for seed in range(seeds)
    ]
    sweep = Sweep(base, points)
    runs = measured(sweep.table())
    means = runs.groupby(["ratio", "method"])
    rows = [
        {"p99 / p50": ratio, "method": METHODS[method], "quantity": title} | _numbers(found[name])
        for name, title in SHOWN.items()
        for (ratio, method), found in means
        if name not in ("gain", "faster") or method != "synchronous"
    ]
    rows += [
        {"p99 / p50": ratio, "method": least.FLOOR, "quantity": SHOWN["seconds_to_target"]} | _numbers(floors(found))
        for ratio, found in runs[runs.method == "synchronous"].groupby("ratio")
    ]
    rows += [
        {"p99 / p50": ratio, "method": title, "quantity": MOST, "ours": savings(ratio, num_workers)[name], "±": None}
        for ratio in sorted(ratios)
        for name, title in SAVINGS.items()
    ]
    table = pd.DataFrame(rows).assign(paper=None)
    notes = [
        f"The target is a test accuracy of {100 * target:g} %, looked at 100 times in a run; ± is one standard "
        "deviation over seeds. A run that misses it counts with its whole time.",
        "What can be saved is of the time of used gradients, of as many; what a ring's messages would save without "
        "tails is of their own time, not of the computing beside it.",
        least.note(least.SYNCHRONOUS, "the mean of each worker's run-times, which are alike"),
    ]
    return Output(table, _drawn(sweep.evaluations(), target, runs), claims(runs, num_workers), notes)


def configured(images: str, *, num_workers: int, epochs: float, target: float, network: str) -> ConfigDict:
    """Return the configuration of all runs."""
    config = digits.get_config()
    config.data.kind, config.network.kind, config.target = images, network, target
    config.split = "drawn" if images == "digits" else "own"
    config.cluster.kind, config.cluster.num_workers = "long_tailed", num_workers
    config.cluster.long_tailed.median, config.cluster.long_tailed.tail_share = 1.0, 0.0
    config.protocol.timeout.at_least, config.protocol.timeout.seconds = 0.75, 0.2
    config.protocol.timeout.interrupt = True
    config.epochs, config.evaluations, config.average_decay = epochs, 100, None
    return config


@functools.cache
def savings(ratio: float, num_workers: int) -> dict[str, float]:
    """Return per cent of the time that could be saved, in simulated rounds; keys of `SAVINGS`.

    Args:
      ratio: 99th percentile over the median of compute times, or of messages.
      num_workers: number of workers, or of machines in the ring.
    """
    spread = math.log(ratio) / _NORMAL_99
    times, messages = np.random.default_rng(0).spawn(2)
    ends = np.sort(np.exp(times.normal(0.0, spread, (_DRAWS, num_workers))), axis=1)
    counts, slowest = np.arange(1, num_workers + 1), ends[:, -1].mean()
    full = num_workers / slowest
    # Most gradients per second of the whole run: a fixed point, from below (Dinkelbach 1967).
    known, before = full, 0.0
    while known > before * (1 + 1e-12):
        chosen = (counts - known * ends).argmax(axis=1)
        known, before = (chosen + 1).sum() / ends[np.arange(_DRAWS), chosen].sum(), known
    steps = 2 * (num_workers - 1)
    ring = steps * np.exp(messages.normal(0.0, spread, (_DRAWS, num_workers))).max(axis=1).mean()
    return {
        "fixed": float(100 * (1 - 1 / max((counts / ends.mean(axis=0)).max() / full, 1.0))),
        "known": float(100 * (1 - full / known)),
        "ring": float(100 * (1 - steps / ring)),
    }


def measured(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with their ratio, accuracy in per cent, and time saved against full synchrony with the same seed."""
    runs = runs.assign(
        ratio=np.exp(runs["cluster.long_tailed.spread"] * _NORMAL_99).round(6),
        accuracy=100 * runs.test_accuracy,
        reached=runs.seconds_to_target.notna(),
        seconds_to_target=runs.seconds_to_target.astype(float).fillna(runs.seconds),
    )
    full = runs[runs.method == "synchronous"].set_index(["ratio", "seed"]).seconds_to_target
    theirs = full.loc[list(zip(runs.ratio, runs.seed, strict=True))].to_numpy()
    return runs.assign(gain=100 * (1 - runs.seconds_to_target / theirs), faster=100 * (1 - 1 / runs.speedup))


def floors(runs: pd.DataFrame) -> pd.Series:
    """Return seconds in which workers who never wait compute the gradients that runs need to the target, or use in all.

    Args:
      runs: a row for each run; every epoch has as many gradients.
    """
    share = runs.epochs_to_target.astype(float).fillna(runs.epochs) / runs.epochs
    return runs.gradients * share / runs.capacity.astype(float)


def claims(runs: pd.DataFrame, num_workers: int) -> list[Claim]:
    """Return what the paper says of time to accuracy, here of two ways not to wait for the last."""
    grouped = list(runs[runs.method != "synchronous"].sort_values("seed").groupby(["method", "ratio"]))
    gains = {key: found.gain.to_numpy() for key, found in grouped}
    faster = {key: found.faster.to_numpy() for key, found in grouped}
    ratios, found = sorted(set(runs.ratio)), []
    most = savings(ratios[-1], num_workers)
    saves = Premise(
        f"waits of which {GAIN:g} % can be saved: of a ring's messages, tails are {most['ring']:.3g} %",
        f"one who knew all run-times would save {most['known']:.3g} %",
        met=most["known"] >= GAIN,
    )
    because = (
        f"Of one wait for {num_workers} gradients, the best fixed number of workers saves {most['fixed']:.3g} %, and "
        f"one who knew all run-times {most['known']:.3g} %. A ring waits for the slowest of {num_workers} messages in "
        f"each of {2 * (num_workers - 1)} steps, and tails are {most['ring']:.3g} % of their time."
    )
    for method in ("cutoff", "timeout"):
        largest = gains[method, ratios[-1]]
        less = below(np.log1p(-largest / 100), math.log1p(-GAIN / 100))
        found.append(
            Claim(
                f"with the longest tail, {METHODS[method]} needs at least {GAIN:g} % less time than full synchrony",
                "abstract, against NCCL, of its own bounded collective",
                ours=f"{interval(largest)} % with p99 / p50 = {ratios[-1]:g}",
                holds=less,
                paper=f"{GAIN:g} % on average",
                because="" if less.holds else because,
                premises=[saves],
                cause="tails of run-times, in place of tails of a ring's messages",
            )
        )
        quick = faster[method, ratios[-1]]
        found.append(
            Claim(
                f"with the longest tail, a used gradient of {METHODS[method]} takes less time than of full synchrony",
                "the cause that the abstract names: bounded completion times",
                ours=f"{interval(quick)} % less with p99 / p50 = {ratios[-1]:g}",
                holds=above(quick),
            )
        )
        if len(ratios) > 1:
            found.append(
                Claim(
                    f"the longer the tail, the more {METHODS[method]} saves",
                    "the point of bounding the wait",
                    ours=", ".join(f"{interval(faster[method, ratio])} % at {ratio:g}" for ratio in ratios)
                    + ", of a used gradient",
                    holds=above(quick - faster[method, ratios[0]]),
                )
            )
    return found


def _numbers(values: pd.Series) -> dict[str, float]:
    values = values.astype(float)
    return {"ours": values.mean(), "±": values.std()}


def _drawn(evaluations: pd.DataFrame, target: float, runs: pd.DataFrame) -> Figure:
    spreads = sorted(set(evaluations["cluster.long_tailed.spread"]))
    drawn, panels = canvas(1, len(spreads), width=5.5 * len(spreads), height=4.4, sharey=True)
    for panel, spread in zip(panels[0], spreads, strict=True):
        for method, title in METHODS.items():
            shade = colour(method)
            rows = (evaluations.method == method) & (evaluations["cluster.long_tailed.spread"] == spread)
            mean = evaluations[rows].groupby(evaluations[rows].groupby("seed").cumcount())
            mean = mean[["seconds", "gradients", "test_accuracy"]].mean()
            panel.plot(mean.seconds, 100 * mean.test_accuracy, color=shade, label=title)
            if method == "synchronous":
                pace = runs[(runs.method == method) & (runs["cluster.long_tailed.spread"] == spread)].capacity.mean()
                least.line(panel, least.seconds(mean.gradients, pace), 100 * mean.test_accuracy)
        panel.axhline(100 * target, color="#7a7a7a", linewidth=1)
        panel.set(title=f"p99 / p50 = {math.exp(spread * _NORMAL_99):.3g}", xlabel="virtual time, s")
        panel.set_ylim(100 * target - 20, 100)
    panels[0, 0].set_ylabel("test accuracy, %")
    panels[0, -1].legend()
    return drawn
