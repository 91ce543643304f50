"""The diagnosis of a recording: who is slow, since when, how much, whether it still is, and what that costs."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from sgdlab.stragglers import repairs
from sgdlab.stragglers.diagnosis import blame, stages
from sgdlab.stragglers.diagnosis.causes import Cause
from sgdlab.stragglers.diagnosis.history import Episode
from sgdlab.stragglers.diagnosis.pauses import Pauses
from sgdlab.stragglers.diagnosis.stages import Frontier
from sgdlab.stragglers.repairs import AtMedian, Repair
from sgdlab.traces import Recording

LEAST_SHARE, LEAST_SHARE_OF_SLIGHT = 0.002, 0.01
"""Least share of full synchrony's time that a cause costs, on average of mending it alone and after all the others; the
second one for causes of a factor below `SLIGHT`."""

SLIGHT = 1.1

MOST = 12
"""Most causes."""

LARGE = 2_000_000
"""Compute times from which what repairs save is computed by the longest compute times alone, many times faster."""

_PAIRS = 5
"""Smallest number of pairs of consecutive recorded steps from which the correlation is estimated."""


@dataclasses.dataclass(frozen=True, eq=False)
class Diagnosis:
    """Holds what was found in the complete steps of a recording.

    Attributes:
      causes: what slows full synchrony, what costs most of the steps in which it shows first; empty if nothing
        stands out.
      histories: for each worker the stretches of steps in which it was slow; empty if it never was.
      memory: correlation between consecutive steps of a worker's relative compute time, less the worker's own mean;
        None if too few recorded steps are consecutive.
      pairs: number of pairs of consecutive steps that `memory` is estimated from.
      frontier: where the time of a step goes, by stage and worker; None where no stage is known to contain the wait.
    """

    causes: tuple[Cause, ...]
    histories: tuple[tuple[Episode, ...], ...]
    memory: float | None
    pairs: int
    frontier: Frontier | None = None

    @property
    def machines(self) -> tuple[Cause, ...]:
        """Return the causes that are machines which are still slow: the candidates for leaving out."""
        return tuple(cause for cause in self.causes if cause.lasting)


def find_causes(complete: Recording, pauses: Pauses) -> Diagnosis:
    """Finds the causes in the complete steps of a recording."""
    suspects, histories = blame.find_suspects(complete, pauses)
    following = np.flatnonzero(np.diff(complete.steps) == 1)
    memory = _memory(complete, following) if following.size >= _PAIRS else None
    frontier = stages.find_frontier(complete)
    found = tuple(stages.located(cause, complete, frontier) for cause in _weighed(suspects, complete))
    return Diagnosis(found, histories, memory, int(following.size), frontier)


def _weighed(suspects: Sequence[Cause], complete: Recording) -> tuple[Cause, ...]:
    """Give the causes their shares, what costs most while it lasts first.

    Two equally slow workers gain nothing if only one is mended, and everything if it is mended last: what a cause costs
    is the mean of both shares.
    """
    made = [cause.repair for cause in suspects if cause.repair is not None]
    shares, causes = weigh_repairs(made, complete.runtimes, complete.transfer()), []
    for cause, (alone, last) in zip(suspects, shares, strict=True):
        if (alone + last) / 2 >= (LEAST_SHARE if cause.factor >= SLIGHT else LEAST_SHARE_OF_SLIGHT):
            causes.append(dataclasses.replace(cause, share=alone, last_share=last))
    causes.sort(key=lambda cause: -(cause.share + cause.last_share))
    # What is short and grave is not hidden behind what is mild and lasts.
    return tuple(sorted(causes[:MOST], key=lambda cause: -cause.intensity(len(complete.steps))))


def weigh_repairs(made: Sequence[Repair], runtimes: np.ndarray, transfer: np.ndarray) -> list[tuple[float, float]]:
    """Weighs repairs.

    Args:
      made: the repairs, in the order in which they are made; first those of disjoint groups of workers.
      runtimes: float64[T, N], seconds.
      transfer: float64[T], seconds.

    Returns:
      Of each, the shares of full synchrony's time that it saves alone, and after all the others.
    """
    now, least = _seconds(runtimes, transfer), _seconds(repairs.in_turn(runtimes, made), transfer)
    groups = [repair for repair in made if isinstance(repair, AtMedian)]
    # The median of the others is at most the longest compute time of the workers that are in no group, if these are
    # more than half of all: no worker at that median can be the slowest of its step. In large recordings, the repairs
    # that come afterwards are taken to leave the order of the workers of a step as it is.
    few = sum(len(group.workers) for group in groups) < (runtimes.shape[1] + 1) // 2
    if groups and few and runtimes.size >= LARGE:
        alone, others = _by_columns(groups, made[len(groups) :], runtimes, transfer)
    else:
        alone = [_seconds(repair(runtimes), transfer) for repair in made]
        others = _without_each(made, runtimes, transfer)
    return [(1 - one / now, (other - least) / now) for one, other in zip(alone, others, strict=True)]


def _seconds(runtimes: np.ndarray, transfer: np.ndarray) -> float:
    return float(repairs.synchronous_seconds(runtimes, transfer).sum())


def _without_each(made: Sequence[Repair], runtimes: np.ndarray, transfer: np.ndarray) -> list[float]:
    result, before = [], runtimes
    for i, repair in enumerate(made):
        result.append(_seconds(repairs.in_turn(before, made[i + 1 :]), transfer))
        before = repair(before)
    return result


def _by_columns(
    groups: Sequence[AtMedian], later: Sequence[Repair], runtimes: np.ndarray, transfer: np.ndarray
) -> tuple[list[float], list[float]]:
    """Seconds of all steps with each repair alone, and with all but each, from the longest times of each group."""
    cells = [np.ix_(np.arange(len(runtimes))[group.rows], group.workers) for group in groups]
    outside = runtimes.copy()  # of the workers that no group repairs; later repairs leave what is infinite as it is
    for of_group in cells:
        outside[of_group] = -np.inf

    def longest(times: np.ndarray) -> np.ndarray:
        """Return float64[len(groups), T], of each group in its rows."""
        own = np.full((len(groups), len(times)), -np.inf)
        for of_group, row in zip(cells, own, strict=True):
            row[of_group[0][:, 0]] = times[of_group].max(axis=1)
        return own

    def seconds(outside: np.ndarray, own: np.ndarray) -> float:
        return _seconds(np.vstack([outside.max(axis=1), own]).T, transfer)

    own = longest(runtimes)
    alone = [seconds(outside, np.delete(own, i, axis=0)) for i in range(len(groups))]
    alone += [_seconds(repair(runtimes), transfer) for repair in later]
    mended = repairs.in_turn(outside, later)
    others = [seconds(mended, own) for own in longest(repairs.in_turn(runtimes, later))]
    return alone, others + _without_each(later, outside, transfer)


def _memory(complete: Recording, following: np.ndarray) -> float:
    deviation = complete.runtimes / complete.medians[:, None]
    deviation -= deviation.mean(axis=0)
    covariance = (deviation[following] * deviation[following + 1]).mean()
    variance = (deviation**2).mean()
    return float(covariance / variance) if variance > 0 else 0.0
