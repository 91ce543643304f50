"""Facts of all runs of a comparison, and of some: said once, and of those alone."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sgdlab.report.words import listed, number
from sgdlab.results.summary import Group, compared, metric_of

_MOST_VARIANTS = 4
"""More are not listed together, but by method."""

_MOST_NAMED = 3
"""More methods than these are not named where the rest can be."""

_OTHERS = "all others"

_DIRICHLET = "Dirichlet labels"
"""So the clause of the data begins that says how labels are shared out among workers."""

NOT_USED = "is not used"
"""So a clause of the rule ends that says what it does not take."""

_NOTHING_SET = "as it is"
"""In records, of a part without entries."""


def about(groups: Sequence[Group]) -> dict[str, str]:
    """Return what was run, in words: the entries of the methods' `about`, put together.

    An entry is a list of clauses, set apart by semicolons. Clauses that all methods share stand first; the others
    follow, behind the methods (or numbers of workers) that they are true of, unless there are too many to list.

    Returns:
      Label -> text, in the order of the records.

    Example:
      >>> from sgdlab.results.summary import Group
      >>> facts = {"protocol": "asynchronous", "families": ("Momentum",), "baseline": "nag", "serial": False,
      ...          "rank": 0, "never_waits": True, "measures_gap": False, "num_workers": 8, "target": 0.9, "runs": ()}
      >>> nag = Group(method="nag", title="NAG", rule="nag", about={"rate": "0.05; cosine decay"}, **facts)
      >>> adam = Group(method="adam", title="Adam", rule="adam", about={"rate": "0.003; cosine decay"}, **facts)
      >>> about([nag, adam])
      {'rate': 'cosine decay; NAG: 0.05; Adam: 0.003'}
    """
    ours = compared(groups)
    labels = dict.fromkeys(label for group in ours for label in _entries(group))
    return {label: text for label in labels if (text := _together(label, ours))}


def by_method(groups: Sequence[Group]) -> dict[str, dict[str, str]]:
    """Return what `about` has no space for: the clauses of each method, of entries with too many variants to list.

    Returns:
      Title of the method -> label -> text, without the clauses that all methods share.
    """
    ours = compared(groups)
    found: dict[str, dict[str, str]] = {}
    for label in dict.fromkeys(label for group in ours for label in _entries(group)):
        having = [group for group in ours if label in _entries(group)]
        variants = list(dict.fromkeys(group.about[label] for group in having))
        if len(variants) <= _MOST_VARIANTS:
            continue
        common = _common_clauses(variants) if len(having) == len(ours) else []
        for title in dict.fromkeys(group.title for group in having):
            texts = {g.num_workers: _without(g.about[label], common) for g in having if g.title == title}
            several = len(set(texts.values())) > 1
            text = (
                "; ".join(f"at {n} workers: {t}" for n, t in texts.items()) if several else next(iter(texts.values()))
            )
            if text:
                found.setdefault(title, {})[label] = text
    return found


def shared(groups: Sequence[Group], label: str) -> str | None:
    """The entry of `about` that all methods have alike; None where they differ."""
    found = {group.about.get(label) for group in compared(groups)}
    return found.pop() if len(found) == 1 else None


def config(groups: Sequence[Group]) -> dict[str, Any]:
    """The configuration entries that all runs have, with the values that they all have, nested."""
    found = [config for group in groups for config in group.configs]
    common = found[0] if found else {}
    for other in found[1:]:
        common = _common(common, other)
    return common


def made(groups: Sequence[Group]) -> list[str]:
    """Return what made the runs: version, commit, libraries and device, once for each that differs."""
    found = [records[0].get("made") for group in groups for records in group.runs]
    texts = (", ".join(f"{key} {value}" for key, value in entries.items() if value) for entries in found if entries)
    return list(dict.fromkeys(texts))


def seeds(groups: Sequence[Group]) -> str:
    """Return how many seeds each group has, as in "3 seeds"."""
    return _range([len(group.runs) for group in groups], "seed")


def gradients(groups: Sequence[Group]) -> str:
    """Return how many gradients each run used, as in "880 used gradients"."""
    kinds = dict.fromkeys(unit(summary) for group in groups for summary in group.summaries)
    used = [summary["gradients"] for group in groups for summary in group.summaries]
    return _range(used, f"used {'s or '.join(sorted(kinds))}")


def unit(summary: Mapping[str, Any]) -> str:
    """Return what a worker sent, by a run's summary: "gradient", or "message" where it made several local steps.

    Example:
      >>> unit({"gradients": 10, "steps": 80}), unit({"gradients": 10})
      ('message', 'gradient')
    """
    return "message" if (summary.get("steps") or 0) > summary["gradients"] else "gradient"


def titles_of_messages(groups: Sequence[Group]) -> list[str]:
    """The titles of methods whose workers send messages of several local steps."""
    sent = (group.title for group in groups if any(unit(summary) == "message" for summary in group.summaries))
    return list(dict.fromkeys(sent))


def of_messages(groups: Sequence[Group]) -> list[str]:
    """Return what numbers count of runs whose workers make several local steps, in a sentence; none without such."""
    titles = titles_of_messages(groups)
    if not titles:
        return []
    whose = listed(titles) if len(titles) <= _MOST_NAMED else f"{len(titles)} methods"
    return [
        f"Workers send messages of several local steps under {whose}: speed-up counts the steps of used messages per "
        "second."
    ]


def own_data(groups: Sequence[Group]) -> list[str]:
    """Return which training examples workers have, in a sentence, where they have their own; else none."""
    said = (clause for group in compared(groups) for clause in _clauses(group.about.get("data", "")))
    found = list(dict.fromkeys(clause for clause in said if clause.startswith(_DIRICHLET)))
    return [f"Workers' own data: {'; or '.join(found)}."] if found else []


def not_used(groups: Sequence[Group]) -> list[str]:
    """Return what all methods share but some rule does not take, a sentence each: it trains without, unlike its rivals.

    Example:
      >>> from sgdlab.results.summary import Group
      >>> facts = {"protocol": "asynchronous", "rule": "mine", "families": (), "baseline": "nag", "serial": False,
      ...          "rank": 0, "never_waits": True, "measures_gap": False, "num_workers": 8, "target": 0.9, "runs": ()}
      >>> not_used([Group(method="mine", title="Mine", about={"rule": "cap 8; weight decay 0.1 is not used"}, **facts)])
      ['Mine: weight decay 0.1 is not used.']
    """
    found = (
        f"{group.title}: {clause}."
        for group in compared(groups)
        for clause in _clauses(group.about.get("rule", ""))
        if clause.endswith(f" {NOT_USED}")
    )
    return list(dict.fromkeys(found))


_CORRECTING = ("delay_compensated",)
"""Rules whose `penalty` is the length of a correction, over that of the gradient."""


def corrections(groups: Sequence[Group]) -> list[str]:
    """Return how long the corrections are that rules add to gradients, in a sentence; none without such rules.

    Example:
      >>> from sgdlab.results.summary import Group
      >>> facts = {"protocol": "asynchronous", "rule": "delay_compensated", "families": (), "baseline": "nag",
      ...          "serial": False, "rank": 0, "never_waits": True, "measures_gap": False, "target": 0.9, "about": {}}
      >>> run = [{"diverged": False, "penalty": 2.4e-5}]
      >>> corrections([Group(method="dc", title="DC-ASGD", num_workers=8, runs=(run,), **facts)])
      ['The correction is 2.4e-05 times as long as the gradient under DC-ASGD (8 workers).']
    """
    ours = [(group, group.median("penalty")) for group in compared(groups) if group.rule in _CORRECTING]
    found = [
        f"{number(size)} times as long as the gradient under {group.title} ({group.num_workers} workers)"
        for group, size in ours
        if size is not None
    ]
    return [f"The correction is {listed(found)}."] if found else []


def wasted(groups: Sequence[Group]) -> list[str]:
    """Return where most gradients, or most of the workers' time, come to nothing, a sentence each; none without such.

    Example:
      >>> from sgdlab.results.summary import Group
      >>> facts = {"protocol": "rennala", "rule": "nag", "families": (), "baseline": "nag", "serial": False, "rank": 0,
      ...          "never_waits": True, "measures_gap": False, "num_workers": 8, "target": 0.9, "about": {}}
      >>> run = [{"dropped": 300, "gradients": 100, "idle_share": 0.0}]
      >>> wasted([Group(method="rennala", title="Rennala SGD", runs=(run,), **facts)])
      ['Most gradients, or most of their time, are thrown away under Rennala SGD (8 workers).']
    """
    thrown, idle = (
        "Most gradients, or most of their time, are thrown away",
        "Workers compute less than half of the time",
    )
    found: dict[str, dict[str, list[str]]] = {thrown: {}, idle: {}}
    for group in compared(groups):
        names = ("dropped", "gradients", "wasted_share", "idle_share")
        dropped, used, lost, waits = (sum(run.get(name) or 0 for run in group.summaries) for name in names)
        half = len(group.runs) / 2
        for what, more in ((thrown, dropped > used or lost > half), (idle, waits > half)):
            if more:
                found[what].setdefault(group.title, []).append(str(group.num_workers))
    texts = []
    for what, where in found.items():
        named = listed([f"{title} ({listed(counts)} workers)" for title, counts in where.items()])
        whose = named if len(where) <= _MOST_NAMED else f"{len(where)} methods"
        texts += [f"{what} under {whose}."] if where else []
    return texts


def target(groups: Sequence[Group]) -> str | None:
    """The value that the time to target is measured to, as in "95 %" or "perplexity 100"; None where there is none."""
    found = _targets(groups)
    return metric_of(groups).short_reach(*found) if found else None


def goal(groups: Sequence[Group]) -> str | None:
    """The same in a sentence, as in "95 % test accuracy" or "a test perplexity of 100"."""
    found = _targets(groups)
    return metric_of(groups).reach(*found) if found else None


def _targets(groups: Sequence[Group]) -> list[float]:
    return sorted({group.target for group in groups if group.target is not None})


def _together(label: str, groups: Sequence[Group]) -> str:
    texts = {(g.method, g.num_workers): entries[label] for g in groups if label in (entries := _entries(g))}
    everywhere = len(texts) == len(groups)
    variants = list(dict.fromkeys(texts.values()))
    if len(variants) == 1 and everywhere:
        return variants[0]
    common = _common_clauses(variants) if everywhere else []
    if len(variants) > _MOST_VARIANTS:
        return "; ".join([*common, "the rest by method, see below"] if common else [])
    rests = [_without(text, common) for text in variants]
    owners = _owners(texts, variants, groups, everywhere)
    named = sorted(zip(owners, rests, strict=True), key=lambda pair: pair[0] == _OTHERS)
    return "; ".join([*common, *(f"{whose}: {rest}" for whose, rest in named if rest)])


def _clauses(text: str) -> list[str]:
    """Splits at semicolons, but not inside brackets.

    Example:
      >>> _clauses("conv net (channels 32; no bias); 10 classes")
      ['conv net (channels 32; no bias)', '10 classes']
    """
    found, depth = [""], 0
    for part in re.split(r"(; |[()])", text):
        depth += (part == "(") - (part == ")")
        if part == "; " and depth <= 0:
            found.append("")
        else:
            found[-1] += part
    return found


def _common_clauses(texts: Sequence[str]) -> list[str]:
    first, *others = map(_clauses, texts)
    return [clause for clause in first if all(clause in other for other in others)]


def _entries(group: Group) -> dict[str, str]:
    """Return what a group says of itself, less the parts without entries."""
    return {label: text for label, text in group.about.items() if text != _NOTHING_SET}


def _without(text: str, common: Sequence[str]) -> str:
    """A text, less the clauses that all have."""
    return "; ".join(clause for clause in _clauses(text) if clause not in common)


def _owners(
    texts: Mapping[tuple[str, int], str], variants: Sequence[str], groups: Sequence[Group], everywhere: bool
) -> list[str]:
    """Of whom each variant is true: methods or, where the same methods have several, numbers of workers."""
    titles = {group.method: group.title for group in groups}
    by_method = [list(dict.fromkeys(m for (m, _), text in texts.items() if text == variant)) for variant in variants]
    by_count = [sorted({n for (_, n), text in texts.items() if text == variant}) for variant in variants]
    if sum(map(len, by_method)) > len({method for method, _ in texts}):
        if sum(map(len, by_count)) > len({count for _, count in texts}):
            return ["some"] * len(variants)
        return [f"at {listed([str(count) for count in counts])} workers" for counts in by_count]
    named = [listed([titles[method] for method in methods]) for methods in by_method]
    largest = max(range(len(variants)), key=lambda index: len(by_method[index]))
    rest = [title for method, title in titles.items() if method not in by_method[largest]]
    if len(by_method[largest]) > _MOST_NAMED:
        if len(variants) > 1 and everywhere:
            named[largest] = _OTHERS
        elif len(rest) <= _MOST_NAMED:
            named[largest] = f"all but {listed(rest)}"
    return named


def _common(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name in first.keys() & second.keys():
        one, other = first[name], second[name]
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            if inner := _common(one, other):
                found[name] = inner
        elif json.dumps(one) == json.dumps(other):
            found[name] = one
    return {name: found[name] for name in first if name in found}


def _range(counts: Sequence[int], noun: str) -> str:
    least, most = min(counts), max(counts)
    return f"{least:,}{f' to {most:,}' if most > least else ''} {noun}{'s' * (most != 1)}"
