"""The self-contained page: recommendation, explanation, tables, plots and proposed commands."""

import pathlib
from collections.abc import Mapping, Sequence

from sgdlab.advice import sentences, table
from sgdlab.advice.comparison import CEILING, HINDSIGHT, STALE
from sgdlab.advice.findings import Findings
from sgdlab.results import pages

CAPTIONS = {
    "runtimes": "All recorded run-times. Bright rows are slow workers, bright columns slow steps. The colour scale "
    "ends at the 99.5 % quantile.",
    "protocols": "Gradients per second of every protocol in the evaluation steps, relative to full synchrony. The "
    "dashed line is the oracle, the upper bound of all protocols in which the workers of an iteration start at the "
    "same time. Diamonds: the same protocol with the rate of the run as its objective.",
    "backups": "Gradients per second against the number of workers that an update waits for, in the evaluation steps "
    "(solid) and in the tuning steps (dotted). Squares: the best numbers in the tuning steps.",
    "idle": "Share of the time that each worker computes under full synchrony, over all complete steps.",
    "predictions": "Sorted run-times of three iterations: predicted by the deep Markov model before the iteration, "
    "with two standard deviations, and observed.",
}


def make(
    findings: Findings, pictures: Mapping[str, pathlib.Path], commands: Sequence[tuple[str, str]], *, title: str
) -> str:
    """The page as HTML, with its plots embedded.

    Args:
      findings: all results.
      pictures: name in `CAPTIONS` -> SVG file.
      commands: purposes and command lines.
      title: title of the page.
    """
    comparison = findings.table.comparison
    return pages.render(
        "sgdlab.advice",
        "advice.html",
        title=title,
        subtitle=f"{len(findings.parts.workers)} workers, {findings.parts.recording.steps.size} recorded steps",
        answer=sentences.recommendation(findings),
        reading=[("Alternatives", sentences.alternatives(findings)), *sentences.all_of(findings)[1:]],
        facts=findings.parts.facts(),
        steps=len(findings.parts.test),
        columns=table.COLUMNS,
        rows=[
            {"cells": cells, "kind": _kind(protocol.role, findings.verdict.is_of(protocol))}
            for cells, protocol in zip(findings.table.rows(), comparison.protocols, strict=True)
        ],
        sweep_columns=table.SWEEP_COLUMNS,
        sweep_rows=findings.table.sweep_rows(),
        pictures=[{"data": pages.embedded(path), "caption": CAPTIONS[name]} for name, path in pictures.items()],
        commands=commands,
    )


def _kind(role: str, chosen: bool) -> str:
    if chosen:
        return "chosen"
    return "aside" if role in (HINDSIGHT, STALE, CEILING) else ""
