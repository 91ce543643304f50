"""Bounds on the gradients of Gap-Aware, against runs on known objectives (Barkai et al. 2020, Theorem 1, Corollary 1).

N workers who never wait minimise a quadratic function and a non-convex one, a quadratic with waves on it. The noise of
the gradients is Gaussian, so that all constants of the bounds are known. Theorem 1 is checked with a constant learning
rate, the largest that meets its condition (7) for every gap, and steps that are divided by the global gap. Corollary 1
is checked with its own steps, for the least number of updates that it allows and multiples of it. Both bound the mean
of the squared gradient over all updates, in expectation.

The learning rate of Corollary 1 is proportional to the gap, so that the gap cancels: its runs are plain asynchronous
SGD with a constant step.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Picture

from experiments import papers
from experiments.gap_aware import ergodic
from experiments.harness import (
    PALETTE,
    PAPER,
    Claim,
    Count,
    Evidence,
    Output,
    Positive,
    Premise,
    Scale,
    Sweep,
    Whole,
    above,
    all_of,
    below,
    canvas,
    enough,
    figure,
    goes_by,
    interval,
)
from experiments.thresholds import THEOREM1_EXPONENT
from sgdlab.cluster import Gamma
from sgdlab.protocols import asynchronous

THEOREM, COROLLARY = "Theorem 1, (8)", "Corollary 1"
POINTS = 3
"""Values of B K from which on a rate of convergence is judged."""


@goes_by(asynchronous, Gamma)
def compared(
    *, bound: str, objective: str, num_workers: int, batch_size: int, multiple: int, noise: float, runs: int, seed: int
) -> dict[str, Any]:
    """Runs Gap-Aware and computes a bound.

    Args:
      bound: THEOREM or COROLLARY.
      objective: a name in `ergodic.OBJECTIVES`.
      num_workers: N.
      batch_size: B.
      multiple: number of updates, in units of the least that Corollary 1 allows.
      noise: sigma^2, in units of L (f(theta_1) - f*).
      runs: number of runs with the same delays and other noise.
      seed: of the delays and of the noise.
    """
    function = ergodic.OBJECTIVES[objective]
    excess = float(function.value(np.full(len(function.curvatures), ergodic.START)))
    variance = noise * function.smoothness * excess
    updates, delays = 1, np.zeros(1, int)
    while True:  # a longer run can have a longer delay, which requires a longer run
        problem = ergodic.Problem(function.smoothness, excess, variance, batch_size, int(delays.max()))
        if updates >= multiple * problem.least_updates():
            break
        updates = math.ceil(multiple * problem.least_updates())
        delays = ergodic.staleness(num_workers, updates, seed=seed)
    of_theorem = bound == THEOREM
    rate = problem.largest_rate() if of_theorem else problem.corollary_step(updates)
    squared, steps = ergodic.train(function, delays, problem, rate, runs=runs, seed=seed, gap_aware=of_theorem)
    measured = ergodic.ergodic_mean(squared, steps)
    limit = problem.theorem_bound(steps) if of_theorem else np.full_like(measured, problem.corollary_bound(updates))
    shown = np.unique(np.geomspace(1, updates, 60).astype(int)) - 1
    needed, printed = (float(side.max()) for side in problem.conditions(steps))
    return {
        "max_delay": problem.max_delay,
        "updates": updates,
        "scale": function.smoothness * excess,
        "ergodic": measured[-1].tolist(),
        "limit": limit[-1].tolist(),
        "smallest": float(squared.mean(axis=1).min()),
        "condition": max(needed, printed),
        "gap": float((rate / steps).mean()) if of_theorem else math.nan,
        "after": (shown + 1).tolist(),
        "curve": measured[shown].mean(axis=1).tolist(),
        "limits": limit[shown].mean(axis=1).tolist(),
    }


@figure(
    papers.GAP,
    "Theorem 1",
    scales={"smoke": Scale("5 s", workers=[2], batch_sizes=[1], multiples=[1, 2], runs=4), "laptop": Scale("1 min")},
    full_size=True,
    differs="The paper proves the bounds and shows no runs.",
)
def theorem1(
    *,
    workers: Sequence[Count] = (4, 16),
    batch_sizes: Sequence[Count] = (1, 4),
    multiples: Sequence[Count] = (1, 4, 16),
    noise: Positive = 1.0,
    runs: Count = 32,
    seed: Whole = 0,
) -> Output:
    """Runs all cases and compares them with the bounds.

    Args:
      workers: N, numbers of workers.
      batch_sizes: B, examples of a gradient.
      multiples: numbers of updates for Corollary 1, in units of the least that it allows; Theorem 1 has the first.
      noise: sigma^2, variance of the gradient of an example, in units of L (f(theta_1) - f*).
      runs: runs of each case, with the same delays and other noise.
      seed: of delays and noise.
    """
    cases = [
        {"bound": bound, "objective": objective, "num_workers": n, "batch_size": batch, "multiple": multiple}
        for bound in (THEOREM, COROLLARY)
        for objective in ergodic.OBJECTIVES
        for n in workers
        for batch in batch_sizes
        for multiple in (multiples if bound == COROLLARY else multiples[:1])
    ]
    found = Sweep({"noise": noise, "runs": runs, "seed": seed}, cases, work=compared).table()
    found = found.assign(examples=found.updates * found.batch_size)
    rows = []
    for case in found.itertuples():
        ours, limit = interval(case.ergodic), float(np.mean(case.limit))
        about = {"bound": case.bound, "objective": case.objective, "N": case.num_workers, "B": case.batch_size}
        about |= {
            "T": case.max_delay,
            "K": case.updates,
            "condition (7), at most 1": case.condition,
            "mean gap": case.gap,
        }
        values = {"ours": ours.mean, "±": ours.half, "paper": limit}
        rows.append(about | {"quantity": "mean of E|grad f|^2", "bound / measured": limit / ours.mean} | values)
    notes = [
        f"The column paper has the bounds' values, ours the mean over updates and {runs} runs, ± its 95 % confidence "
        "interval. Delays are those of the homogeneous gamma cluster; T is the longest of the run.",
        "Condition (7) is computed as printed and as the proof needs it, with the product of two steps in the sum "
        "where the square of one is printed; the larger is shown. With constant steps they are the same.",
        "The mean gap is that of the steps of Theorem 1; in Corollary 1 the gap cancels.",
    ]
    return Output(pd.DataFrame(rows), _drawn(found), claims(found), notes)


def _drawn(found: pd.DataFrame) -> Picture:
    drawn, (panels,) = canvas(1, 2, width=11, height=5)
    cases = found.groupby(["objective", "num_workers"], sort=False)
    for ((objective, workers), of_case), shade in zip(cases, itertools.cycle(PALETTE), strict=False):
        name, marker = f"{objective}, {workers} workers", "o" if objective == "quadratic" else "s"
        curve = of_case[of_case.bound == THEOREM].iloc[0]
        panels[0].plot(curve.after, np.array(curve.curve) / curve.scale, color=shade, label=name)
        panels[0].plot(curve.after, np.array(curve.limits) / curve.scale, color=shade, linestyle="--")
        points = of_case[of_case.bound == COROLLARY]
        height = [np.mean(values) / scale for values, scale in zip(points.ergodic, points.scale, strict=True)]
        panels[1].plot(points.examples, height, color=shade, marker=marker, linestyle="none", label=name)
    points = found[found.bound == COROLLARY].sort_values("examples")
    height = [values[0] / scale for values, scale in zip(points.limit, points.scale, strict=True)]
    panels[1].plot(points.examples, height, color=PAPER, linestyle="--", label="bound of Corollary 1")
    panels[0].plot([], [], color=PAPER, linestyle="--", label="bound (8) of each")
    panels[0].set(title=f"Theorem 1: rate divided by the gap, B = {found.batch_size[0]}", xlabel="updates k")
    panels[1].set(title="Corollary 1: steps of equation 9", xlabel="examples B K")
    panels[0].set_ylabel("mean squared gradient / L (f(theta_1) - f*)")
    for panel in panels:
        panel.set(xscale="log", yscale="log")
        panel.legend()
    return drawn


def claims(found: pd.DataFrame) -> list[Claim]:
    """Return the theorem, the corollary, and what the paper says of them."""

    def holds(of_bound: pd.DataFrame) -> Evidence:
        pairs = zip(of_bound.limit, of_bound.ergodic, strict=True)
        return all_of(above(np.array(limit) - np.array(measured)) for limit, measured in pairs)

    def margins(of_bound: pd.DataFrame) -> str:
        ratios = [np.mean(row.limit) / np.mean(row.ergodic) for row in of_bound.itertuples()]
        return f"the bound is {min(ratios):.1f} to {max(ratios):.1f} times what is measured, in {len(ratios)} cases"

    theorem, corollary = (found[found.bound == bound] for bound in (THEOREM, COROLLARY))
    most, slopes = theorem.condition.max(), {}
    for key, group in corollary.groupby(["objective", "num_workers"], sort=False):
        if group.examples.nunique() > 1:
            logs = np.log(np.array(group.ergodic.tolist()))
            slopes[key] = interval(np.polyfit(np.log(group.examples.to_numpy(float)), logs, 1)[0])
    points = corollary.groupby(["objective", "num_workers"]).examples.nunique().min()
    steepness = "; ".join(f"{name}, {workers} workers: {slope}" for (name, workers), slope in slopes.items())
    return [
        Claim(
            "the mean of E|grad f|^2, weighted with eta_k / G_k, is at most (8) if the learning rates satisfy (7)",
            "Theorem 1",
            ours=margins(theorem),
            holds=holds(theorem),
            premises=[Premise("(7): at most 1", f"at most {most:.2f}", most <= 1)],
        ),
        Claim(
            "with the steps of (9) and K as large as (10) says, the mean of E|grad f|^2 is at most "
            "4 sqrt((f(theta_1) - f*) L sigma^2 / (B K))",
            "Corollary 1",
            ours=margins(corollary),
            holds=holds(corollary),
        ),
        Claim(
            "condition (7) is then satisfied globally",
            "appendix B",
            ours=f"its left side is at most {corollary.condition.max():.2f}",
            holds=corollary.condition.max() <= 1,
            identity=True,
        ),
        Claim(
            "the convergence rate achieves O(1 / sqrt(B K)), which is consistent with SGD",
            "section 5.2",
            ours=f"exponent of B K: {steepness}",
            holds=all_of(below(slope, THEOREM1_EXPONENT) for slope in slopes.values()),
            premises=[enough("values of B K", points, POINTS, share=1)],
        ),
    ]
