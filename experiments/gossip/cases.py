"""The cases in which the bounds for gossip are checked, and the simulation of one."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.gossip import quadratic
from experiments.gossip.quadratic import PROCESSES, ROUNDS, RUN_TIMES, TICKS, Quadratic
from experiments.harness import goes_by
from sgdlab import cluster, protocols

PROBLEM = Quadratic(np.geomspace(1.0, 10.0, 4), variance=1.0)
SMALL = 0.01
"""Step size so small that averaging dominates, as a share of the largest one that the theorem allows."""
DECAYS = 5.0
"""The first term of the bound falls to exp(-DECAYS) of its initial value in a run."""
DRAWN = 152
"""Rounds, or ticks per node, for which schedules are drawn at least: as many as a tenth of the largest step takes."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One case.

    Attributes:
      process: one of `PROCESSES`.
      num_nodes: p.
      fraction: step size alpha as a share of the largest one that the theorem allows.
      start: initial parameters: "together", all nodes at one point away from the minimum; "apart", scattered around
        that point; "around", scattered around the minimum; "minimum", all at the minimum; "contributions", the
        identity matrix less 1 / p. Averaged, this is how much each node's first parameters contribute to those of each
        node, less 1 / p: the sum of its squares is the diffusion potential.
      steps: number of ticks or rounds.
    """

    process: str
    num_nodes: int
    fraction: float
    start: str
    steps: int

    @property
    def alpha(self) -> float:
        """Return the step size alpha."""
        return self.fraction * PROBLEM.largest_step

    @property
    def problem(self) -> Quadratic:
        """Return the objective; what nodes contribute has a coordinate for each node, and no noise."""
        return Quadratic(np.ones(self.num_nodes), variance=0.0) if self.start == "contributions" else PROBLEM

    def first(self) -> np.ndarray:
        """float64[p, d]: the parameters in the nodes' memory before the first tick."""
        if self.start == "contributions":
            return np.eye(self.num_nodes) - 1.0 / self.num_nodes
        shape = (self.num_nodes, PROBLEM.curvature.size)
        scatter = np.random.default_rng(0).standard_normal(shape)  # the same in all runs: theta_0 is given
        return (self.start in ("together", "apart")) * np.ones(shape) + (self.start in ("apart", "around")) * scatter

    def when(self) -> list[int]:
        """Numbers of ticks or rounds after which to measure: dense at the beginning, and evenly spaced to the end."""
        if self.start == "contributions":
            return list(range(0, self.steps + 1, 1 if self.process == ROUNDS else self.num_nodes))
        early = np.geomspace(1, self.steps, 60).round()
        return np.unique(np.concatenate([[0], early, np.linspace(0, self.steps, 100).round()]).astype(int)).tolist()


def bound_cases(num_nodes: Sequence[int], fractions: Sequence[float]) -> list[Case]:
    """Return the cases in which the bounds are checked."""
    rounds = {f: math.ceil(DECAYS / (2 * f * PROBLEM.largest_step * PROBLEM.harmonic)) for f in fractions}
    return [
        Case(process, p, fraction, start, rounds[fraction] * (1 if process == ROUNDS else p))
        for process in PROCESSES
        for p in num_nodes
        for fraction in fractions
        for start in ("together", "apart")
    ]


def contraction_cases(num_nodes: Sequence[int]) -> list[Case]:
    """Return the cases in which there are no steps, or such small ones that the contraction by averaging dominates."""
    settings = ((0.0, "around", 6), (SMALL, "around", 6), (SMALL, "minimum", 40))
    return [
        Case(process, p, fraction, start, ticks * p)
        for process in (TICKS, RUN_TIMES)
        for fraction, start, ticks in settings
        for p in num_nodes
    ]


def diffusion_cases(num_nodes: Sequence[int], rounds: int) -> list[Case]:
    """Return the cases that show what nodes contribute to each other by averaging alone."""
    return [
        Case(process, p, 0.0, "contributions", rounds * (1 if process == ROUNDS else p))
        for process in (ROUNDS, TICKS)
        for p in num_nodes
    ]


@goes_by(protocols.gossip, cluster.exponential)
def simulated(*, process: str, num_nodes: int, fraction: float, start: str, steps: int, runs: int) -> dict[str, Any]:
    """Simulates a case, and computes its exact expectations.

    Args:
      process: see `Case`, as for the next four.
      num_nodes: p.
      fraction: of the largest step.
      start: initial parameters.
      steps: number of ticks or rounds.
      runs: number of runs that are averaged.

    Returns:
      `step`, the numbers of ticks or rounds at which is measured; what `quadratic.measure` returns; and, with
      "expected_" before their names, what `quadratic.expected` does.
    """
    case = Case(process, num_nodes, fraction, start, steps)
    shared = {"start": case.first(), "alpha": case.alpha, "when": case.when()}
    drawn = _partners(process, num_nodes, max(steps, DRAWN * (1 if process == ROUNDS else num_nodes)), runs)
    measured = quadratic.measure(drawn, case.problem, **shared, seed=1, instantaneous=process == TICKS)
    exact = quadratic.expected(case.problem, **shared, process=process)
    columns = measured | {f"expected_{name}": values for name, values in exact.items()}
    return {"step": case.when()} | {name: values.tolist() for name, values in columns.items()}


@functools.lru_cache(maxsize=1)
def _partners(process: str, num_nodes: int, steps: int, runs: int) -> quadratic.Partners:
    """Drawn for the longest case, since their first steps do not depend on the number of steps."""
    return quadratic.partners(process, num_nodes=num_nodes, num_steps=steps, runs=runs, seed=0)


def push_sum(*, num_nodes: int, rounds: int, runs: int) -> dict[str, list[float]]:
    r"""Return the diffusion potential of push-sum, in which every node sends half of what it has to a random node.

    With v_ij what node i has of node j's first value, and w_i = sum_j v_ij its weight,

    .. math:: \Phi = \sum_{ij} \left(v_{ij} - \frac{w_i}{p}\right)^2

    Args:
      num_nodes: p.
      rounds: number of rounds.
      runs: number of runs that are averaged.

    Returns:
      `potential`, its mean before the first round and after each, and `error`, the standard errors.

    Source: Kempe, Dobra and Gehrke 2003, "Gossip-based computation of aggregate information", section 2.
    """
    generator, has = np.random.default_rng(0), np.tile(np.eye(num_nodes), (runs, 1, 1))
    potentials = []
    for step in range(rounds + 1):
        weight = has.sum(axis=2, keepdims=True)
        potentials.append(np.square(has - weight / num_nodes).sum(axis=(1, 2)))
        if step < rounds:
            to = np.eye(num_nodes)[generator.integers(num_nodes, size=(runs, num_nodes))]
            has = 0.5 * (has + to.transpose(0, 2, 1) @ has)
    error = np.std(potentials, axis=1, ddof=1) / np.sqrt(runs)
    return {"potential": np.mean(potentials, axis=1).tolist(), "error": error.tolist()}
