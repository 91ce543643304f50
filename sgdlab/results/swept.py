"""Shows what further entries of a comparison do: a table of every value, and the final metric and loss against them."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sgdlab.report.table import Table, in_csv
from sgdlab.report.words import counted
from sgdlab.results import metric_axis, table
from sgdlab.results.panels import Style, styles
from sgdlab.results.plots import STYLE, mark, plain_ticks
from sgdlab.results.summary import Group, compared, metric_of

_ABSENT = object()
"""In the place of the value of an entry that a method does not use."""

_WIDE = 8.0
"""From this ratio of the largest value to the smallest on, the axis is logarithmic."""


@dataclasses.dataclass(frozen=True)
class Swept:
    """The groups of a comparison in which further entries of the configuration are varied.

    Attributes:
      groups: single workers and methods; those of one method and number of workers differ in the entries.
      over: the entries and their values, as records hold them, in the order in which they are drawn.
    """

    groups: Sequence[Group]
    over: Mapping[str, Sequence[Any]]

    def best(self) -> list[Group]:
        """Return of each method and number of workers the group with the best final metric; lost runs come last."""
        found: dict[Any, Group] = {}
        for group in self.groups:
            kind = group.serial, group.method, group.num_workers
            if kind not in found or _goodness(group) > _goodness(found[kind]):
                found[kind] = group
        return list(found.values())

    @property
    def note(self) -> str:
        """Return what is shown elsewhere, in a sentence or two."""
        entries = " and ".join(map(_named, self.over))
        return (
            f"All else shows each method, at each number of workers, with the {entries} of its best "
            f"{metric_of(self.groups).title} here (marked by *). That was chosen by these very runs: with other seeds, "
            "expect somewhat less."
        )

    def table(self) -> Table:
        """Return the table: a row for each group; means and deviations over seeds, or medians where some diverged."""
        found, best, metric = [], self.best(), metric_of(self.groups)
        for group in self._ordered():
            score, lost = table.score(group, metric.test), table.number(group, "test_loss", 4)
            diverged = f"{group.num_diverged} of {len(group.runs)}" if group.num_diverged else ""
            values = ("-" if value is _ABSENT else _shown(value) for value in self._values(group))
            star = " *" if any(group is one for one in best) else ""
            found.append([group.title, str(group.num_workers), *values, score + star, lost, diverged])
        headings = ["method", "workers", *map(_named, self.over), metric.test_label, "test loss", "diverged"]
        return Table(dict.fromkeys(headings, ""), found, [self.note])

    def comma_separated(self) -> str:
        """Return the same as CSV, in full precision."""
        return in_csv(map(self._plain, self._ordered()))

    def _plain(self, group: Group) -> dict[str, Any]:
        found: dict[str, Any] = {"method": group.method, "serial": int(group.serial), "num_workers": group.num_workers}
        for name, value in zip(self.over, self._values(group), strict=True):
            found[name] = "" if value is _ABSENT else value
        found |= {"seeds": len(group.runs), "diverged": group.num_diverged}
        return found | group.columns((group.metric.test, "test_loss"))

    def figure(self, name: str) -> Figure:
        """Draw the final metric and the final loss on the test set against an entry, a line for each method.

        Values of the other entries, and numbers of workers, have a row of panels each. A cross at the foot is a value
        at which some seed diverged; a dashed line is a single worker; a line without points does not use the entry.

        Args:
          name: of the entry.
        """
        ours, metric, style = compared(self.groups), metric_of(self.groups), styles(self.groups)
        at = _positions(self.over[name])
        rows = list(self._panels(name))
        levels = [group.level for group in self.groups if group.test and not group.num_diverged]
        with mpl.rc_context(STYLE):
            figure = mpl.figure.Figure(figsize=(10.4, 3.4 * len(rows) + 0.6))
            panels = figure.subplots(len(rows), 2, squeeze=False, sharex=True)
            for (scores, losses), (title, workers, others) in zip(panels, rows, strict=True):
                lines = [(group.method, style[group.method]) for group in ours]
                for method, of in dict(lines).items():
                    _lines(scores, losses, self._line(name, others, method, workers), at, of)
                for method in dict.fromkeys(group.method for group in self.groups if group.serial):
                    dashed = Style("black", "")
                    _lines(scores, losses, self._line(name, others, method), at, dashed, linestyle="--")
                scores.set_title(title)
                scores.set_ylabel(metric.test_label)
                losses.set_ylabel("test loss")
                losses.set_yscale("log")
                plain_ticks(losses)
                metric_axis.set_scale(scores, metric, *metric_axis.limits(metric, levels))
            for axes in panels[-1]:
                _across(axes, self.over[name], at)
                axes.set_xlabel(_named(name))
            handles, labels = panels[0, 0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=3)
        return figure

    def _ordered(self) -> list[Group]:
        """Return the groups by workers and method, then by value."""
        places = [
            tuple(_place(values, value) for values, value in zip(self.over.values(), self._values(group), strict=True))
            for group in self.groups
        ]
        order = sorted(range(len(places)), key=lambda i: (_kind(self.groups[i]), places[i]))
        return [self.groups[i] for i in order]

    def _panels(self, name: str) -> Iterator[tuple[str, int, dict[str, Any]]]:
        """Yield the title, the number of workers and the values of the other entries, of each row of panels."""
        others = {other: values for other, values in self.over.items() if other != name}
        for workers in sorted({group.num_workers for group in compared(self.groups)}):
            for values in itertools.product(*others.values()):
                chosen = dict(zip(others, values, strict=True))
                words = [counted(workers, "worker")]
                yield ", ".join([*words, *(f"{_named(k)} {_shown(v)}" for k, v in chosen.items())]), workers, chosen

    def _line(
        self, name: str, others: Mapping[str, Any], method: str, workers: int | None = None
    ) -> tuple[list[Group | None], bool]:
        """Return the group at each value of an entry, and whether the method uses the entry; workers None: a single."""
        wanted = tuple(others.get(entry, _ABSENT) for entry in self.over)
        found: dict[int, Group] = {}
        unused = None
        for group in self.groups:
            here = group.serial if workers is None else not group.serial and group.num_workers == workers
            values = self._values(group)
            if not here or group.method != method or not _agree(wanted, values):
                continue
            value = values[list(self.over).index(name)]
            if value is _ABSENT:
                unused = group
            else:
                found[_place(self.over[name], value)] = group
        return [found.get(place, unused) for place in range(len(self.over[name]))], unused is None

    def _values(self, group: Group) -> tuple[Any, ...]:
        """Return the group's value of each entry."""
        return tuple(_value(group.configs[0], name.split(".")) for name in self.over)


def _lines(
    scores: Axes,
    losses: Axes,
    line: tuple[list[Group | None], bool],
    at: Sequence[float],
    style: Style,
    *,
    linestyle: str = "-",
) -> None:
    """Draw one method in the panel of the metric and in that of the loss."""
    groups, uses = line
    some = next((group for group in groups if group is not None), None)
    if some is None:
        return
    marker = style.marker if uses else ""
    for axes, of in ((scores, "score"), (losses, "loss")):
        spreads = [None if group is None or group.num_diverged else _spread(group, of) for group in groups]
        mean, std = np.array([spread or (np.nan, np.nan) for spread in spreads]).T
        if max(len(group.runs) for group in groups if group) < 2:
            std = None
        drawn = {"color": style.colour, "marker": marker, "linestyle": linestyle, "label": some.title, "capsize": 3}
        axes.errorbar(at, mean, std, **drawn)
    lost = [x for x, group in zip(at, groups, strict=True) if group and group.num_diverged]
    mark(scores, style, [], lost, 0.02)


def _goodness(group: Group) -> tuple[int, float]:
    """Return what the best group has most of: runs that did not diverge, then the metric."""
    test = group.test
    return -group.num_diverged, -np.inf if test is None else group.metric.sign * test.mean


def _spread(group: Group, of: str) -> tuple[float, float] | None:
    found = group.test if of == "score" else group.spread("test_loss")
    scale = group.metric.scale if of == "score" else 1.0
    return None if found is None else (scale * found.mean, scale * found.std)


def _numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _positions(values: Sequence[Any]) -> list[float]:
    """Return where values stand: numbers at themselves, others at 0, 1, ..."""
    return [float(value) for value in values] if _numbers(values) else [float(i) for i in range(len(values))]


def _across(axes: Axes, values: Sequence[Any], at: Sequence[float]) -> None:
    """Make the x axis one of an entry's values."""
    if _numbers(values) and min(at) > 0 and max(at) >= _WIDE * min(at):
        axes.set_xscale("log")
    axes.set_xticks(at, [_shown(value) for value in values])
    axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())


def _kind(group: Group) -> tuple[bool, int, int]:
    return not group.serial, group.num_workers, group.rank


def _agree(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return whether values are equal, as far as both are there."""
    return all(a is _ABSENT or b is _ABSENT or a == b for a, b in zip(some, others, strict=True))


def _place(values: Sequence[Any], value: Any) -> int:
    return -1 if value is _ABSENT else list(values).index(value)


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
