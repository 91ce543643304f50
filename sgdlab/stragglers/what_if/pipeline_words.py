"""Findings of a job of pipelines, in sentences and a table: the greatest cost, what to do, and its slowdowns."""

import re
from collections.abc import Sequence

import numpy as np

from sgdlab.pipelines.operations import ACROSS, GATHER, SCATTER
from sgdlab.pipelines.slowdown import Slowdown
from sgdlab.report.table import Table
from sgdlab.report.words import figure, interval, listed, percent, sentence
from sgdlab.stragglers.diagnosis.causes import PAUSES
from sgdlab.stragglers.what_if.candidates import COMMUNICATION, LENGTHS, LINK, LINKS, LONG_STAGE, STAGE_OF_RANK
from sgdlab.stragglers.what_if.micro_batches import whole_layers
from sgdlab.stragglers.what_if.what_if import RepairRow, WhatIf
from sgdlab.traces.recording import Recording

MATTERS = 0.03
"""Share of a step from which a cause is told."""

EXPLAINS = (0.95, 1.02)
"""Longest path over recorded step, between which the graph explains the steps."""

_SLOW_COLLECTIVE = 1.05
"""Slowdown by a collective from which a rank may be missing in the trace."""

_LONG_COLLECTIVE = 0.15
"""Share of a step that a collective takes from which the same holds."""

_ANOTHER_UNIT = 0.5
"""Share of the steps that operations explain below which their times may be in two units."""

_LEAST_SLOWDOWN = 1.02
"""Slowdown from which it is said what explains it."""

_TOLD = 3
"""Most causes that are told; the table has all."""

COLUMNS = {
    "as recorded": "operations that take as long as recorded, where all others are ideal",
    "slowdown": "mean step over that of an ideal step: S_t of a kind, S_w of a rank, S_s of a stage",
}

_SHOWN = 8
"""Most rows of kinds, ranks and stages each: those of the largest slowdowns."""


def told(result: WhatIf) -> list[RepairRow]:
    """Return the causes that cost at least 3 % of a step, most first."""
    rows = [row for row in result.lines if row.evident and row.in_turn >= MATTERS * result.recorded]
    return sorted(rows, key=lambda row: -row.in_turn)[:_TOLD]


def problem(result: WhatIf) -> str:
    """Say what costs most, and how much."""
    found, rows, recorded = result.pipelines, told(result), result.recorded
    said = []
    if found is not None and not EXPLAINS[0] <= found.explained <= EXPLAINS[1]:
        unit = ". Is `start_ts` in another unit than `duration`?" if found.explained < _ANOTHER_UNIT else "."
        said.append(
            f"The recorded operations explain {100 * found.explained:.0f} % of a step; the rest passes between them "
            f"(loading of data, the host){unit}"
        )
    if not rows:
        chance = f"{percent(result.waiting / recorded)} is waiting for whichever rank happens to be slowest"
        more = f"; {chance}" if result.waiting >= MATTERS * recorded else ""
        said.append(f"No single cause costs {100 * MATTERS:g} % of a step{more}.")
    for cause in causes(result):
        said += [cause["headline"], cause["cost"]]
    if len(rows) == 1 and result.left + rows[0].in_turn >= (1 - MATTERS) * recorded:
        said[-1] = f"{said[-1][:-1]}, and nothing else costs {100 * MATTERS:g} %."
    return " ".join([*said, _missing_rank(result)]).strip()


def causes(result: WhatIf) -> list[dict[str, str]]:
    """Return the sentences on each cause that is told: `headline`, `evidence` (empty: it says it) and `cost`."""
    found = []
    for row in told(result):
        share, low, high = (f"{100 * x / result.recorded:.1f}" for x in (row.in_turn, *row.in_turn_interval))
        within = f", {low} to {high}" if low != high else ""
        seconds = f"{figure(row.in_turn / result.recording.steps.size, 3)} s of each step ({share} %{within})"
        # Some steps are not concerned by what began, or is over.
        mean = "" if row.since is None and not row.over else " on average, over all steps"
        cost = f"This {'cost' if row.over else 'costs'} {seconds}{mean}."
        said = sentence(row.said or f"{row.title} sometimes takes longer than usual")
        found.append({"headline": said, "evidence": "", "cost": cost})
    return found


def _missing_rank(result: WhatIf) -> str:
    """Say which collective takes long for all: what a rank that is not in the trace looks like."""
    job, found, shares = result.recording.job, result.pipelines, {}
    if job is None or found is None:
        return ""
    for kind in sorted(set(job.operations.kind) & set(ACROSS)):
        without = job.seconds.copy()
        without[job.operations.of(kind)] = 0.0
        shares[kind] = 1 - job.step_seconds(without).sum() / job.steps.sum()
    kind = max(shares, key=lambda name: shares[name], default="")
    if not kind or (shares[kind] < _LONG_COLLECTIVE and found.kinds[kind] < _SLOW_COLLECTIVE):
        return ""
    return f"{kind} takes {percent(shares[kind])} of each step: a slow network, or a rank that was not recorded."


def advice(result: WhatIf) -> str:
    """Say what to do, in the order in which it is repaired: one cause hides another."""
    said, left = [], result.recorded
    wanted = [row for row in told(result) if not row.over]
    for row in result.lines:
        left -= row.in_turn
        if row in wanted:
            first = row is result.lines[0]
            faster = interval(row.times, *row.times_interval) if first else f"{result.recorded / left:.3f}"
            then, since = "then " * bool(said), ""
            if row.since is not None and not said:
                since = f" ({row.times_since:.2f} times in the steps since then)"
            done = _do(result, row, f"steps would {then}be {faster} times as fast{since}")
            said.append(f"Then {done[0].lower()}{done[1:]}" if said else done)
    if any(row.kind == LONG_STAGE for row in wanted):
        said.append("No protocol that waits for fewer ranks repairs a long stage.")
    return " ".join(said)


def _do(result: WhatIf, row: RepairRow, faster: str) -> str:
    if row.kind == STAGE_OF_RANK:
        who = re.sub(r"\b[a-z][\w-]* of (?=stage|rank)", "", row.title.partition(" (")[0])  # whatever it does
        machine, it = ("machine", "it") if len(row.workers) == 1 else ("machines", "them")
        return f"Take the {machine} of {who} out and look at {it}: repaired, {faster}{_without(result, row.workers)}."
    if row.kind == LONG_STAGE:
        return _move(result, row, faster)
    network = f"Look at the network of {row.title}: repaired, {faster}."
    what = {
        LINK: network,
        LINKS: network,
        LENGTHS: "Deal sequences to ranks by their cost, not by their number (attention grows with the square of the "
        f"length): {faster}, and no gradient is lost.",
        COMMUNICATION: f"Look at the network: if communication never took longer than its median, {faster}.",
        PAUSES: f"Find out what pauses all ranks (a checkpoint, the collection of garbage): without it, {faster}.",
    }
    return what.get(row.kind, f"Find out what has slowed {row.title}: {faster}.")


def _without(result: WhatIf, workers: Sequence[int]) -> str:
    """Say how long steps are without some ranks."""
    job, total = result.recording.job, len(result.recording.workers)
    others = np.setdiff1d(np.arange(total), workers)
    if job is None or not others.size:
        return ""
    seconds = job.select(ranks=others).steps.mean()
    it = "it" if len(workers) == 1 else "them"
    done = f"{others.size} of {total} ranks without {it} would do a step in {figure(float(seconds), 3)} s"
    return f"; until then, {done}, with {100 * others.size / total:.0f} % of the data"


def _move(result: WhatIf, row: RepairRow, faster: str) -> str:
    """Say which layers to move."""
    job = result.recording.job
    stages = [] if job is None else job.operations.stages
    last = bool(stages) and row.title == f"stage {stages[-1]}"
    head = " (or give the output head, which is among its work, a lighter stage)" * last
    move = f"Move layers away from {row.title}{head}"
    if job is None or result.layers is None:
        return f"{move}, so that {row.mended.removeprefix('layers moved, so that ')}: {faster}."
    held, seconds = whole_layers(job, result.layers)
    times = result.recorded / seconds
    gains = f"makes steps {times:.3f} times as fast" if times > 1 else "gains nothing"
    counts = listed([str(count) for count in held])
    return f"{move}: the stages should hold {counts} layers, which by itself {gains}."


def facts(found: Slowdown) -> str:
    """Return the numbers by which such jobs are compared, in sentences."""
    said = (
        f"Steps took {figure(float(found.recorded.mean()))} s, their longest paths {figure(float(found.base.mean()))} "
        f"s: {found.overall:.3f} times as long as if all operations of a kind took equally long (slowdown S)."
    )
    if found.overall < _LEAST_SLOWDOWN:
        return said
    return (
        f"{said} The slowest 3 % of the (stage, rank) explain {percent(found.workers)} of that (M_W), the last stage "
        f"{percent(found.last_stage)} (M_S)."
    )


def slowdowns(result: WhatIf) -> Table | None:
    """Return the largest slowdowns by kind of operation, rank and stage; None where there are no pipelines."""
    found, job = result.pipelines, result.recording.job
    if found is None or job is None:
        return None
    groups = {
        "": dict(found.kinds),
        "rank ": dict(zip(result.recording.workers, found.ranks, strict=True)),
        "stage ": dict(zip(job.operations.stages, found.stages, strict=True)),
    }
    rows = []
    for noun, values in groups.items():
        largest = sorted(values.items(), key=lambda pair: -pair[1])[:_SHOWN]
        rows += [[f"{noun}{name}", f"{value:.3f}"] for name, value in largest]
    return Table(COLUMNS, rows)


def limits(recording: Recording) -> str:
    """Say what waiting for fewer ranks means for a job whose optimiser is sharded; empty for others."""
    kinds = set(recording.job.operations.kind) if recording.job else set()
    if not kinds & {GATHER, SCATTER}:
        return ""
    return (
        "Each rank owns a share of the optimiser's state and must come to the collective: a rank that is not waited "
        "for stops computing and comes with the micro-batches that it has (DropCompute)."
    )
