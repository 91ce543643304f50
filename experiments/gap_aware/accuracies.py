"""Final accuracies of runs, and comparisons of methods: of ours, paired by seed, and of the paper's tables."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from experiments import harness
from experiments.gap_aware import printed
from experiments.gap_aware.frameworks import FRAMEWORKS, METHODS, SINGLE, Size, title
from experiments.harness import Interval, Sweep, above, all_of, below, interval

SINGLE_TITLE = "single worker"

Cell = tuple[str, int]
"""A framework's letter and a number of workers."""


class Accuracies:
    """Final accuracies of runs in %, a lost run's as it is.

    Args:
      runs: columns framework (its letter), N, method (its title), seed, test, train and lost.
    """

    def __init__(self, runs: pd.DataFrame):
        self.runs = runs
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

    def difference(
        self, cell: Cell, first: str, second: str, column: str = "test", *, comparisons: int = 1
    ) -> Interval:
        """The mean of one method's less another's, in points, paired by seed; one of several such comparisons."""
        differences = self.values(cell, first, column) - self.values(cell, second, column)
        return interval(differences, comparisons=comparisons)

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
                }
            )
        )
    return Accuracies(pd.concat(frames, ignore_index=True))


def table(found: Accuracies, size: Size, paper: Callable[[str, int, str], float], column: str = "test") -> pd.DataFrame:
    """Return means and standard deviations over the seeds, with the paper's numbers.

    Args:
      found: the runs.
      size: of the figure, which says what a framework is called.
      paper: (letter, N, method's title) -> what the paper prints, in %; NaN where it prints nothing.
      column: "test" or "train".
    """
    rows = []
    for (letter, workers, method), _ in found.runs.groupby(["framework", "N", "method"], sort=False):
        values = found.values((letter, workers), method, column)
        rows.append(
            {
                "framework": title(letter, size),
                "N": workers,
                "method": method,
                "lost": found.lost((letter, workers), method),
                "ours": values.mean(),
                "±": spread(values),
                "paper": paper(letter, workers, method),
            }
        )
    return pd.DataFrame(rows)


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
) -> tuple[str, bool | None]:
    """Return whether methods are better than others in every cell: in words, and whether the intervals say so.

    That all are better is said where each is by its own 95 % interval. That the statement fails is said where one is
    worse by an interval that holds for all comparisons at once: among many, one seems worse by chance. The words count
    and name those that are worse by their own interval.

    Args:
      found: the runs.
      pairs: titles of a method and of another that it is said to be better than.
      cells: those that are compared; all by default.
      column: "test" or "train".

    Returns:
      The words, and False where one is worse in a cell, True where all are better in all, else None.
    """
    pairs, cells = list(pairs), found.cells if cells is None else cells
    differences = {(cell, *pair): found.difference(cell, *pair, column) for cell in cells for pair in pairs}
    verdicts = {key: above(difference) for key, difference in differences.items()}
    surely = [below(found.difference(*key, column, comparisons=len(verdicts))) for key in verdicts]
    several = len(pairs) > 1
    words = []
    for verdict, word in ((True, "better"), (False, "worse"), (None, "open")):
        there = [key for key, value in verdicts.items() if value is verdict]
        if not there:
            continue
        named = ""
        if verdict is False:
            shown = (f"{letter} N={n}{f' ({other})' if several else ''}" for (letter, n), _, other in there)
            named = f" ({', '.join(shown)}; by an interval for all at once {surely.count(True)})"
        words.append(f"{word} in {len(there)}{named}")
    widths = [difference.half for difference in differences.values() if np.isfinite(difference.half)]
    width = f"; half an interval is {np.median(widths):.2g} points (median)" if widths else ""
    return f"of {len(verdicts)} comparisons {', '.join(words)}{width}", False if True in surely else all_of(
        verdict or None for verdict in verdicts.values()
    )


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
