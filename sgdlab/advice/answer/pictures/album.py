"""All pictures of the results, in the order of the page."""

from matplotlib.figure import Figure

from sgdlab.advice.answer.pictures import (
    backups,
    cascade,
    episodes,
    forecasts,
    heat,
    medians,
    scoring,
    speed_ups,
    waiting,
    window,
)
from sgdlab.advice.findings import Findings


def all_of(findings: Findings) -> dict[str, Figure]:
    """All pictures of which there is something to show: name -> figure, in the order of `CAPTIONS`.

    Args:
      findings: all results.
    """
    parts, diagnosis, table, verdict = findings.parts, findings.diagnosis, findings.table, findings.verdict
    named = episodes.named(diagnosis)
    record, what_if = table.comparison.record, findings.what_if
    figures = {
        "histories": episodes.histories(parts, diagnosis),
        "window": window.schedule_window(parts, verdict.chosen, besides=verdict.drained, named=named),
        "runtimes": heat.heat_map(parts),
        "medians": medians.step_medians(parts, diagnosis),
        "protocols": speed_ups.protocols(table, verdict),
        "what_if": cascade.waterfall(what_if),
        "scores": scoring.scores(what_if.scores, parts.workers, named=named),
        "backups": backups.numbers_waited_for(table, verdict),
        "idle": waiting.idle(parts, diagnosis),
        "predictions": forecasts.predictions(record, parts.test_steps.tolist()) if record is not None else None,
    }
    return {name: figure for name, figure in figures.items() if figure is not None}
