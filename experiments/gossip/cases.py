"""The cases in which the bounds for gossip are checked, and their simulation; each finished case has its own file."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from experiments.gossip import quadratic
from experiments.gossip.quadratic import MODES, ROUNDS, TICKS
from sgdlab.results.directory import RunDirectory

PROBLEM = quadratic.Quadratic(np.geomspace(1.0, 10.0, 4), variance=1.0)
SHARED = {"curvature": PROBLEM.curvature.tolist(), "variance": PROBLEM.variance, "modes": list(MODES)}
"""The configuration that all cases share."""
FRACTIONS = (1.0, 0.3, 0.1)
"""Step sizes as shares of the largest one that the theorem allows."""
SMALL = 0.01
"""Step size so small that averaging dominates, as such a share."""
DECAYS = 5.0
"""The first term of the bound falls to exp(-DECAYS) of its initial value in a run."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One case, over which `runs` runs are averaged.

    Attributes:
      mode: one of `MODES`.
      num_nodes: p.
      fraction: step size alpha as a share of the largest one that the theorem allows.
      start: initial parameters: "together", all nodes at one point away from the minimum; "apart", scattered around
        that point; "around", scattered around the minimum; "minimum", all at the minimum.
      steps: number of ticks or rounds.
      runs: number of seeds.
    """

    mode: str
    num_nodes: int
    fraction: float
    start: str
    steps: int
    runs: int

    @property
    def name(self) -> str:
        """The name of the case's file."""
        return f"{self.mode}-t{self.steps}-p{self.num_nodes}-alpha{self.fraction:g}-{self.start}-seeds{self.runs}"

    @property
    def alpha(self) -> float:
        """The step size alpha."""
        return self.fraction * PROBLEM.largest_step

    def first(self) -> np.ndarray:
        """float64[p, d]: the parameters in the nodes' memory before the first tick."""
        shape = (self.num_nodes, PROBLEM.curvature.size)
        scatter = np.random.default_rng(0).standard_normal(
            shape
        )  # the same in all runs: the theorem takes theta_0 as given
        return (self.start in ("together", "apart")) * np.ones(shape) + (self.start in ("apart", "around")) * scatter


def bound_cases(num_nodes: Sequence[int], runs: int) -> list[Case]:
    """The cases in which the bounds are checked."""
    rounds = [math.ceil(DECAYS / (2 * f * PROBLEM.largest_step * PROBLEM.harmonic)) for f in FRACTIONS]
    return [
        Case(mode, p, fraction, start, count * (1 if mode == ROUNDS else p), runs)
        for mode in MODES
        for p in num_nodes
        for fraction, count in zip(FRACTIONS, rounds, strict=True)
        for start in ("together", "apart")
    ]


def contraction_cases(num_nodes: Sequence[int], runs: int) -> list[Case]:
    """The cases in which there are no steps, or such small ones that the contraction by averaging dominates."""
    settings = ((0.0, "around", 6), (SMALL, "around", 6), (SMALL, "minimum", 40))
    return [Case(TICKS, p, fraction, start, ticks * p, runs) for fraction, start, ticks in settings for p in num_nodes]


def simulate(cases: Sequence[Case], directory: RunDirectory) -> dict[Case, quadratic.Measured]:
    """Simulates the cases that are not in the directory yet, printing progress; returns the results of all cases."""
    missing = [case for case in cases if directory.read(case.name) is None]
    missing.sort(key=_schedules)  # cases that share schedules are simulated one after the other
    if len(missing) < len(cases):
        print(f"{len(cases) - len(missing)} finished cases found, {len(missing)} to do", flush=True)
    drawn: dict[tuple[str, int], quadratic.Partners] = {}
    for number, case in enumerate(missing, start=1):
        key = _schedules(case)
        if key not in drawn:
            longest = max(other.steps for other in missing if _schedules(other) == key)
            drawn.clear()  # schedules of earlier cases are not needed again
            drawn[key] = quadratic.partners(
                case.mode, num_nodes=case.num_nodes, num_steps=longest, runs=case.runs, seed=0
            )
        measured = quadratic.measure(
            drawn[key],
            PROBLEM,
            start=case.first(),
            alpha=case.alpha,
            steps=case.steps,
            looks=looks(case.steps),
            seed=1,
            instantaneous=case.mode == TICKS,
        )
        columns = {name: np.asarray(value).tolist() for name, value in dataclasses.asdict(measured).items()}
        directory.write(case.name, [{"kind": "summary", "case": dataclasses.asdict(case), **columns}])
        print(f"[{number}/{len(missing)}] {case.name}", flush=True)
    return {case: read(directory, case) for case in cases}


def _schedules(case: Case) -> tuple[str, int]:
    return case.mode, case.num_nodes


def read(directory: RunDirectory, case: Case) -> quadratic.Measured:
    """Reads the results of a finished case."""
    (record,) = directory.read(case.name)
    columns = {field.name: record[field.name] for field in dataclasses.fields(quadratic.Measured)}
    return quadratic.Measured(
        **{name: np.array(value) if isinstance(value, list) else value for name, value in columns.items()}
    )


def looks(steps: int) -> list[int]:
    """Numbers of ticks or rounds after which to measure: dense at the beginning, and evenly spaced to the end."""
    early = np.geomspace(1, max(steps, 1), 60).round()
    return np.unique(np.concatenate([[0], early, np.linspace(0, steps, 100).round()]).astype(int)).tolist()
