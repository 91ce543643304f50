"""Ratios of the bounds for gossip and the measured values, and where each bound is closest to the measured value."""

import dataclasses

import numpy as np

from experiments.gossip import inequalities
from experiments.gossip.cases import PROBLEM, Case
from experiments.gossip.quadratic import ROUNDS, RUN_TIMES, TICKS, Measured

ERRORS = 4.0
"""A bound fails where the measured mean is above it by more than this number of standard errors."""


@dataclasses.dataclass(frozen=True)
class Margin:
    """The smallest ratio of a bound and the measured value in a run.

    Attributes:
      value: the ratio.
      step: tick or round at which it is smallest.
      errors: standard errors by which the measured mean is above the bound at this step; 0 if it is below.
    """

    value: float
    step: int
    errors: float

    @property
    def fails(self) -> bool:
        """Whether the measured mean is above the bound by more than sampling explains."""
        return self.errors > ERRORS

    def __str__(self) -> str:
        return f"{self.value:.4g} @ {self.step}" + " FAILS" * self.fails


def smallest(step: np.ndarray, bound: np.ndarray, measured: np.ndarray, error: np.ndarray) -> Margin:
    """The smallest ratio of bound and measured value; steps at which the measured value is 0 are ignored.

    Args:
      step: int64[K], ticks or rounds.
      bound: float64[K].
      measured: float64[K], means over runs.
      error: float64[K], their standard errors.
    """
    positive = measured > 0
    ratio = np.where(positive, bound / np.where(positive, measured, 1.0), np.inf)
    index = int(ratio.argmin())
    above = max(float(measured[index] - bound[index]), 0.0)
    errors = above / float(error[index]) if above > 1e-9 * measured[index] else 0.0
    return Margin(float(ratio[index]), int(step[index]), errors)


def distance_bound(case: Case, measured: Measured) -> np.ndarray:
    """float64[K], the theorem's bound on the distance from the minimum."""
    return inequalities.distance_bound(
        PROBLEM,
        step=measured.step,
        first=measured.distance[0],
        alpha=case.alpha,
        num_nodes=case.num_nodes,
        synchronous=case.mode == ROUNDS,
    )


def corrected_bound(case: Case, measured: Measured) -> np.ndarray:
    """float64[K], the corrected bound on the distance from the minimum, for nodes with run-times."""
    return inequalities.corrected_distance_bound(
        PROBLEM, step=measured.step, first=measured.distance[0], alpha=case.alpha, num_nodes=case.num_nodes
    )


def consensus_bound(
    case: Case, measured: Measured, *, printed: bool = False, mean_gradient: bool = False
) -> np.ndarray:
    """float64[K], the theorem's bound on the disagreement of the nodes.

    Args:
      case: the case.
      measured: its results.
      printed: whether to use the printed lambda instead of the appendix's.
      mean_gradient: whether c is the root mean square over the steps instead of the largest mean in the run.
    """
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
    """Ratio of the printed distance bound and the measured value at the end of the run; at t = 0 it is near 1."""
    return float(distance_bound(case, measured)[-1] / measured.distance[-1])


def margins(case: Case, measured: Measured) -> dict[str, Margin]:
    """The margin of each bound that applies to the case; the paper has no consensus bound for rounds."""
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
