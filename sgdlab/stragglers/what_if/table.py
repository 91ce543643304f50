"""Shows what mending each cause would gain, and the scores of the workers: as tables, as sentences and as CSV."""

import math
from collections.abc import Callable

import numpy as np

from sgdlab.report import pages
from sgdlab.report.table import Column, Number, Table, in_csv, numbers
from sgdlab.report.words import counted, interval, node_named, percent
from sgdlab.stragglers.diagnosis.causes import ALL_SLOWER, named
from sgdlab.stragglers.what_if import candidates, pipeline_words
from sgdlab.stragglers.what_if.in_turn import MATTERS
from sgdlab.stragglers.what_if.what_if import RepairRow, WhatIf

_WERE = "if it were"
COLUMNS = {
    "what": "what is repaired, in the order of the last columns",
    _WERE: "what it would be like instead; nothing becomes slower",
    "alone: saves": "seconds saved under full synchrony if only this is repaired, and their share of the recorded time",
    "alone: times as fast": "how many times as fast full synchrony would be, with a 90 % interval (block bootstrap)",
    "in turn: saves": "seconds saved if this is repaired after the rows above; with what is left they add up",
    "in turn: share": "the same as a share of the recorded time",
}

_OTHERS = "as fast as the median of the others"
_DO = {
    candidates.WORKER: ("Repair {} first", f"it were {_OTHERS}"),
    candidates.WORKERS: ("Repair {} first", f"they were {_OTHERS}"),
    candidates.NODE: ("Repair {} first", f"its workers were {_OTHERS}"),
    candidates.COMMUNICATION: ("Look at {} first", "it never took longer than its median"),
    candidates.PHASE: ("Look at the {} first", "it never took longer than its median"),
    candidates.PERIOD: ("Look at {} first", "it were as fast as the steps between"),
    candidates.STEPS: ("Look at the {} first", "they were as fast as a usual step"),
    ALL_SLOWER: ("Find out first what has slowed {}", "it were as fast as before"),
}
"""Kind of a repair -> what to do first, and on which condition full synchrony is faster."""

SHOWN = 20
"""Workers in a table; the others are counted."""


def repairs(result: WhatIf) -> Table:
    """The table of repairs; its last two rows are what is left, and the recorded time."""
    recorded = result.recorded

    def amount(seconds: float) -> tuple[str, str]:
        return _seconds(seconds, recorded), percent(seconds / recorded)

    def row(line: RepairRow) -> list[str]:
        alone = "{} ({})".format(*amount(line.alone))
        return [line.title, line.mended, alone, interval(line.times, *line.times_interval), *amount(line.in_turn)]

    ends = {"what is left": result.left, "recorded": recorded}
    rows = [*map(row, result.lines), *([title, "", "", "", *amount(seconds)] for title, seconds in ends.items())]
    kinds = ["first" if line is result.first else "" for line in result.lines]
    return Table(COLUMNS, rows, left=2, kinds=[*kinds, "left", "recorded"], bars=_bars(result))


def scores(result: WhatIf, most: int = SHOWN) -> Table:
    """The table of workers, with a note on those that it leaves out."""
    found, rest, notes = result.scores, result.scores.order[most:], []
    if rest.size:
        notes = [
            f"{counted(rest.size, 'more worker')}: the slowest of them has {found.against_fleet[rest].max():.2f} "
            f"against the fleet and {found.against_itself[rest].max():.2f} against itself; the others waited for them "
            f"together {_seconds(found.waited[rest].sum(), result.recorded)}. scores.csv has all."
        ]
    return Table.of(_score_columns(result), found.order[:most], notes)


def _score_columns(result: WhatIf) -> list[Column]:
    """Return the columns of the scores, whose rows are indices of workers."""
    found, names, nodes = result.scores, result.recording.workers, result.recording.nodes

    def of(name: str, values: np.ndarray, text: Callable[[float], str], heading: str, meaning: str) -> Column:
        return Column(heading, lambda i: Number(text(values[i]), float(values[i])), meaning, name)

    # Sentences may speak of the steps since a change.
    changed = result.drained_since is not None or any(line.since is not None for line in result.lines)
    steps = ", all steps" if changed else ""
    two, three, seconds = "{:.2f}".format, "{:.3f}".format, lambda value: _seconds(value, result.recorded)
    return [
        Column(
            "worker",
            lambda i: f"{names[i]} on {nodes[i]}" if nodes else names[i],
            "its name, and its node if that is known; those whose repair saves most first",
        ),
        of("against_fleet", found.against_fleet, two, "against the fleet",
           "median of its compute times over the median of all workers' medians; above 1 is slower"),
        of("against_itself", found.against_itself, two, "against itself",
           "median of its last steps over its own best (10 % quantile of windows); all grow with the work"),
        of("last_share", found.last, percent, "last", "share of the steps in which it finishes last"),
        of("others_waited_seconds", found.waited, seconds, "others waited",
           "seconds that all waited for it alone: its compute time less the second longest, where it was last"),
        of("slowdown", found.slowdown, three, "slowdown",
           "time of full synchrony if every other worker took the median of the step, over that if all did"),
        of("times_if_repaired", found.repaired, three, f"if repaired{steps}",
           "times the gradients per second if it were as fast as the median of the others, over all steps"),
        of("times_if_left_out", found.left_out, three, f"if left out{steps}",
           "times the gradients per second of full synchrony without it, over all steps"),
    ]  # fmt: skip


def sentence(result: WhatIf) -> str:
    """Say what to repair first and what that gives, in one or two sentences; of pipelines, all that costs much."""
    if result.pipelines is not None:
        return f"{pipeline_words.problem(result)} {pipeline_words.advice(result)}".strip()
    first, chance = result.first, result.chance
    if first is None:
        share = chance.alone / result.recorded
        if share < MATTERS:
            return f"There is nothing to repair: no cause takes {100 * MATTERS:g} % of the time of full synchrony."
        return (
            f"No machine and no step stands out: {percent(share)} of the time of full synchrony is waiting for whoever "
            f"happens to be slowest in a step. It would be {interval(chance.times, *chance.times_interval)} times as "
            "fast if every worker took the median of its step. A protocol that waits for fewer workers gives part of "
            "this, repairing a machine does not."
        )
    times = f"{interval(first.times, *first.times_interval)} times as fast"
    if first.over:
        return f"What costs most is over: {first.title}. Without it, full synchrony would have been {times}."
    do, condition = _DO[first.kind]
    since = f"; {first.times_since:.3f} times in the steps since then" if first.since is not None else ""
    said = f"{do.format(first.title)}: full synchrony would be {times} if {condition}{since}."
    waiting = chance.in_turn if first.kind == candidates.PHASE else result.waiting
    if waiting <= first.in_turn:
        return said
    return (
        f"{said} More of the time, {percent(waiting / result.recorded)}, is waiting for whoever happens to be slowest "
        "in a step, of which a protocol that waits for fewer workers saves a part."
    )


def drain_sentence(result: WhatIf) -> str:
    """Say whom to leave out first, in a sentence."""
    if not result.drained or result.drained[-1][1] < 1 + MATTERS:
        return (
            "Nobody need be left out: full synchrony without its slowest workers, however many, gives less than "
            f"{100 * MATTERS:g} % more gradients per second."
        )
    workers = sorted(worker for worker, _ in result.drained)
    rest = len(result.recording.workers) - len(workers)
    who = named(result.recording.workers, workers)
    node = candidates.node_of(result.recording, tuple(workers))
    who = who if node is None else f"{node_named(node)} ({who})"
    since = "" if result.drained_since is None else f", measured since step {result.drained_since}"
    others = "The other worker alone" if rest == 1 else f"Full synchrony of the other {rest}"
    return (
        f"To leave out first: {who}. {others} gives {result.drained[-1][1]:.3f} times the gradients per second of "
        f"all{since}."
    )


def facts(result: WhatIf) -> str:
    """The numbers by which such analyses are compared, in a sentence or more."""
    if result.pipelines is not None:
        return pipeline_words.facts(result.pipelines)
    steps = counted(result.recording.steps.size, "step")
    text = (
        f"Full synchrony took {_seconds(result.recorded, result.recorded)} in {steps}, {result.slowdown:.3f} times "
        "what is left if all is repaired (slowdown S)."
    )
    if np.isnan(result.slowest_share):
        return text
    slowest = f"The slowest 3 % of the workers ({counted(result.slowest, 'worker')}) explain"
    return f"{text} {slowest} {percent(result.slowest_share)} of the waiting for the slowest (M_W)."


def unseen(result: WhatIf) -> str:
    """Say what of a step the trace does not show; empty where nothing is known to be hidden."""
    hidden = result.recording.unseen
    return f"Not seen: {hidden}. Times are lower bounds, and gains upper ones." if hidden else ""


def summary(result: WhatIf) -> str:
    """Say what the table says, beside a headline that has told what pipelines wait for."""
    return facts(result) if result.pipelines is not None else f"{sentence(result)} {facts(result)}"


def text(result: WhatIf) -> str:
    """Sentences and both tables, for the terminal, where the table is too wide for what each row would be instead."""
    workers, of_pipelines = scores(result), pipeline_words.slowdowns(result)
    parts = [
        f"{sentence(result)}\n{drain_sentence(result)}",
        unseen(result),
        repairs(result).without([_WERE]).grid(),
        facts(result),
        "" if of_pipelines is None else of_pipelines.grid(),
        "\n".join([workers.grid(), *workers.notes]),
    ]
    return "\n\n".join(filter(None, parts))


def comma_separated(result: WhatIf) -> str:
    """The rows of the table as CSV, with numbers in full precision; the last two are what is left, and the recorded."""
    names = result.recording.workers
    rows = [
        {
            "kind": line.kind,
            "title": line.title,
            "if_it_were": line.mended,
            "workers": " ".join(names[i] for i in line.workers),
            "since_step": line.since,
            "alone_seconds": line.alone,
            **dict(zip(("alone_low", "alone_high"), line.alone_interval, strict=True)),
            "alone_times": line.times,
            **dict(zip(("alone_times_low", "alone_times_high"), line.times_interval, strict=True)),
            "in_turn_seconds": line.in_turn,
        }
        for line in result.lines
    ]
    ends = {"left": result.left, "recorded": result.recorded}
    return in_csv([*rows, *({"kind": name, "title": name, "in_turn_seconds": value} for name, value in ends.items())])


def scores_comma_separated(result: WhatIf) -> str:
    """The scores of all workers as CSV, with numbers in full precision."""
    names, nodes, columns = result.recording.workers, result.recording.nodes, _score_columns(result)
    return in_csv(
        {"worker": names[i], "node": nodes[i] if nodes else None} | numbers(columns, i) for i in result.scores.order
    )


def _seconds(value: float, recorded: float) -> str:
    """Seconds with as many decimals as leave four digits of the recorded time, so that a column adds up to it."""
    decimals = max(0, 3 - math.floor(math.log10(recorded)))
    return f"{max(value, 0.0):,.{decimals}f} s"


def page(result: WhatIf, *, title: str) -> str:
    """The page as HTML."""
    steps, workers = result.recording.steps, len(result.recording.workers)
    return pages.render(
        "sgdlab.stragglers.what_if",
        "what_if.html",
        title=title,
        subtitle=f"{workers} workers, {steps.size} complete steps, {steps[0]} to {steps[-1]}",
        answer=sentence(result),
        drain=drain_sentence(result),
        facts=" ".join(filter(None, [unseen(result), facts(result)])),
        notes=result.recording.notes,
        repairs=repairs(result),
        scores=scores(result),
        slowdowns=pipeline_words.slowdowns(result),
    )


def _bars(result: WhatIf) -> list[tuple[str, str]]:
    """The start and the width of each row's bar, in percent: each repair begins where the time after it ends."""
    saved = [line.in_turn for line in result.lines]
    starts = [*(result.recorded - np.cumsum(saved)), 0.0, 0.0]
    scale = 100 / result.recorded
    widths = [*saved, result.left, result.recorded]
    return [(f"{start * scale:.2f}", f"{width * scale:.2f}") for start, width in zip(starts, widths, strict=True)]
