r"""Test accuracy of ASGD with 32 workers by learning rate and momentum, on three frameworks (Barkai et al. 2020, C.12).

Figures 9, 10 and 11 are grids of 7 learning rates and 10 momenta, four of which are negative, with one run in each
cell. Their captions and the available text have lost the minus signs; the order of the rows tells them. The paper does
not say which momentum it is: here it is Nesterov's, as in its other experiments (`--nesterov=false`: heavy ball).

Runs of a grid differ in two numbers, so they are executed as one compiled program, gradient g of all of them before
gradient g + 1: 10 at once at the size of a laptop, and at the larger sizes 7, a row of one momentum, so that machines
can share a grid (`--shard`), and one that is stopped has no more than a row to do again. On two cores, 70 runs together
took 0.57 seconds of computing each, and one after the other 0.8.

The highest of 70 accuracies is too high by chance. What is claimed about best cells is therefore checked on `repeats`
more runs of these cells, with seeds of their own, paired by seed, and by a sign test where some were lost; on the
paper's numbers it is checked with the sampling error of an accuracy a on 10,000 test images, the least that it can
have: a variance of a (1 - a) / 10,000.

What is found is compared with the cell of the single worker's hyperparameters: momentum 0.9, and in the paper a rate of
0.1. At the size of a laptop that rate is 0.02, that of Tables 4 to 6, and 0.03 is the nearest one of the grid.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Annotated

import numpy as np
import pandas as pd
from annotated_types import Ge, Le
from matplotlib.figure import Figure as Picture
from matplotlib.patches import Rectangle

from experiments import harness, papers
from experiments.gap_aware import lines, printed
from experiments.gap_aware.accuracies import typically
from experiments.gap_aware.frameworks import FRAMEWORKS, RATE, Letter, Size, heading
from experiments.gap_aware.grid import SINGLE_MOMENTUM, Cell, Grid, best, explained, parts, single_cell
from experiments.harness.claims import Claim
from experiments.harness.evidence import Evidence, above, all_of, any_of, known
from experiments.harness.figures import Output, Scale, figure
from experiments.harness.intervals import Interval, interval
from experiments.harness.pictures import canvas
from sgdlab.bounds import Count, Positive, Share, Whole
from sgdlab.runs import resolve

FIGURES = {"R": "Figure 9", "W": "Figure 10", "W100": "Figure 11"}
EVERY = "all"
PARTS = {EVERY: "any momentum", "negative": "a negative momentum", "not negative": "a momentum of at least 0"}
"""Parts of a grid, in words."""
PRINTED_RATE = 0.1
"""The paper's single worker's."""
TESTED = 10_000
"""Test images of CIFAR."""
Momentum = Annotated[float, Ge(-0.999), Le(0.999)]


@figure(
    papers.GAP,
    ("Figure 9", "Figure 10", "Figure 11"),
    scales={
        "smoke": Scale(
            "15 s", frameworks=["R"], rates=[0.01, 0.1], momenta=[-0.5, 0.0, 0.9], share=0.01, repeats=0, at_once=6
        ),
        "laptop": Scale("5 min"),
        "decide": Scale("11 min", repeats=20),
        "gpu": Scale("1 h, estimated", size="gpu", share=0.25, repeats=3, at_once=7),
        "paper": Scale("GPU-weeks, estimated", size="paper", share=1.0, repeats=4, at_once=7),
    },
    differs="Pairs of UCI digits and small conv nets with BatchNorm instead of CIFAR and (wide) ResNets, 1,024 or "
    "1,280 gradients a run instead of 62,400 or 78,000; the single worker's rate, that of Tables 4 to 6, is "
    "0.02 here and 0.1 in the paper.",
    stand_in="pairs of digits in place of CIFAR-10 and CIFAR-100",
)
def figures9_11(
    *,
    frameworks: list[Letter] = ("R", "W", "W100"),
    rates: list[Positive] = printed.RATES,
    momenta: list[Momentum] = printed.MOMENTA,
    num_workers: Count = 32,
    share: Share = 0.25,
    repeats: Whole = 4,
    nesterov: bool = True,
    at_once: Count = 10,
    size: Size = "laptop",
) -> Output:
    """Makes the grid of each framework, and repeats its best cells.

    Args:
      frameworks: R, W and W100: Figures 9, 10 and 11.
      rates: learning rates.
      momenta: momenta, above -1 and below 1.
      num_workers: number of asynchronous workers.
      share: of the epochs that other figures have at this size.
      repeats: further runs of each best cell.
      nesterov: whether momentum is Nesterov's.
      at_once: runs that one compiled program makes.
      size: laptop, gpu (10 instead of 160 or 200 epochs would be a share of 0.5) or paper.
    """
    shared = {"rates": rates, "momenta": momenta, "num_workers": num_workers, "share": share, "nesterov": nesterov}
    grids = {letter: Grid(letter, size, at_once=at_once, **shared) for letter in frameworks}
    harness.prepare(*(grid.sweep(grid.cells, [0]) for grid in grids.values()))
    ours = {letter: grid.table() for letter, grid in grids.items()}
    paper = {letter: printed.grid(letter) for letter in FIGURES}
    rate = RATE if size == "laptop" else PRINTED_RATE
    bests = [best(table) for table in ours.values()]
    chosen = {
        letter: list(dict.fromkeys([*bests, *(best(part) for part in parts(table).values()), single_cell(table, rate)]))
        for letter, table in ours.items()
    }
    chosen = {letter: [cell for cell in cells if cell] for letter, cells in chosen.items()}
    again, seeds = {}, range(1, repeats + 1)
    if repeats:
        harness.prepare(*(grid.sweep(chosen[letter], seeds) for letter, grid in grids.items()))
        again = {letter: grid.accuracies(chosen[letter], seeds) for letter, grid in grids.items()}
    notes = [
        "Test accuracies in %, of one run with seed 0 in every cell as in the paper; ± is half the width of the 95 % "
        f"confidence interval over {repeats} more runs, whose mean the rows with other seeds have.",
        "The effective rate is eta / (1 - gamma). What it explains is the R^2 of a cubic polynomial of its logarithm, "
        "over the cells that are better than a guess by half.",
        f"The single worker has momentum {SINGLE_MOMENTUM:g} and a rate of {rate:g}; its cell is that of the rate of "
        "the grid which is nearest in ratio.",
    ]
    example = 100 / len(resolve(FRAMEWORKS[frameworks[0]].config(size)).data.dataset.test)
    compared = {letter: (table, among_repeats(again.get(letter), letter, example)) for letter, table in ours.items()}
    notes.append(
        f"Points by which the best cell with a negative momentum is above the best of the others: {signs(compared)}; "
        f"in print, with the error of {TESTED:,} test images, {signs(of_the_paper())}."
    )
    table = summarised(ours, paper, again, rate)
    return Output(table, draw(ours, paper, size), claims(compared, rate), notes)


Comparison = Callable[[Cell, Cell], tuple[str, Evidence]]
"""Compares two cells: points of % by which the first is better, in words, and the evidence that it is."""
Grids = Mapping[str, tuple[pd.DataFrame, Comparison]]
"""Framework -> momenta by learning rates, and the comparison of its cells."""


def among_repeats(runs: pd.DataFrame | None, letter: str, example: float) -> Comparison:
    """Return the comparison of a framework's repeated runs, paired by seed.

    Where runs were lost means say little, and the better cell is the one that is ahead in most pairs of runs.

    Args:
      runs: a row for each repeated cell, and a column for each seed; None where there are none.
      letter: of the framework.
      example: a test example, in % of all.
    """

    def compared(one: Cell, other: Cell) -> tuple[str, Evidence]:
        if runs is None:
            return "not repeated", known(None)
        first, second = runs.loc[one].to_numpy(), runs.loc[other].to_numpy()
        lead = interval(first - second, resolution=example)
        if not (lost(first, letter) | lost(second, letter)).any():
            return f"{lead}", above(lead)
        ahead, unequal = int(np.sum(first > second)), int(np.sum(first != second))
        return f"{lead}, ahead in {ahead} of {unequal}", typically(first - second, lost=True)

    return compared


def lost(accuracies: np.ndarray, letter: str) -> np.ndarray:
    """Return which of some runs end less than half better than a guess."""
    return accuracies < 1.5 * 100 / FRAMEWORKS[letter].classes


def in_print(table: pd.DataFrame) -> Callable[[Cell, Cell], Interval]:
    """Return the differences of printed accuracies, with the sampling error of the test images."""

    def difference(one: Cell, other: Cell) -> Interval:
        shares = [table.loc[cell] / 100 for cell in (one, other)]
        deviation = 100 * math.sqrt(sum(share * (1 - share) / TESTED for share in shares))
        return Interval.of_error(100 * (shares[0] - shares[1]), deviation, TESTED)

    return difference


def of_the_paper() -> Grids:
    """Return the printed grids."""
    tables = {letter: printed.grid(letter) for letter in FIGURES}

    def comparison(table: pd.DataFrame) -> Comparison:
        return lambda one, other: (f"{in_print(table)(one, other)}", above(in_print(table)(one, other)))

    return {letter: (table, comparison(table)) for letter, table in tables.items()}


def summarised(
    ours: Mapping[str, pd.DataFrame], paper: Mapping[str, pd.DataFrame], again: Mapping[str, pd.DataFrame], rate: float
) -> pd.DataFrame:
    """Return the table: best cells and the single worker's, what explains the accuracies, repeats, and all cells.

    Args:
      ours: framework -> momenta by learning rates.
      paper: the same.
      again: framework -> a row for each repeated cell, and a column for each seed.
      rate: of our single worker.
    """
    rows = []
    for letter, table in ours.items():
        theirs, about = paper[letter], {"framework": letter}
        cells = {
            f"best, {PARTS[name]}": (best(part), best({EVERY: theirs, **parts(theirs)}[name]))
            for name, part in {EVERY: table, **parts(table)}.items()
        }
        if single := single_cell(table, rate):
            cells["the single worker's"] = (single, single_cell(theirs, PRINTED_RATE))
        for words, (cell, printed_cell) in cells.items():
            rows += [
                {**about, "quantity": words, "ours": table.loc[cell], "paper": theirs.loc[printed_cell]},
                {**about, "quantity": f"{words}: its momentum", "ours": cell[0], "paper": printed_cell[0]},
                {**about, "quantity": f"{words}: its rate", "ours": cell[1], "paper": printed_cell[1]},
            ]
        share = {"ours": explained(table, letter), "paper": explained(theirs, letter)}
        rows.append({**about, "quantity": "explained by the effective rate, %", **share})
        for cell in again[letter].index if letter in again else ():
            found = interval(again[letter].loc[cell])
            half = found.half if math.isfinite(found.half) else math.nan
            at = {"momentum": cell[0], "rate": cell[1]}
            missing = f"{lost(again[letter].loc[cell], letter).sum()} of {found.count}"
            rows.append({**about, "quantity": "other seeds", **at, "lost": missing, "ours": found.mean, "±": half})
    for letter, table in ours.items():
        for cell, value in table.stack().items():
            at, theirs = {"momentum": cell[0], "rate": cell[1]}, paper[letter].stack().get(cell, math.nan)
            rows.append({"framework": letter, "quantity": "one run", **at, "ours": value, "paper": theirs})
    columns = ["framework", "quantity", "momentum", "rate", "lost", "ours", "±", "paper"]
    return pd.DataFrame(rows).reindex(columns=columns)


def claims(grids: Grids, rate: float) -> list[Claim]:
    """Return the statements of appendix C.12.

    Args:
      grids: ours, compared by their repeats.
      rate: of our single worker.
    """
    differ = "All the hyperparameters found are different from the best hyperparameters of the single worker"
    differ += " (with many workers, the best cell is better than the single worker's)"
    paper = of_the_paper()
    return [
        Claim("The best hyperparameters can vary between frameworks", "appendix C.12", *_vary(grids), *_vary(paper)),
        Claim(differ, "appendix C.12", *_above_single(grids, rate), *_above_single(paper, PRINTED_RATE)),
    ]


def _vary(grids: Grids) -> tuple[str, Evidence]:
    """Return whether in some framework another one's best cell is worse than its own."""
    words, found = [], []
    for letter, other in itertools.permutations(grids, 2):
        (table, compared), theirs = grids[letter], best(grids[other][0])
        if best(table) != theirs:
            lead, better = compared(best(table), theirs)
            words.append(f"{lead} in {letter} with the best of {other}")
            found.append(better)
    return f"Points lost: {', '.join(words) or 'one best cell for all'}", any_of(found)


def _above_single(grids: Grids, rate: float) -> tuple[str, Evidence]:
    """Return how far the best cell of each framework is above the one of the single worker's hyperparameters."""
    words, found, nearest = [], [], set()
    for letter, (table, compared) in grids.items():
        if cell := single_cell(table, rate):
            first = best(table)
            lead, better = compared(first, cell)
            words.append(f"{lead} ({letter}, momentum {first[0]:g} and rate {first[1]:g})")
            found.append(better)
            nearest.add(f"{cell[1]:g}")
    of = f"momentum {SINGLE_MOMENTUM:g} and rate {rate:g}"
    of += f", of which {', '.join(sorted(nearest))} is the nearest in the grid" if nearest - {f"{rate:g}"} else ""
    return f"Points above the single worker's cell ({of}): {', '.join(words) or 'not run'}", all_of(found)


def signs(grids: Grids) -> str:
    """Return how far the best cell of a negative momentum is above the best of another."""
    words = []
    for letter, (table, compared) in grids.items():
        if len(of_parts := parts(table)) == 2:
            lead, _ = compared(best(of_parts["negative"]), best(of_parts["not negative"]))
            words.append(f"{lead} ({letter})")
    return ", ".join(words) or "not run"


def draw(ours: Mapping[str, pd.DataFrame], paper: Mapping[str, pd.DataFrame], size: Size) -> Picture:
    """Heat maps, ours above the paper's; the best cell of each has a frame."""
    drawn, panels = canvas(2, len(ours), width=5.6 * len(ours) + 0.6, height=9.6)
    for (letter, table), (above_panel, below_panel) in zip(ours.items(), panels.T, strict=True):
        for panel, values, name in (
            (above_panel, table, f"ours, {heading(letter, size)}"),
            (below_panel, paper[letter], f"paper, {FIGURES[letter]}"),
        ):
            panel.imshow(values, cmap="viridis", aspect="auto", vmin=0, vmax=100)
            lines.numbers(panel, values.to_numpy(), values.to_numpy() < 60, fontsize=8.5)
            momentum, rate = best(values)
            corner = (values.columns.get_loc(rate) - 0.5, values.index.get_loc(momentum) - 0.5)
            panel.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="#d55e00", linewidth=3))
            panel.set_xticks(range(len(values.columns)), [f"{rate:g}" for rate in values.columns])
            panel.set_yticks(range(len(values.index)), [f"{momentum:g}" for momentum in values.index])
            panel.set_title(name, fontsize=11)
            panel.set(xlabel="learning rate", ylabel="momentum")
    return drawn
