"""What each cause costs: the share of full synchrony's time that mending it alone, or after all the others, saves."""

from collections.abc import Callable, Sequence

import numpy as np

from sgdlab.stragglers import repairs
from sgdlab.stragglers.repairs import AtMedian

Repair = Callable[[np.ndarray], np.ndarray]
"""From run-times, float64[T, N], to those without a cause."""


def weigh_repairs(made: Sequence[Repair], runtimes: np.ndarray, transfer: np.ndarray) -> list[tuple[float, float]]:
    """Weighs repairs.

    Args:
      made: the repairs, in the order in which they are made; first those of disjoint groups of workers.
      runtimes: float64[T, N], seconds.
      transfer: float64[T], seconds.

    Returns:
      Of each, the shares of full synchrony's time that it saves alone, and after all the others.
    """
    mended = runtimes
    for repair in made:
        mended = repair(mended)
    now, least = _seconds(runtimes, transfer), _seconds(mended, transfer)
    groups = [repair for repair in made if isinstance(repair, AtMedian)]
    # The median of the others is at most the longest run-time of the workers that are in no group, if these are more
    # than half of all: no worker at that median can be the slowest of its step. The other repairs, which come
    # afterwards, hardly change the order of the workers of a step.
    if groups and sum(len(group.workers) for group in groups) < (runtimes.shape[1] + 1) // 2:
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
        others = before
        for other in made[i + 1 :]:
            others = other(others)
        result.append(_seconds(others, transfer))
        before = repair(before)
    return result


def _by_columns(
    groups: Sequence[AtMedian], later: Sequence[Repair], runtimes: np.ndarray, transfer: np.ndarray
) -> tuple[list[float], list[float]]:
    """Seconds of all steps with each repair alone, and with all but each, from the longest run-times of each group."""

    def longest(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """float64[T] of the workers that no group repairs, float64[len(groups), T] of each group where repaired."""
        outside, own = times.copy(), np.full((len(groups), len(times)), -np.inf)
        for i, group in enumerate(groups):
            cells = np.ix_(np.arange(len(times))[slice(None) if group.rows is None else group.rows], group.workers)
            own[i, cells[0][:, 0]] = times[cells].max(axis=1)
            outside[cells] = -np.inf
        return outside.max(axis=1), own

    def seconds(outside: np.ndarray, own: np.ndarray) -> float:
        return float((np.maximum(outside, own.max(axis=0, initial=-np.inf)) + transfer).sum())

    outside, own = longest(runtimes)
    alone = [seconds(outside, np.delete(own, i, axis=0)) for i in range(len(groups))]
    alone += [_seconds(repair(runtimes), transfer) for repair in later]
    times = runtimes
    for repair in later:
        times = repair(times)
    outside, own = longest(times) if later else (outside, own)
    others = [seconds(outside, own[i : i + 1]) for i in range(len(groups))]
    for i in range(len(later)):
        times = runtimes
        for j, repair in enumerate(later):
            times = repair(times) if i != j else times
        others.append(seconds(longest(times)[0], own[:0]))
    return alone, others
