"""Final test and training error against the number of workers, three frameworks (Barkai et al. 2020, Figures 2 and 6).

The runs are those of Tables 4 to 6. Lines are means over seeds and bands one standard deviation; the dashed line is the
single worker. Errors are on a logarithmic axis, and below 0.1 % they are drawn there. The lowest row is the paper's own
test error, from its tables; of the training error it prints no numbers.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments import papers
from experiments.gap_aware import frameworks, lines, printed
from experiments.gap_aware.accuracies import Accuracies, Cell, everywhere, paper_accuracy, table
from experiments.gap_aware.frameworks import METHODS, WORKERS, Letter, Size
from experiments.gap_aware.tables4_6 import trained
from experiments.harness import Claim, Count, Output, Scale, Share, above, all_of, below, canvas, figure, interval

ZERO = 0.5
"""Points of training error that are the zero-error region."""


@figure(
    papers.GAP,
    ("Figure 2", "Figure 6"),
    scales={
        "smoke": Scale("15 s", frameworks=["R"], num_workers=[4], seeds=1, epochs_share=0.02),
        "laptop": Scale("25 min, or seconds after tables4_6"),
        "gpu": Scale("1 h, estimated", size="gpu", num_workers=[8, 32], seeds=1),
        "paper": Scale("GPU-months, estimated", size="paper", num_workers=list(printed.WORKERS)),
    },
    differs=frameworks.DIFFERS,
)
def figures2_6(
    *,
    frameworks: list[Letter] = ("R", "W", "W100"),
    num_workers: list[Count] = WORKERS,
    seeds: Count = 5,
    size: Size = "laptop",
    epochs_share: Share = 1.0,
) -> Output:
    """Draws the errors of the runs of Tables 4 to 6.

    Args:
      frameworks: R (CIFAR-10, ResNet-20), W (CIFAR-10, WRN-16-4) and W100 (CIFAR-100, WRN-16-4).
      num_workers: numbers of workers, N.
      seeds: number of seeds.
      size: laptop: digits and small conv nets; gpu: CIFAR with an eighth or a tenth of the epochs; paper: as printed.
      epochs_share: of the size's epochs, at most 1.
    """
    found = trained(frameworks, num_workers, seeds, size, epochs_share)
    notes = ["The paper draws the training error, and prints no number of it. ± is one standard deviation over seeds."]
    return Output(summarised(found, size), drawn(found, size), claims(found), notes)


def summarised(found: Accuracies, size: Size) -> pd.DataFrame:
    """Test and training errors in %, with the paper's test errors."""
    tables = []
    for column, name in (("test", "test, %"), ("train", "training, %")):
        rows = table(found, size, paper_accuracy if column == "test" else _not_printed, column)
        errors = {of: 100 - rows[of] for of in ("ours", "paper")}
        tables.append(rows.assign(error=name, **errors)[["framework", "error", *rows.columns[1:]]])
    return pd.concat(tables, ignore_index=True)


def _not_printed(letter: str, workers: int, method: str) -> float:
    del letter, workers, method
    return np.nan


def drawn(found: Accuracies, size: Size) -> Figure:
    """Test error, training error, and the paper's test error, a column for each framework."""
    letters = found.letters
    picture, panels = canvas(3, len(letters), width=max(4.6 * len(letters), 7), height=12)
    for column, letter in enumerate(letters):
        workers = found.workers(letter)
        for row, of in enumerate(("test", "train")):
            for method in METHODS.values():
                values = [100 - found.values((letter, n), method, of) for n in workers]
                lines.errors(panels[row, column], workers, method, values)
            lines.level(panels[row, column], 100 - found.single(letter, of).mean())
        for method in METHODS.values():
            values = [np.array([100 - paper_accuracy(letter, n, method)]) for n in printed.WORKERS]
            lines.errors(panels[2, column], printed.WORKERS, method, values)
        lines.level(panels[2, column], 100 - printed.SINGLE[letter])
        panels[0, column].set_title(f"{frameworks.heading(letter, size)}\ntest error, %", fontsize=10.5)
        panels[1, column].set_title("training error, %", fontsize=10.5)
        panels[2, column].set_title(f"paper, {frameworks.FRAMEWORKS[letter].title}\ntest error, %", fontsize=10.5)
        lines.logarithmic(panels[:2, column], workers)
        lines.logarithmic(panels[2:, column], printed.WORKERS)
        panels[2, column].set_xlabel("workers")
    lines.legend(picture, panels[0, 0])
    return picture


def claims(found: Accuracies) -> list[Claim]:
    """Return the statements of section 6.1 and appendix C.10 about the curves."""
    rest = [m for m in METHODS.values() if m != "DANA-GA"]
    errors = {cell: interval(100 - found.values(cell, "DANA-GA", "train")) for cell in found.cells}
    worst = max(errors, key=lambda cell: errors[cell].mean)
    words, holds = everywhere(found, [("DANA-GA", other) for other in rest], column="train")
    same = [
        (cell, pair)
        for cell in found.cells
        for pair in (("GA", "SA"), ("DANA-GA", "DANA-SA"), ("GA", "NAG-ASGD"), ("DANA-GA", "DANA"))
    ]
    said, surely = (_alike(found, same, comparisons) for comparisons in (1, 2 * len(same)))
    agree = said.count(True)
    return [
        Claim(
            f"DANA-GA always remains very close to the zero-error region (training error below {ZERO:g} %)",
            "appendix C.10",
            ours=f"at most {errors[worst]} %, {worst[0]} with N = {worst[1]}",
            holds=all_of(below(error, ZERO) for error in errors.values()),
        ),
        Claim(
            "unlike other algorithms, DANA-GA is able to converge on the training set (a lower training error than all "
            "others)",
            "appendix C.10",
            ours=words,
            holds=holds,
        ),
        Claim(
            "the graphs of the train error also show the same concepts (which of two methods is better)",
            "section 6.1",
            ours=f"{agree} of {len(said)} comparisons go the same way, where both errors differ beyond their intervals",
            holds=False if False in surely else True if agree == len(said) > 0 else None,
        ),
    ]


def _alike(found: Accuracies, keys: list[tuple[Cell, tuple[str, str]]], comparisons: int) -> list[bool]:
    """Return whether both errors say which of two methods is better alike, where both say it beyond their intervals."""
    of = {"comparisons": comparisons}
    both = [[above(found.difference(cell, *pair, column, **of)) for column in ("test", "train")] for cell, pair in keys]
    return [test == train for test, train in both if None not in (test, train)]
