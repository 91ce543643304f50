"""The comparison as a table: for the terminal, as Markdown, for the page, and in full as CSV."""

import dataclasses
import math
from collections.abc import Callable, Sequence

from sgdlab.report import words
from sgdlab.report.table import Column, Number, Table, in_csv
from sgdlab.results import facts, floor, ranking, simultaneous
from sgdlab.results.answer import short_title
from sgdlab.results.metric import Metric
from sgdlab.results.summary import Group, metric_of

METHOD = Column("method", lambda group: group.title, "whom the server waits for, and what it does with a gradient")
WORKERS = Column(
    "workers",
    lambda group: Number(f"{group.num_workers}", group.num_workers),
    "workers that compute gradients",
    "num_workers",
)
"""The first columns of any table of groups."""

OBVIOUS = (METHOD.heading, WORKERS.heading)
"""Columns that explain themselves."""

SLOWER = "x fastest"
"""Heading of the ratios of times to the target."""

EFFECTIVE_WORKERS = (
    "number of equally used workers with the same inverse Simpson index: 1 / sum of the squared shares of the used "
    "gradients (N: all workers are used alike; 1: all gradients are one worker's)"
)
"""Meaning of the column of that name."""

_OF_THE_METRIC = ("test", "train", "average", "node", "worst", "center")
"""Sources of a value of the metric: a summary has an entry `<of>_<metric>` of each."""

_NUMBERS = (
    "consensus",
    "test_loss",
    "train_loss",
    "seconds",
    "speedup",
    "seconds_to_target",
    "epochs_to_target",
    "effective_workers",
    "summed_rate",
    "effective_rate",
    "staleness",
    "gap",
    "penalty",
    "gradients",
    "updates",
    "dropped",
    "idle_share",
    "wasted_share",
)

_OF_MESSAGES = ("goodput", "sending_share", "server_share", "worker_bytes")
"""Entries of the summaries of runs whose messages cost something."""

_UNEQUAL = 0.1
"""Deviation of a single worker's seconds, over their mean, from which on the notes say where it comes from."""


def table(groups: Sequence[Group]) -> Table:
    """Return the comparison for Markdown and the page, a row for each group; `text` is for the terminal.

    Accuracies, or other metrics, are means or, where some run diverged, medians of all runs. The time to the target is
    a mean where all runs reached it, else how many did. `diverged` is a column only where some run did, and those of
    the target where there is one.
    """
    return Table.of(_columns(groups), groups, notes(groups), obvious=OBVIOUS)


def _columns(groups: Sequence[Group]) -> list[Column]:
    metric, goal, target, rankings = metric_of(groups), facts.goal(groups), facts.target(groups), _by_time(groups)
    test, train = headings(metric)
    order = "" if metric.higher_is_better else "; lower is better"
    lost = Column(
        "diverged",
        diverged,
        "runs that ended no better than guessing after their loss had blown up, and the 95 % interval of their share "
        "(Clopper and Pearson); where there are some, what is learned is given as the median of all runs",
    )
    to_target = [
        Column(
            f"seconds to {target}",
            lambda group: _to_target(group, "seconds_to_target", 0),
            f"time to target: virtual seconds until {goal}; the mean if all seeds reach it",
        ),
        Column(
            f"epochs to {target}",
            lambda group: _to_target(group, "epochs_to_target", 1),
            f"statistical efficiency: epochs of used gradients until {goal}",
        ),
    ]
    slower = Column(
        SLOWER,
        lambda group: _slower(group, rankings.get(group.num_workers)),
        "mean ratio of the time to the target to that of the fastest method, with the same seed and number of workers; "
        "a run that misses the target counts as twice the longest run; in brackets simultaneous "
        f"{100 * simultaneous.LEVEL:.0f} % intervals; *: "
        "statistically indistinguishable from the fastest",
    )
    return [
        METHOD,
        WORKERS,
        Column(
            test,
            lambda group: score(group, metric.test),
            f"{metric.noun} on the test set after the last gradient{order}",
        ),
        Column(train, lambda group: score(group, metric.train), "the same on the training set"),
        *([lost] if any(group.num_diverged for group in groups) else []),
        Column("seconds", lambda group: number(group, "seconds", 0), "virtual seconds of a whole run"),
        Column(
            "x sync. SGD",
            lambda group: "-" if group.serial else number(group, "speedup", 2),
            "hardware efficiency: used gradients per virtual second, over those of synchronous SGD with the same "
            "workers",
        ),
        *(_of_messages(groups)),
        *(to_target if target else []),
        *([slower] if rankings else []),
        Column(
            "effective workers", lambda group: number(group, "effective_workers", 1, spread=False), EFFECTIVE_WORKERS
        ),
        Column(
            "summed rate",
            lambda group: _of_any_size(group, "summed_rate"),
            "sum over all updates of the effective learning rate, learning rate / (1 - momentum), of the server's "
            "parameters or the mean of nodes (a step of one of N moves it by 1/N of that step), before any factor for "
            "staleness; -: rules other than momentum SGD, and local steps",
        ),
        Column(
            "effective rate",
            lambda group: _of_any_size(group, "effective_rate"),
            "effective learning rate of a single used gradient, at the largest learning rate of the run",
        ),
        Column(
            "staleness",
            lambda group: number(group, "staleness", 1, spread=False),
            "updates between the reading of the parameters and the use of the gradient (delay - 1; fresh: 0)",
        ),
        Column(
            "gap",
            lambda group: number(group, "gap", 2, spread=False),
            "distance between the server's parameters and those the gradient was computed on, over the largest "
            "learning rate times the mean gradient norm so far, plus 1 (Barkai et al. 2020, Definition 1)",
        ),
    ]


def _of_messages(groups: Sequence[Group]) -> list[Column]:
    """Return the columns of what messages cost; none where they are free."""
    if not _cost(groups):
        return []
    return [
        Column(
            "goodput",
            lambda group: number(group, "goodput", 2),
            "share of the time of all workers in which they computed gradients that were used",
        ),
        Column(
            "sending",
            lambda group: number(group, "sending_share", 2),
            "share of the time of all workers in which parameters for them, or gradients of them, were under way",
        ),
        Column(
            "server",
            lambda group: number(group, "server_share", 2),
            "share of the time in which the busiest of the server's links, or the server itself, was busy",
        ),
        Column(
            "MB a worker",
            lambda group: _of_any_size(group, "worker_bytes", 1e-6),
            "megabytes that a worker sent and received, on average",
        ),
    ]


def _cost(groups: Sequence[Group]) -> bool:
    return any(summary.get("goodput") is not None for group in groups for summary in group.summaries)


def notes(groups: Sequence[Group]) -> list[str]:
    """Return what is true of the whole table: seeds, length, cluster, why a single worker's seconds vary if they do."""
    cluster = facts.about(groups).get("cluster")
    several = any(len(group.runs) > 1 for group in groups)
    seeds = f"Mean ± standard deviation over {facts.seeds(groups)}" if several else "One seed"
    found = [f"{seeds}; {facts.gradients(groups)} a run."]
    found += [f"Cluster: {cluster}."] if cluster else []
    for label in ("transport", "failures", "messages"):
        what = "Compressed messages" if label == "messages" else label.capitalize()
        found += [f"{what}: {said}." for said in [facts.about(groups).get(label)] if said]
    found += facts.own_data(groups) + facts.of_messages(groups) + facts.not_used(groups)
    found += facts.wasted(groups) + facts.corrections(groups)
    found += _least(groups) + _told_apart(groups)
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
        f"If they never waited, {most} workers would compute as many gradients as the single worker needs to "
        f"{facts.goal(groups)} in {times}."
    ]


def _by_time(groups: Sequence[Group]) -> dict[int, ranking.Ranking]:
    """Return number of workers -> ranking by the time to the target, of several methods."""
    ours = [group for group in groups if not group.serial]
    found = {n: [g for g in ours if g.num_workers == n] for n in sorted({group.num_workers for group in ours})}
    ranked = {n: ranking.by_time(here) for n, here in found.items() if len(here) > 1}
    return {n: each for n, each in ranked.items() if each}


def _told_apart(groups: Sequence[Group]) -> list[str]:
    """Return who is first by the time to the target, and who cannot be compared, in a sentence each."""
    rankings = _by_time(groups)
    found = list(dict.fromkeys(words.sentence(each.undecided) for each in rankings.values() if not each.decides))
    for count, ranked in rankings.items():
        if ranked.decides:
            names = words.listed([group.title for group in ranked.first], words.MOST_NAMED)
            tie = " (statistically indistinguishable)" if len(ranked.first) > 1 else ""
            found.append(f"First to {facts.goal(groups)} at {count} workers: {names}{tie}.")
        if ranked.left_out:
            names = words.listed([group.title for group in ranked.left_out], words.MOST_NAMED)
            found.append(f"Not compared at {count} workers, since the seeds are others: {names}.")
    return found


def text(groups: Sequence[Group]) -> str:
    """The table for a terminal of 120 columns, with units and definitions below.

    The metric on the training set, the seconds of a whole run and their ratios, the effective learning rate of one
    gradient and the gap are left to Markdown and `comma_separated`.
    """
    whole, out = table(groups), (headings(metric_of(groups))[1], "seconds", SLOWER, "effective rate", "gap")
    breaks = lambda cell: cell.replace(" (", "\n(").replace("median ", "median\n")
    narrow = [[title, *map(breaks, others)] for title, *others in whole.rows]
    return dataclasses.replace(whole, rows=narrow).without(out).text()


def comma_separated(groups: Sequence[Group]) -> str:
    """Every number as CSV: mean and standard deviation over all seeds, empty where some seed has none.

    What is learned has a median besides, which has no mean where some run diverged. `slower` is the ratio of the time
    to the target to the fastest method's, between `slower_low` and `slower_high`; `first` is 1 where that is no slower.
    """
    rankings = _by_time(groups)
    more = _OF_MESSAGES if _cost(groups) else ()
    return in_csv([_plain(group, more) | _ratio(group, rankings.get(group.num_workers)) for group in groups])


def _ratio(group: Group, ranked: ranking.Ranking | None) -> dict[str, object]:
    """Return the columns of a group's standing; without ends where nothing is decided, empty where it has none."""
    found = ranked.ratio(group) if ranked else None
    if ranked is None or found is None:
        return dict.fromkeys(("slower", "slower_low", "slower_high", "first"))
    slower, *ends = found
    low, high = ends if ranked.decides else (None, None)
    first = int(ranked.is_first(group)) if ranked.decides else None
    return {"slower": slower, "slower_low": low, "slower_high": high, "first": first}


def _plain(group: Group, more: Sequence[str]) -> dict[str, object]:
    found: dict[str, object] = {name: getattr(group, name) for name in ("method", "protocol", "rule")}
    found |= {"serial": int(group.serial), "num_workers": group.num_workers}
    found |= {"seeds": len(group.runs), "diverged": group.num_diverged}
    return found | group.columns((*csv_fields(group.metric), *more))


def csv_fields(metric: Metric) -> tuple[str, ...]:
    """Return the entries of summaries whose means and deviations `comma_separated` gives."""
    return (*(f"{of}_{metric.name}" for of in _OF_THE_METRIC), *_NUMBERS)


def headings(metric: Metric) -> tuple[str, str]:
    """The headings of the metric on the test set and on the training set."""
    return f"test {metric.short}", f"train {metric.short}"


def score(group: Group, name: str) -> str:
    """Return a value of the metric: a mean with its deviation, or a median (`_middle`)."""
    return _middle(group, name, group.metric.number, scale=group.metric.scale)


def number(group: Group, name: str, digits: int, *, spread: bool = True) -> str:
    """Return an entry of the summaries: a mean, with its deviation if it is wanted, or a median (`_middle`)."""

    def shown(*numbers: float | None) -> str:
        return " ± ".join(f"{each:,.{digits}f}" for each in numbers[: 1 + spread] if each is not None)

    return _middle(group, name, shown)


def _middle(group: Group, name: str, shown: Callable[..., str], scale: float = 1.0) -> str:
    """Return a mean and, of several runs, its deviation; where some run diverged, a median of all; else nothing."""
    found, several = group.spread(name), len(group.runs) > 1
    if found is not None:
        return Number(shown(found.mean, found.std if several else None), scale * found.mean)
    median = group.median(name) if group.num_diverged else None
    return "-" if median is None else Number(f"{'median ' * several}{shown(median)}", scale * median)


def _of_any_size(group: Group, name: str, times: float = 1.0) -> str:
    found = group.spread(name)
    return "-" if found is None else Number(words.number(times * found.mean), times * found.mean)


def diverged(group: Group) -> str:
    """Return how many runs diverged, and the interval of their share."""
    lost, seeds = group.num_diverged, len(group.runs)
    low, high = simultaneous.share(lost, seeds)
    return Number(f"{lost} of {seeds} ({100 * low:.0f}-{100 * high:.0f} %)" if lost else "", lost / seeds)


def _to_target(group: Group, name: str, digits: int) -> str:
    """Return a mean, or how many runs have one: that is said once, with the seconds."""
    reached, seeds = group.num_with(name), len(group.runs)
    if reached == seeds:
        return number(group, name, digits)
    if name != "seconds_to_target":
        return "-"
    return f"reached by {reached} of {seeds}" if reached else "never"


def _slower(group: Group, ranked: ranking.Ranking | None) -> str:
    """Return the ratio to the fastest method's time, with its interval where there are seeds enough."""
    found = ranked.ratio(group) if ranked else None
    if ranked is None or found is None:
        return "-"
    slower, low, high = found
    star = " *" if ranked.is_first(group) else ""
    decided = ranked.decides and math.isfinite(high) and group is not ranked.groups[0]
    between = f" ({low:.3g}-{high:.3g})" if decided else ""
    return Number(f"{slower:.2f}{between}{star}", slower)
