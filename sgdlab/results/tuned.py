r"""Shows how much hangs on tuning: the expected best of a few trials, and the share of trials that reach the target.

With n trials of a method, in an order that says nothing, the expected best of the first k of them is

.. math:: V_k = \sum_{i=1}^n v_{(i)} \binom{n-i}{k-1} \Big/ \binom nk

with v_(1) <= v_(2) <= ... their times. Trials are drawn without replacement: V_n is the best of all. Dodge et al. draw
with replacement, from the empirical distribution, where the weights are ((n-i+1) / n)^k - ((n-i) / n)^k; V_n is then
larger than the best, and infinite where a single trial misses.

Source: Dodge et al. 2019; without replacement, Tang et al. 2020.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from sgdlab import arguments
from sgdlab.report.table import Table
from sgdlab.results import simultaneous, standing
from sgdlab.results.panels import Style, style
from sgdlab.results.plots import STYLE, plain_ticks
from sgdlab.results.profiles import NAMED

BUDGETS = (1, 4, 8, 24)
"""Numbers of trials in the columns of `budget_table`."""

_NOTHING: Mapping[str, str] = MappingProxyType({})
_BY_POSITION: Mapping[str, Style] = MappingProxyType({})


def expected_best(values: np.ndarray, trials: Sequence[int], *, replacement: bool = False) -> np.ndarray:
    """Return the expected best of the first so many trials.

    Args:
      values: float64[n], of each trial; lower is better, and a miss is infinite.
      trials: numbers of trials, k; without replacement at most n.
      replacement: draw trials with replacement, as Dodge et al. do.

    Returns:
      float64[K]; infinite where all that are drawn may miss.

    Raises:
      ValueError: where there is no value, one is not a number, or a number of trials is impossible.

    Example:
      >>> expected_best(np.array([3.0, 1.0, 2.0]), [1, 2, 3]).tolist()
      [2.0, 1.3333333333333333, 1.0]
      >>> expected_best(np.array([3.0, 1.0]), [2], replacement=True).tolist()
      [1.5]
    """
    ordered = np.sort(np.asarray(values, float))
    if ordered.ndim != 1 or not ordered.size or np.isnan(ordered).any():
        raise ValueError(f"values={values!r} must be a number for each trial, at least one; a miss is infinite")
    found = []
    for k in trials:
        arguments.whole("trials", k, most=None if replacement else ordered.size)
        weights = _weights(ordered.size, k, replacement)
        likely = weights > 0
        found.append(float(weights[likely] @ ordered[likely]))
    return np.array(found)


def budget_table(
    values: Mapping[str, np.ndarray], titles: Mapping[str, str] = _NOTHING, *, miss: float = math.inf
) -> Table:
    """Return the expected best of `BUDGETS` of trials, the methods with the best of most trials first.

    Args:
      values: method -> float64[n], of each trial, as of `expected_best`.
      titles: method -> the field's name for it; its name by default.
      miss: what a trial that misses counts as, such as twice the budget.

    Raises:
      ValueError: where values are impossible.
    """
    counts = _budgets(values)
    rows = []
    for name in _in_order(values, miss):
        best = expected_best(_missed(values[name], miss), counts)
        rows.append([titles.get(name, name), *(f"{value:,.4g}" if math.isfinite(value) else "-" for value in best)])
    columns = {"method": "", **{f"best of {k}": "" for k in counts}}
    meaning = f"; a miss counts as {miss:,.4g}" if math.isfinite(miss) else "; -: all of them may miss"
    return Table(columns, rows, [f"Expected best time of the first trials, in random order{meaning}."])


def budget_figure(
    values: Mapping[str, np.ndarray],
    titles: Mapping[str, str] = _NOTHING,
    looks: Mapping[str, Style] = _BY_POSITION,
    *,
    miss: float = math.inf,
    up: str = "expected best time to the target, s",
) -> Figure:
    """Draw the expected best against the number of trials; a line begins where not all trials may be misses.

    Args:
      values: method -> float64[n], of each trial, as of `expected_best`.
      titles: method -> the field's name for it; its name by default.
      looks: method -> colour and mark (`panels.style`); by position by default.
      miss: what a trial that misses counts as, such as twice the budget.
      up: label of the vertical axis.

    Raises:
      ValueError: where values are impossible.
    """
    order, position = _in_order(values, miss), {name: place for place, name in enumerate(values)}
    with mpl.rc_context(STYLE):
        drawn = mpl.figure.Figure(figsize=(8.4, 4.4))
        axes = drawn.subplots()
        for place, name in reversed(list(enumerate(order))):
            counts = list(range(1, len(values[name]) + 1))
            best = expected_best(_missed(values[name], miss), counts)
            best[~np.isfinite(best)] = np.nan
            if place >= NAMED:
                axes.plot(counts, best, color="#c8c8c8", linewidth=0.8, zorder=1)
                continue
            look = looks.get(name) or style(position[name])
            at = [k - 1 for k in BUDGETS if k <= len(counts)]
            axes.plot(counts, best, color=look.colour, marker=look.marker, markevery=at, zorder=NAMED + 2 - place,
                      label=titles.get(name, name))  # fmt: skip
        axes.set_xscale("log", base=2)
        ticks = [k for k in BUDGETS if k <= max(map(len, values.values()))]
        axes.set_xticks(ticks, [str(k) for k in ticks])
        axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
        axes.set_yscale("log")
        plain_ticks(axes)
        axes.set_xlabel("trials")
        axes.set_ylabel(up)
        grey = f"; grey: {len(order) - NAMED} others" if len(order) > NAMED else ""
        axes.set_title(f"What tuning buys{grey}")
        handles, labels = axes.get_legend_handles_labels()
        axes.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5))
    return drawn


def sensitivity_table(values: Mapping[str, np.ndarray], titles: Mapping[str, str] = _NOTHING) -> Table:
    """Return the share of trials that reach the target, with its 95 % interval; the least sensitive method first.

    Args:
      values: method -> float64[n], of each trial; a miss is infinite.
      titles: method -> the field's name for it; its name by default.
    """
    rows = []
    for name, (reached, number, low, high) in _shares(values).items():
        rows.append([titles.get(name, name), f"{reached} of {number}", f"{100 * low:.0f}-{100 * high:.0f}"])
    columns = {
        "method": "",
        "trials": "that reach the target",
        "%": "95 % interval of their share (Clopper and Pearson)",
    }
    return Table(columns, rows, obvious=["method"])


def sensitivity_figure(
    values: Mapping[str, np.ndarray],
    titles: Mapping[str, str] = _NOTHING,
    looks: Mapping[str, Style] = _BY_POSITION,
) -> Figure:
    """Draw the share of trials that reach the target, with its 95 % interval, a row for each method.

    Args:
      values: method -> float64[n], of each trial; a miss is infinite.
      titles: method -> the field's name for it; its name by default.
      looks: method -> colour and mark (`panels.style`); by position by default.
    """
    found, position = _shares(values), {name: place for place, name in enumerate(values)}
    with mpl.rc_context(STYLE):
        drawn = mpl.figure.Figure(figsize=(6.4, standing.ROW * len(found) + 1.2))
        axes = drawn.subplots()
        for row, (name, (reached, number, low, high)) in enumerate(found.items()):
            look = looks.get(name) or style(position[name])
            axes.plot([100 * low, 100 * high], [row, row], color=look.colour, linewidth=1.6, alpha=0.7, zorder=2)
            axes.plot([100 * reached / number], [row], color=look.colour, marker=look.marker, zorder=3, clip_on=False)
        standing.name_rows(axes, [titles.get(name, name) for name in found])
        axes.set_xlim(0, 100)
        axes.set_xlabel("trials that reach the target, % (lines: 95 % intervals)")
    return drawn


def _weights(n: int, k: int, replacement: bool) -> np.ndarray:
    """Return the probability that the i-th best of n trials is the best of the k that are drawn."""
    if replacement:
        left = np.arange(n, -1, -1) / n
        return left[:-1] ** k - left[1:] ** k
    return np.array([math.comb(n - i, k - 1) / math.comb(n, k) for i in range(1, n + 1)])


def _budgets(values: Mapping[str, np.ndarray]) -> list[int]:
    """Return the budgets that all methods have trials for."""
    fewest = min(map(len, values.values()))
    return [k for k in BUDGETS if k <= fewest]


def _missed(values: np.ndarray, miss: float) -> np.ndarray:
    array = np.asarray(values, float)
    return np.where(np.isinf(array), miss, array)


def _in_order(values: Mapping[str, np.ndarray], miss: float) -> list[str]:
    """Return the methods by the best of all trials, of equal ones by the mean."""
    return sorted(values, key=lambda name: (np.min(values[name]), np.mean(_missed(values[name], miss))))


def _shares(values: Mapping[str, np.ndarray]) -> dict[str, tuple[int, int, float, float]]:
    """Return method -> trials that reach the target, all trials, and the ends of the share's interval."""
    found = {}
    for name, trials in values.items():
        reached, number = int(np.isfinite(trials).sum()), len(trials)
        found[name] = (reached, number, *simultaneous.share(reached, number))
    return dict(sorted(found.items(), key=lambda item: -item[1][0] / item[1][1]))
