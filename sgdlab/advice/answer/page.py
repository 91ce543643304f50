"""The self-contained page: the answer, what is slow, what to do, the table of protocols, what if, and details."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from sgdlab.advice.answer import headline, loops, pictures, sentences
from sgdlab.advice.answer.table import COLUMNS
from sgdlab.advice.comparison.comparison import CEILING, DRAINED, HINDSIGHT, STALE, Protocol
from sgdlab.advice.findings import Findings
from sgdlab.advice.recording import NOTE
from sgdlab.advice.what_if import table as what_if_table
from sgdlab.report.words import sentence
from sgdlab.results import pages

_SLOW, _DO, _TABLE, _WHAT_IF = ("histories", "medians"), ("window",), ("protocols",), ("what_if", "scores")
"""Pictures of the sections; all others are details."""

_MOST_WORKERS = 12
"""Most workers in the table of scores."""


def make(
    findings: Findings,
    saved: Mapping[str, pathlib.Path],
    commands: Sequence[tuple[str, str]],
    *,
    title: str,
    model: pathlib.Path,
) -> str:
    """The page as HTML, with its plots embedded.

    Args:
      findings: all results.
      saved: name of a picture -> SVG file.
      commands: purposes and command lines.
      title: title of the page.
      model: directory of the trained deep Markov model.
    """
    parts, verdict, what_if = findings.parts, findings.verdict, findings.what_if
    shown = {*_SLOW, *_DO, *_TABLE, *_WHAT_IF}

    def figures(names: Sequence[str]) -> list[dict[str, str]]:
        return [
            {"data": pages.embedded(saved[name]), "caption": pictures.CAPTIONS[name], "name": name}
            for name in names
            if name in saved
        ]

    said = headline.headline(findings)
    details = dict(sentences.details(findings))
    return pages.render(
        "sgdlab.advice.answer",
        "advice.html",
        title=title,
        subtitle=f"{len(parts.workers)} workers, {parts.recording.steps.size} recorded steps",
        problem=said.problem,
        advice=said.advice,
        causes=_causes(findings),
        slow_pictures=figures(_SLOW),
        rule=sentences.rule(findings),
        out=headline.taken_out(findings),
        loop=_loop(findings, model),
        given=loops.given(verdict.chosen),
        caution=details.pop("Before you switch", ""),
        do_pictures=figures(_DO),
        commands=[(purpose, command.replace(" --", " \\\n    --")) for purpose, command in commands],
        steps=len(parts.test),
        first=parts.test_steps[0],
        last=parts.test_steps[-1],
        columns=COLUMNS,
        rows=_rows(findings),
        table_pictures=figures(_TABLE),
        what_if=what_if_table.repairs(what_if),
        what_if_sentence=f"{what_if_table.sentence(what_if)} {what_if_table.facts(what_if)}",
        what_if_pictures=figures(_WHAT_IF),
        scores=what_if_table.scores(what_if, _MOST_WORKERS),
        drain=what_if_table.drain_sentence(what_if),
        reading=details,
        facts=[(name, text) for name, text in parts.facts() if name != NOTE],
        sweep=findings.table.sweep_table(),
        pictures=figures([name for name in saved if name not in shown]),
    )


def _causes(findings: Findings) -> list[dict[str, str]]:
    """What slows full synchrony, with its evidence and its cost."""
    complete = findings.parts.complete
    return [
        {
            "headline": sentence(cause.headline(complete)),
            "evidence": "" if cause.evidence in cause.headline(complete) else cause.evidence,
            "cost": sentences.cost(cause),
        }
        for cause in findings.diagnosis.causes
    ]


def _loop(findings: Findings, model: pathlib.Path) -> str:
    chosen, parts = findings.verdict.chosen, findings.parts
    history = 0 if chosen.history is None else len(chosen.history)
    return loops.loop(chosen, len(parts.workers), history=history, model=model)


def _rows(findings: Findings) -> list[dict[str, Any]]:
    return [
        {"cells": cells, "kind": _kind(protocol, findings.verdict.is_of(protocol))}
        for cells, protocol in zip(findings.table.table().rows, findings.table.shown(), strict=True)
    ]


def _kind(protocol: Protocol, chosen: bool) -> str:
    if chosen:
        return "chosen"
    if protocol.role == DRAINED:
        return "drained"
    return "aside" if protocol.role in (HINDSIGHT, STALE, CEILING) else ""
