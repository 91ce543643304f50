"""Shows what further entries of a comparison do: a table of every value, and the final metric and loss against them."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sgdlab.report.table import Table, in_csv
from sgdlab.report.words import counted
from sgdlab.results import metric_axis, table
from sgdlab.results.panels import Style, styles
from sgdlab.results.plots import DASHES, STYLE, mark, plain_ticks
from sgdlab.results.summary import Group, compared, metric_of

_ABSENT = object()
"""In the place of the value of an entry that a method does not use."""

_WIDE = 8.0
"""From this ratio of the largest value to the smallest on, the axis is logarithmic."""


@dataclasses.dataclass(frozen=True)
class Swept:
    """The groups of a comparison in which further entries of the configuration are varied."""

    # single workers and methods; those of one method and number of workers differ in the entries
    groups: Sequence[Group]
    # the entries and their values, as records hold them, in the order in which they are drawn
    over: Mapping[str, Sequence[Any]]

    def best(self) -> list[Group]:
        """Return of each method and number of workers the group with the best final metric; lost runs come last."""
        found: dict[Any, Group] = {}
        for group in self.groups:
            kind = group.serial, group.method, group.num_workers
            if kind not in found or _goodness(group) > _goodness(found[kind]):
                found[kind] = group
        return list(found.values())

    def table(self) -> Table:
        """Return the table: a row for each group; means and deviations over seeds, or medians where some diverged."""
        found, best, metric = [], self.best(), metric_of(self.groups)
        for group in self._ordered():
            score, lost = table.score(group, metric.test), table.number(group, "test_loss", 4)
            diverged = f"{group.num_diverged} of {len(group.runs)}" if group.num_diverged else ""
            values = ("-" if value is _ABSENT else _shown(value) for value in self._values(group).values())
            star = " *" if any(group is one for one in best) else ""
            found.append([group.title, str(group.num_workers), *values, score + star, lost, diverged])
        headings = ["method", "workers", *map(_named, self.over), metric.test_label, "test loss", "diverged"]
        elsewhere = (
            f"All else shows each method, at each number of workers, with the {' and '.join(map(_named, self.over))} "
            f"of its best {metric.title} here (marked by *). That was chosen by these very runs: with other seeds, "
            "expect somewhat less."
        )
        return Table(dict.fromkeys(headings, ""), found, [elsewhere])

    def comma_separated(self) -> str:
        """Return the same as CSV, in full precision."""
        return in_csv(map(self._plain, self._ordered()))

    def _plain(self, group: Group) -> dict[str, Any]:
        found: dict[str, Any] = {"method": group.method, "serial": int(group.serial), "num_workers": group.num_workers}
        found |= {name: "" if value is _ABSENT else value for name, value in self._values(group).items()}
        found |= {"seeds": len(group.runs), "diverged": group.num_diverged}
        return found | group.columns((group.metric.test, "test_loss"))

    def figure(self, name: str) -> Figure:
        """Draw the final metric and the final loss on the test set against an entry, a line for each method.

        Values of the other entries, and numbers of workers, have a row of panels each. A cross at the foot is a value
        at which some seed diverged; a black line is a single worker; a line without points does not use the entry.
        """
        ours, metric, style = compared(self.groups), metric_of(self.groups), styles(self.groups)
        values = self.over[name]
        numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        at = [float(value) if numeric else float(place) for place, value in enumerate(values)]
        beside = {other: choices for other, choices in self.over.items() if other != name}
        product = itertools.product(sorted({group.num_workers for group in ours}), *beside.values())
        rows = [(workers, dict(zip(beside, chosen, strict=True))) for workers, *chosen in product]
        levels = [group.level for group in self.groups if group.test and not group.num_diverged]
        with mpl.rc_context(STYLE):
            figure = mpl.figure.Figure(figsize=(10.4, 3.4 * len(rows) + 0.6))
            panels = figure.subplots(len(rows), 2, squeeze=False, sharex=True)
            for (scores, losses), (workers, others) in zip(panels, rows, strict=True):
                for method in dict.fromkeys(group.method for group in ours):
                    here = [group for group in ours if (group.method, group.num_workers) == (method, workers)]
                    _lines(scores, losses, *self._line(name, others, here), at, style[method])
                alone = dict.fromkeys(group.method for group in self.groups if group.serial)
                for method, dash in zip(alone, itertools.cycle(DASHES), strict=False):
                    here = [group for group in self.groups if group.serial and group.method == method]
                    _lines(scores, losses, *self._line(name, others, here), at, Style("black", ""), linestyle=dash)
                chosen = (f"{_named(other)} {_shown(value)}" for other, value in others.items())
                scores.set_title(", ".join([counted(workers, "worker"), *chosen]))
                scores.set_ylabel(metric.test_label)
                losses.set_ylabel("test loss")
                losses.set_yscale("log")
                plain_ticks(losses)
                metric_axis.set_scale(scores, metric, *metric_axis.limits(metric, levels))
            for axes in panels[-1]:
                if numeric and min(at) > 0 and max(at) >= _WIDE * min(at):
                    axes.set_xscale("log")
                axes.set_xticks(at, map(_shown, values))
                axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
                axes.set_xlabel(_named(name))
            lines: dict[str, Any] = {}
            for axes in panels[:, 0]:  # a method need not be in all
                lines = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True)) | lines
            figure.legend(lines.values(), lines, loc="outside lower center", ncols=3)
        return figure

    def _ordered(self) -> list[Group]:
        """Return the groups by workers and method, then by value."""

        def place(group: Group) -> tuple[Any, ...]:
            own = self._values(group)
            places = (-1 if own[name] is _ABSENT else list(of).index(own[name]) for name, of in self.over.items())
            return not group.serial, group.num_workers, group.rank, *places

        return sorted(self.groups, key=place)

    def _line(self, name: str, others: Mapping[str, Any], groups: Sequence[Group]) -> tuple[list[Group | None], bool]:
        """Return a method's group at each value of an entry, and whether the method uses the entry."""
        agree = lambda own, wanted: all(own[entry] in (_ABSENT, value) for entry, value in wanted.items())
        here = [(group, own) for group in groups if agree(own := self._values(group), others)]
        found = [next((group for group, own in here if agree(own, {name: value})), None) for value in self.over[name]]
        return found, all(own[name] is not _ABSENT for _, own in here)

    def _values(self, group: Group) -> dict[str, Any]:
        """Return the group's value of each entry."""
        return {name: _value(group.configs[0], name.split(".")) for name in self.over}


def _lines(
    scores: Axes,
    losses: Axes,
    groups: Sequence[Group | None],
    uses: bool,
    at: Sequence[float],
    style: Style,
    *,
    linestyle: str = "-",
) -> None:
    """Draw one method in the panel of the metric and in that of the loss, with points where it uses the entry."""
    there = [group for group in groups if group is not None]
    if not there:
        return
    metric = there[0].metric
    drawn = {"color": style.colour, "marker": style.marker if uses else "", "linestyle": linestyle, "capsize": 3}
    for axes, entry, scale in ((scores, metric.test, metric.scale), (losses, "test_loss", 1.0)):
        spreads = [group.spread(entry) if group else None for group in groups]
        mean, std = scale * np.array([(s.mean, s.std) if s else (np.nan, np.nan) for s in spreads]).T
        if max(len(group.runs) for group in there) < 2:
            std = None
        axes.errorbar(at, mean, std, label=there[0].title, **drawn)
    lost = [x for x, group in zip(at, groups, strict=True) if group and group.num_diverged]
    mark(scores, style, [], lost, 0.02)


def _goodness(group: Group) -> tuple[int, float]:
    """Return what the best group has most of: runs that did not diverge, then the metric."""
    test = group.test
    return -group.num_diverged, -np.inf if test is None else group.metric.sign * test.mean


def _value(config: Any, name: Sequence[str]) -> Any:
    for part in name:
        if not isinstance(config, Mapping) or part not in config:
            return _ABSENT
        config = config[part]
    return config


def _named(name: str) -> str:
    """Return an entry's name as a person reads it.

    Example:
      >>> _named("optimizer.learning_rate"), _named("network.kind")
      ('learning rate', 'network')
    """
    *parents, last = name.split(".")
    return (parents[-1] if last == "kind" and parents else last).replace("_", " ")


def _shown(value: Any) -> str:
    """Return a value as a person reads it.

    Example:
      >>> _shown(0.05), _shown([8, 16]), _shown(True), _shown(None)
      ('0.05', '8, 16', 'yes', 'none')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value))
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
