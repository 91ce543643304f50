"""One self-contained page for a person who has not seen the code: the answer, the table, and folded all the rest."""

import itertools
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sgdlab.report import pages, words
from sgdlab.report.table import Table
from sgdlab.results import answer, certificates, facts, floor, ranking, table
from sgdlab.results.metric import Metric
from sgdlab.results.summary import Group, compared, largest, metric_of
from sgdlab.results.swept import Swept

STANDING = "standing"
"""Name of the picture that the page opens with."""

_SWEEP = "sweep_"
"""So the names of pictures of entries begin that are varied."""

_RISING_FIRST = ("method", "workers", "seconds", "staleness", "gap")
"""Columns of which a first click shows the lowest value, besides those of the target and of a metric to be low."""


class _Picture(NamedTuple):
    title: str
    caption: str
    data: str


def page(
    groups: Sequence[Group],
    pictures: Mapping[str, pathlib.Path],
    swept: Swept | None = None,
    tuned: Table | None = None,
) -> str:
    """Write the page.

    Pictures are SVG files: "standing", the metric's name ("accuracy"), "loss", "target", "staleness" or "timeline",
    any of which may be missing; `name_of_sweep` names those of further entries that are varied.

    Returns:
      HTML that refers to no other file. The table is whole without JavaScript, which lets a reader sort and filter it.
    """
    ours = compared(groups)
    titles = list(dict.fromkeys(group.title for group in ours))
    counts, of = sorted({group.num_workers for group in ours}), [group.num_workers for group in (groups[0], *groups)]
    shown, data = table.table(groups), facts.shared(groups, "data")
    embedded = {name: pages.embedded(path) for name, path in pictures.items()}
    said = _titles_and_captions(groups)
    drawn = {name: _Picture(*said[name], image) for name, image in embedded.items() if not name.startswith(_SWEEP)}
    return pages.render(
        "sgdlab.results",
        "report.html",
        title=f"{titles[0] if len(titles) == 1 else f'{len(titles)} methods'} on "
        f"{words.listed([str(count) for count in counts])} workers",
        subtitle="; ".join(text for text in (data, facts.seeds(groups)) if text),
        answer={word: _unbroken(sentence) for word, sentence in answer.sentences(groups).items()},
        swept=_swept(swept, embedded),
        first=drawn.pop(STANDING, None),
        facts=_facts(groups),
        by_method=facts.by_method(groups),
        counts=counts,
        columns=[
            (_unbroken(heading), meaning, "ascending" if _rises(heading, metric_of(groups)) else "descending")
            for heading, meaning in shown.columns.items()
        ],
        rows=list(zip(shown.rows, groups, (n != before for before, n in itertools.pairwise(of)), strict=True)),
        definitions={_unbroken(heading): meaning for heading, meaning in shown.meanings.items()},
        notes=shown.notes,
        tuned=tuned,
        pictures=list(drawn.values()),
        certificates=certificates.table(groups),
        config=json.dumps(facts.config(groups), indent=2),
    )


def name_of_sweep(entry: str) -> str:
    """Return the name of the picture of an entry that is varied.

    Example:
      >>> name_of_sweep("optimizer.learning_rate")
      'sweep_optimizer_learning_rate'
    """
    return _SWEEP + entry.replace(".", "_")


def _swept(swept: Swept | None, embedded: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the pictures and the table of the entries that are varied, for the page."""
    if swept is None:
        return None
    several = any(len(group.runs) > 1 for group in swept.groups)
    caption = [
        "Means over the seeds, ± one standard deviation." if several else "One seed.",
        "Each point is trained for itself, and named in the table; a line without points does not use the entry.",
        "Black: a single worker." if any(group.serial for group in swept.groups) else "",
        "A cross at the foot: some seed diverged." if any(group.num_diverged for group in swept.groups) else "",
    ]
    return {
        "entries": list(swept.over),
        "pictures": [embedded[name] for name in map(name_of_sweep, swept.over) if name in embedded],
        "caption": " ".join(filter(None, caption)),
        "table": swept.table(),
    }


def _unbroken(text: str) -> str:
    """No line ends between a number and its unit."""
    return re.sub(r"(?<=\d) (?=%|s\b|points?\b)", "\u00a0", text)


def _rises(heading: str, metric: Metric) -> bool:
    low = () if metric.higher_is_better else table.headings(metric)
    return heading in (*_RISING_FIRST, *low) or heading.startswith(("seconds to", "epochs to"))


def _facts(groups: Sequence[Group]) -> list[tuple[str, str]]:
    runs = sum(len(group.runs) for group in groups)
    found = [*facts.about(groups).items(), ("runs", f"{runs}: {facts.seeds(groups)} for each row of the table")]
    return found + [("made with", "; or ".join(made)) for made in [facts.made(groups)] if made]


def _titles_and_captions(groups: Sequence[Group]) -> dict[str, tuple[str, str]]:
    """Above and below the folded pictures: only what is to be seen in them."""
    ours, most, metric = compared(groups), largest(groups)[0].num_workers, metric_of(groups)
    several = max(len(group.runs) for group in ours) > 1
    order = "time to the target" if ranking.by_time(largest(groups)) else metric.title
    better = "" if metric.higher_is_better else ", better higher up"
    final = [
        f"Final {metric.title}{better}"
        + ("; large points are means over the seeds, small ones the seeds." if several else "."),
        "A black line is a single worker." if any(g.serial and not g.num_diverged for g in groups) else "",
        "A cross at the foot: some seed diverged." if any(g.num_diverged for g in ours) else "",
    ]
    staleness = [
        "Coloured: the mean gap of the gradients. Dotted, where methods never wait: their mean delay (staleness + 1).",
        "The gap is measured in steps of the largest learning rate, so it falls towards 1 where the rate decays.",
        *_mean_gaps(largest(groups)),
    ]
    return {
        STANDING: (
            f"Who is first, {most} workers",
            f"Methods in order of their median {order}. Each interval is for one method alone; names in bold are "
            "statistically indistinguishable from the first, by simultaneous intervals of differences between runs "
            "with the same seed.",
        ),
        metric.picture: (
            f"{metric.noun.capitalize()} against the number of workers",
            " ".join(sentence for sentence in final if sentence),
        ),
        "loss": (
            f"Training loss over virtual time, {most} workers",
            ("Means over the seeds. " if several else "")
            + "Time is virtual: what a clock at the simulated cluster would show.",
        ),
        "target": (f"Seconds to {facts.goal(groups)} against the number of workers", _of_target(groups)),
        "staleness": (f"Staleness and gap of the gradients, {most} workers", " ".join(staleness)),
        "timeline": (
            "When workers compute and wait, and which gradients are dropped",
            "The first seconds of one run of each method. Green: used; red: dropped; pale: idle; ticks: updates.",
        ),
    }


def _of_target(groups: Sequence[Group]) -> str:
    """Return how to read the picture of the time to the target."""
    several = max(len(group.runs) for group in compared(groups)) > 1
    found = ["Means over the seeds where all reach it; small points are the seeds." if several else ""]
    if floor.seconds(groups):
        found.append(
            "Dotted: the single worker's gradients to the target, computed by all workers without ever waiting. Where "
            "the noise of the gradients decides how many are needed, no method is faster on every problem, up to a "
            "constant (Tyurin and Richtarik 2023); one that needs fewer gradients than the single worker can be."
        )
    return " ".join(sentence for sentence in found if sentence)


def _mean_gaps(crowd: Sequence[Group]) -> list[str]:
    """Gap and delay over the whole run, of the rules that measure the gap."""
    measured = [
        f"{gap.mean:.1f} (delay {staleness.mean + 1:.1f}) under {group.title}"
        for group in crowd
        if group.measures_gap
        and not group.num_diverged
        and (gap := group.spread("gap"))
        and (staleness := group.spread("staleness"))
    ]
    return [f"Over the whole run the mean gap is {words.listed(measured)}."] if measured else []
