"""Sums a comparison up in three sentences: whose accuracy holds, who is fastest, and what that costs.

Methods that are statistically indistinguishable from the best are named together (`ranking`). Where runs are judged by
another metric than the accuracy, its name and its direction take the place of the accuracy's.
"""

import re
from collections.abc import Mapping, Sequence

from sgdlab.report.words import counted, listed
from sgdlab.results import ranking
from sgdlab.results.summary import Group, Spread, compared, largest, metric_of, single_workers

TOLERANCE = 1.0
"""Tolerated loss against the single worker: points of accuracy, or % of the single worker's value."""

_MOST_NAMED = 4
"""More methods than these are counted."""

_ROUNDING = 1e-6


def sentences(groups: Sequence[Group]) -> dict[str, str]:
    """Answers at the largest number of workers.

    Returns:
      The metric ("Accuracy"), "Speed" and "Cost" -> a sentence; without the metric where runs end at the target.
    """
    crowd, single = largest(groups), single_workers(groups)
    kept = {metric_of(groups).noun.capitalize(): _kept(crowd, single)}
    return {
        **({} if any(group.ends_at_target for group in crowd) else kept),
        "Speed": _speed(crowd, single),
        "Cost": _cost(groups, crowd, single),
    }


def keeps_up(group: Group, single: Mapping[str, Group]) -> bool:
    """Return True if no seed diverged and the mean is at most `TOLERANCE` worse than the single worker's."""
    metric = group.metric
    alone, own = _alone(group, single, metric.test), group.test
    if group.num_diverged or alone is None or own is None:
        return False
    return metric.sign * metric.difference(own.mean, alone.mean) >= -TOLERANCE - _ROUNDING


def fastest(groups: Sequence[Group]) -> list[Group]:
    """The groups in which no seed diverges, the fastest first.

    With a target: those in which all seeds reach it, by their mean virtual time to it (`ranking` says who is first).
    Without: by gradients per second and, where these are alike, by the metric.
    """
    sound = [group for group in groups if not group.num_diverged]
    if any(group.target is not None for group in groups):
        reached = [group for group in sound if group.spread("seconds_to_target")]
        return sorted(reached, key=lambda group: group.spread("seconds_to_target").mean)
    fast = [group for group in sound if group.spread("speedup") and group.test]
    return sorted(fast, key=lambda group: (-round(group.speedup, 2), -group.metric.sign * group.test.mean))


def _kept(crowd: Sequence[Group], single: Mapping[str, Group]) -> str:
    metric = crowd[0].metric
    sound = sorted(
        (group for group in crowd if not group.num_diverged and group.test),
        key=lambda group: -metric.sign * group.test.mean,
    )
    if not sound:
        subject = "every method" if len(crowd) > 1 else crowd[0].title
        return f"{_at(crowd)} {subject} has a run that diverged."
    baselines = dict.fromkeys(group.baseline for group in crowd)
    references = [single[name] for name in baselines if name in single and single[name].test]
    if not references and len(crowd) == 1:
        return f"{_at(crowd)} {_with_metric(sound[0])} has no single worker to be compared with."
    if not references:
        return f"{_at(crowd)} the {metric.best} test {metric.plural} are those of {_named(sound)}{_tie(crowd)}."
    alone = _of_single_workers(references)
    within = f"to within {TOLERANCE:g} {metric.margin}"
    kept = [group for group in sound if keeps_up(group, single)]
    if not kept:
        lacking = f"the {metric.noun} of {alone} {within}"
        if len(crowd) == 1:
            return f"{_at(crowd)} {_with_metric(sound[0])} does not keep {lacking}."
        return f"{_at(crowd)} no method keeps {lacking}; the {metric.best} is {_with_metric(sound[0])}{_tie(crowd)}."
    if len(crowd) == 1:
        subject = f"{_with_metric(kept[0])} keeps"
    elif len(kept) == len(crowd):
        subject = "both methods keep" if len(crowd) == 2 else f"all {len(crowd)} methods keep"
    else:
        subject = f"{len(kept)} of {len(crowd)} methods {'keeps' if len(kept) == 1 else 'keep'}"
    named = "" if len(crowd) == 1 else f": {_named(kept)}"
    return f"{_at(crowd)} {subject} the {metric.noun} of {alone}, {within}{named}{_tie(crowd)}."


def _tie(crowd: Sequence[Group]) -> str:
    """Return who is statistically indistinguishable from the best metric, as the end of a sentence that names some."""
    ranked = ranking.by_metric(crowd)
    if ranked is None or len(ranked.groups) < 2:
        return ""
    if not ranked.decides:
        return f"; {ranked.undecided}"
    first, best = ranked.first, crowd[0].metric.best
    if len(first) == 1:
        return f"; {first[0].title} has the {best}"
    every = "both" if len(first) == 2 else f"all {len(first)} that are compared"
    named = every if len(first) == len(ranked.groups) else listed([group.title for group in first], _MOST_NAMED)
    return f"; {named} are statistically indistinguishable from the {best}"


def _speed(crowd: Sequence[Group], single: Mapping[str, Group]) -> str:
    reached = fastest(crowd)
    first = (reached or crowd)[0]
    if first.target is None:
        return _gradients_per_second(reached or [group for group in crowd if group.spread("speedup")])
    goal = first.metric.reach(first.target)
    alone = _alone(first, single, "seconds_to_target")
    beside = [f"{_single_worker_of(first, crowd, single)} takes {_seconds(alone)}"] if alone else []
    if not reached:
        subject = "no method reaches" if len(crowd) > 1 else f"{first.title} does not reach"
        every = " in every run" if any(len(group.runs) > 1 for group in crowd) else ""
        return f"{_at(crowd)} {subject} {goal}{every}{''.join(f'; {text}' for text in beside)}."
    ranked = ranking.by_time(crowd)
    tied = ranked.first if ranked and ranked.decides else []
    shown = tied if len(tied) > 1 else [*tied, *reached[:3]]
    for group in crowd:
        if group.method == "synchronous" and not any(group is one for one in shown):
            seconds = group.spread("seconds_to_target") if group in reached else None
            some = f"reaches it in {_share_that_reach(group)} runs"
            never = some if group.num_with("seconds_to_target") else "does not reach it"
            beside.append(f"{group.title} {'takes ' + _seconds(seconds) if seconds else never}")
    after = [listed(beside)] if beside else []
    if ranked and len(crowd) > 1 and not ranked.decides:
        after.insert(0, ranked.undecided)
    if ranked and len(tied) > 1:
        named = listed([_with_seconds(group) for group in tied], _MOST_NAMED)
        every = "both" if len(tied) == 2 else f"all {len(tied)}"
        count = every if len(tied) == len(ranked.groups) else len(tied)
        seeds = counted(len(ranked.seeds), "seed")
        text = f"{count} methods tie for the fastest to {goal} ({seeds} cannot tell them apart): {named}"
    else:
        first = tied[0] if tied else first
        behind = [group for group in reached if group is not first][:2]
        before = f", before {listed(list(map(_with_seconds, behind)))}" if behind else ""
        spread = first.spread("seconds_to_target")
        how = f"{_seconds(spread)} of virtual time" if spread else f"which {_share_that_reach(first)} runs reach"
        if len(crowd) == 1:
            text = f"{first.title} reaches {goal} in {how}"
        elif tied:
            text = f"{first.title} is the fastest to {goal}, {'in ' * bool(spread)}{how}{before}"
        else:
            text = f"{first.title} has the least mean time to {goal}, {how}{before}"
    return f"{_at(crowd)} {'; '.join([text, *after])}."


def _gradients_per_second(groups: Sequence[Group]) -> str:
    """Say which methods make the most gradients per second, where there is no target to measure the time to."""
    if not groups:
        return "No run has a speed."
    most = max(round(group.speedup, 2) for group in groups)
    first = [group for group in groups if round(group.speedup, 2) == most]
    rate = f"{most:.2f} times the gradients per second of synchronous SGD"
    if len(groups) == 1:
        return f"{_at(groups)} {first[0].title} makes {rate}."
    if len(first) == 1:
        return f"{_at(groups)} {first[0].title} makes the most gradients per second: {rate}."
    named = listed([group.title for group in first], _MOST_NAMED)
    most_of_all = ", the most of all" if len(first) < len(groups) else ""
    return f"{_at(groups)} {len(first)} methods make {rate}{most_of_all}: {named}."


def _cost(groups: Sequence[Group], crowd: Sequence[Group], single: Mapping[str, Group]) -> str:
    reached = fastest(crowd)
    lost = _lost(groups)
    if not reached:
        return lost
    first = reached[0]
    epochs, alone = first.spread("epochs_to_target"), _alone(first, single, "epochs_to_target")
    reference = _single_worker_of(first, crowd, single)
    parts = []
    if epochs:
        beside = f" ({reference}: {alone.mean:.1f})" if alone else ""
        parts.append(f"takes {epochs.mean:.1f} epochs of used gradients to get there{beside}")
    metric = first.metric
    end = _alone(first, single, metric.test)
    if end and first.test and not first.ends_at_target:
        apart = metric.difference(first.test.mean, end.mean)
        unit = "points" if metric.is_share else "%"
        where = f"{abs(apart):.1f} {unit} {'above' if apart > 0 else 'below'}" if abs(apart) >= 0.05 else "with"
        parts.append(f"ends {where} the {metric.noun} of {reference}")
    dropped = sum(summary["dropped"] or 0 for summary in first.summaries)
    if dropped:
        share = dropped / (dropped + sum(summary["gradients"] for summary in first.summaries))
        parts.append(f"drops {100 * share:.0f} % of all gradients")
    return f"{_at(crowd)} {first.title} {listed(parts)}. {lost}" if parts else lost


def _lost(groups: Sequence[Group]) -> str:
    """Say which methods diverged, at any number of workers."""
    where: dict[str, list[Group]] = {}
    for group in groups:
        if group.num_diverged:
            where.setdefault(group.title, []).append(group)
    if not where:
        return "No run diverged."
    if len(where) <= _MOST_NAMED:
        return f"Diverged: {listed([f'{title} ({_counts(found)})' for title, found in where.items()])}."
    ours = {group.title for group in compared(groups)}
    alone = [title for title in where if title not in ours]
    count = f"{len(where.keys() & ours)} of {len(ours)} methods"
    return f"{listed([count, *alone])} diverged in some run (crosses in the picture)."


def _counts(found: Sequence[Group]) -> str:
    counts = [str(group.num_workers) for group in found]
    return f"{listed(counts)} worker{'s' * (counts != ['1'])}"


def _at(crowd: Sequence[Group]) -> str:
    return f"At {counted(crowd[0].num_workers, 'worker')}"


def _alone(group: Group, single: Mapping[str, Group], name: str) -> Spread | None:
    """An entry of the single worker that a group is compared with; None where there is none, or it has none."""
    found = single.get(group.baseline)
    return found.spread(name) if found else None


def _single_worker_of(group: Group, crowd: Sequence[Group], single: Mapping[str, Group]) -> str:
    """The single worker that a group is compared with, by what it ran where there are several."""
    several = len({other.baseline for other in crowd}) > 1 and group.baseline in single
    return f"the single worker with {short_title(single[group.baseline].title)}" if several else "the single worker"


def _of_single_workers(references: Sequence[Group]) -> str:
    if len(references) == 1:
        return f"the single worker ({_value(references[0])})"
    named = ", ".join(f"{short_title(group.title)} {_value(group)}" for group in references)
    return f"their single workers ({named})"


def short_title(title: str) -> str:
    """Return what a single worker ran: what stands in brackets in its title.

    Example:
      >>> short_title("Single worker (Adam)")
      'Adam'
    """
    found = re.search(r"\((.*)\)$", title)
    return found[1] if found else title


def _value(group: Group) -> str:
    return group.metric.text(group.test.mean)


def _with_metric(group: Group) -> str:
    return f"{group.title} ({_value(group)})"


def _named(groups: Sequence[Group]) -> str:
    return listed([_with_metric(group) for group in groups], _MOST_NAMED)


def _with_seconds(group: Group) -> str:
    spread = group.spread("seconds_to_target")
    return f"{group.title} ({_seconds(spread) if spread else f'{_share_that_reach(group)} runs'})"


def _share_that_reach(group: Group) -> str:
    return f"{group.num_with('seconds_to_target')} of {len(group.runs)}"


def _seconds(spread: Spread) -> str:
    return f"{spread.mean:,.0f} s"
