"""What each cause costs: the share of full synchrony's time that mending it alone, or after all the others, saves."""

import dataclasses
from collections.abc import Callable, Collection, Sequence

import numpy as np

from sgdlab.stragglers import repairs
from sgdlab.stragglers.diagnosis.history import LARGE
from sgdlab.stragglers.repairs import AtMedian

Repair = Callable[[np.ndarray], np.ndarray]
"""From run-times, float64[T, N], to those without a cause."""


@dataclasses.dataclass(frozen=True)
class Weights:
    """Holds what the repairs save, as shares of full synchrony's time.

    Attributes:
      alone: of each repair, made alone.
      last: of each repair, made after all the others.
      chance: of every worker taking at most the median of its step, after all the repairs.
    """

    alone: tuple[float, ...]
    last: tuple[float, ...]
    chance: float


def weigh_repairs(
    made: Sequence[Repair], runtimes: np.ndarray, transfer: np.ndarray, single: Collection[int] = ()
) -> Weights:
    """Weighs repairs.

    Args:
      made: the repairs, in the order in which they are made.
      runtimes: float64[T, N], seconds.
      transfer: float64[T], seconds.
      single: indices of the repairs that shorten single run-times of a step, rather than its longest ones first.
    """
    mended = runtimes
    for repair in made:
        mended = repair(mended)
    now, least = _seconds(runtimes, transfer), _seconds(mended, transfer)
    if _columns_suffice(made, runtimes, single):
        alone, others = _by_columns(made, runtimes, transfer)
    else:
        alone = [_seconds(repair(runtimes), transfer) for repair in made]
        others = _without_each(made, runtimes, transfer)
    medians = _seconds(repairs.all_at_median(mended), transfer)
    return Weights(
        tuple(1 - seconds / now for seconds in alone),
        tuple((seconds - least) / now for seconds in others),
        (least - medians) / now,
    )


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


def _columns_suffice(made: Sequence[Repair], runtimes: np.ndarray, single: Collection[int]) -> bool:
    """Return whether no worker at the median of the others can be the slowest of its step.

    The median of the others is at most the longest run-time of the workers that are in no group, if these are more than
    half of all. Repairs that come afterwards keep that order, if they shorten all workers of a step in the same way;
    those of single run-times are taken to do so in large recordings.
    """
    groups = [repair for repair in made if isinstance(repair, AtMedian)]
    first = all(isinstance(repair, AtMedian) for repair in made[: len(groups)])
    grouped = sum(len(group.workers) for group in groups)
    distinct = len({worker for group in groups for worker in group.workers}) == grouped
    enough = runtimes.shape[1] - grouped >= runtimes.shape[1] // 2 + 1
    return bool(groups) and first and distinct and enough and (not single or runtimes.size >= LARGE)


def _by_columns(made: Sequence[Repair], runtimes: np.ndarray, transfer: np.ndarray) -> tuple[list[float], list[float]]:
    """Seconds of all steps with each repair alone, and with all but each, from the longest run-times of each group."""
    groups = [repair for repair in made if isinstance(repair, AtMedian)]
    later = made[len(groups) :]

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
