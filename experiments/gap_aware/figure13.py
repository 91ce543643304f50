"""Final test error against the number of workers, heterogeneous, three frameworks (Barkai et al. 2020, Figure 13).

Machines differ: the means of their times are gamma-distributed with a coefficient of variation of 0.6 (Algorithm 13).
They are quantiles of this law, the same with every seed, but at the paper's size, where they are drawn as in the paper:
how unequal a few machines happen to be would otherwise be most of what differs between seeds. All else is as in
Figure 2, whose runs on the homogeneous cluster are compared with these, paired by seed: a seed draws initial values and
examples for both. Lines are geometric means over seeds, as the logarithmic axes have them, with their 95 % intervals;
the dashed line is the single worker, to whose training the speed of its machine is all the same. The lower row is by
how much the test error is lower than on the homogeneous cluster. Lost runs count with the error that they end with, and
are marked in the table.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from experiments import harness, papers
from experiments.gap_aware import frameworks, lines
from experiments.gap_aware.accuracies import Accuracies, Cell, accuracies, everywhere, table
from experiments.gap_aware.frameworks import METHODS, Letter, Size
from experiments.harness.claims import Claim
from experiments.harness.evidence import above, all_of
from experiments.harness.figures import Output, Scale, figure
from experiments.harness.intervals import interval
from experiments.harness.pictures import canvas
from sgdlab.bounds import Count, Share
from sgdlab.runs.sweep import Sweep

Method = Literal[tuple(METHODS)]
SUPERIOR = ("GA", "DANA-GA")
Speeds = Literal["quantiles", "drawn"]
HETEROGENEOUS = {"quantiles": {"cluster.kind": "gamma_quantiles"}, "drawn": {"cluster.gamma.heterogeneous": True}}
"""Entries of the cluster, by how machines get their speeds."""
SUFFIX = ", heterogeneous"
"""After the title of a method, where both clusters are compared."""


@figure(
    papers.GAP,
    "Figure 13",
    scales={
        "smoke": Scale(
            "10 s", frameworks=["R"], num_workers=[4], methods=["asgd", "gap_aware"], seeds=1, epochs_share=0.02
        ),
        "laptop": Scale("20 min", after="gap_aware.tables4_6"),
        "decide": Scale("70 min", after="gap_aware.tables4_6", seeds=12),
        "gpu": Scale("1 h, estimated", size="gpu", frameworks=["R"], num_workers=[8, 32], seeds=1),
        "paper": Scale(
            "GPU-months, estimated", size="paper", num_workers=list(range(4, 33, 4)), seeds=5, speeds="drawn"
        ),
    },
    differs=frameworks.DIFFERS,
    stand_in=frameworks.STAND_IN,
)
def figure13(
    *,
    frameworks: list[Letter] = ("R", "W", "W100"),
    num_workers: list[Count] = (4, 8, 16, 32),
    methods: list[Method] = tuple(METHODS),
    seeds: Count = 3,
    speeds: Speeds = "quantiles",
    size: Size = "laptop",
    epochs_share: Share = 1.0,
) -> Output:
    """Trains all methods on heterogeneous clusters.

    Args:
      frameworks: R (CIFAR-10, ResNet-20), W (CIFAR-10, WRN-16-4) and W100 (CIFAR-100, WRN-16-4).
      num_workers: numbers of workers, N.
      methods: of the seven of section 6; all by default.
      seeds: number of seeds.
      speeds: of machines: quantiles of their law, the same with every seed, or drawn from it, as in the paper.
      size: laptop: digits and small conv nets; gpu: CIFAR with an eighth or a tenth of the epochs; paper: as printed.
      epochs_share: of the size's epochs, at most 1.
    """
    found, smaller = compared(*sweeps(frameworks, num_workers, methods, seeds, size, epochs_share, speeds))
    notes = [
        "± is one standard deviation over seeds. The paper draws the curves, and prints no numbers. Verdicts rest on "
        "95 % intervals of differences that are paired by seed, or on how many seeds go which way in cells where runs "
        "were lost (sign test)."
    ]
    return Output(summarised(found, size), drawn(found, size), claims(found, smaller), notes)


class Compared:
    """Accuracies on homogeneous and on heterogeneous clusters.

    Args:
      homogeneous: runs, as `Accuracies` takes them, with the single worker.
      heterogeneous: of the same methods, numbers of workers and seeds.
    """

    def __init__(self, homogeneous: pd.DataFrame, heterogeneous: pd.DataFrame):
        single = homogeneous[homogeneous.N == 1]
        self.heterogeneous = Accuracies(pd.concat([single, heterogeneous], ignore_index=True))
        self.homogeneous = Accuracies(homogeneous)
        renamed = heterogeneous.assign(method=heterogeneous.method + SUFFIX)
        self.both = Accuracies(pd.concat([homogeneous, renamed], ignore_index=True))
        self.letters, self.workers = self.heterogeneous.letters, self.heterogeneous.workers
        self.methods = list(dict.fromkeys(heterogeneous.method))

    def gained(self, cell: Cell, method: str) -> np.ndarray:
        """float64[seeds]: points of test accuracy that a heterogeneous cluster gains, paired by seed."""
        return self.both.values(cell, method + SUFFIX) - self.both.values(cell, method)


Sweeps = dict[str, Sweep]
"""By letter."""


def sweeps(
    letters: list[str],
    num_workers: list[int],
    methods: list[str],
    seeds: int,
    size: Size,
    share: float,
    speeds: Speeds = "quantiles",
) -> tuple[Sweeps, Sweeps]:
    """Return the runs on homogeneous clusters, with the single worker's, and those on heterogeneous ones."""
    of = {"num_workers": num_workers, "methods": methods, "seeds": seeds, "share": share}
    changed = {"single": False, "changed": HETEROGENEOUS[speeds]}
    homogeneous = {letter: frameworks.sweep(letter, size, **of) for letter in letters}
    return homogeneous, {letter: frameworks.sweep(letter, size, **of, **changed) for letter in letters}


def compared(homogeneous: Sweeps, heterogeneous: Sweeps) -> tuple[Compared, dict[str, dict[int, np.ndarray]]]:
    """Return the accuracies, and letter -> N -> how much smaller the mean gap of GA is on heterogeneous clusters."""
    harness.prepare(*homogeneous.values(), *heterogeneous.values())
    smaller = {letter: _smaller_gap(homogeneous[letter], heterogeneous[letter]) for letter in homogeneous}
    return Compared(accuracies(homogeneous).runs, accuracies(heterogeneous).runs), smaller


def _smaller_gap(homogeneous: Sweep, heterogeneous: Sweep) -> dict[int, np.ndarray]:
    gaps = []
    for sweep in (homogeneous, heterogeneous):
        runs = sweep.table()
        runs = runs[runs.method == "gap_aware"]
        gaps.append(runs.pivot(index="cluster.num_workers", columns="seed", values="gap").astype(float))
    return {int(n): row.to_numpy() for n, row in (gaps[0] - gaps[1]).iterrows()}


def summarised(found: Compared, size: Size) -> pd.DataFrame:
    """Test errors in %, with those on homogeneous clusters."""
    rows = [table(of, size, lambda *_: np.nan) for of in (found.heterogeneous, found.homogeneous)]
    rows = [of.assign(ours=100 - of.ours) for of in rows]
    key = ["framework", "N", "method"]
    homogeneous = rows[1].set_index(key).ours.rename("homogeneous, %").reset_index()
    merged = rows[0].merge(homogeneous, on=key, how="left")
    return merged[[*key, "lost", "homogeneous, %", "ours", "±", "paper"]]


def drawn(found: Compared, size: Size) -> Figure:
    """Test errors above, how much lower they are than on homogeneous clusters below; a column for each framework."""
    picture, panels = canvas(2, len(found.letters), width=max(4.6 * len(found.letters), 7), height=8)
    for (errors, gains), letter in zip(panels.T, found.letters, strict=True):
        workers = found.workers(letter)
        for place, method in enumerate(found.methods):
            values = [100 - found.heterogeneous.values((letter, n), method) for n in workers]
            lines.errors(errors, workers, method, values)
            before = [100 - found.homogeneous.values((letter, n), method) for n in workers]
            beside = np.arange(len(workers)) + 0.1 * (place - (len(found.methods) - 1) / 2)
            ratios = [np.log(old / new) for old, new in zip(before, values, strict=True)]
            lines.bars(gains, beside, ratios, lines.line(method) | {"linestyle": "none"}, logarithmic=True)
        lines.level(errors, np.exp(np.log(100 - found.heterogeneous.single(letter)).mean()))
        lines.logarithmic([errors], workers)
        gains.axhline(1, color="0.4", linewidth=1)
        gains.set_yscale("log")
        limits = gains.get_ylim()
        gains.set_yticks([0.5, 0.7, 1, 1.4, 2, 3, 5, 10, 20, 50])
        gains.set_ylim(limits)
        gains.yaxis.set_major_formatter("{x:g}")
        gains.yaxis.set_minor_formatter(NullFormatter())
        gains.set_xticks(range(len(workers)), workers)
        name = frameworks.heading(letter, size)
        errors.set_title(f"{name}\ntest error, %", fontsize=10.5)
        gains.set_title("test error, homogeneous over heterogeneous", fontsize=10.5)
        gains.set_xlabel("workers")
    lines.legend(picture, panels[0, 0], columns=8 if len(found.letters) > 2 else 4)
    return picture


def claims(found: Compared, smaller: Mapping[str, Mapping[int, np.ndarray]]) -> list[Claim]:
    """Return the statements of appendix D.2."""
    cells = found.heterogeneous.cells
    single, _ = everywhere(found.both, [(m + SUFFIX, m) for m in found.methods], cells)
    where, made = "appendix D.2", []
    for mean, name in ((np.mean, "on average"), (np.median, "in the median, which lost runs do not decide,")):
        gained = {
            letter: interval(mean([found.gained(c, m) for c in cells if c[0] == letter for m in found.methods], axis=0))
            for letter in found.letters
        }
        points = ", ".join(f"{letter} {points}" for letter, points in gained.items())
        made.append(
            Claim(
                f"heterogeneous environments reach a higher accuracy, {name} over methods and numbers of workers",
                where,
                ours=f"points higher: {points}. Each method with each number of workers: {single}",
                holds=all_of(above(points) for points in gained.values()),
            )
        )
    if any(smaller.values()):
        shown = {
            letter: ", ".join(f"N={n} {interval(less)}" for n, less in of_letter.items())
            for letter, of_letter in smaller.items()
        }
        holds = all_of(above(less) for of_letter in smaller.values() for less in of_letter.values())
        made.append(
            Claim(
                "gradients are more accurate, since those of fast workers arrive more frequently (a smaller gap)",
                where,
                ours="GA's mean gap is smaller by " + "; ".join(f"{letter} {less}" for letter, less in shown.items()),
                holds=holds,
                because=""
                if holds.holds is not False
                else "We think: among few machines hardly one is fast, and the slowest ones' gradients are stale.",
            )
        )
    others = [m for m in found.methods if m not in SUPERIOR]
    for method in (m for m in SUPERIOR if m in found.methods and others):
        words, holds = everywhere(found.heterogeneous, [(method, other) for other in others])
        made.append(Claim(f"{method} is superior to the other tested algorithms", where, words, holds))
    return made
