r"""Test accuracy of ASGD with 32 workers by learning rate and momentum, on three frameworks (Barkai et al. 2020, C.12).

Figures 9, 10 and 11 are grids of 7 learning rates and 10 momenta, four of which are negative, with one run in each
cell. Their captions and the available text have lost the minus signs; the order of the rows tells them. The paper does
not say which momentum it is: here it is Nesterov's, as in its other experiments (`--nesterov=false`: heavy ball).

Runs of a grid differ in two numbers, so they are executed as one compiled program, gradient g of all of them before
gradient g + 1: 10 at once at the size of a laptop, and at the larger sizes 7, a row of one momentum, so that machines
can share a grid (`--shard`), and one that is stopped has no more than a row to do again. On two cores, 70 runs together
took 0.57 seconds of computing each, and one after the other 0.8.

The highest of 70 accuracies is too high by chance. What is claimed about best cells is therefore checked on `repeats`
more runs of these cells, with seeds of their own, paired by seed; on the paper's numbers it is checked with the
sampling error of an accuracy a on 10,000 test images, the least that it can have: a variance of a (1 - a) / 10,000.

What is found is compared with the cell of the single worker's hyperparameters: momentum 0.9, and in the paper a rate of
0.1. At the size of a laptop that rate is 0.02, that of Tables 4 to 6, and 0.03 is the nearest one of the grid.
"""

import functools
import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import pandas as pd
from annotated_types import Ge, Le
from matplotlib.figure import Figure as Picture
from matplotlib.patches import Rectangle

from experiments import harness, papers
from experiments.gap_aware import lines, printed
from experiments.gap_aware.frameworks import RATE, Letter, Size, title
from experiments.gap_aware.grid import SINGLE_MOMENTUM, Cell, Grid, best, explained, parts, single_cell
from experiments.harness.claims import Claim, Interval, above, all_of, interval
from experiments.harness.figures import Output, Scale, figure
from experiments.harness.pictures import canvas
from sgdlab.bounds import Count, Positive, Share, Whole

FIGURES = {"R": "Figure 9", "W": "Figure 10", "W100": "Figure 11"}
EVERY = "all"
PARTS = {EVERY: "any momentum", "negative": "a negative momentum", "not negative": "a momentum of at least 0"}
"""Parts of a grid, in words."""
CONTRASTS = (
    ("In its grids of W and W100 the best momentum is negative", "Figures 10 and 11", ("W", "W100"), "negative",
     "not negative"),
    ("In its grid of R the best momentum is not negative", "Figure 9", ("R",), "not negative", "negative"),
)  # fmt: skip
"""What its grids show and no sentence says, where, of which frameworks, and the parts whose best cells are compared."""
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
        "gpu": Scale("1 h, estimated", size="gpu", share=0.25, repeats=3, at_once=7),
        "paper": Scale("GPU-weeks, estimated", size="paper", share=1.0, repeats=4, at_once=7),
    },
    differs="Pairs of UCI digits and small conv nets with BatchNorm instead of CIFAR and (wide) ResNets, 1,024 or "
    "1,280 gradients a run instead of 62,400 or 78,000; the single worker's rate, that of Tables 4 to 6, is "
    "0.02 here and 0.1 in the paper.",
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
    table = summarised(ours, paper, again, rate)
    return Output(table, draw(ours, paper, size), claims(ours, paper, again, rate), notes)


Difference = Callable[..., Interval]
"""How much better a first cell is than a second, in points of %; one of several such comparisons."""
Differences = Mapping[str, tuple[pd.DataFrame, Difference]]
"""Framework -> momenta by learning rates, and the differences between its cells."""
Pair = tuple[str, Difference, Cell, Cell]
"""A framework, the differences between its cells, and two of these."""


def among_repeats(runs: pd.DataFrame | None) -> Difference:
    """Return the differences of a framework's repeated runs, paired by seed; unknown where there are none."""
    unknown = Interval(math.nan, math.inf, 0)
    return lambda one, other, comparisons=1: (
        unknown if runs is None else interval(runs.loc[one] - runs.loc[other], comparisons=comparisons)
    )


def in_print(table: pd.DataFrame) -> Difference:
    """Return the differences of printed accuracies, with the sampling error of the test images."""

    def difference(one: Cell, other: Cell, comparisons: int = 1) -> Interval:
        shares = [table.loc[cell] / 100 for cell in (one, other)]
        deviation = 100 * math.sqrt(sum(share * (1 - share) / TESTED for share in shares))
        quantile = statistics.NormalDist().inv_cdf(1 - 0.025 / comparisons)
        return Interval(100 * (shares[0] - shares[1]), quantile * deviation, TESTED)

    return difference


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
            rows.append({**about, "quantity": "other seeds", **at, "ours": found.mean, "±": half})
    for letter, table in ours.items():
        for cell, value in table.stack().items():
            at, theirs = {"momentum": cell[0], "rate": cell[1]}, paper[letter].stack().get(cell, math.nan)
            rows.append({"framework": letter, "quantity": "one run", **at, "ours": value, "paper": theirs})
    columns = ["framework", "quantity", "momentum", "rate", "ours", "±", "paper"]
    return pd.DataFrame(rows).reindex(columns=columns)


def claims(
    ours: Mapping[str, pd.DataFrame], paper: Mapping[str, pd.DataFrame], again: Mapping[str, pd.DataFrame], rate: float
) -> list[Claim]:
    """Appendix C.12, of our repeated runs and of the paper's printed grids; as `summarised` has the arguments."""
    here = {letter: (table, among_repeats(again.get(letter))) for letter, table in ours.items()}
    there = {letter: (table, in_print(table)) for letter, table in paper.items()}
    differ = "All the hyperparameters found are different from the best hyperparameters of the single worker"
    differ += " (with many workers, the best cell is better than the single worker's)"
    checks = [
        ("The best hyperparameters can vary between frameworks", "appendix C.12", _vary(here), _vary(there)),
        (differ, "appendix C.12", _above_single(here, rate), _above_single(there, PRINTED_RATE)),
    ]
    for says, where, letters, one, other in CONTRASTS:
        margins = functools.partial(_margins, letters=letters, one=one, other=other)
        checks.append((says, where, margins(here), margins(there)))
    return [Claim(says, where, *ours_is, *paper_is) for says, where, ours_is, paper_is in checks]


def _vary(grids: Differences) -> tuple[str, bool | None]:
    """Return whether in some framework another one's best cell is worse than its own."""
    pairs, words, verdicts = list(itertools.permutations(grids, 2)), [], []
    for letter, other in pairs:
        own, theirs, difference = best(grids[letter][0]), best(grids[other][0]), grids[letter][1]
        if own != theirs:
            lost = difference(own, theirs, len(pairs))
            words.append(f"{lost} in {letter} with the best of {other}")
            verdicts.append(above(lost))
        elif (other, letter) not in pairs[: pairs.index((letter, other))]:
            words.append(f"none between {letter} and {other}, which have the same best")
    worse = True if True in verdicts else None if None in verdicts or not pairs else False
    return f"Points lost, at 95 % for all: {', '.join(words)}" if words else "one framework", worse


def _margins(grids: Differences, *, letters: Sequence[str], one: str, other: str) -> tuple[str, bool | None]:
    """Return how far the best cell of one part of a grid is above the best of another, in some frameworks."""
    pairs: list[Pair] = []
    for letter in letters:
        table, difference = grids.get(letter, (pd.DataFrame(), None))
        of_parts = parts(table) if len(table) else {}
        if one in of_parts and other in of_parts:
            pairs.append((letter, difference, best(of_parts[one]), best(of_parts[other])))
    words, verdict = _leads(pairs)
    return f"Points above the best cell with {PARTS[other]}: {words}", verdict


def _above_single(grids: Differences, rate: float) -> tuple[str, bool | None]:
    """Return how far the best cell of each framework is above the one of the single worker's hyperparameters."""
    pairs: list[Pair] = []
    for letter, (table, difference) in grids.items():
        if cell := single_cell(table, rate):
            pairs.append((letter, difference, best(table), cell))
    nearest = ", ".join(dict.fromkeys(f"{cell[1]:g}" for *_, cell in pairs))
    of = f"momentum {SINGLE_MOMENTUM:g} and rate {rate:g}"
    of += f", of which {nearest} is the nearest in the grid" if nearest not in (f"{rate:g}", "") else ""
    words, verdict = _leads(pairs)
    return f"Points above the single worker's cell ({of}): {words}", verdict


def _leads(pairs: Sequence[Pair]) -> tuple[str, bool | None]:
    """Return how far a first cell is above a second in each framework, and whether it is so in all."""
    words, verdicts = [], []
    for letter, difference, first, second in pairs:
        lead = difference(first, second) if first != second else Interval(0.0, 0.0, 1)
        words.append(f"{lead} ({letter}, momentum {first[0]:g} and rate {first[1]:g})")
        verdicts.append(above(lead) if first != second else False)
    return ", ".join(words) or "not run", all_of(verdicts)


def draw(ours: Mapping[str, pd.DataFrame], paper: Mapping[str, pd.DataFrame], size: Size) -> Picture:
    """Heat maps, ours above the paper's; the best cell of each has a frame."""
    drawn, panels = canvas(2, len(ours), width=5.6 * len(ours) + 0.6, height=9.6)
    for (letter, table), (above_panel, below_panel) in zip(ours.items(), panels.T, strict=True):
        for panel, values, name in (
            (above_panel, table, f"ours, {title(letter, size)}"),
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
