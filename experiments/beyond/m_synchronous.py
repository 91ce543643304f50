r"""Is asynchrony needed? m-synchronous against Rennala SGD, where compute times are random (Begunov and Tyurin 2026).

m-synchronous SGD averages the first m of N gradients and interrupts the others (cutoff, with a number that stays);
Rennala SGD, whose time is optimal up to a constant, averages the first B gradients on the newest version, of which a
fast worker may send several. Both are SGD with batches of fresh gradients. With s = sigma^2 / epsilon gradients' worth
of noise, they take, up to one constant,

.. math:: T_{sync} = \min_m (1 + s / m)\, E[x_{(m)}], \qquad T_{Rennala} = \min_B (1 + s / B)\, E[T_B]

with x_(m) the m-th smallest of one compute time each, and T_B the instant of the B-th gradient of workers that begin
together and never wait. The figure is the ratio of the two. Nothing is trained.
"""

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.beyond.sources import BEGUNOV
from experiments.harness import (
    PALETTE,
    Claim,
    Count,
    Output,
    Scale,
    Sweep,
    above,
    all_of,
    below,
    canvas,
    figure,
    goes_by,
    interval,
)
from experiments.thresholds import SYNCHRONOUS_NEAR
from sgdlab.cluster import Exponential, Gamma, Ladder, Law, LongTailed

LAWS: dict[str, tuple[str, Callable[[int], Law]]] = {
    "gamma": ("gamma, equal machines", lambda n: Gamma(num_workers=n, mean=1.0)),
    "long_tailed": ("long tails (Chen et al.)", lambda n: LongTailed(num_workers=n)),
    "log_normal": ("log-normal, sigma 1", lambda n: LongTailed(num_workers=n, median=1.0, spread=1.0, tail_share=0.0)),
    "exponential": ("exponential", lambda n: Exponential(num_workers=n)),
    "unequal": ("gamma, unequal machines", lambda n: Gamma(num_workers=n, mean=1.0, heterogeneous=True)),
    "ladder": ("ladder: the i-th i times as slow", lambda n: Ladder(num_workers=n)),
}
"""Name -> title, and the law of N workers; machines are alike in the first four."""

ALIKE = ("gamma", "long_tailed", "log_normal", "exponential")
NOISE = (0.01, 0.1, 1.0, 4.0)
"""s / N."""


@figure(
    BEGUNOV,
    "Ratio",
    scales={
        "smoke": Scale("2 s", num_workers=[8, 32], rounds=8, seeds=3),
        "laptop": Scale("20 s"),
    },
    differs="Only the abstract was read: the comparison with the best Rennala SGD, and the laws, are ours.",
    full_size=True,
)
def m_synchronous(
    *, num_workers: list[Count] = (10, 30, 100, 300, 1000), rounds: Count = 20, seeds: Count = 10
) -> Output:
    """Measure how far m-synchronous SGD is behind.

    Args:
      num_workers: numbers of workers.
      rounds: over which the seconds of a step are averaged.
      seeds: number of seeds.
    """
    over = {"law": list(LAWS), "num_workers": sorted(num_workers), "seed": range(seeds)}
    runs = Sweep({"rounds": rounds}, over, work=measured).table()
    rows = [
        {
            "compute times": LAWS[law][0],
            "N": count,
            "quantity": f"times as long, {NOISE[place]:g} N gradients of noise",
            "ours": found[f"ratio_{place}"].mean(),
            "paper": None,
        }
        for (law, count), found in runs.groupby(["law", "num_workers"], sort=False)
        for place in range(len(NOISE))
    ]
    return Output(pd.DataFrame(rows), _drawn(runs), claims(runs))


@goes_by(Exponential, Gamma, Ladder, LongTailed)
def measured(*, law: str, num_workers: int, rounds: int, seed: int) -> dict[str, float]:
    """Return the ratio for each amount of noise, and the best m / N for the largest.

    Args:
      law: of `LAWS`.
      num_workers: N.
      rounds: over which the seconds of a step are averaged.
      seed: of the compute times.
    """
    cluster = LAWS[law][1](num_workers)
    sizes = np.unique(np.geomspace(1, 4 * num_workers, 40).astype(int))
    rates = 1 / cluster.draw(100, seed=seed).mean(axis=0)
    rows = 20 + math.ceil(1.5 * sizes[-1] * rates.max() / rates.sum())  # of the fastest worker in a round
    blocks = cluster.draw(rounds * rows, seed=seed).reshape(rounds, rows, num_workers)
    collected = np.mean([collecting(block, sizes) for block in blocks], axis=0)
    # Both have the same compute times, so that the ratio varies less than either.
    ordered, count = np.sort(blocks[:, 0], axis=1).mean(axis=0), np.arange(1, num_workers + 1)
    found = {}
    for place, noise in enumerate(num_workers * np.array(NOISE)):
        synchronous = (1 + noise / count) * ordered
        found[f"ratio_{place}"] = float(synchronous.min() / ((1 + noise / sizes) * collected).min())
        found["waited_for"] = float(count[synchronous.argmin()] / num_workers)
    return found


def collecting(runtimes: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the seconds until workers that begin together and never wait have computed so many gradients.

    Args:
      runtimes: float64[K, N], seconds.
      sizes: int[B], numbers of gradients.

    Raises:
      ValueError: where the compute times of a worker do not last until then.

    Example:
      >>> collecting(np.array([[1.0, 2.5], [1.0, 2.5], [1.0, 2.5]]), np.array([1, 2, 3]))
      array([1. , 2. , 2.5])
    """
    ends = runtimes.cumsum(axis=0)
    known = np.sort(ends[ends <= ends[-1].min()])
    if known.size < np.max(sizes):
        raise ValueError(f"runtimes of {len(runtimes)} rows must be more: they end after {known.size} gradients")
    return known[np.asarray(sizes) - 1]


def claims(runs: pd.DataFrame) -> list[Claim]:
    """Return what the paper says of random compute times, and where it ends."""
    ratios = [f"ratio_{place}" for place in range(len(NOISE))]
    worst = runs.assign(worst=runs[ratios].max(axis=1)).sort_values("seed")
    of = {key: found.worst.to_numpy() for key, found in worst.groupby(["law", "num_workers"])}
    few, many = min(runs.num_workers), max(runs.num_workers)
    words = lambda laws: "; ".join(f"{LAWS[law][0]}: {interval(of[law, many])} times as long" for law in laws)
    return [
        Claim(
            "m-synchronous SGD is optimal up to a logarithmic factor where compute times are random (here: at most "
            "1 + ln N times as long as Rennala SGD, each with its best number of gradients, whatever the noise)",
            "Abstract",
            ours=f"with {many} workers: {words(LAWS)}",
            holds=all_of(below(found, 1 + math.log(count), resolution=0.001) for (_, count), found in of.items()),
        ),
        Claim(
            "The factor is no logarithm where machines are alike and their compute times random (here: at most "
            f"{SYNCHRONOUS_NEAR:g})",
            "sgdlab",
            ours=f"with {many} workers: {words(ALIKE)}",
            holds=all_of(
                below(of[law, count], SYNCHRONOUS_NEAR, resolution=0.001)
                for law in ALIKE
                for count in set(runs.num_workers)
            ),
        ),
        Claim(
            "Where machines stay as unequal as can be, the i-th i times as slow, the factor grows with their number: "
            "asynchrony is needed there",
            "sgdlab",
            ours=f"{interval(of['ladder', few])} times as long with {few} workers, {interval(of['ladder', many])} "
            f"with {many}",
            holds=above(of["ladder", many] - of["ladder", few], 0.0),
        ),
    ]


def _drawn(runs: pd.DataFrame) -> Figure:
    drawn, panels = canvas(1, 2, width=11, height=4.4)
    by_noise, by_number = panels[0]
    ratios = [f"ratio_{place}" for place in range(len(NOISE))]
    many = max(runs.num_workers)
    for shade, (law, (title, _)) in zip(PALETTE, LAWS.items(), strict=False):
        own = runs[runs.law == law]
        most = own[own.num_workers == many][ratios]
        by_noise.errorbar(NOISE, most.mean(), 2 * most.std() / math.sqrt(len(most)), fmt="o-", color=shade)
        worst = own.assign(worst=own[ratios].max(axis=1)).groupby("num_workers").worst
        by_number.errorbar(worst.mean().index, worst.mean(), 2 * worst.sem(), fmt="o-", color=shade, label=title)
    counts = np.array(sorted(set(runs.num_workers)))
    by_number.plot(counts, 1 + np.log(counts), "k:", label="1 + ln N")
    by_noise.set(xscale="log", xlabel=f"gradients' worth of noise, over N = {many}")
    by_noise.set_title(f"m-synchronous SGD, {many} workers")
    by_number.set(xscale="log", xlabel="workers N", title="m-synchronous SGD, the noise that is worst for it")
    for panel in (by_noise, by_number):
        panel.axhline(1, color="grey", linewidth=1)
        panel.set(ylim=(0, None), ylabel="times as long as Rennala SGD")
    drawn.legend(*by_number.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return drawn
