"""Final test and training error against the number of workers, three frameworks (Barkai et al. 2020, Figures 2 and 6).

The runs are those of Tables 4 to 6. Lines are geometric means over seeds, as the logarithmic axes have them, and bands
their 95 % intervals; the dashed line is the single worker. In place of the training error, which is zero in most cells,
the training loss is drawn and judged. The lowest row is the paper's own test error, from its tables; of the training
error it prints no numbers.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments import papers
from experiments.gap_aware import frameworks, lines, printed
from experiments.gap_aware.accuracies import (
    SINGLE_TITLE,
    Accuracies,
    Cell,
    everywhere,
    paper_accuracy,
    table,
    training_losses,
)
from experiments.gap_aware.frameworks import METHODS, WORKERS, Letter, Size
from experiments.gap_aware.tables4_6 import trained
from experiments.harness import Claim, Count, Output, Scale, Share, all_of, below, canvas, figure, interval, some_of
from experiments.thresholds import ZERO_TRAINING_ERROR_POINTS

PAIRS = (("GA", "SA"), ("DANA-GA", "DANA-SA"), ("GA", "NAG-ASGD"), ("DANA-GA", "DANA"))
"""Methods of which one is said to be better than the other."""


@figure(
    papers.GAP,
    ("Figure 2", "Figure 6"),
    scales={
        "smoke": Scale("15 s", frameworks=["R"], num_workers=[4], seeds=1, epochs_share=0.02),
        "laptop": Scale("40 min, or seconds after tables4_6"),
        "decide": Scale("1 min", after="gap_aware.tables4_6", seeds=20),
        "gpu": Scale("1 h, estimated", size="gpu", num_workers=[8, 32], seeds=1),
        "paper": Scale("GPU-months, estimated", size="paper", num_workers=list(printed.WORKERS)),
    },
    differs=frameworks.DIFFERS,
    stand_in=frameworks.STAND_IN,
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
    """Test and training errors in %, with the paper's test errors, and training losses."""
    tables = []
    for column, name in (("test", "test, %"), ("train", "training, %")):
        rows = table(found, size, paper_accuracy if column == "test" else _not_printed, column)
        errors = {of: 100 - rows[of] for of in ("ours", "paper")}
        tables.append(rows.assign(error=name, **errors)[["framework", "error", *rows.columns[1:]]])
    losses = training_losses(found, size).assign(error="training loss")
    return pd.concat([*tables, losses[tables[0].columns]], ignore_index=True)


def _not_printed(letter: str, workers: int, method: str) -> float:
    del letter, workers, method
    return np.nan


def drawn(found: Accuracies, size: Size) -> Figure:
    """Test error, training loss, and the paper's test error, a column for each framework."""
    letters = found.letters
    picture, panels = canvas(3, len(letters), width=max(4.6 * len(letters), 7), height=12)
    for column, letter in enumerate(letters):
        workers = found.workers(letter)
        for row, shown in enumerate((lambda *of: 100 - found.values(*of), lambda *of: _loss(found, *of))):
            for method in METHODS.values():
                lines.errors(panels[row, column], workers, method, [shown((letter, n), method) for n in workers])
            lines.level(panels[row, column], np.exp(np.log(shown((letter, 1), SINGLE_TITLE)).mean()))
        for method in METHODS.values():
            values = [np.array([100 - paper_accuracy(letter, n, method)]) for n in printed.WORKERS]
            lines.errors(panels[2, column], printed.WORKERS, method, values)
        lines.level(panels[2, column], 100 - printed.SINGLE[letter])
        panels[0, column].set_title(f"{frameworks.heading(letter, size)}\ntest error, %", fontsize=10.5)
        panels[1, column].set_title("training loss", fontsize=10.5)
        panels[2, column].set_title(f"paper, {frameworks.FRAMEWORKS[letter].title}\ntest error, %", fontsize=10.5)
        lines.logarithmic(panels[:2, column], workers)
        lines.logarithmic(panels[2:, column], printed.WORKERS)
        panels[2, column].set_xlabel("workers")
    lines.legend(picture, panels[0, 0], columns=8 if len(letters) > 2 else 4)
    return picture


def _loss(found: Accuracies, cell: Cell, method: str) -> np.ndarray:
    """float64[seeds]: the training losses."""
    return np.exp(found.values(cell, method, "train_loss"))


def claims(found: Accuracies) -> list[Claim]:
    """Return the statements of section 6.1 and appendix C.10 about the curves."""
    zero, rest = ZERO_TRAINING_ERROR_POINTS, [m for m in METHODS.values() if m != "DANA-GA"]
    errors = {cell: interval(100 - found.values(cell, "DANA-GA", "train")) for cell in found.cells}
    worst = max(errors, key=lambda cell: errors[cell].mean)
    words, holds = everywhere(found, [("DANA-GA", other) for other in rest], column="train_loss")
    return [
        Claim(
            f"DANA-GA always remains very close to the zero-error region (training error below {zero:g} %)",
            "appendix C.10",
            ours=f"at most {errors[worst]} %, {worst[0]} with N = {worst[1]}",
            holds=all_of(below(error, zero, resolution=found.example) for error in errors.values()),
        ),
        Claim(
            "unlike other algorithms, DANA-GA is able to converge on the training set (a lower training loss than all "
            "others)",
            "appendix C.10",
            ours=words,
            holds=holds,
            because="" if holds.holds is not False else "We think: what is easy to fit, other methods fit as well.",
        ),
        _same_concepts(found),
    ]


def _same_concepts(found: Accuracies) -> Claim:
    """Return the claim that the training loss says which method is better in most cases that the test error decides."""
    keys = [(cell, *pair) for cell in found.cells for pair in PAIRS]
    tests = {key: found.better(*key) for key in keys}
    said = {key: test.holds for key, test in tests.items() if test.holds is not None}
    trains = {key: found.better(*key, "train_loss") for key in said}
    agree = {key: train if said[key] else train.opposite for key, train in trains.items()}
    other = [f"{letter} N={n} ({first}, {second})" for ((letter, n), first, second), each in agree.items()
             if each.holds is False]  # fmt: skip
    return Claim(
        "the graphs of the train error also show the same concepts (in most comparisons that the test error decides, "
        "the training loss says the same)",
        "section 6.1",
        ours=f"of {len(keys)} comparisons the test error decides {len(said)}; of these the training loss says the same "
        f"in {sum(each.holds is True for each in agree.values())}, the opposite in {len(other)}"
        + (f" ({', '.join(other)})" if other else ""),
        holds=some_of(len(agree) // 2 + 1, agree.values()) if agree else None,
    )
