"""The answer in two paragraphs: what is broken, and what to do about it."""

from typing import NamedTuple

from sgdlab.report.words import percent, rounded, sentence
from sgdlab.stragglers import repairs
from sgdlab.stragglers.answer import rules
from sgdlab.stragglers.answer.verdict import NOTICEABLE, simplest
from sgdlab.stragglers.comparison.protocol import DRAINED, Protocol
from sgdlab.stragglers.comparison.sweeps import FINISHING
from sgdlab.stragglers.comparison.without import machines
from sgdlab.stragglers.diagnosis.causes import SLOW_NODE, Cause
from sgdlab.stragglers.findings import Findings
from sgdlab.stragglers.what_if import pipeline_words
from sgdlab.stragglers.what_if import table as what_if_table

_MOST_TOLD = 2
"""Slow machines that have a sentence each; the others are named."""


class Headline(NamedTuple):
    """The answer.

    Attributes:
      problem: what is slow, since when, and what it costs.
      advice: what to do, and what it gives.
    """

    problem: str
    advice: str


def headline(findings: Findings) -> Headline:
    """Say what is broken, and what to do."""
    return Headline(problem(findings), advice(findings))


def problem(findings: Findings) -> str:
    """Say what costs most, and which machine to look at first."""
    parts, causes = findings.parts, findings.diagnosis.causes
    if parts.complete.job is not None:
        said = [pipeline_words.problem(findings.what_if)]
    else:
        said = []
        if not causes:
            idle = percent(findings.comparison.synchrony.idle)
            said.append(f"No machine is to blame, and {idle} of the workers' time is spent waiting for the last one.")
        elif not causes[0].lasting:
            said.append(sentence(causes[0].headline(parts.complete)))
        if findings.diagnosis.machines:
            said.append(_machines(findings))
        said.append(what_if_table.unseen(findings.what_if))
    return " ".join(filter(None, [parts.stopped, *said]))


def advice(findings: Findings) -> str:
    """Say what to do: take a machine out, keep full synchrony, or wait for fewer."""
    verdict = findings.verdict
    mended = "" if findings.parts.complete.job is None else pipeline_words.advice(findings.what_if)
    if mended and verdict.chosen.backups == 0:
        return mended
    if mended:
        done = f"{mended} Across the data-parallel ranks meanwhile: {_waiting(findings)}"
    elif verdict.drained is not None:
        done = taken_out(findings)
        if verdict.chosen.backups != 0:
            done = f"{done} Until then, {_waiting(findings)}"
    elif verdict.chosen.backups == 0:
        until = "Until that is repaired, keep" if findings.diagnosis.machines else "Keep"
        done = f"{until} full synchrony: {_no_other(findings)}."
    else:
        done = sentence(_waiting(findings))
    if not (first := verdict.table.first):
        return done
    steps = findings.parts.test_steps
    return (
        f"{done} This is chosen on steps {steps[first]} to {steps[-1]}, since the last change; the table "
        f"begins with step {steps[0]}."
    )


def taken_out(findings: Findings) -> str:
    """Say that a machine is to be taken out; empty if none is."""
    drained = findings.verdict.drained
    if drained is None:
        return ""
    rest = len(findings.parts.workers) - len(drained.without)
    others = {1: "go on with the other worker alone", 2: "keep waiting for both of the others"}
    row, causes = _blamed(findings)
    given = "" if row is drained else f": {gain(findings, drained)}"  # else `problem` says it
    keep = others.get(rest, f"keep waiting for the other {rest}")
    return f"Take {drained.method} out, or repair {_them(causes)}, and {keep}{given}."


def gain(findings: Findings, protocol: Protocol) -> str:
    """The gradients per second relative to full synchrony, with the interval, as in "x 1.17 (1.15-1.19)"."""
    return f"x {rounded(*findings.verdict.table.relative(protocol.result))}"


def _blamed(findings: Findings) -> tuple[Protocol | None, list[Cause]]:
    """The machines to look at, those without which the others gain most, and full synchrony without them.

    Equally slow machines hide each other: without one of them nothing is gained. Where nothing is gained at all, it is
    the machine that costs most, with those that it hides, without a row.
    """
    slow, verdict = findings.diagnosis.machines, findings.verdict
    still, first = {worker for cause in slow for worker in cause.workers}, set(slow[0].workers)
    rows = [row for row in findings.comparison.by_role(DRAINED) if first <= set(row.without) <= still]
    if verdict.drained in rows:
        row = verdict.drained
    else:
        rows = [row for row in rows if verdict.table.relative(row.result)[0] > 1]
        row = simplest(verdict.table, rows, lambda row: len(row.without)) if rows else None
    if row is not None:
        out = set(row.without)
    else:
        out = next((set(line.workers) for line in findings.what_if.lines if first <= set(line.workers)), first)
    return row, [cause for cause in slow if set(cause.workers) <= out]


def _machines(findings: Findings) -> str:
    """Say which machines to look at, and what full synchrony gives without them, or with them as fast as the others."""
    row, causes = _blamed(findings)
    complete, them = findings.parts.complete, _them(causes)
    said = [sentence(cause.headline(complete)) for cause in causes[:_MOST_TOLD]]
    if len(causes) == 1:
        it = "that node" if causes[0].kind == SLOW_NODE else "that machine"
        said = [
            f"{causes[0].headline(complete).rstrip('.')}: look at {it if them == 'it' else 'those machines'} first."
        ]
    else:
        if causes[_MOST_TOLD:]:
            said.append(f"Still slow as well: {machines(findings.parts, causes[_MOST_TOLD:])}.")
        said.append("Look at these machines first.")
    workers, table = len(findings.parts.workers), findings.verdict.table
    out = row.without if row is not None else sorted({worker for cause in causes for worker in cause.workers})
    test = findings.parts.test[table.first :]
    mended = repairs.AtMedian(out)(test)
    times = repairs.synchronous_seconds(test).sum() / repairs.synchronous_seconds(mended).sum()
    if row is None:
        worth = (
            f"If {'it' if them == 'it' else 'they'} were as fast as the others, full synchrony would be {times:.2f} "
            f"times as fast; to take {them} out would not help."
        )
    else:
        rest = workers - len(out)
        others = "the other worker alone gives" if rest == 1 else f"the other {rest} in full synchrony give"
        worth = (
            f"Without {them}, {others} {rounded(*table.relative(row.result))} times the gradients per second; "
            f"repaired, "
            f"{'both' if workers == 2 else f'all {workers}'} would give {times:.2f}."
        )
    return " ".join([*said, worth])


def _them(causes: list[Cause]) -> str:
    """The pronoun of some machines: one worker or one node is "it"."""
    one = len(causes) == 1 and (len(causes[0].workers) == 1 or causes[0].node is not None)
    return "it" if one else "them"


def _no_other(findings: Findings) -> str:
    fastest, over = findings.verdict.fastest, findings.verdict.over_chosen
    if over is None or over[0] <= 1 + NOTICEABLE or over[1] <= 1:
        return "no other way of waiting is measurably faster"
    dropped = f"{100 * (1 - fastest.result.waited_for / len(findings.parts.workers)):.0f} % of the gradients"
    return f"the fastest other way of waiting drops {dropped} and gives only {gain(findings, fastest)}"


def _waiting(findings: Findings) -> str:
    """Say what to do in every step, without a capital; and a fixed number of workers, if that does as well."""
    chosen, fixed, workers = findings.verdict.chosen, findings.verdict.fixed, len(findings.parts.workers)
    if chosen.backups == 0:
        return "keep waiting for all."
    late = "; late gradients are dropped" if chosen.method == FINISHING else ""
    given = gain(findings, chosen)
    if findings.verdict.drained is None:  # else `problem` says what the gain is of
        given = f"{given.removeprefix('x ')} times the gradients per second"
    done = f"{rules.waits(chosen, workers)}, {given}{late}."
    if fixed is None or fixed.backups is None:
        return done
    return (
        f"{done} Always waiting for {workers - fixed.backups} of {workers} does as well, {gain(findings, fixed)}, as "
        "long as the cluster stays as it was in these steps."
    )
