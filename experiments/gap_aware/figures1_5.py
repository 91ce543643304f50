"""Final error of Gap-Aware by the granularity of its gap, three frameworks (Barkai et al. 2020, Figures 1 and 5).

A gap for each parameter (equation 13), for each layer (equation 12; a layer is an array of parameters, kernel and bias
apart), or one for all (Definition 1). The parameter-wise runs are those of Gap-Aware in Tables 4 to 6, whose learning
rate and everything else the others share. Differences from the parameter-wise gap are drawn, paired by seed, with their
95 % intervals: of the test error in points, and of the training loss as a ratio, which stands for the training error,
since this is zero in most cells.

A fourth line is ours. Algorithm 14 prints a coefficient C that averages the velocities which unpenalised gradients
would form; what is called parameter-wise here, as everywhere in these tables, averages those that were formed.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from experiments import harness, papers
from experiments.gap_aware import frameworks, lines
from experiments.gap_aware.accuracies import (
    SINGLE_TITLE,
    Accuracies,
    Cell,
    accuracies,
    everywhere,
    paper_accuracy,
    table,
    training_losses,
)
from experiments.gap_aware.frameworks import Letter, Size
from experiments.harness.claims import Claim
from experiments.harness.evidence import above, all_of, some_of
from experiments.harness.figures import Output, Scale, figure
from experiments.harness.intervals import interval
from experiments.harness.pictures import PALETTE, canvas
from experiments.thresholds import GRANULARITY_SIMILAR_POINTS
from sgdlab.bounds import Count, Share
from sgdlab.runs.sweep import Sweep

BEST, PRINTED = "parameter-wise", "parameter-wise, C as printed"
GRANULARITIES: dict[str, dict[str, Any]] = {
    BEST: {},
    "layer-wise": {"rule.gap_aware.granularity": "layer"},
    "global": {"rule.gap_aware.granularity": "global"},
    PRINTED: {"rule.gap_aware.coefficient": "printed"},
}
"""Granularity of the gap -> entries that differ from those of Tables 4 to 6."""
OTHERS = ("layer-wise", "global")
FIGURE_1 = "W"
"""The framework of Figure 1; Figure 5 has the others."""
ERRORS = {"test": "test error", "train_loss": "training loss"}
"""Column of the accuracies -> what it is compared by."""

_STYLES = {
    "layer-wise": {"color": PALETTE[2], "marker": "s"},
    "global": {"color": PALETTE[0], "marker": "o"},
    PRINTED: {"color": PALETTE[7], "marker": "D", "linestyle": ":"},
}


@figure(
    papers.GAP,
    ("Figure 1", "Figure 5"),
    scales={
        "smoke": Scale("15 s", frameworks=["R"], num_workers=[4], seeds=1, as_printed=False, epochs_share=0.02),
        "laptop": Scale("12 min", after="gap_aware.tables4_6"),
        "decide": Scale("50 min", after="gap_aware.tables4_6", seeds=20),
        "gpu": Scale("1 h, estimated", size="gpu", frameworks=["W"], num_workers=[8, 32], seeds=3, as_printed=False),
        "paper": Scale("GPU-weeks, estimated", size="paper", num_workers=[4, 8, 16, 24, 32]),
    },
    differs=frameworks.DIFFERS,
    stand_in=frameworks.STAND_IN,
)
def figures1_5(
    *,
    frameworks: list[Letter] = ("W", "R", "W100"),
    num_workers: list[Count] = (4, 8, 16, 32),
    seeds: Count = 5,
    as_printed: bool = True,
    size: Size = "laptop",
    epochs_share: Share = 1.0,
) -> Output:
    """Trains Gap-Aware with each granularity.

    Args:
      frameworks: W (CIFAR-10, WRN-16-4; Figure 1), R (CIFAR-10, ResNet-20) and W100 (CIFAR-100, WRN-16-4; Figure 5).
      num_workers: numbers of workers, N.
      seeds: number of seeds.
      as_printed: whether the coefficient of Algorithm 14 as printed is trained, too, in the framework W.
      size: laptop: digits and small conv nets; gpu: CIFAR with an eighth or a tenth of the epochs; paper: as printed.
      epochs_share: of the size's epochs, at most 1.
    """
    found = trained(sweeps(frameworks, num_workers, seeds, size, epochs_share, as_printed))
    notes = [
        "± is one standard deviation over seeds. The paper prints numbers of the parameter-wise gap alone, in Tables 4 "
        "to 6; of the training error it prints none. Verdicts rest on 95 % intervals of differences paired by seed.",
        *_as_printed(found),
    ]
    return Output(summarised(found, size), drawn(found, size), claims(found), notes)


def sweeps(
    letters: list[str], num_workers: list[int], seeds: int, size: Size, share: float, as_printed: bool
) -> dict[tuple[str, str], Sweep]:
    """Return the runs by framework and granularity; the single worker's are with the parameter-wise."""
    of = {"num_workers": num_workers, "seeds": seeds, "methods": ["gap_aware"], "share": share}
    return {
        (letter, name): frameworks.sweep(letter, size, **of, single=name == BEST, changed=changed)
        for letter in letters
        for name, changed in GRANULARITIES.items()
        if name != PRINTED or (as_printed and letter == FIGURE_1)
    }


def trained(runs: Mapping[tuple[str, str], Sweep]) -> Accuracies:
    """Return the accuracies of `sweeps`, whose method is the granularity."""
    harness.prepare(*runs.values())
    frames = []
    for (letter, name), sweep in runs.items():
        found = accuracies({letter: sweep}).runs
        frames.append(found.assign(method=found.method.where(found.method == SINGLE_TITLE, name)))
    return Accuracies(pd.concat(frames, ignore_index=True))


def summarised(found: Accuracies, size: Size) -> pd.DataFrame:
    """Test and training errors in %, and training losses."""
    tables = []
    for column, name in (("test", "test, %"), ("train", "training, %")):
        rows = table(found, size, _printed if column == "test" else lambda *_: np.nan, column)
        tables.append(rows.assign(error=name, ours=100 - rows.ours, paper=100 - rows.paper))
    rows = pd.concat([*tables, training_losses(found, size).assign(error="training loss")], ignore_index=True)
    return rows[["framework", "error", *rows.columns[1:-1]]].rename(columns={"method": "gap"})


def _printed(letter: str, workers: int, name: str) -> float:
    """Return the test accuracy that Tables 4 to 6 print."""
    return paper_accuracy(letter, workers, "GA" if name == BEST else name)


def drawn(found: Accuracies, size: Size) -> Figure:
    """Differences from the parameter-wise gap: test errors above, training losses below; a column each framework."""
    letters = found.letters
    picture, panels = canvas(2, len(letters), width=max(4.6 * len(letters), 7), height=8, sharey="row")
    for column, letter in enumerate(letters):
        workers = found.workers(letter)
        there = [name for name in _STYLES if name in set(found.runs[found.runs.framework == letter].method)]
        for panel, of in zip(panels[:, column], ERRORS, strict=True):
            for place, name in enumerate(there):
                beside = np.arange(len(workers)) + 0.12 * (place - (len(there) - 1) / 2)
                worse = [found.better_by((letter, n), BEST, name, of) for n in workers]
                lines.bars(panel, beside, worse, _STYLES[name] | {"label": name}, logarithmic=of != "test")
            panel.axhline(0.0 if of == "test" else 1.0, color="0.4", linewidth=1, label=BEST)
            panel.set_xticks(range(len(workers)), workers)
        panels[1, column].set_yscale("log")
        number = 1 if letter == FIGURE_1 else 5
        name = frameworks.heading(letter, size)
        panels[0, column].set_title(
            f"Figure {number}, {name}\ntest error above the parameter-wise, points", fontsize=10
        )
        panels[1, column].set_title("training loss over the parameter-wise", fontsize=10)
        panels[1, column].set_xlabel("workers")
    limits = panels[1, 0].get_ylim()  # all of the row's
    panels[1, 0].set_yticks([0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.4, 1.6, 2, 3, 5])
    panels[1, 0].set_ylim(limits)
    panels[1, 0].yaxis.set_major_formatter("{x:g}")
    panels[1, 0].yaxis.set_minor_formatter(NullFormatter())
    first = next((panel for panel, letter in zip(panels[0], letters, strict=True) if letter == FIGURE_1), panels[0, 0])
    lines.legend(picture, first, columns=5 if len(letters) > 1 else 2)
    return picture


def claims(found: Accuracies) -> list[Claim]:
    """Return the statements of section 5.3 and appendix C.9."""
    first, others = ([cell for cell in found.cells if (cell[0] == FIGURE_1) is one] for one in (True, False))
    repeats = "; this phenomenon repeats across all frameworks"
    made = [
        _best(found, cells, column, of_whom, where)
        for cells, of_whom, where in (
            (first, "", "section 5.3, Figure 1"),
            (others, repeats, "section 5.3, Figure 5"),
        )
        for column in ERRORS
        if cells
    ]
    return [*made, *([_usually(found, others)] if others else [])]


def _best(found: Accuracies, cells: list[Cell], column: str, of_whom: str, where: str) -> Claim:
    """Return the claim on one error, on average over the numbers of workers; the single ones are said beside."""
    better = {
        (letter, other): interval(
            np.mean([found.better_by(cell, BEST, other, column) for cell in cells if cell[0] == letter], axis=0)
        )
        for letter in dict.fromkeys(letter for letter, _ in cells)
        for other in OTHERS
    }
    unit = "points" if column == "test" else "of the logarithm"
    words = "; ".join(f"{letter} {less} ({other})" for (letter, other), less in better.items())
    single, _ = everywhere(found, [(BEST, other) for other in OTHERS], cells, column)
    return Claim(
        f"the parameter-wise method resulted in the best {ERRORS[column]} (on average over the numbers of workers)"
        f"{of_whom}",
        where,
        ours=f"below the others by {words} {unit}. With each number of workers: {single}",
        holds=all_of(above(less) for less in better.values()),
    )


def _usually(found: Accuracies, cells: list[Cell]) -> Claim:
    """Return the claim that most comparisons of both errors are better or similar."""
    similar = GRANULARITY_SIMILAR_POINTS
    keys = [(cell, BEST, other, column) for cell in cells for other in OTHERS for column in ("test", "train")]
    verdicts = [found.better(*key, least=-similar) for key in keys]
    counts = {holds: sum(each.holds is holds for each in verdicts) for holds in (True, False, None)}
    return Claim(
        f"parameter-wise Gap-Aware usually reaches better or similar final errors (at most {similar:g} points above, "
        "in most comparisons)",
        "appendix C.9, Figure 5",
        ours=f"of {len(keys)} comparisons so in {counts[True]}, not in {counts[False]}, open in {counts[None]}",
        holds=some_of(len(keys) // 2 + 1, verdicts),
    )


def _as_printed(found: Accuracies) -> list[str]:
    """Return what Algorithm 14 as printed makes of it, in a sentence."""
    if PRINTED not in set(found.runs.method):
        return []
    cells = [cell for cell in found.cells if cell[0] == FIGURE_1]
    words = []
    for column, name in (("test", "test"), ("train", "training")):
        pairs = [found.better_by(cell, PRINTED, BEST, column) for cell in cells]
        words.append(f"{interval(np.mean(pairs, axis=0))} in {name}")
    return [
        "The coefficient C of Algorithm 14 as printed changes the accuracy of the parameter-wise method by "
        f"{' and by '.join(words)}, in points (mean over the numbers of workers, 95 % interval over seeds)."
    ]
