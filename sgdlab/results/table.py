"""The comparison as a table: for the terminal, as Markdown, as CSV, and cell by cell for a page."""

from collections.abc import Sequence
from typing import NamedTuple

from sgdlab.report import words
from sgdlab.report.table import Table, in_csv
from sgdlab.results import facts, floor
from sgdlab.results.answer import short_title
from sgdlab.results.metric import Metric
from sgdlab.results.summary import Group, metric_of

SPEEDUP = "x sync. SGD"

GAP = (
    "distance between the server's parameters and those the gradient was computed on, over the largest learning rate "
    "times the mean gradient norm so far, plus 1 (Barkai et al. 2020, Definition 1)"
)
"""What the column of that name is."""

_OF_THE_METRIC = ("test", "train", "average", "node", "worst", "center")
"""Whose or on what: a summary has an entry `<of>_<metric>` of each."""

_NUMBERS = (
    "consensus",
    "test_loss",
    "train_loss",
    "seconds",
    "speedup",
    "seconds_to_target",
    "epochs_to_target",
    "staleness",
    "gap",
    "penalty",
    "gradients",
    "updates",
    "dropped",
    "idle_share",
    "wasted_share",
)

_UNEQUAL = 0.1
"""Deviation of a single worker's seconds, over their mean, from which on the notes say where it comes from."""

_OBVIOUS = ("method", "workers")
"""Columns that explain themselves."""


class TableCell(NamedTuple):
    """One cell: what a reader sees, and the number that rows are sorted by (None: after all that have one)."""

    text: str
    value: float | None = None


def columns(groups: Sequence[Group]) -> dict[str, str]:
    """Headings, with what stands below them in a sentence; the text for the terminal, Markdown and the page alike.

    Args:
      groups: the rows.

    Returns:
      Heading -> definition with its unit, in the order of `cells`. `diverged` is a column only where some run did, and
      those of the target where there is one.
    """
    metric, target = metric_of(groups), facts.target(groups)
    test, train = headings(metric)
    order = "" if metric.higher_is_better else "; lower is better"
    to_target = {
        f"seconds to {target}": f"virtual seconds until {facts.goal(groups)}; a mean where all seeds reach it",
        f"epochs to {target}": "the same in epochs of used gradients",
    }
    found = {
        "method": "whom the server waits for, and what it does with a gradient",
        "workers": "workers that compute gradients",
        test: f"{metric.noun} on the test set after the last gradient{order}",
        train: "the same on the training set",
        "diverged": "runs that ended no better than guessing after their loss had blown up; the means include them",
        "seconds": "virtual seconds of a whole run",
        SPEEDUP: "used gradients per virtual second, over those of synchronous SGD with the same workers",
        **(to_target if target else {}),
        "staleness": "updates between the reading of the parameters and the use of the gradient (delay - 1; fresh: 0)",
        "gap": GAP,
    }
    if not any(group.num_diverged for group in groups):
        del found["diverged"]
    return found


def definitions(groups: Sequence[Group]) -> dict[str, str]:
    """Return what stands below a table: `columns`, less those that explain themselves."""
    return {heading: text for heading, text in columns(groups).items() if heading not in _OBVIOUS}


def cells(groups: Sequence[Group]) -> list[list[TableCell]]:
    """One row for each group, in the order of `columns`.

    Accuracies, or other metrics, are means over all runs, those that diverged included. The time to the target is a
    mean where all runs reached it, else how many did.
    """
    metric = metric_of(groups)
    some_diverged, target = any(group.num_diverged for group in groups), facts.target(groups)
    return [
        [
            TableCell(group.title),
            TableCell(str(group.num_workers), group.num_workers),
            _score(group, metric.test),
            _score(group, metric.train),
            *([TableCell(_diverged(group), group.num_diverged / len(group.runs))] if some_diverged else []),
            _number(group, "seconds", 0),
            _number(group, "speedup", 2),
            *([_to_target(group, "seconds_to_target", 0), _to_target(group, "epochs_to_target", 1)] if target else []),
            _number(group, "staleness", 1, spread=False),
            _number(group, "gap", 2, spread=False),
        ]
        for group in groups
    ]


def rows(groups: Sequence[Group]) -> list[list[str]]:
    """The texts of `cells`."""
    return [[cell.text for cell in row] for row in cells(groups)]


def notes(groups: Sequence[Group]) -> list[str]:
    """Return what is true of the whole table: seeds, length, cluster, why a single worker's seconds vary if they do."""
    cluster = facts.about(groups).get("cluster")
    several = any(len(group.runs) > 1 for group in groups)
    seeds = f"Mean ± standard deviation over {facts.seeds(groups)}" if several else "One seed"
    found = [f"{seeds}; {facts.gradients(groups)} a run."]
    found += [f"Cluster: {cluster}."] if cluster else []
    found += facts.own_data(groups) + facts.of_messages(groups) + facts.not_used(groups)
    found += facts.wasted(groups)
    found += _least(groups)
    alone = [spread for group in groups if group.serial and (spread := group.spread("seconds"))]
    unequal = max((spread.std / spread.mean for spread in alone if spread.mean), default=0.0)
    if unequal > _UNEQUAL:
        found.append(
            f"The seconds of a single worker vary by {100 * unequal:.0f} % between seeds, since each seed draws the "
            "machine that it runs on; the other methods average over the machines of all workers."
        )
    return found


def _least(groups: Sequence[Group]) -> list[str]:
    """Return how soon the most workers could be at the target, if they lost nothing to waiting and staleness."""
    least = floor.seconds(groups)
    most = max((count for _, count in least), default=None)
    titles = {group.method: group.title for group in groups if group.serial}
    here = {titles[name]: seconds for (name, count), seconds in least.items() if count == most}
    if not here:
        return []
    several = len(here) > 1
    times = words.listed([f"{seconds:,.0f} s{f' ({short_title(title)})' * several}" for title, seconds in here.items()])
    return [
        f"Never waiting, {most} workers would compute the gradients that the single worker needs to "
        f"{facts.goal(groups)} in {times}."
    ]


def text(groups: Sequence[Group]) -> str:
    """The table for a terminal of 120 columns, with units and definitions below.

    The metric on the training set and the seconds of a whole run are left to `markdown` and `comma_separated`.
    """
    return _table(groups).text(without=(headings(metric_of(groups))[1], "seconds"))


def markdown(groups: Sequence[Group]) -> str:
    """The table as Markdown, with units and definitions below."""
    return _table(groups).markdown()


def _table(groups: Sequence[Group]) -> Table:
    return Table(columns(groups), rows(groups), notes(groups), obvious=_OBVIOUS)


def comma_separated(groups: Sequence[Group]) -> str:
    """Every number as CSV: mean and standard deviation over all seeds, empty where some seed has none."""
    return in_csv(map(_plain, groups))


def _plain(group: Group) -> dict[str, object]:
    found: dict[str, object] = {name: getattr(group, name) for name in ("method", "protocol", "rule")}
    found |= {"serial": int(group.serial), "num_workers": group.num_workers}
    found |= {"seeds": len(group.runs), "diverged": group.num_diverged}
    return found | group.columns(csv_fields(group.metric))


def csv_fields(metric: Metric) -> tuple[str, ...]:
    """Return the entries of summaries whose means and deviations `comma_separated` gives."""
    return (*(f"{of}_{metric.name}" for of in _OF_THE_METRIC), *_NUMBERS)


def headings(metric: Metric) -> tuple[str, str]:
    """The headings of the metric on the test set and on the training set."""
    return f"test {metric.short}", f"train {metric.short}"


def _diverged(group: Group) -> str:
    lost, seeds = group.num_diverged, len(group.runs)
    return f"{lost} of {seeds}" if lost else ""


def _score(group: Group, name: str) -> TableCell:
    """A mean of the metric, with its deviation; one run has none."""
    found = group.spread(name)
    if found is None:
        return TableCell("-")
    several = len(group.runs) > 1
    return TableCell(group.metric.number(found.mean, found.std if several else None), group.metric.scale * found.mean)


def _number(group: Group, name: str, digits: int, *, spread: bool = True) -> TableCell:
    found = group.spread(name)
    if found is None:
        return TableCell("-")
    mean, deviation = f"{found.mean:,.{digits}f}", f"{found.std:,.{digits}f}"
    return TableCell(f"{mean} ± {deviation}" if spread and len(group.runs) > 1 else mean, found.mean)


def _to_target(group: Group, name: str, digits: int) -> TableCell:
    """A mean, or how many runs have one: that is said once, with the seconds."""
    reached, seeds = group.num_with(name), len(group.runs)
    if reached == seeds:
        return _number(group, name, digits)
    if name != "seconds_to_target":
        return TableCell("-")
    return TableCell(f"reached by {reached} of {seeds}" if reached else "never")
