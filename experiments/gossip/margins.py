"""How much room every bound for gossip leaves above what has been measured."""

import dataclasses

import numpy as np

from experiments.gossip import inequalities
from experiments.gossip.cases import PROBLEM, Case
from experiments.gossip.quadratic import ROUNDS, RUN_TIMES, TICKS, Measured

ERRORS = 4.0
"""A bound is said to fail where the measured mean is so many of its standard errors above it."""


@dataclasses.dataclass(frozen=True)
class Margin:
    """Bound over measured value where that is smallest.

    Attributes:
      value: the ratio.
      step: when.
      errors: how far the measured mean is above the bound there, in its standard errors; 0 where it is not.
    """

    value: float
    step: int
    errors: float

    @property
    def fails(self) -> bool:
        """Beyond what sampling explains."""
        return self.errors > ERRORS

    def __str__(self) -> str:
        return f"{self.value:.4g} @ {self.step}" + " FAILS" * self.fails


def smallest(step: np.ndarray, bound: np.ndarray, measured: np.ndarray, error: np.ndarray) -> Margin:
    """Looks at which the measured value is 0 say nothing."""
    positive = measured > 0
    ratio = np.where(positive, bound / np.where(positive, measured, 1.0), np.inf)
    place = int(ratio.argmin())
    above = max(float(measured[place] - bound[place]), 0.0)
    errors = above / float(error[place]) if above > 1e-9 * measured[place] else 0.0
    return Margin(float(ratio[place]), int(step[place]), errors)


def distance_bound(case: Case, measured: Measured) -> np.ndarray:
    """float64[K], what the theorem allows."""
    return inequalities.distance_bound(
        PROBLEM,
        step=measured.step,
        first=measured.distance[0],
        alpha=case.alpha,
        num_nodes=case.num_nodes,
        synchronous=case.mode == ROUNDS,
    )


def corrected_bound(case: Case, measured: Measured) -> np.ndarray:
    """float64[K], what nodes with run-times can be held to."""
    return inequalities.corrected_distance_bound(
        PROBLEM, step=measured.step, first=measured.distance[0], alpha=case.alpha, num_nodes=case.num_nodes
    )


def consensus_bound(
    case: Case, measured: Measured, *, printed: bool = False, mean_gradient: bool = False
) -> np.ndarray:
    """float64[K], what the theorem allows with one of the lambdas and one of the meanings of c."""
    return inequalities.consensus_bound(
        PROBLEM,
        step=measured.step,
        first=measured.consensus[0],
        alpha=case.alpha,
        num_nodes=case.num_nodes,
        gradient=measured.gradient_of_steps if mean_gradient else measured.gradient.max(),
        printed=printed,
    )


def at_the_end(case: Case, measured: Measured) -> float:
    """The printed distance bound over the measured value at the end of the run: at its beginning they nearly agree."""
    return float(distance_bound(case, measured)[-1] / measured.distance[-1])


def margins(case: Case, measured: Measured) -> dict[str, Margin]:
    """Of every bound that speaks of the case; on consensus the paper has none for rounds."""
    distances = {"distance": distance_bound(case, measured)}
    consensuses = {}
    if case.mode == RUN_TIMES:
        distances["corrected"] = corrected_bound(case, measured)
    if case.mode == TICKS:
        consensuses = {
            "consensus": consensus_bound(case, measured),
            "mean gradient": consensus_bound(case, measured, mean_gradient=True),
            "printed": consensus_bound(case, measured, printed=True),
        }
    return {
        name: smallest(measured.step, bound, measured.distance, measured.distance_error)
        for name, bound in distances.items()
    } | {
        name: smallest(measured.step, bound, measured.consensus, measured.consensus_error)
        for name, bound in consensuses.items()
    }
