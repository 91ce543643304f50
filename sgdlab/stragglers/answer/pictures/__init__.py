"""All pictures of the results, and what they show, in the order of the page."""

import matplotlib as mpl
from matplotlib.figure import Figure

from sgdlab.results.plots import STYLE
from sgdlab.stragglers.answer.pictures import bars, curves, heat, steps, window
from sgdlab.stragglers.findings import Findings


def all_of(findings: Findings) -> dict[str, Figure]:
    """All pictures of which there is something to show: name -> figure, in the order of `CAPTIONS`."""
    parts, diagnosis, table, verdict = findings.parts, findings.diagnosis, findings.table, findings.verdict
    named = list(dict.fromkeys(worker for cause in diagnosis.causes for worker in cause.workers))
    with mpl.rc_context(STYLE):
        figures = {
            "stages": heat.stages(parts.complete.job),
            "histories": steps.histories(parts, diagnosis),
            "medians": steps.step_medians(parts, diagnosis),
            "window": window.schedule_window(parts, verdict.chosen, besides=verdict.drained, named=named),
            "protocols": bars.protocols(table, verdict),
            "scores": bars.scores(findings.what_if.scores, parts.workers, named=named),
            "runtimes": heat.heat_map(parts),
            "backups": curves.numbers_waited_for(table, verdict),
            "idle": bars.idle(parts, named),
            "predictions": curves.predictions(table.comparison.record, parts.test_steps),
        }
    return {name: figure for name, figure in figures.items() if figure is not None}


SECTIONS = {
    "slow": {
        "stages": "How long each stage of each data-parallel rank computes: a red cell is a slow machine, a red row a "
        "long stage.",
        "histories": "When each worker that is named was slow: its compute time over the median of its step, in single "
        "steps (dots) and smoothed (line). The stretches in which it was slow are shaded.",
        "medians": "The median time of each complete step, and its slowest worker. Steps that were slow for all, "
        "and changes of the whole cluster, are marked.",
    },
    "do": {
        "window": "Who waits for whom, in typical evaluation steps: full synchrony, and what is recommended, over the "
        "same time.",
    },
    "protocols": {
        "protocols": "Gradients per second of every protocol in the evaluation steps, relative to full synchrony. The "
        "dashed line waits for the best number of workers in every step, which nobody knows beforehand: it bounds all "
        "protocols in which the workers of a step start at the same time.",
    },
    "what_if": {
        "scores": "Two scores of each worker. High against the fleet: slower than the others. High against itself: "
        "slower than it used to be.",
    },
    "details": {
        "runtimes": "All recorded times, each divided by the median of its step. Red rows are slow workers. What "
        "slows all workers of a step together is not seen here, but in the picture of the medians.",
        "backups": "Gradients per second against the number of workers that an update waits for, in the evaluation "
        "steps (solid) and in the tuning steps (dotted). Squares: the best numbers in the tuning steps.",
        "idle": "Share of the time that each worker computes under full synchrony, in the evaluation steps.",
        "predictions": "Sorted times of three steps: predicted by the deep Markov model before the step, with two "
        "standard deviations, and observed.",
    },
}
"""Section of the page -> its pictures: their names, which are those of their files, and captions."""

CAPTIONS = {name: caption for pictures in SECTIONS.values() for name, caption in pictures.items()}
