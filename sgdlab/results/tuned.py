r"""Shows how much hangs on tuning: the expected best of a few trials, and the share of trials that reach the target.

With n trials of a method, in an order that says nothing, the expected best of the first k of them is

.. math:: V_k = \sum_{i=1}^n v_{(i)} \binom{n-i}{k-1} \Big/ \binom nk

with v_(1) <= v_(2) <= ... their times. Trials are drawn without replacement: V_n is the best of all. (With replacement,
as Dodge et al. draw them, V_n is larger than the best, and infinite where a single trial misses.)

Source: Dodge et al. 2019; without replacement, Tang et al. 2020.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from sgdlab import arguments
from sgdlab.report.table import Column, Table
from sgdlab.results import simultaneous, standing
from sgdlab.results.panels import Style
from sgdlab.results.plots import STYLE, plain_ticks
from sgdlab.results.profiles import NAMED

BUDGETS = (1, 4, 8, 24)
"""Numbers of trials in the columns of `Trials.budget_table`."""


def expected_best(values: np.ndarray, trials: Sequence[int]) -> np.ndarray:
    """Return the expected best of the first so many trials.

    Args:
      values: float64[n], of each trial; lower is better, and a miss is infinite.
      trials: numbers of trials, k, each at most n.

    Returns:
      float64[K]; infinite where all that are drawn may miss.

    Raises:
      ValueError: where there is no value, one is not a number, or a number of trials is impossible.

    Example:
      >>> expected_best(np.array([3.0, 1.0, 2.0]), [1, 2, 3]).tolist()
      [2.0, 1.3333333333333333, 1.0]
    """
    ordered = np.sort(np.asarray(values, float))
    n = ordered.size
    if ordered.ndim != 1 or not n or np.isnan(ordered).any():
        raise ValueError(f"values={values!r} must be a number for each trial, at least one; a miss is infinite")
    found = []
    for k in trials:
        arguments.whole("trials", k, most=n)
        weights = np.array([math.comb(n - i, k - 1) / math.comb(n, k) for i in range(1, n + 1)])
        likely = weights > 0
        found.append(float(weights[likely] @ ordered[likely]))
    return np.array(found)


@dataclasses.dataclass(frozen=True)
class Trials:
    """Holds the trials of several methods."""

    times: Mapping[str, np.ndarray]  # method -> float64[n], of each trial; lower is better, and a miss is infinite
    titles: Mapping[str, str]  # method -> the field's name for it
    looks: Mapping[str, Style]  # method -> colour and mark (`panels.style`)
    miss: float = math.inf  # what a trial that misses counts as in an expected best, such as twice the budget

    def tables(self) -> tuple[Table, Table]:
        """Return both tables."""
        return self.budget_table(), self.sensitivity_table()

    def budget_table(self) -> Table:
        """Return the expected best of `BUDGETS` of trials, the methods with the best of most trials first."""
        fewest = min(map(len, self.times.values()))

        def of(k: int) -> Column:
            def cell(name: str) -> str:
                (best,) = expected_best(self._missed[name], [k])
                return f"{best:,.4g}" if math.isfinite(best) else "-"

            return Column(f"best of {k}", cell)

        columns = [self._method, *(of(k) for k in BUDGETS if k <= fewest)]
        misses = f"a miss counts as {self.miss:,.4g}" if math.isfinite(self.miss) else "-: all of them may miss"
        notes = [f"Expected best time of the first trials, in random order; {misses}."]
        return Table.of(columns, self._in_order(), notes)

    def budget_figure(self) -> Figure:
        """Draw the expected best against the number of trials; a line begins where not all trials may be misses."""
        order = self._in_order()
        with mpl.rc_context(STYLE):
            drawn = mpl.figure.Figure(figsize=(8.4, 4.4))
            axes = drawn.subplots()
            for place, name in reversed(list(enumerate(order))):
                counts = list(range(1, len(self.times[name]) + 1))
                best = expected_best(self._missed[name], counts)
                best[~np.isfinite(best)] = np.nan
                if place >= NAMED:
                    axes.plot(counts, best, color="#c8c8c8", linewidth=0.8, zorder=1)
                    continue
                look, at = self.looks[name], [k - 1 for k in BUDGETS if k <= len(counts)]
                axes.plot(counts, best, color=look.colour, marker=look.marker, markevery=at, zorder=NAMED + 2 - place,
                          label=self.titles[name])  # fmt: skip
            axes.set_xscale("log", base=2)
            ticks = [k for k in BUDGETS if k <= max(map(len, self.times.values()))]
            axes.set_xticks(ticks, [str(k) for k in ticks])
            axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
            axes.set_yscale("log")
            plain_ticks(axes)
            axes.set_xlabel("trials")
            axes.set_ylabel("expected best time to the target, s")
            grey = f"; grey: {len(order) - NAMED} others" if len(order) > NAMED else ""
            axes.set_title(f"What tuning buys{grey}")
            handles, labels = axes.get_legend_handles_labels()
            axes.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5))
        return drawn

    def sensitivity_table(self) -> Table:
        """Return the share of trials that reach the target, with its interval; the least sensitive method first."""
        found = self._shares()
        columns = [
            self._method,
            Column("trials", lambda name: "{} of {}".format(*found[name]), "that reach the target"),
            Column(
                "%",
                lambda name: "{:.0f}-{:.0f}".format(*_interval(*found[name])),
                "95 % interval of their share (Clopper and Pearson)",
            ),
        ]
        return Table.of(columns, found)

    def sensitivity_figure(self) -> Figure:
        """Draw the share of trials that reach the target, with its 95 % interval, a row for each method."""
        found = self._shares()
        with mpl.rc_context(STYLE):
            drawn = mpl.figure.Figure(figsize=(6.4, standing.ROW * len(found) + 1.2))
            axes = drawn.subplots()
            for row, (name, (reached, number)) in enumerate(found.items()):
                colour, marker = self.looks[name]
                axes.plot(_interval(reached, number), [row, row], color=colour, linewidth=1.6, alpha=0.7, zorder=2)
                axes.plot([100 * reached / number], [row], color=colour, marker=marker, zorder=3, clip_on=False)
            standing.name_rows(axes, [self.titles[name] for name in found])
            axes.set_xlim(0, 100)
            axes.set_xlabel("trials that reach the target, % (lines: 95 % intervals)")
        return drawn

    @property
    def _method(self) -> Column:
        return Column("method", lambda name: self.titles[name])

    @functools.cached_property
    def _missed(self) -> dict[str, np.ndarray]:
        return {name: np.where(np.isinf(times), self.miss, times) for name, times in self.times.items()}

    def _in_order(self) -> list[str]:
        """Return the methods by the best of all trials, of equal ones by the mean."""
        return sorted(self.times, key=lambda name: (np.min(self.times[name]), np.mean(self._missed[name])))

    def _shares(self) -> dict[str, tuple[int, int]]:
        """Return method -> trials that reach the target, and all trials."""
        found = {name: (int(np.isfinite(times).sum()), len(times)) for name, times in self.times.items()}
        return dict(sorted(found.items(), key=lambda item: -item[1][0] / item[1][1]))


def _interval(reached: int, number: int) -> list[float]:
    """Return the ends of the interval of a share, in %."""
    return [100 * end for end in simultaneous.share(reached, number)]
