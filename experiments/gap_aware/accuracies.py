"""Final accuracies of runs, and comparisons of methods: of ours, paired by seed, and of the paper's tables."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
import scipy.stats

from experiments import harness
from experiments.gap_aware import printed
from experiments.gap_aware.frameworks import FRAMEWORKS, METHODS, SINGLE, Size, title
from experiments.harness import (
    Evidence,
    Interval,
    Premise,
    Sweep,
    above,
    all_of,
    enough,
    interval,
    known,
    share_above,
)
from experiments.harness.thresholds import chosen
from experiments.thresholds import HARD_TASK_ERROR

SINGLE_TITLE = "single worker"

Cell = tuple[str, int]
"""A framework's letter and a number of workers."""

LOSSES = ("test_loss", "train_loss")
"""Columns in which less is better."""


class Accuracies:
    """Final accuracies of runs in %, a lost run's as it is, and logarithms of their losses.

    Args:
      runs: columns framework (its letter), N, method (its title), seed, test, train and lost; where known, also
        test_loss, train_loss and example (the points of accuracy that one test example is).
    """

    def __init__(self, runs: pd.DataFrame):
        self.runs = runs
        self.example = float(runs.example.max()) if "example" in runs else 0.0
        self._of = {key: rows.sort_values("seed") for key, rows in runs.groupby(["framework", "N", "method"])}

    @property
    def cells(self) -> list[Cell]:
        """Frameworks and numbers of workers, without the single worker."""
        several = self.runs[self.runs.N > 1]
        return list(several[["framework", "N"]].drop_duplicates().itertuples(index=False, name=None))

    @property
    def letters(self) -> list[str]:
        """Return the letters of the frameworks."""
        return list(dict.fromkeys(letter for letter, _ in self.cells))

    def workers(self, letter: str) -> list[int]:
        """Return the numbers of workers of a framework, without the single worker."""
        return [n for other, n in self.cells if other == letter]

    def values(self, cell: Cell, method: str, column: str = "test") -> np.ndarray:
        """float64[seeds], in %."""
        return self._of[*cell, method][column].to_numpy(float)

    def single(self, framework: str, column: str = "test") -> np.ndarray:
        """float64[seeds]: the single worker's, in %."""
        return self.values((framework, 1), SINGLE_TITLE, column)

    def better_by(self, cell: Cell, first: str, second: str, column: str = "test") -> np.ndarray:
        """float64[seeds]: how much better a method is than another, paired by seed: points, or a ratio's logarithm."""
        better = self.values(cell, first, column) - self.values(cell, second, column)
        return -better if column in LOSSES else better

    def resolution(self, column: str) -> float:
        """Return what a value is known to."""
        return 0.0 if column in LOSSES else self.example

    def difference(self, cell: Cell, first: str, second: str, column: str = "test") -> Interval:
        """Return how much better a method is than another, paired by seed: points, or a ratio's logarithm."""
        return interval(self.better_by(cell, first, second, column), resolution=self.resolution(column))

    def better(self, cell: Cell, first: str, second: str, column: str = "test", *, least: float = 0.0) -> Evidence:
        """Return the evidence that a method is better than another, by more than some points (`typically`)."""
        lost = any(self._of[*cell, method].lost.any() for method in (first, second))
        differences = self.better_by(cell, first, second, column)
        return typically(differences, least, lost=lost, resolution=self.resolution(column))

    def worse_than_single(self, cell: Cell, method: str) -> np.ndarray:
        """float64[seeds]: points of test accuracy that the single worker is better by."""
        return self.single(cell[0]) - self.values(cell, method)

    def far_below_single(self, cell: Cell, method: str, points: float) -> Evidence:
        """Return the evidence that a method is more points below the single worker."""
        lost = bool(self._of[*cell, method].lost.any())
        return typically(self.worse_than_single(cell, method), points, lost=lost, resolution=self.example)

    def lost(self, cell: Cell, method: str) -> str:
        """Return how many of the runs were lost, such as "2 of 5"; empty for none."""
        lost = self._of[*cell, method].lost
        return f"{lost.sum()} of {len(lost)}" if lost.any() else ""


def accuracies(sweeps: Mapping[str, Sweep]) -> Accuracies:
    """Return the final accuracies of the runs of frameworks.

    A run is lost where it blew up, or ends at most half better than a guess.
    """
    harness.prepare(*sweeps.values())
    frames = []
    for letter, sweep in sweeps.items():
        runs = sweep.table()
        workers = runs["cluster.num_workers"]
        guess = 1 / (FRAMEWORKS[letter].classes if letter in FRAMEWORKS else 100)
        frames.append(
            pd.DataFrame(
                {
                    "framework": letter,
                    "N": workers,
                    "method": runs.method.map(METHODS).where((workers > 1) | (runs.method != SINGLE), SINGLE_TITLE),
                    "seed": runs.seed,
                    "test": 100 * runs.test_accuracy,
                    "train": 100 * runs.train_accuracy,
                    "lost": runs.diverged.astype(bool) | (runs.test_accuracy < 1.5 * guess),
                    "example": 100 / runs.test_examples,
                }
                # A loss is at most that of a guess, which every method could have made.
                | {loss: np.log(runs[loss].fillna(np.inf).clip(1e-12, -np.log(guess))) for loss in LOSSES}
            )
        )
    return Accuracies(pd.concat(frames, ignore_index=True))


def typically(values: np.ndarray, threshold: float = 0.0, *, lost: bool, resolution: float = 0.0) -> Evidence:
    """Return the evidence that differences between runs are above a threshold.

    It is their mean's. Where runs were lost, the differences lie in two heaps, of whose mean an interval says too
    little: there it is the sign test's, that more than half of them are above the threshold; and nothing is known where
    the mean, which counts the lost ones in full, is on the other side.

    Args:
      values: float64[seeds], of pairs of runs.
      threshold: what they are compared with.
      lost: whether some of the runs were lost.
      resolution: what a value is known to.

    Example:
      >>> two_heaps = np.array([0.3] * 14 + [80.0] * 2)
      >>> [typically(two_heaps, lost=lost).holds for lost in (False, True)]
      [None, True]
      >>> typically(np.where(two_heaps > 1, -80.0, 0.3), lost=True).holds
    """
    if not lost:
        return above(values, threshold, resolution=resolution)
    higher, lower = int(np.sum(values > threshold)), int(np.sum(values < threshold))
    about = f"{higher} of {higher + lower} seeds > {float(threshold):.4g}"
    found = share_above(higher, higher + lower, 0.5)
    if (higher > lower) != (np.mean(values) > threshold):
        found = known(None)
    return dataclasses.replace(found, about=about, thresholds=chosen(threshold))


def as_hard(found: Accuracies, letter: str) -> list[Premise]:
    """Return the premise of what is said of a framework whose task is hard in print: that it is so here."""
    error = 100 - printed.SINGLE[letter]
    ours = 100 - found.single(letter).mean()
    premise = enough("% test error of the single worker", ours, error)
    thresholds = (*premise.thresholds, HARD_TASK_ERROR)
    return [dataclasses.replace(premise, thresholds=thresholds)] if error > HARD_TASK_ERROR else []


def table(found: Accuracies, size: Size, paper: Callable[[str, int, str], float], column: str = "test") -> pd.DataFrame:
    """Return means and standard deviations over the seeds, with the paper's numbers.

    Args:
      found: the runs.
      size: of the figure, which says what a framework is called.
      paper: (letter, N, method's title) -> what the paper prints, in %; NaN where it prints nothing.
      column: "test" or "train".
    """
    rows = []
    for (letter, workers, method), own in found.runs.groupby(["framework", "N", "method"], sort=False):
        values = found.values((letter, workers), method, column)
        rows.append(
            {
                "framework": title(letter, size),
                "N": workers,
                "method": method,
                "lost": found.lost((letter, workers), method) and _share(found.runs.loc[own.index, "lost"]),
                "ours": values.mean(),
                "±": spread(values),
                "paper": paper(letter, workers, method),
            }
        )
    return pd.DataFrame(rows)


def training_losses(found: Accuracies, size: Size) -> pd.DataFrame:
    """Return geometric means of the training losses over the seeds, and their standard deviations, as `table` has them.

    The standard deviation is that of the logarithm, times the mean.
    """
    rows = table(found, size, lambda *_: np.nan, "train_loss")
    means = np.exp(rows.ours)
    return rows.assign(ours=means, **{"±": means * rows["±"]})


def _share(lost: pd.Series) -> str:
    """Return how many runs were lost, with the 95 % interval of the share by Clopper and Pearson."""
    share = scipy.stats.binomtest(int(lost.sum()), len(lost)).proportion_ci()
    return f"{lost.sum()} of {len(lost)} ({100 * share.low:.0f} to {100 * share.high:.0f} %)"


def spread(values: np.ndarray) -> float:
    """Return the standard deviation over seeds; NaN of a single one."""
    return values.std(ddof=1) if len(values) > 1 else np.nan


def paper_accuracy(letter: str, workers: int, method: str) -> float:
    """Return what Tables 4 to 6 print; NaN where they print nothing.

    Example:
      >>> paper_accuracy("R", 8, "GA"), paper_accuracy("W", 1, "single worker"), paper_accuracy("R", 64, "GA")
      (91.21, 95.17, nan)
    """
    if method == SINGLE_TITLE:
        return printed.SINGLE.get(letter, np.nan)
    return _PRINTED.get((letter, workers, method), np.nan)


_PRINTED = {(row.framework, row.N, row.method): row.mean for row in printed.tables().itertuples(index=False)}
PAPER_CELLS = list(dict.fromkeys((letter, workers) for letter, workers, _ in _PRINTED))
"""The cells of Tables 4 to 6."""


def everywhere(
    found: Accuracies, pairs: Iterable[tuple[str, str]], cells: Sequence[Cell] | None = None, column: str = "test"
) -> tuple[str, Evidence]:
    """Return the evidence that methods are better than others in every cell, in words and as p-values.

    The words count the comparisons that are decided by themselves, and name those that are worse; the evidence is
    corrected for their number.

    Args:
      found: the runs.
      pairs: titles of a method and of another that it is said to be better than.
      cells: those that are compared; all by default.
      column: of the runs.
    """
    pairs, cells = list(pairs), found.cells if cells is None else cells
    keys = [(cell, *pair) for cell in cells for pair in pairs]
    verdicts = {key: found.better(*key, column) for key in keys}
    words = []
    for holds, word in ((True, "better"), (False, "worse"), (None, "open")):
        there = [key for key, each in verdicts.items() if each.holds is holds]
        if not there:
            continue
        shown = (f"{letter} N={n}{f' ({other})' if len(pairs) > 1 else ''}" for (letter, n), _, other in there)
        words.append(f"{word} in {len(there)}" + (f" ({', '.join(shown)})" if holds is False else ""))
    widths = [half for key in keys if np.isfinite(half := found.difference(*key, column).half)]
    unit = "of the logarithm" if column in LOSSES else "points"
    width = f"; half an interval is {np.median(widths):.2g} {unit} (median)" if widths else ""
    return f"of {len(keys)} comparisons {', '.join(words)}{width}", all_of(verdicts.values())


def everywhere_on_paper(pairs: Iterable[tuple[str, str]], cells: Iterable[Cell] = ()) -> tuple[str, bool]:
    """Return whether methods are better than others in every cell of Tables 4 to 6, by their means.

    Example:
      >>> everywhere_on_paper([("GA", "SA")])
      ('of 30 comparisons better in 30', True)
      >>> everywhere_on_paper([("DANA-GA", "DANA-SA")])
      ('of 30 comparisons better in 28, not in W100 N=4 (DANA-SA), W100 N=8 (DANA-SA)', False)
    """
    keys = [(cell, *pair) for cell in (list(cells) or PAPER_CELLS) for pair in pairs]
    worse = [
        (cell, second)
        for cell, first, second in keys
        if not paper_accuracy(*cell, first) > paper_accuracy(*cell, second)
    ]
    words = f"of {len(keys)} comparisons better in {len(keys) - len(worse)}"
    if worse:
        words += f", not in {', '.join(f'{letter} N={n} ({second})' for (letter, n), second in worse)}"
    return words, not worse
