"""Mean delay (staleness + 1) and mean gap by epoch, WRN-16-4 on CIFAR-100 (Barkai et al. 2020, Figure 4).

The delay is what Staleness-Aware divides a gradient by: 1 for a fresh one, and one more for each update that was made
since its worker read. The gap is what Gap-Aware (GA) and DANA-GA divided their gradients by, averaged over parameters
and over the gradients of an epoch. Both are of the same runs, those of Tables 4 to 6; the delays of GA's runs are
shown, and those of all methods are the same, since the cluster does not depend on the method. Lines are means over
seeds and bands one standard deviation; dotted lines are where the learning rate falls. All panels have one logarithmic
scale.
"""

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter

from experiments import papers
from experiments.gap_aware import frameworks, lines
from experiments.gap_aware.accuracies import spread
from experiments.gap_aware.frameworks import FRAMEWORKS, METHODS, Letter, Size
from experiments.harness import Claim, Output, Scale, above, all_of, figure, interval
from experiments.harness.pictures import PALETTE, canvas
from experiments.thresholds import FIGURE4_MUCH_LESS
from sgdlab.bounds import Count, Share

GA, DANA_GA = "GA", "DANA-GA"
PANELS = ((DANA_GA, "gap", "gap of DANA-GA"), (GA, "gap", "gap of GA"), (GA, "delay", "delay (SA)"))
"""A method, what of its runs is shown, and what it is called: from left to right as in the paper."""
PARTS = ("all epochs", "largest learning rate", "smallest learning rate")
"""Of the training."""


@figure(
    papers.GAP,
    "Figure 4",
    scales={
        "smoke": Scale("10 s", framework="R", num_workers=[4], seeds=1, epochs_share=0.02),
        "laptop": Scale("6 min, or seconds after tables4_6"),
        "gpu": Scale("50 min, estimated", size="gpu", num_workers=[8, 32], seeds=3),
        "paper": Scale("GPU-weeks, estimated", size="paper", num_workers=[4, 8, 16, 24, 32]),
    },
    differs=frameworks.DIFFERS,
    stand_in="pairs of digits in place of CIFAR-100",
)
def figure4(
    *,
    framework: Letter = "W100",
    num_workers: list[Count] = (4, 8, 16, 32),
    seeds: Count = 5,
    size: Size = "laptop",
    epochs_share: Share = 1.0,
) -> Output:
    """Draws delays and gaps of the runs.

    Args:
      framework: W100 (CIFAR-100, WRN-16-4), as in the paper; R (CIFAR-10, ResNet-20) or W (CIFAR-10, WRN-16-4).
      num_workers: numbers of workers, N.
      seeds: number of seeds.
      size: laptop: digits and small conv nets; gpu: CIFAR with an eighth or a tenth of the epochs; paper: as printed.
      epochs_share: of the size's epochs, at most 1.
    """
    of = {"num_workers": num_workers, "seeds": seeds, "share": epochs_share}
    sweep = frameworks.sweep(framework, size, methods=["gap_aware", "dana_gap_aware"], single=False, **of)
    steps = FRAMEWORKS[framework].config(size, share=epochs_share).rate.steps
    measured = Penalties(sweep.evaluations(), steps)
    notes = [
        f"Trained: {frameworks.title(framework, size)}. ± is one standard deviation over seeds. The paper draws the "
        "curves, and prints no numbers.",
        f"The largest learning rate: epochs to {steps[0]:g}, warm-up included; the smallest: from {steps[-1]:g} on.",
    ]
    return Output(summarised(measured), drawn(measured, frameworks.title(framework, size)), claims(measured), notes)


class Penalties:
    """Delays and gaps by epoch.

    Args:
      evaluations: columns method, cluster.num_workers, seed, epoch, staleness and penalty, the last two means over the
        gradients since the evaluation before. The first evaluation of a run precedes all gradients.
      steps: epochs at which the learning rate falls.
    """

    def __init__(self, evaluations: pd.DataFrame, steps: Sequence[float]):
        trained = evaluations[evaluations.epoch > 0].assign(method=lambda rows: rows.method.map(METHODS))
        trained = trained.assign(delay=trained.staleness.astype(float) + 1, gap=trained.penalty.astype(float))
        self.steps = tuple(steps)
        self.num_workers = list(dict.fromkeys(trained["cluster.num_workers"]))
        self._of = dict(list(trained.groupby(["method", "cluster.num_workers"])))

    def curves(self, method: str, workers: int, of: str) -> pd.DataFrame:
        """Return means over the gradients of each epoch: a row an epoch, a column a seed.

        Args:
          method: its title.
          workers: N.
          of: "delay" or "gap".
        """
        return self._of[method, workers].pivot(index="epoch", columns="seed", values=of)

    def means(self, method: str, workers: int, of: str, part: str = "all epochs") -> np.ndarray:
        """float64[seeds]: means over a part of the training, one of `PARTS`; NaN where no epoch is in it."""
        curves = self.curves(method, workers, of)
        ends = curves.index.to_numpy()
        begins = np.concatenate([[0.0], ends[:-1]])
        inside = {PARTS[0]: ends > 0, PARTS[1]: ends <= self.steps[0], PARTS[2]: begins >= self.steps[-1]}[part]
        return curves[inside].mean().to_numpy()


def summarised(measured: Penalties) -> pd.DataFrame:
    """Return means over all epochs, over those of the largest learning rate, and over those of the smallest."""
    rows = []
    for (method, of, name), workers, part in itertools.product(PANELS, measured.num_workers, PARTS):
        values = measured.means(method, workers, of, part)
        about = {"quantity": f"mean {name}", "N": workers, "epochs": part}
        rows.append(about | {"ours": values.mean(), "±": spread(values)})
    return pd.DataFrame(rows).assign(paper=np.nan)


def drawn(measured: Penalties, title: str) -> Figure:
    """Three panels on one scale; the title says what is trained."""
    picture, (panels,) = canvas(1, 3, width=13, height=4.8, sharey=True)
    for panel, (method, of, name) in zip(panels, PANELS, strict=True):
        for shade, workers in zip(itertools.cycle(PALETTE), reversed(measured.num_workers)):
            curves = measured.curves(method, workers, of)
            style = {"color": shade, "label": f"{workers} workers", "linewidth": 1.8, "marker": ""}
            lines.banded(panel, curves.index, list(curves.to_numpy()), style)
        for epoch in measured.steps:
            panel.axvline(epoch, color="0.6", linestyle=":", linewidth=1.2)
        panel.set(title=name, xlabel="epoch")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.set_yscale("log", base=2)
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_formatter(NullFormatter())
    panels[0].set(ylabel="mean over gradients", ylim=(0.95, None))
    picture.suptitle(title, fontsize=12)
    lines.legend(picture, panels[0])
    return picture


def claims(measured: Penalties) -> list[Claim]:
    """Return the statements of section 5.1, appendix C.8 and the caption."""
    methods, workers = (GA, DANA_GA), measured.num_workers

    def constantly(says: str, pairs: Sequence[tuple[tuple[str, str], tuple[str, str]]]) -> Claim:
        """Of pairs, each a method and what of its runs, the first is lower than the second in every epoch."""
        lower = all_of(
            above(row)
            for (less, more), n in itertools.product(pairs, workers)
            for row in measured.curves(more[0], n, more[1]).to_numpy() - measured.curves(less[0], n, less[1]).to_numpy()
        )
        verdicts = [part.holds for part in lower.parts]
        counts = ", ".join(
            f"{word} in {verdicts.count(verdict)}"
            for verdict, word in ((True, "lower"), (False, "higher"), (None, "open"))
            if verdict in verdicts
        )
        words = f"of {len(verdicts)} comparisons (each epoch with each number of workers), each by itself, {counts}"
        return Claim(says, "appendix C.8", words, lower)

    keys = list(itertools.product(methods, workers))
    ratio = {(method, n): measured.means(GA, n, "delay") / measured.means(method, n, "gap") for method, n in keys}
    falls = {}
    for method, n in keys:
        first, last = (measured.means(method, n, "gap", p) / measured.means(GA, n, "delay", p) for p in PARTS[1:])
        falls[method, n] = first - last
    less = {(GA, n): measured.means(GA, n, "gap") - measured.means(DANA_GA, n, "gap") for n in workers}
    much_less = FIGURE4_MUCH_LESS.rewritten(math.log(FIGURE4_MUCH_LESS))
    return [
        Claim(
            "E[G_k] < tau_k",
            "section 5.1",
            ours="mean delay / mean gap: " + "; ".join(f"{m} {_listed(ratio, m)}" for m in methods),
            holds=all_of(above(np.log(values)) for values in ratio.values()),
        ),
        constantly(
            "the gap is constantly lower than the delay, of GA and of DANA-GA",
            [((m, "gap"), (m, "delay")) for m in methods],
        ),
        Claim(
            "especially towards the end of the training, where the learning rate is small: gap / delay is lower there",
            "appendix C.8",
            ours="gap / delay falls from the largest rate to the smallest by "
            + "; ".join(f"{m} {_listed(falls, m)}" for m in methods),
            holds=all_of(above(values) for values in falls.values()),
        ),
        Claim(
            "GA penalizes the stale gradient much less than SA: the delay is more than "
            f"{FIGURE4_MUCH_LESS:g} times the gap",
            "caption of Figure 4",
            ours=f"mean delay / mean gap {_listed(ratio, GA)}",
            holds=all_of(above(np.log(ratio[GA, n]), much_less) for n in workers),
        ),
        Claim(
            "DANA-GA penalizes the stale gradients even less than GA, on average over the training",
            "caption of Figure 4",
            ours=f"GA's mean gap less DANA-GA's: {_listed(less, GA)}",
            holds=all_of(above(values) for values in less.values()),
        ),
        constantly(
            "DANA reduces the gap: that of DANA-GA is lower than that of GA, in every epoch",
            [((DANA_GA, "gap"), (GA, "gap"))],
        ),
    ]


def _listed(found: Mapping[tuple[str, int], np.ndarray], method: str) -> str:
    """Return the means of a method, with each number of workers."""
    return ", ".join(f"N={n} {interval(values)}" for (of, n), values in found.items() if of == method)
