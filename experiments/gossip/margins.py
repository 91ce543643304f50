"""Margins of the bounds for gossip in simulated and exact expectations, and what averaging alone leaves."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from experiments.gossip.cases import PROBLEM, Case
from experiments.gossip.inequalities import consensus_bound, contraction, distance_bound, smallest
from experiments.gossip.quadratic import ROUNDS, RUN_TIMES, TICKS

TITLES = {RUN_TIMES: "step, then average", TICKS: "average, then step", ROUNDS: "rounds"}
DISTANCE, CORRECTED = "distance, as printed", "distance, corrected"
PROVED, PRINTED = "consensus, the appendix's lambda", "consensus, the printed lambda"
LAST = 12
"""Rounds in which nodes only average."""
Results = Mapping[Case, pd.Series]
"""Of each case, its row of the sweep's table."""


def bounds_of(case: Case, measured: pd.Series, gradient: np.ndarray) -> dict[str, np.ndarray]:
    """float64[K]: each bound that applies to the case; the paper has no consensus bound for rounds.

    Args:
      case: the case.
      measured: its results.
      gradient: float64[K], E |gradient|^2 of a node; the largest is c^2.
    """
    shared = {"step": measured.step, "alpha": case.alpha, "num_nodes": case.num_nodes}
    distance, found = shared | {"first": measured.distance[0]}, {}
    consensus = shared | {"first": measured.consensus[0], "gradient": gradient.max()}
    if case.start in ("together", "apart"):
        found[DISTANCE] = distance_bound(PROBLEM, **distance, synchronous=case.process == ROUNDS)
        if case.process == RUN_TIMES:
            found[CORRECTED] = distance_bound(PROBLEM, **distance, corrected=True)
    if case.process != ROUNDS and case.start != "contributions":
        found[PROVED] = consensus_bound(PROBLEM, **consensus)
        found[PRINTED] = consensus_bound(PROBLEM, **consensus, printed=True)
    return found


def margins(case: Case, measured: pd.Series) -> list[dict[str, Any]]:
    """Return the smallest ratio of each bound and the value it bounds, in a case: simulated and exact."""
    rows, exact_bounds = [], bounds_of(case, measured, measured.expected_gradient)
    for name, bound in bounds_of(case, measured, measured.gradient).items():
        what = name.partition(",")[0]
        expected = measured[f"expected_{what}"]
        margin = smallest(measured.step, bound, measured[what], measured[f"{what}_error"])
        exact = smallest(measured.step, exact_bounds[name], expected)
        values = {"at t": margin.step, "exact": exact.value, "ours": margin.value, "±": margin.error}
        where = {"process": TITLES[case.process], "p": case.num_nodes, "alpha": case.alpha, "start": case.start}
        end = exact_bounds[name][-1] / expected[-1]
        rows.append({"quantity": name} | where | values | {"fails": exact.fails, "end": end})
    return rows


def averaging(measured: Results, pushed: Mapping[int, pd.Series]) -> pd.DataFrame:
    """Rows of averaging alone: what is left of the disagreement, and of the diffusion potential."""
    rows, potentials = [], []
    for case, values in measured.items():
        where = {"process": TITLES[case.process], "p": case.num_nodes, "alpha": 0.0}
        if (case.fraction, case.start, case.process) == (0, "around", TICKS):
            rate = (values.consensus[-1] / values.consensus[0]) ** (1 / case.steps)
            error = rate / case.steps * values.consensus_error[-1] / values.consensus[-1]
            exact, printed = (contraction(case.num_nodes, printed=printed) for printed in (False, True))
            numbers = {"exact": exact, "ours": rate, "±": error, "paper": printed}
            rows.append({"quantity": "lambda: disagreement after a tick, over before"} | where | numbers)
        if case.start == "contributions":
            potentials.append((where, values.distance, values.distance_error, values.expected_distance))
    for p, values in pushed.items():
        where = {"process": "push-sum", "p": p, "alpha": 0.0}
        potentials.append((where, values.potential, values.error, push_sum_potential(p)))
    for index, after in ((1, "1 round, or p ticks"), (LAST, f"{LAST} rounds, or {LAST} p ticks")):
        for where, *values in potentials:
            ours, error, exact = (value[index] / values[0][0] for value in values)
            numbers = {"exact": exact, "ours": ours, "±": error}
            rows.append({"quantity": f"diffusion potential after {after}, over at first"} | where | numbers)
    return pd.DataFrame(rows)


def push_sum_potential(num_nodes: int) -> np.ndarray:
    """float64[LAST + 1]: the exact expectation of push-sum's diffusion potential, which is p - 1 at first."""
    return (num_nodes - 1) * (0.5 - 0.25 / num_nodes) ** np.arange(LAST + 1)


def sampling(measured: Results) -> float:
    """Return the largest difference between a simulated mean and its expectation, in standard errors."""
    largest = 0.0
    for values in measured.values():
        for name in ("distance", "consensus"):
            error = values[f"{name}_error"]
            difference = np.abs(values[name] - values[f"expected_{name}"])[error > 1e-9]
            largest = max(largest, float((difference / error[error > 1e-9]).max(initial=0.0)))
    return largest


def is_pulled(case: Case) -> bool:
    """Return whether a case is of the diffusion potential of synchronous pull gossip."""
    return (case.process, case.start) == (ROUNDS, "contributions")
