"""One self-contained page for a person who has not seen the code: what was compared, table, pictures, reading."""

import base64
import dataclasses
import importlib.resources
import json
import pathlib
from collections.abc import Mapping, Sequence

import jinja2

from sgdlab.results import facts, table
from sgdlab.results.summary import Group, compared


@dataclasses.dataclass(frozen=True)
class _Picture:
    data: str
    caption: str


def page(groups: Sequence[Group], pictures: Mapping[str, pathlib.Path]) -> str:
    """Writes the page.

    Args:
      groups: single workers, then the methods by number of workers.
      pictures: "accuracy", "loss", "staleness" or "timeline" -> SVG file.

    Returns:
      HTML that refers to no other file.

    Raises:
      ValueError: where all groups are single workers.
    """
    template = importlib.resources.files("sgdlab.results").joinpath("report.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    ours, captions = compared(groups), _captions(groups)
    titles = list(dict.fromkeys(group.title for group in ours))
    counts = facts.listed([str(count) for count in sorted({group.num_workers for group in ours})])
    common = [facts.shared(groups, label) for label in ("data", "cluster")]
    return environment.from_string(template).render(
        title=f"{titles[0] if len(titles) == 1 else f'{len(titles)} methods'} on {counts} workers",
        subtitle="; ".join(text for text in common if text),
        facts=_facts(groups),
        reading=reading(groups),
        seeds=facts.seeds(groups),
        gradients=facts.gradients(groups),
        target=facts.target(groups),
        gap=table.GAP,
        columns=table.COLUMNS,
        rows=[
            {"cells": cells, "serial": group.serial, "first": new}
            for cells, group, new in zip(table.rows(groups), groups, _first_of_count(groups), strict=True)
        ],
        pictures=[_Picture(_embedded(path), captions[name]) for name, path in pictures.items()],
        config=json.dumps(facts.config(groups), indent=2),
    )


def reading(groups: Sequence[Group]) -> list[str]:
    """What the numbers say, in sentences made from them."""
    ours = compared(groups)
    sentences = [_about_single_worker(group) for group in groups if group.serial and not group.num_diverged]
    most = max(group.num_workers for group in ours)
    crowd = [group for group in ours if group.num_workers == most]
    sound = sorted((g for g in crowd if not g.num_diverged), key=lambda g: -g.spread("test_accuracy").mean)
    if sound:
        best = [f"{g.title} ({_percent(g)})" for g in sound[:3]]
        verb = "accuracy is that" if len(best) == 1 else "accuracies are those"
        sentences.append(f"At {most} workers the highest test {verb} of {facts.listed(best)}.")
        worst = sound[-1]
        if len(sound) > 3:
            sentences.append(f"Of the methods that did not diverge there, {worst.title} is lowest ({_percent(worst)}).")
    lost = [f"{g.title} at {g.num_workers} ({g.num_diverged} of {len(g.runs)} seeds)" for g in ours if g.num_diverged]
    sentences.append(f"Diverged: {facts.listed(lost)}." if lost else "No run diverged.")
    speeds = [spread.mean for g in crowd if g.never_waits and (spread := g.spread("speedup"))]
    if speeds:
        sentences.append(
            f"Without waiting, {most} workers deliver {min(speeds):.1f} times the gradients per second of synchronous "
            "SGD."
        )
    quickest = [g for g in crowd if g.spread("seconds_to_target") and not g.num_diverged]
    if quickest:
        first = min(quickest, key=lambda g: g.spread("seconds_to_target").mean)
        sentences.append(
            f"{first.title} is the first to reach {100 * first.target:g} % test accuracy at {most} workers, after "
            f"{first.spread('seconds_to_target').mean:,.0f} s of virtual time on average."
        )
    return sentences + _about_gap(crowd)


def _about_gap(crowd: Sequence[Group]) -> list[str]:
    """On rules that divide by the gap, where it is smaller than the delay."""
    measured = [
        (group.title, gap.mean, staleness.mean + 1)
        for group in crowd
        if group.measures_gap
        and not group.num_diverged
        and (gap := group.spread("gap"))
        and (staleness := group.spread("staleness"))
    ]
    smaller = [f"{gap:.1f} (delay {delay:.1f}) under {title}" for title, gap, delay in measured if gap < delay]
    if not smaller:
        return []
    return [
        f"At {crowd[0].num_workers} workers the mean gap is below the mean delay: {facts.listed(smaller)}. A penalty "
        "by the gap spares the gradients the difference."
    ]


def _about_single_worker(group: Group) -> str:
    return f"{group.title}: {_percent(group)} test accuracy."


def _percent(group: Group) -> str:
    spread = group.spread("test_accuracy")
    return f"{100 * spread.mean:.1f} ± {100 * spread.std:.1f} %"


def _facts(groups: Sequence[Group]) -> list[tuple[str, str]]:
    runs = sum(len(group.runs) for group in groups)
    found = [*facts.about(groups).items(), ("runs", f"{runs}: {facts.seeds(groups)} for each row of the table")]
    return found + [("made with", "; or ".join(made)) for made in [facts.made(groups)] if made]


def _captions(groups: Sequence[Group]) -> dict[str, str]:
    """Below the pictures: only what is to be seen in them."""
    ours = compared(groups)
    single = any(group.serial and not group.num_diverged for group in groups)
    lost = any(group.num_diverged for group in ours)
    accuracy = [
        "Final test accuracy against the number of workers; bands are one standard deviation over the seeds.",
        "The black line is a single worker." if single else "",
        "An x at the foot marks a number of workers at which some seed diverged." if lost else "",
    ]
    return {
        "accuracy": " ".join(sentence for sentence in accuracy if sentence),
        "loss": "Training loss against virtual time at the largest number of workers: what a person at the clock sees.",
        "staleness": "Coloured: the mean gap of the gradients. Dotted, where methods never wait: their mean delay "
        "(staleness + 1). Where the gap lies below the delay, updates partly cancelled, and dividing by the delay "
        "punishes too much.",
        "timeline": "The first seconds of one run each: green was used, red dropped, light is idle; ticks are updates.",
    }


def _first_of_count(groups: Sequence[Group]) -> list[bool]:
    counts = [group.num_workers for group in groups]
    return [i > 0 and counts[i] != counts[i - 1] for i in range(len(counts))]


def _embedded(path: pathlib.Path) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}"
