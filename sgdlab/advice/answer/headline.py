"""The answer in two paragraphs: what is broken, and what to do about it."""

import dataclasses

from sgdlab.advice import repairs
from sgdlab.advice.answer import rules
from sgdlab.advice.comparison.comparison import DRAINED, FINISHING, Protocol
from sgdlab.advice.diagnosis.causes import SLOW_NODE, Cause
from sgdlab.advice.findings import Findings
from sgdlab.advice.words import rounded, sentence, some


@dataclasses.dataclass(frozen=True)
class Headline:
    """The answer.

    Attributes:
      problem: what is slow, since when, and what it costs.
      advice: what to do, and what it gives.
    """

    problem: str
    advice: str

    def __str__(self) -> str:
        return f"{self.problem} {self.advice}"


def headline(findings: Findings) -> Headline:
    """What is broken, and what to do.

    Args:
      findings: all results.
    """
    return Headline(problem(findings), advice(findings))


def problem(findings: Findings) -> str:
    """What costs most, and the machine to look at first.

    Args:
      findings: all results.
    """
    causes = findings.diagnosis.causes
    if not causes:
        idle = findings.comparison.synchrony.idle
        return f"No machine is to blame, and {_percent(idle)} of the workers' time is spent waiting for the last one."
    first = _told(findings, causes[0])
    machine = next((cause for cause in causes if cause.lasting), None)
    if machine is None or machine is causes[0]:
        return first
    return f"{first} {_told(findings, machine)}"


def advice(findings: Findings) -> str:
    """What to do: take a machine out, keep full synchrony, or wait for fewer.

    Args:
      findings: all results.
    """
    verdict = findings.verdict
    if verdict.drained is None:
        if verdict.chosen.backups == 0:
            until = "Until that is mended, keep" if findings.diagnosis.machines else "Keep"
            return f"{until} full synchrony: no other way of waiting is measurably faster."
        return f"{sentence(_waiting(findings))}{fixed(findings)}"
    done = taken_out(findings)
    return done if verdict.chosen.backups == 0 else f"{done} Until then, {_waiting(findings)}.{fixed(findings)}"


def taken_out(findings: Findings) -> str:
    """That a machine is to be taken out; empty if none is.

    Args:
      findings: all results.
    """
    drained = findings.verdict.drained
    if drained is None:
        return ""
    workers, out = len(findings.parts.workers), len(drained.without)
    rest = f"keep waiting for {'the other' if out < workers - 2 else 'all of the other'} {workers - out}"
    machine = next((cause for cause in findings.diagnosis.causes if cause.lasting), None)
    told = machine is not None and set(machine.workers) == set(drained.without)  # with its gain, in `problem`
    given = "" if told else f": {gain(findings, drained)}"
    return f"Take {names(drained)} out, or mend {'it' if out == 1 else 'them'}, and {rest}{given}."


def fixed(findings: Findings) -> str:
    """That a fixed number of workers would do as well as a formula, if so; begins with a space.

    Args:
      findings: all results.
    """
    found = findings.verdict.fixed
    if found is None:
        return ""
    workers = len(findings.parts.workers)
    return (
        f" Always waiting for {workers - found.backups} of {workers} does as well, {gain(findings, found)}, as long as "
        "the cluster stays as it was in these steps."
    )


def gain(findings: Findings, protocol: Protocol) -> str:
    """The gradients per second relative to full synchrony, with the interval, as in "x 1.17 (1.15-1.19)".

    Args:
      findings: all results.
      protocol: a protocol of the table.
    """
    return f"x {rounded(*findings.table.relative(protocol.paper))}"


def names(protocol: Protocol) -> str:
    """The machines that a row of the table is without, as its title names them: "worker 5"."""
    return protocol.title.removeprefix("without ")


def workers_named(all_names: tuple[str, ...], workers: tuple[int, ...]) -> str:
    """Workers by name, at most six of them; a number is called a worker.

    Args:
      all_names: names of all workers.
      workers: indices of workers.

    Example:
      >>> workers_named(("0", "1", "2"), (0, 2)), workers_named(("a", "b"), (1,))
      ('workers 0 and 2', 'b')
    """
    chosen = [all_names[i] for i in workers]
    if not all(name.isdigit() for name in chosen):
        return some(chosen)
    return f"worker{'s' * (len(chosen) > 1)} {some(chosen)}"


def _told(findings: Findings, cause: Cause) -> str:
    """The headline of a cause; of a machine that is still slow, to look at it, and what that is worth."""
    said = cause.headline(findings.parts.complete)
    if not cause.lasting:
        return sentence(said)
    one = len(cause.workers) == 1
    look = "that machine" if one else "that node" if cause.kind == SLOW_NODE else "those machines"
    return f"{said.rstrip('.')}: look at {look} first. {_worth(findings, cause, 'it' if one or cause.node else 'they')}"


def _worth(findings: Findings, cause: Cause, it: str) -> str:
    """What full synchrony gives without a machine, if that is more, or with the machine as fast as the others."""
    others = len(findings.parts.workers) - len(cause.workers)
    test = findings.parts.test
    mended = repairs.workers_at_median(test, cause.workers)
    times = repairs.synchronous_seconds(test).sum() / repairs.synchronous_seconds(mended).sum()
    for row in findings.comparison.by_role(DRAINED):
        gained = findings.table.relative(row.paper)
        if set(row.without) == set(cause.workers) and gained[0] > 1:
            without = f"Without {'them' if it == 'they' else it}, the other {others} in full synchrony give"
            whole = f"mended, all {len(findings.parts.workers)} would give {times:.2f}"
            return f"{without} {rounded(*gained)} times the gradients per second; {whole}."
    return (
        f"If {it} were as fast as the others, full synchrony would be {times:.2f} times as fast; to take "
        f"{'them' if it == 'they' else it} out would not help."
    )


def _waiting(findings: Findings) -> str:
    """What to do in every step, without the capital at its beginning and the full stop at its end."""
    chosen, workers = findings.verdict.chosen, len(findings.parts.workers)
    if chosen.backups == 0:
        return "keep waiting for all"
    late = "; late gradients are dropped" if chosen.title == FINISHING else ""
    said = rules.whom_not_to_wait_for(chosen, workers), rules.who_enters(chosen, workers)
    defined = findings.verdict.drained is not None  # `problem` says what the gain is of
    given = gain(findings, chosen)
    more = given if defined else f"{given.removeprefix('x ')} times the gradients per second"
    return f"{': '.join(said)}, {more}{late}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
