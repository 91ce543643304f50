"""Counts how often the diagnosis names the planted cause first, and how often it names one where there is none."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from experiments.benchmarks.planted import fleets, pipelines, plants, trials
from experiments.benchmarks.planted.trials import NOTHING, Outcome, Trial
from experiments.benchmarks.timing import Figure

DRAWS = 200
"""Draws of each cause; five times as many without a cause."""

RIGHT, FALSE = 0.95, 0.01
"""Least share of draws whose cause is named first, and largest share of clean draws in which anything is named."""

PIPELINE_RIGHT, PIPELINE_CLEAN = 0.97, 1.5
"""Least share of jobs of pipelines whose cause is named first, and how many times as many jobs have none."""

FACTORS = (1.02, 1.04, 1.05, 1.06, 1.08, 1.1, 1.15, 1.3)
"""Sizes of a slow worker in the table of detection against size."""


def figures(draws: int = DRAWS, seed: int = 0) -> Iterator[Figure]:
    """One line for each planted cause, for clean draws, for laws that were held out, and for each size."""
    rows: list[tuple[str, list[Trial]]] = [
        (name, [Trial(name, draw, seed) for draw in range(draws)]) for name in plants.PLANTS
    ]
    held = [
        Trial(name, draw, seed, law)
        for law in fleets.HELD_OUT
        for draw in range(-(-draws // len(plants.PLANTS)))
        for name in plants.PLANTS
    ]
    rows.append((f"all causes, held-out laws ({', '.join(fleets.HELD_OUT)})", held))
    rows.append(("clean", [Trial(NOTHING, draw, seed) for draw in range(5 * draws)]))
    rows += [
        (
            f"clean, {'held-out ' * (law in fleets.HELD_OUT)}law: {law}",
            [Trial(NOTHING, draw, seed, law) for draw in range(-(-5 * draws // 3))],
        )
        for law in (*fleets.HELD_OUT, *fleets.SKEWED)
    ]
    rows += [
        (f"1 of 16 workers {factor:g} times as slow since step 300 of 600", _sizes(factor, draws, seed))
        for factor in FACTORS
    ]
    outcomes = iter(trials.run_all([trial for _, given in rows for trial in given]))
    for name, given in rows:
        yield _figure(name, given, [next(outcomes) for _ in given])
    yield from _of_pipelines(draws, seed)


def _of_pipelines(draws: int, seed: int) -> Iterator[Figure]:
    """One line for each cause that is planted in jobs of pipelines, and one for jobs without any."""
    counts = dict.fromkeys(pipelines.PLANTS, draws) | {NOTHING: math.ceil(PIPELINE_CLEAN * draws)}
    given = [pipelines.PipelineTrial(name, draw, seed) for name, count in counts.items() for draw in range(count)]
    outcomes = iter(trials.pooled(pipelines.run, given))
    for name, count in counts.items():
        found = [next(outcomes) for _ in range(count)]
        wrong = name == NOTHING
        hits = sum(outcome.right != wrong for outcome in found)
        low, high = trials.wilson(hits, count)
        errors = [outcome.since_error for outcome in found if outcome.since_error is not None]
        since = f"; first slow step off by {np.median(errors):g} steps (median)" if errors else ""
        yield Figure(
            f"planted: pipelines, {'clean' if wrong else name}: {'names something' if wrong else 'named first'}",
            100 * hits / count,
            "%",
            "0" if wrong else f">= {100 * PIPELINE_RIGHT:g}",
            hits == 0 if wrong else hits / count >= PIPELINE_RIGHT,
            f"{hits} of {count}, 95 % interval {100 * low:.1f}-{100 * high:.1f} %{since}",
        )


def _sizes(factor: float, draws: int, seed: int) -> list[Trial]:
    return [Trial("", draw, seed, factor=factor) for draw in range(max(draws // 2, 1))]


def _figure(name: str, given: Sequence[Trial], outcomes: Sequence[Outcome]) -> Figure:
    """Return the share of right or of false names, with its interval, and the median error of the first slow row."""
    if given[0].name == NOTHING:
        hits = sum(outcome.named > 0 for outcome in outcomes)
        title, met, goal = "names something", hits / len(given) <= FALSE, f"<= {100 * FALSE:g}"
    else:
        hits = sum(outcome.right for outcome in outcomes)
        title, met, goal = "named first", hits / len(given) >= RIGHT, f">= {100 * RIGHT:g}"
    if given[0].factor is not None:
        met, goal = None, ""
    low, high = trials.wilson(hits, len(given))
    errors = [abs(outcome.since_error) for outcome in outcomes if outcome.since_error is not None]
    since = f"; first slow step off by {np.median(errors):g} steps (median)" if errors else ""
    others = sum(outcome.named > 1 for outcome in outcomes)
    detail = f"{hits} of {len(given)}, 95 % interval {100 * low:.1f}-{100 * high:.1f} %{since}"
    return Figure(
        f"planted: {name}: {title}",
        100 * hits / len(given),
        "%",
        goal,
        met,
        detail + (f"; more than one named in {others}" if others else ""),
    )
