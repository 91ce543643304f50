"""The error of times to a target, by the number of evaluations: against runs that are evaluated much more often."""

from collections.abc import Iterator

import numpy as np

from configs import digits
from experiments.benchmarks.timing import Figure
from sgdlab.runs import crossing
from sgdlab.runs.plan import make_plan
from sgdlab.runs.records import Record
from sgdlab.runs.train import train
from sgdlab.runs.tuning import BUDGET, EVALUATIONS

METHODS = ("synchronous", "asgd", "gap_aware", "d_psgd", "rennala")
SEEDS = 4
DENSE = 2400
"""Evaluations of a run whose crossing is taken to be the true one."""
FEWER = (25, 100, 300, EVALUATIONS)
TARGETS = (0.90, 0.95)
LARGEST = 1.0
"""Mean error, in % of the time, that the number of evaluations of comparisons may have."""


def figures() -> Iterator[Figure]:
    """Mean error of the time to 90 and 95 % on digits, 8 workers of unequal speed, each method with several seeds."""
    errors: dict[int, list[float]] = {number: [] for number in FEWER}
    for method in METHODS:
        for seed in range(SEEDS):
            config = digits.get_config()
            config.method, config.seed, config.budget = method, seed, BUDGET
            config.spacing, config.evaluations = "geometric", DENSE
            evaluations = train(make_plan(config)).records[1:-1]
            for target in TARGETS:
                true = _seconds(evaluations, target)
                if true is None:
                    continue
                for number in FEWER:
                    found = _seconds(_thinned(evaluations, number), target)
                    errors[number].append(100 if found is None else 100 * abs(found / true - 1))
    for number, found in errors.items():
        mean, counted = float(np.mean(found)), number == EVALUATIONS
        detail = f"{len(found)} crossings; median {np.median(found):.2f} %, 90 % below {np.quantile(found, 0.9):.2f} %"
        goal = f"<= {LARGEST:g}" if counted else ""
        yield Figure(
            f"Time to target, {number} evaluations: mean error", mean, "%", goal, mean <= LARGEST or not counted, detail
        )


def _seconds(evaluations: list[Record], target: float) -> float | None:
    gradients, seconds = ([found[name] for found in evaluations] for name in ("gradients", "seconds"))
    place = crossing.first(gradients, [found["test_accuracy"] for found in evaluations], target)
    return None if place is None else float(np.interp(place, np.arange(len(seconds)), seconds))


def _thinned(evaluations: list[Record], number: int) -> list[Record]:
    """Return those that a run with fewer evaluations has."""
    gradients = np.array([found["gradients"] for found in evaluations])
    wanted = crossing.geometric(int(gradients[-1]), number)
    return [evaluations[place] for place in np.unique([0, *np.searchsorted(gradients, wanted)])]
