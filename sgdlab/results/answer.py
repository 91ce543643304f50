"""What a comparison comes to, in three sentences: whose accuracy holds, who is fastest, and what that costs."""

import re
from collections.abc import Callable, Mapping, Sequence

from sgdlab.results.facts import listed
from sgdlab.results.summary import Group, Spread, compared, largest, single_workers

TOLERANCE = 1.0
"""Points of accuracy below the single worker's at which a method still keeps it."""

_MOST_NAMED = 4
"""More methods than these are counted."""

_ROUNDING = 1e-6


def sentences(groups: Sequence[Group]) -> dict[str, str]:
    """Answers at the largest number of workers.

    Args:
      groups: single workers and methods.

    Returns:
      "Accuracy", "Speed" and "Cost" -> a sentence.

    Raises:
      ValueError: where all groups are single workers.

    Example:
      >>> from sgdlab.results.summary import Group
      >>> facts = {"protocol": "asynchronous", "rule": "nag_asgd", "families": ("Momentum",), "baseline": "nag_asgd",
      ...          "rank": 0, "never_waits": True, "measures_gap": False, "target": 0.9, "about": {}}
      >>> run = {"test_accuracy": 0.95, "seconds_to_target": 60.0, "epochs_to_target": 3.0, "diverged": False,
      ...        "gradients": 88, "dropped": 0}
      >>> facts |= {"method": "nag_asgd", "runs": ([run],)}
      >>> one = Group(title="Single worker (NAG)", serial=True, num_workers=1, **facts)
      >>> many = Group(title="NAG", serial=False, num_workers=8, **facts)
      >>> sentences([one, many])["Accuracy"]
      'At 8 workers NAG (95.0 %) keeps the accuracy of the single worker (95.0 %), to within 1 point.'
    """
    crowd, single = largest(groups), single_workers(groups)
    return {"Accuracy": _accuracy(crowd, single), "Speed": _speed(crowd, single), "Cost": _cost(groups, crowd, single)}


def keeps_accuracy(group: Group, single: Mapping[str, Group]) -> bool:
    """Whether no seed diverged and the mean test accuracy is at most `TOLERANCE` points below the single worker's.

    Args:
      group: of a method.
      single: the single workers, by the name of what they ran (`summary.single_workers`).
    """
    alone, accuracy = _alone(group, single, "test_accuracy"), group.spread("test_accuracy")
    if group.num_diverged or alone is None or accuracy is None:
        return False
    return 100 * (accuracy.mean - alone.mean) >= -TOLERANCE - _ROUNDING


def fastest(groups: Sequence[Group]) -> list[Group]:
    """The groups in which all seeds reach the target accuracy and none diverges, by their mean virtual time to it."""
    reached = [group for group in groups if group.spread("seconds_to_target") and not group.num_diverged]
    return sorted(reached, key=lambda group: group.spread("seconds_to_target").mean)


def _accuracy(crowd: Sequence[Group], single: Mapping[str, Group]) -> str:
    sound = sorted(
        (group for group in crowd if not group.num_diverged and group.spread("test_accuracy")),
        key=lambda group: -group.spread("test_accuracy").mean,
    )
    if not sound:
        subject = "every method" if len(crowd) > 1 else crowd[0].title
        return f"{_at(crowd)} {subject} has a run that diverged."
    references = [single[name] for name in dict.fromkeys(group.baseline for group in crowd) if name in single]
    if not references and len(crowd) == 1:
        return f"{_at(crowd)} {_with_accuracy(sound[0])} has no single worker to be compared with."
    if not references:
        return f"{_at(crowd)} the highest test accuracies are those of {_first(sound, _with_accuracy)}."
    alone = _of_single_workers(references)
    kept = [group for group in sound if keeps_accuracy(group, single)]
    if not kept:
        within = f"the accuracy of {alone} to within {TOLERANCE:g} point"
        if len(crowd) == 1:
            return f"{_at(crowd)} {_with_accuracy(sound[0])} does not keep {within}."
        return f"{_at(crowd)} no method keeps {within}; the highest is {_with_accuracy(sound[0])}."
    if len(crowd) == 1:
        subject = f"{_with_accuracy(kept[0])} keeps"
    elif len(kept) == len(crowd):
        subject = "both methods keep" if len(crowd) == 2 else f"all {len(crowd)} methods keep"
    else:
        subject = f"{len(kept)} of {len(crowd)} methods {'keeps' if len(kept) == 1 else 'keep'}"
    named = "" if len(crowd) == 1 else f": {_first(kept, _with_accuracy)}"
    return f"{_at(crowd)} {subject} the accuracy of {alone}, to within {TOLERANCE:g} point{named}."


def _speed(crowd: Sequence[Group], single: Mapping[str, Group]) -> str:
    reached = fastest(crowd)
    first = (reached or crowd)[0]
    goal = f"{100 * first.target:g} % test accuracy"
    alone = _alone(first, single, "seconds_to_target")
    beside = [f"{_single_worker_of(first, crowd, single)} takes {_seconds(alone)}"] if alone else []
    if not reached:
        subject = "no method reaches" if len(crowd) > 1 else f"{first.title} does not reach"
        every = " in every run" if any(len(group.runs) > 1 for group in crowd) else ""
        return f"{_at(crowd)} {subject} {goal}{every}{''.join(f'; {text}' for text in beside)}."
    for group in crowd:
        if group.method == "synchronous" and group not in reached[:3]:
            seconds = group.spread("seconds_to_target") if group in reached else None
            beside.append(f"{group.title} {'takes ' + _seconds(seconds) if seconds else 'does not reach it'}")
    before = f", before {_first(reached[1:], _with_seconds, most=2, more=False)}" if reached[1:] else ""
    seconds = _seconds(first.spread("seconds_to_target"))
    fast = f"is the fastest to {goal}," if len(crowd) > 1 else f"reaches {goal}"
    text = f"{_at(crowd)} {first.title} {fast} in {seconds} of virtual time{before}"
    return f"{text}; {listed(beside)}." if beside else f"{text}."


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
        parts.append(f"takes {epochs.mean:.1f} epochs of gradients to get there{beside}")
    accuracy = _alone(first, single, "test_accuracy")
    if accuracy:
        points = 100 * (first.spread("test_accuracy").mean - accuracy.mean)
        where = f"{abs(points):.1f} points {'above' if points > 0 else 'below'}" if abs(points) >= 0.05 else "with"
        parts.append(f"ends {where} the accuracy of {reference}")
    dropped = sum(summary["dropped"] or 0 for summary in first.summaries)
    if dropped:
        share = dropped / (dropped + sum(summary["gradients"] for summary in first.summaries))
        parts.append(f"drops {100 * share:.0f} % of all gradients")
    return f"{_at(crowd)} {first.title} {listed(parts)}. {lost}" if parts else lost


def _lost(groups: Sequence[Group]) -> str:
    """Which methods diverged, at any number of workers."""
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
    workers = crowd[0].num_workers
    return f"At {workers} worker{'s' * (workers > 1)}"


def _alone(group: Group, single: Mapping[str, Group], name: str) -> Spread | None:
    """An entry of the single worker that a group is compared with; None where there is none, or it has none."""
    found = single.get(group.baseline)
    return found.spread(name) if found else None


def _single_worker_of(group: Group, crowd: Sequence[Group], single: Mapping[str, Group]) -> str:
    """The single worker that a group is compared with, by what it ran where there are several."""
    several = len({other.baseline for other in crowd}) > 1 and group.baseline in single
    return f"the single worker with {_short(single[group.baseline].title)}" if several else "the single worker"


def _of_single_workers(references: Sequence[Group]) -> str:
    if len(references) == 1:
        return f"the single worker ({_percent(references[0])})"
    named = ", ".join(f"{_short(group.title)} {_percent(group)}" for group in references)
    return f"their single workers ({named})"


def _short(title: str) -> str:
    """What a single worker ran: what stands in brackets in its title.

    Example:
      >>> _short("Single worker (Adam)")
      'Adam'
    """
    found = re.search(r"\((.*)\)$", title)
    return found[1] if found else title


def _first(groups: Sequence[Group], text: Callable[[Group], str], *, most: int = _MOST_NAMED, more: bool = True) -> str:
    if len(groups) == most + 1 and more:
        most += 1  # "and 1 more" is as long as its name
    named = [text(group) for group in groups[:most]]
    rest = len(groups) - most
    return listed([*named, f"{rest} more"] if rest > 0 and more else named)


def _percent(group: Group) -> str:
    return f"{100 * group.spread('test_accuracy').mean:.1f} %"


def _with_accuracy(group: Group) -> str:
    return f"{group.title} ({_percent(group)})"


def _with_seconds(group: Group) -> str:
    return f"{group.title} ({_seconds(group.spread('seconds_to_target'))})"


def _seconds(spread: Spread) -> str:
    return f"{spread.mean:,.0f} s"
