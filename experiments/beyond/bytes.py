"""Accuracy against megabytes and against seconds, of compressed messages and of local steps (digits, a star network).

Eight workers take 8 s for a gradient on average; all of their uncompressed messages at once take the server's link,
which they share, 16 s each way. Compared are synchronous SGD with shorter messages (4 bits, signs, the largest
hundredth of the entries, PowerSGD), with the memories of what was left out that their sources have, and DiLoCo, whose
messages are whole but come once in several steps. What the server answers is not compressed: of a round's bytes,
compression saves at most half, and local steps save both.

Each method has the rate of a short grid, of factors on the configuration's, with which the mean accuracy of some seeds
is best in the end, on a fold that is tested on nowhere else; nothing else is tuned, and nothing for the time to a
target. All make as many gradients. The method of each compressor is named by its source; DiLoCo's is a reconstruction,
on a small network.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from ml_collections import ConfigDict

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
    above,
    all_of,
    bars,
    below,
    canvas,
    figure,
    interval,
)
from experiments.thresholds import BYTES_CLOSE
from sgdlab.runs import resolve
from sgdlab.runs.messages import sizes_of

NAMES = ("method", "compression.kind", "compression.feedback")
"""The entries in which the methods differ."""
METHODS = {
    "uncompressed": ("synchronous", "none", None),
    "4 bits": ("synchronous", "four_bit", "none"),
    "signs, error feedback": ("synchronous", "sign", "error"),
    "top 1 %, error feedback": ("synchronous", "top_k", "error"),
    "top 1 %, EF21": ("synchronous", "top_k", "ef21"),
    "PowerSGD, error feedback": ("synchronous", "power_sgd", "error"),
    "DiLoCo": ("diloco", "none", None),
    "DiLoCo, 4 bits": ("diloco", "four_bit", "none"),
}
"""Title -> the values of `NAMES`."""
WHOLE = "uncompressed"
RATES = ("optimizer.learning_rate", "optimizer.adam_learning_rate")
"""The rates of gradients, and of DiLoCo's workers, which a factor multiplies."""

QUANTITIES = {
    "accuracy": "test accuracy, end, %",
    "seconds": "seconds of the run",
    "seconds_to_target": "seconds to the target",
    "sent": "megabytes sent",
    "received": "megabytes received",
    "sent_to_target": "megabytes sent to the target",
}
"""Column of runs -> what it is, in words."""

MESSAGE_SECONDS = 2.0
"""Seconds of a lone uncompressed message on the server's link; a gradient takes 8 s on average."""


@figure(
    SGDLAB,
    "Bytes",
    scales={
        "smoke": Scale("30 s", factors=[1.0], seeds=1, epochs=1.0, network="mlp"),
        "laptop": Scale("10 min"),
        "decide": Scale("25 min", seeds=32),
    },
    differs="There is no paper: a small network stands for a large one, whose messages take as long as here.",
)
def bytes_(
    *,
    factors: list[Positive] = (0.3, 1.0, 3.0, 10.0, 30.0),
    tuning_seeds: Count = 3,
    steps: Count = 10,
    seeds: Count = 8,
    epochs: Positive = 20.0,
    network: str = "conv",
) -> Output:
    """Tunes the rate of each method on a fold of its own, and runs it on others.

    Args:
      factors: on the configuration's learning rates, of the grid.
      tuning_seeds: seeds with which each rate is tried.
      steps: H, DiLoCo's steps between two messages.
      seeds: number of seeds; a multiple of 4 tests on each fold as often.
      epochs: of the gradients of all workers together.
      network: its kind.
    """
    base, grid = configured(epochs, network), sorted(set(factors))
    best = dict.fromkeys(METHODS, grid[0])
    if len(grid) > 1:
        tuning = configured(epochs, network, split="validation")
        points = [_point(m, factor, steps, seed) for m in METHODS for factor in grid for seed in range(tuning_seeds)]
        best = {title: _best(tried) for title, tried in named(Sweep(tuning, points).table()).groupby("title")}
    sweep = Sweep(base, [_point(m, best[m], steps, seed) for m in METHODS for seed in range(seeds)])
    sizes = {m: message_bytes(base, _point(m, 1.0, steps, 0)) for m in METHODS}
    runs, course = with_bytes(named(sweep.table()), sizes), named(sweep.evaluations())
    rows = [
        {"method": title, "factor on the rate": best[title], "quantity": words} | _numbers(found[name])
        for name, words in QUANTITIES.items()
        for title, found in runs.groupby("title", sort=False)
    ]
    edges = sorted({title for title, factor in best.items() if len(grid) > 1 and factor in (grid[0], grid[-1])})
    notes = [
        f"Means over {seeds} seeds, ± one standard deviation. Seconds are virtual; to {100 * base.target:g} %: empty "
        "where not every seed comes there. Megabytes sent are a worker's own; received are what the server answers.",
        "Bytes of a message: " + "; ".join(f"{title} {size:,.0f}" for title, size in sizes.items()) + ".",
    ]
    notes += (
        [f"The best factor is at an edge of the grid for {', '.join(edges)}: others may be better."] if edges else []
    )
    return Output(pd.DataFrame(rows).assign(paper=None), _drawn(course, sizes), claims(runs, steps), notes)


def configured(epochs: float, network: str, *, split: str = "rotating") -> ConfigDict:
    """Return the configuration of all runs."""
    config = digits.get_config()
    config.network.kind = network
    config.epochs, config.split, config.evaluations, config.average_decay = epochs, split, 40, None
    config.cluster.gamma.heterogeneous = False
    config.transport.kind = "star"
    whole = sizes_of(resolve(config)).parameters
    config.transport.star.server.gbits = 8e-9 * whole / MESSAGE_SECONDS
    config.transport.star.sharing = "fair"
    return config


def message_bytes(base: ConfigDict, point: Mapping[str, Any]) -> float:
    """Return the bytes of what a worker sends with the entries of a point."""
    config = base.copy_and_resolve_references()
    config.update_from_flattened_dict({name: value for name, value in point.items() if value is not None})
    return sizes_of(resolve(config)).gradient


def named(runs: pd.DataFrame) -> pd.DataFrame:
    """Return rows of a sweep with the title of their method, and the factor on its rates.

    Args:
      runs: with a column for each of `NAMES` and `RATES`.
    """
    of = {tuple(value or "none" for value in values): title for title, values in METHODS.items()}
    keys = runs[list(NAMES)].fillna("none").itertuples(index=False, name=None)
    factors = runs[RATES[0]] / digits.get_config().optimizer.learning_rate
    return runs.assign(title=[of[key] for key in keys], factor=factors.round(6))


def with_bytes(runs: pd.DataFrame, sizes: Mapping[str, float]) -> pd.DataFrame:
    """Return runs with their accuracy in per cent, and the megabytes of a worker.

    All rounds have a message of each worker, so that bytes grow with the gradients that are used.

    Args:
      runs: of `named`.
      sizes: bytes of a message, by title.
    """
    sent = 1e-6 * runs.title.map(sizes) * runs.updates
    reached = runs.epochs_to_target.astype(float) / runs.epochs
    return runs.assign(
        accuracy=100 * runs.test_accuracy.astype(float),
        sent=sent,
        received=1e-6 * runs.worker_bytes - sent,
        sent_to_target=sent * reached,
    )


def claims(runs: pd.DataFrame, steps: int) -> list[Claim]:
    """Return what we say of shorter and of fewer messages; differences are of the same seeds."""
    of = {title: found.sort_values("seed") for title, found in runs.groupby("title")}
    resolution = 100 / float(runs.test_examples.min())
    column = lambda title, name: of[title][name].astype(float).to_numpy()
    shorter = [title for title in METHODS if title != WHOLE]
    worse = {title: column(WHOLE, "accuracy") - column(title, "accuracy") for title in shorter}
    found = [
        Claim(
            f"{title}{f' (H = {steps})' if title.startswith('DiLoCo') else ''}: as many gradients end at most "
            f"{BYTES_CLOSE:g} point of test accuracy below those of uncompressed messages",
            "docs/messages.md",
            ours=f"{interval(worse[title], resolution=resolution)} points below",
            holds=below(worse[title], BYTES_CLOSE, resolution=resolution),
        )
        for title in shorter
    ]
    for name, words in (("sent_to_target", "sends fewer bytes"), ("seconds_to_target", "takes less virtual time")):
        saved = {title: np.log(column(title, name) / column(WHOLE, name)) for title in shorter}
        each = {title: below(values) for title, values in saved.items()}
        against = [title for title, evidence in each.items() if evidence.holds is False]
        times = "; ".join(f"{title} {_times(values)}" for title, values in saved.items())
        found.append(
            Claim(
                f"each of them {words} until it is at 95 %",
                "docs/messages.md",
                ours=f"times those of uncompressed messages: {times}",
                holds=all_of(each.values()),
                because=f"Not so: {'; '.join(against)}." if against else "",
            )
        )
    gained = column("top 1 %, error feedback", "accuracy") - column("top 1 %, EF21", "accuracy")
    found.append(
        Claim(
            "of the largest hundredth of the entries, error feedback ends at a higher accuracy than EF21",
            "docs/messages.md",
            ours=f"{interval(gained, resolution=resolution)} points",
            holds=above(gained, resolution=resolution),
        )
    )
    return found


def _times(logarithms: np.ndarray) -> str:
    """Return a geometric mean with its interval, in words."""
    if not np.isfinite(logarithms).all():
        return "none: not all seeds come there"
    found = interval(logarithms)
    low, mean, high = np.exp([found.low, found.mean, found.high])
    return f"{mean:.2g} ({low:.2g} to {high:.2g})"


def _best(tried: pd.DataFrame) -> float:
    """Return the factor with the highest mean accuracy; of equal ones, the lowest. A run that diverged has none."""
    means = tried.assign(accuracy=tried.test_accuracy.astype(float).fillna(0.0)).groupby("factor").accuracy.mean()
    return float(means.idxmax())


def _point(title: str, factor: float, steps: int, seed: int) -> dict[str, Any]:
    values, optimizer = METHODS[title], digits.get_config().optimizer
    rates = {name: factor * optimizer[name.partition(".")[2]] for name in RATES}
    local = {"local.steps": steps} if values[0] == "diloco" else {}
    return dict(zip(NAMES, values, strict=True)) | rates | local | {"seed": seed}


def _numbers(values: pd.Series) -> dict[str, float]:
    values = values.astype(float)
    return {"ours": values.mean(skipna=False), "±": values.std(skipna=False)}


def _drawn(course: pd.DataFrame, sizes: Mapping[str, float]) -> Figure:
    drawn, panels = canvas(1, 2, width=12, height=6, sharey=True)
    for shade, (title, size) in zip(PALETTE, sizes.items(), strict=True):
        found = course[(course.title == title) & (course.updates > 0)]
        by = found.groupby(found.groupby("seed").cumcount())
        accuracies = [interval(100 * of.test_accuracy.astype(float)) for _, of in by]
        for panel, x in zip(panels[0], (1e-6 * size * by.updates.mean(), by.seconds.mean()), strict=True):
            panel.plot(x, [each.mean for each in accuracies], color=shade, label=title)
            bars(panel, [x.iloc[-1]], accuracies[-1:], fmt="o", color=shade)
    for panel, label in zip(panels[0], ("megabytes that a worker has sent", "virtual time, s"), strict=True):
        panel.set(xscale="log", xlabel=label, ylim=(80, 100))
    panels[0, 0].set_ylabel("test accuracy, %")
    words = "means of the seeds; at the end, with 95 % intervals"
    drawn.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, title=words)
    return drawn
