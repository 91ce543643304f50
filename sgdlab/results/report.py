"""One self-contained page for a person who has not seen the code: what was compared, table, pictures, reading."""

import base64
import dataclasses
import importlib.resources
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from sgdlab.methods import METHODS
from sgdlab.results import table
from sgdlab.results.summary import Group

CAPTIONS = {
    "accuracy": "Final test accuracy against the number of workers. The dashed line is a single worker; bands are "
    "one standard deviation over the seeds; an x at the foot marks a number of workers at which some seed diverged.",
    "loss": "Training loss against virtual time at the largest number of workers: what a person at the clock sees.",
    "staleness": "Dotted: the mean delay (staleness + 1) of asynchronous gradients. Lines: the mean gap, the distance "
    "between the server's parameters and those the gradient was computed on, in average steps, plus 1. Where the gap "
    "lies below the delay, updates partly cancelled, and dividing by the delay punishes too much.",
    "timeline": "The first seconds of one run: green was used, red dropped, light is idle; black ticks are updates.",
}


@dataclasses.dataclass(frozen=True)
class _Picture:
    data: str
    caption: str


def page(groups: Sequence[Group], config: Mapping[str, Any], pictures: Mapping[str, pathlib.Path]) -> str:
    """Writes the page.

    Args:
      groups: single workers, then the methods by number of workers.
      config: what all runs share.
      pictures: name in `CAPTIONS` -> SVG file.
    """
    template = importlib.resources.files("sgdlab.results").joinpath("report.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    counts = sorted({group.num_workers for group in groups if not group.baseline})
    kind = "heterogeneous" if config["cluster"]["heterogeneous"] else "homogeneous"
    seeds = max(len(group.runs) for group in groups)
    methods = {group.method for group in groups if not group.baseline}
    return environment.from_string(template).render(
        title="Who waits, and what a late gradient is worth",
        subtitle=f"{len(methods)} methods, {_listed([str(n) for n in counts])} workers, {config['dataset']}, "
        f"{kind} cluster",
        facts=_facts(config, groups, seeds),
        reading=reading(groups, config),
        seeds=seeds,
        target=f"{100 * config['target_accuracy']:g}",
        columns=table.COLUMNS,
        rows=[
            {"cells": cells, "baseline": group.baseline, "first": new}
            for cells, group, new in zip(table.rows(list(groups)), groups, _first_of_count(groups), strict=True)
        ],
        pictures=[_Picture(_embedded(path), CAPTIONS[name]) for name, path in pictures.items()],
        config=json.dumps(config, indent=2),
    )


def reading(groups: Sequence[Group], config: Mapping[str, Any]) -> list[str]:
    """What the numbers say, in sentences made from them."""
    ours = [group for group in groups if not group.baseline]
    sentences = [_about_baseline(group) for group in groups if group.baseline and not group.num_diverged]
    most = max(group.num_workers for group in ours)
    crowd = [group for group in ours if group.num_workers == most]
    sound = sorted((g for g in crowd if not g.num_diverged), key=lambda g: -g.spread("test_accuracy").mean)
    if sound:
        best = [f"{g.title} ({_percent(g)})" for g in sound[:3]]
        sentences.append(f"At {most} workers the highest test accuracies are those of {_listed(best)}.")
        worst = sound[-1]
        if len(sound) > 3:
            sentences.append(f"Of the methods that did not diverge there, {worst.title} is lowest ({_percent(worst)}).")
    lost = [f"{g.title} at {g.num_workers} ({g.num_diverged} of {len(g.runs)} seeds)" for g in ours if g.num_diverged]
    sentences.append(f"Diverged: {_listed(lost)}." if lost else "No run diverged.")
    speeds = [g.spread("speedup").mean for g in crowd if METHODS[g.method].never_waits]
    if speeds:
        sentences.append(
            f"Without waiting, {most} workers deliver {min(speeds):.1f} times the gradients per second of synchronous "
            "SGD."
        )
    quickest = [g for g in crowd if g.spread("seconds_to_target") and not g.num_diverged]
    if quickest:
        first = min(quickest, key=lambda g: g.spread("seconds_to_target").mean)
        sentences.append(
            f"{first.title} is the first to reach {100 * config['target_accuracy']:g} % test accuracy at {most} "
            f"workers, after {first.spread('seconds_to_target').mean:,.0f} s of virtual time on average."
        )
    return sentences + _about_gap(crowd)


def _about_gap(crowd: Sequence[Group]) -> list[str]:
    gapped = [g for g in crowd if METHODS[g.method].measures_gap and g.spread("gap") and not g.num_diverged]
    if not gapped:
        return []
    delay = gapped[0].spread("staleness").mean + 1
    gapped = [g for g in gapped if g.spread("gap").mean < delay]
    if not gapped:
        return []
    gaps = _listed([f"{g.spread('gap').mean:.1f} under {g.title}" for g in gapped])
    return [
        f"There the mean delay is {delay:.1f} updates, but the mean gap only {gaps}: a penalty by the gap spares the "
        "gradients the difference."
    ]


def _about_baseline(group: Group) -> str:
    return f"A {group.title[0].lower()}{group.title[1:]} reaches {_percent(group)} test accuracy."


def _percent(group: Group) -> str:
    spread = group.spread("test_accuracy")
    return f"{100 * spread.mean:.1f} ± {100 * spread.std:.1f} %"


def _facts(config: Mapping[str, Any], groups: Sequence[Group], seeds: int) -> list[tuple[str, str]]:
    network, optimizer, schedule = config["network"], config["optimizer"], config["schedule"]
    norm = " with BatchNorm" if network["batch_norm"] and network["kind"] == "conv" else ""
    widths = _listed([str(width) for width in network["widths"]])
    shape = f"conv net, 3x3, {widths} channels{norm}" if network["kind"] == "conv" else f"perceptron, widths {widths}"
    cluster = config["cluster"]
    spread = "machines of unequal speed" if cluster["heterogeneous"] else "machines of equal speed"
    rate = (
        f"{optimizer['learning_rate']:g}, Adam {optimizer['adam_learning_rate']:g}; tuned for no number of workers; "
        f"warm-up {schedule['warmup_epochs']:g} epochs, {schedule['decay']} decay; times the number of gradients where "
        "an update averages several"
    )
    return [
        ("data", f"{config['dataset']}, batches of {config['batch_size']}"),
        ("network", shape),
        ("length", f"{groups[0].summaries[0]['epochs']:.3g} epochs of used gradients, {seeds} seed{'s' * (seeds > 1)}"),
        ("cluster", f"gamma-distributed run-times, {spread} (Barkai et al. 2020, C.3)"),
        ("backup workers", f"{cluster['backups']} of the workers not waited for"),
        ("learning rate", rate),
        ("momentum", f"{optimizer['momentum']:g} (Nesterov); none for ASGD"),
    ]


def _first_of_count(groups: Sequence[Group]) -> list[bool]:
    counts = [group.num_workers for group in groups]
    return [i > 0 and counts[i] != counts[i - 1] for i in range(len(counts))]


def _embedded(path: pathlib.Path) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}"


def _listed(words: Sequence[str]) -> str:
    """Words as a sentence has them: a, b and c."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
