"""Final error of Gap-Aware by the granularity of its gap, three frameworks (Barkai et al. 2020, Figures 1 and 5).

A gap for each parameter (equation 13), for each layer (equation 12; a layer is an array of parameters, kernel and bias
apart), or one for all (Definition 1). The parameter-wise runs are those of Gap-Aware in Tables 4 to 6, whose learning
rate and everything else the others share. Lines are means over seeds, bands one standard deviation.

A fourth line is ours. Algorithm 14 prints a coefficient C that averages the velocities which unpenalised gradients
would form; what is called parameter-wise here, as everywhere in these tables, averages those that were formed.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

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
)
from experiments.gap_aware.frameworks import Letter, Size
from experiments.harness.claims import Claim, Interval, above, all_of, interval
from experiments.harness.figures import Output, Scale, figure
from experiments.harness.pictures import PALETTE, PAPER, canvas, colour
from sgdlab.bounds import Count, Share
from sgdlab.runs.sweep import Sweep

BEST, PRINTED = "parameter-wise", "parameter-wise, C as printed"
GRANULARITIES: dict[str, dict[str, Any]] = {
    BEST: {},
    "layer-wise": {"rule.gap_aware.granularity": "layer"},
    "global": {"rule.gap_aware.granularity": "global"},
    PRINTED: {"rule.gap_aware.coefficient": "printed"},
}
"""What the gap is measured by -> entries that differ from those of Tables 4 to 6."""
OTHERS = ("layer-wise", "global")
FIGURE_1 = "W"
"""The framework of Figure 1; Figure 5 has the others."""
SIMILAR = 0.5
"""Points of accuracy within which two results are similar."""
ERRORS = {"test": "test", "train": "training"}
"""Column of the accuracies -> what is called its error."""

_STYLES = dict(
    zip(
        GRANULARITIES,
        (
            {"color": colour("ga"), "marker": "^"},
            {"color": PALETTE[2], "marker": "s"},
            {"color": PALETTE[0], "marker": "o"},
            {"color": PALETTE[7], "marker": "D", "linestyle": ":"},
        ),
        strict=True,
    )
)


@figure(
    papers.GAP,
    ("Figure 1", "Figure 5"),
    scales={
        "smoke": Scale("15 s", frameworks=["R"], num_workers=[4], seeds=1, as_printed=False, epochs_share=0.02),
        "laptop": Scale("12 min after tables4_6"),
        "gpu": Scale("1 h, estimated", size="gpu", frameworks=["W"], num_workers=[8, 32], seeds=3, as_printed=False),
        "paper": Scale("GPU-weeks, estimated", size="paper", num_workers=[4, 8, 16, 24, 32]),
    },
    differs=frameworks.DIFFERS,
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
        "to 6; of the training error it prints none.",
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
    """Test and training errors in %."""
    tables = []
    for column, name in ERRORS.items():
        rows = table(found, size, _printed if column == "test" else lambda *_: np.nan, column)
        rows = rows.assign(error=f"{name}, %", ours=100 - rows.ours, paper=100 - rows.paper)
        tables.append(rows[["framework", "error", *rows.columns[1:-1]]].rename(columns={"method": "gap"}))
    return pd.concat(tables, ignore_index=True)


def _printed(letter: str, workers: int, name: str) -> float:
    """Return the test accuracy that Tables 4 to 6 print."""
    return paper_accuracy(letter, workers, "GA" if name == BEST else name)


def drawn(found: Accuracies, size: Size) -> Figure:
    """Test errors above, training errors below, a column for each framework."""
    letters = found.letters
    picture, panels = canvas(2, len(letters), width=max(4.6 * len(letters), 7), height=8)
    for column, letter in enumerate(letters):
        workers = found.workers(letter)
        there = set(found.runs[found.runs.framework == letter].method)
        for panel, of in zip(panels[:, column], ERRORS, strict=True):
            for name in (name for name in GRANULARITIES if name in there):
                values = [100 - found.values((letter, n), name, of) for n in workers]
                lines.banded(panel, workers, values, _STYLES[name] | {"label": name}, least=0.0)
            panel.axhline(100 - found.single(letter, of).mean(), color=PAPER, linestyle="--", label=SINGLE_TITLE)
            panel.set_xticks(workers)
        number = 1 if letter == FIGURE_1 else 5
        name = frameworks.heading(letter, size)
        panels[0, column].set_title(f"Figure {number}, {name}\ntest error, %", fontsize=10.5)
        panels[1, column].set_title("training error, %", fontsize=10.5)
        panels[1, column].set_xlabel("workers")
    first = next((panel for panel, letter in zip(panels[0], letters, strict=True) if letter == FIGURE_1), panels[0, 0])
    lines.legend(picture, first, columns=5 if len(letters) > 1 else 3)
    return picture


def claims(found: Accuracies) -> list[Claim]:
    """Return the statements of section 5.3 and appendix C.9."""
    pairs = [(BEST, other) for other in OTHERS]
    first, others = ([cell for cell in found.cells if (cell[0] == FIGURE_1) is one] for one in (True, False))
    says = "the parameter-wise method resulted in the best"
    made = []
    for cells, of_whom, where in (
        (first, "", "section 5.3, Figure 1"),
        (others, "; this phenomenon repeats across all frameworks", "section 5.3, Figure 5"),
    ):
        if not cells:
            continue
        for column, name in ERRORS.items():
            words, holds = everywhere(found, pairs, cells, column)
            alike = sum(_fitted(found, cell, names) for cell in cells for names in pairs)
            words += f"; in {alike} both fit all training examples" if column == "train" else ""
            made.append(Claim(f"{says} {name} error with each number of workers{of_whom}", where, words, holds))
        better = _on_average(found, cells)
        words = "; ".join(f"{letter} {name} {less} ({other})" for (letter, name, other), less in better.items())
        made.append(
            Claim(
                f"{says} test and training error, on average over the numbers of workers{of_whom}",
                where,
                ours=f"points below the others: {words}",
                holds=all_of(above(less) for less in better.values()),
            )
        )
    return [*made, *([_usually(found, others)] if others else [])]


def _fitted(found: Accuracies, cell: Cell, names: tuple[str, str]) -> bool:
    """Return whether methods have no training error."""
    return all((found.values(cell, name, "train") == 100).all() for name in names)


def _on_average(found: Accuracies, cells: list[Cell]) -> dict[tuple[str, str, str], Interval]:
    """Return how many points lower the parameter-wise error is: (letter, error, other granularity) -> mean over N."""

    def lower(letter: str, column: str, other: str) -> np.ndarray:
        own = [cell for cell in cells if cell[0] == letter]
        return np.mean([found.values(c, BEST, column) - found.values(c, other, column) for c in own], axis=0)

    return {
        (letter, name, other): interval(lower(letter, column, other))
        for letter in dict.fromkeys(letter for letter, _ in cells)
        for column, name in ERRORS.items()
        for other in OTHERS
    }


def _usually(found: Accuracies, cells: list[Cell]) -> Claim:
    """Return whether most comparisons of both errors are better or similar."""
    keys = [(cell, BEST, other, column) for cell in cells for other in OTHERS for column in ERRORS]
    verdicts = [above(found.difference(*key), -SIMILAR) for key in keys]
    yes, no = verdicts.count(True), verdicts.count(False)
    return Claim(
        f"parameter-wise Gap-Aware usually reaches better or similar final errors (at most {SIMILAR:g} points above, "
        "in most comparisons)",
        "appendix C.9, Figure 5",
        ours=f"of {len(keys)} comparisons so in {yes}, not in {no}, open in {len(keys) - yes - no}",
        holds=True if 2 * yes > len(keys) else False if 2 * no >= len(keys) else None,
    )


def _as_printed(found: Accuracies) -> list[str]:
    """Return what Algorithm 14 as printed makes of it, in a sentence."""
    if PRINTED not in set(found.runs.method):
        return []
    cells = [cell for cell in found.cells if cell[0] == FIGURE_1]
    words = []
    for column, name in ERRORS.items():
        pairs = [found.values(cell, PRINTED, column) - found.values(cell, BEST, column) for cell in cells]
        words.append(f"{interval(np.mean(pairs, axis=0))} in {name}")
    return [
        "The coefficient C of Algorithm 14 as printed changes the accuracy of the parameter-wise method by "
        f"{' and by '.join(words)}, in points (mean over the numbers of workers, 95 % interval over seeds)."
    ]
