"""The self-contained page of `sgdlab advise --what_if`: the answer, the table with bars, and the scores."""

from sgdlab.advice.what_if import table as what_if_table
from sgdlab.advice.what_if.what_if import WhatIf
from sgdlab.results import pages


def make(result: WhatIf, *, title: str) -> str:
    """The page as HTML.

    Args:
      result: what mending each cause would gain.
      title: of the page.
    """
    steps, workers = result.recording.steps, len(result.recording.workers)
    return pages.render(
        "sgdlab.advice.what_if",
        "what_if.html",
        title=title,
        subtitle=f"{workers} workers, {steps.size} complete steps, {steps[0]} to {steps[-1]}",
        answer=what_if_table.sentence(result),
        drain=what_if_table.drain_sentence(result),
        facts=what_if_table.facts(result),
        notes=result.recording.notes,
        columns=what_if_table.COLUMNS,
        rows=_rows(result),
        scores=what_if_table.scores(result),
    )


def _rows(result: WhatIf) -> list[dict[str, object]]:
    """The rows with the ends of their bars, in percent: each repair begins where the time after it ends."""
    kinds, bars, after = [], [], result.recorded
    for line in result.lines:
        after -= line.in_turn
        kinds.append("first" if line is result.first else "")
        bars.append((after, line.in_turn))
    kinds += ["left", "recorded"]
    bars += [(0.0, result.left), (0.0, result.recorded)]
    scale = 100 / result.recorded
    return [
        {"cells": cells, "kind": kind, "start": f"{start * scale:.2f}", "width": f"{width * scale:.2f}"}
        for cells, kind, (start, width) in zip(what_if_table.repairs(result).rows, kinds, bars, strict=True)
    ]
