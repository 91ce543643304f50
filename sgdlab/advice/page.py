"""One self-contained page: the recommendation, what it rests on, tables, pictures, and what to do next."""

import base64
import pathlib
from collections.abc import Mapping, Sequence

import jinja2

from sgdlab.advice import sentences, table
from sgdlab.advice.comparison import CEILING, HINDSIGHT, STALE
from sgdlab.advice.sentences import Findings

CAPTIONS = {
    "runtimes": "Every run-time that was recorded. Bright rows are slow workers, bright columns slow steps; the colour "
    "scale ends at the slowest half per cent.",
    "protocols": "Gradients per second of every protocol on the second part, relative to full synchrony. The dashed "
    "line is the oracle, the ceiling of all protocols whose workers begin together; diamonds have the run's rate "
    "as their objective.",
    "backups": "Gradients per second against the number of workers that an update waits for. Squares: the numbers that "
    "were tuned on the first part (dotted).",
    "idle": "Who waits for whom: each worker's share of the time spent computing under full synchrony, over all "
    "complete steps.",
    "predictions": "The deep Markov model before three of the iterations: the sorted run-times that it expected, with "
    "two standard deviations, and those that came.",
}


def make(
    found: Findings, pictures: Mapping[str, pathlib.Path], commands: Sequence[tuple[str, str]], *, title: str
) -> str:
    """Writes the page.

    Args:
      found: all findings.
      pictures: name in `CAPTIONS` -> SVG file.
      commands: what to do next: purposes and command lines.
      title: of the page.
    """
    template = pathlib.Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    comparison = found.table.comparison
    return environment.from_string(template).render(
        title=title,
        subtitle=f"{len(found.parts.workers)} workers, {found.parts.recording.steps.size} recorded steps",
        answer=sentences.recommendation(found),
        reading=[("Beside it", sentences.alternatives(found)), *sentences.all_of(found)[1:]],
        facts=found.parts.facts(),
        steps=len(found.parts.test),
        columns=table.COLUMNS,
        rows=[
            {"cells": cells, "kind": _kind(protocol.role, found.verdict.is_of(protocol))}
            for cells, protocol in zip(found.table.rows(), comparison.protocols, strict=True)
        ],
        sweep_columns=table.SWEEP_COLUMNS,
        sweep_rows=found.table.sweep_rows(),
        pictures=[{"data": _embedded(path), "caption": CAPTIONS[name]} for name, path in pictures.items()],
        commands=commands,
    )


def _kind(role: str, chosen: bool) -> str:
    if chosen:
        return "chosen"
    return "aside" if role in (HINDSIGHT, STALE, CEILING) else ""


def _embedded(path: pathlib.Path) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}"
