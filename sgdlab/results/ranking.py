"""Methods at one number of workers ranked by time to the target or by the metric, paired by seed, with ties as ties."""

import collections
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sgdlab.report.words import counted
from sgdlab.results import simultaneous
from sgdlab.results.summary import Group

FEWEST = 3
"""Seeds; with fewer nothing is decided."""

MISS = 2.0
"""Times the longest run that a run takes which misses the target."""

AT_ONCE = 1e-9
"""Virtual seconds, at least, of a run to the target."""


@dataclasses.dataclass(frozen=True)
class Ranking:
    """Groups that are compared with the same seeds."""

    groups: tuple[Group, ...]  # those that are compared, the best mean first
    values: np.ndarray  # float64[groups, seeds], what their means are taken of
    standing: simultaneous.Standing  # of the groups, in this order
    seeds: tuple[int, ...]  # with which all of them were run
    left_out: tuple[Group, ...]  # groups with other seeds, which cannot be paired

    @property
    def decides(self) -> bool:
        """Return if there are seeds enough to tell anything apart."""
        return len(self.seeds) >= FEWEST

    @property
    def undecided(self) -> str:
        """Return that nothing is decided, as the end of a sentence."""
        return f"with {counted(len(self.seeds), 'seed')} no difference is decided"

    @property
    def first(self) -> list[Group]:
        """Those that are statistically indistinguishable from the best; with too few seeds, all."""
        return [group for group, first in zip(self.groups, self.standing.first, strict=True) if first]

    def is_first(self, group: Group) -> bool:
        """Return whether a group is one of the first, and not only since nothing is decided."""
        return self.decides and any(group is one for one in self.first)

    def ratio(self, group: Group) -> tuple[float, float, float] | None:
        """Return how many times the value of the best a group has, and the simultaneous interval of that.

        For values that are logarithms. The interval has no end where nothing is decided; None for a group that is not
        compared.
        """
        at = next((index for index, one in enumerate(self.groups) if one is group), None)
        if at is None:
            return None
        difference, half = float(self.standing.difference[at]), float(self.standing.half[at])
        return math.exp(difference), math.exp(difference - half), float(np.exp(difference + half))


def by_time(groups: Sequence[Group]) -> Ranking | None:
    r"""Rank groups at one number of workers by the logarithm of their virtual seconds to the target.

    A run that diverged or misses the target counts as one of twice the seconds of the longest run with its seed: a
    method that misses often is slow, however soon its other runs are there.

    Returns:
      The ranking; None where no run of them reaches a target.

    Raises:
      ValueError: where groups have different numbers of workers.
    """
    _check(groups)
    compared, seeds, left_out = _paired(groups)
    seconds = np.array([times(group.summaries) for group in compared])
    reached = np.isfinite(seconds)
    if not reached.any() or compared[0].target is None:
        return None
    lengths = np.array([[summary.get("seconds") or 0.0 for summary in group.summaries] for group in compared])
    miss = MISS * np.maximum(lengths, np.where(reached, seconds, 0.0)).max(axis=0)
    return _ranked(compared, np.log(np.where(reached, seconds, miss)), seeds, left_out)


def by_metric(groups: Sequence[Group]) -> Ranking | None:
    """Rank groups at one number of workers by the metric on the test set, but for those of which some run diverged.

    Their means say nothing. An accuracy is known to one test example.

    Returns:
      The ranking; None where each has a run that diverged or has no value.

    Raises:
      ValueError: where groups have different numbers of workers.
    """
    _check(groups)
    compared, seeds, left_out = _paired([group for group in groups if not group.num_diverged and group.test])
    if not compared:
        return None
    metric = compared[0].metric
    values = np.array([[summary[metric.test] for summary in group.summaries] for group in compared], float)
    resolution = max((example(group) for group in compared), default=0.0)
    if metric.logarithmic and not metric.is_share and (values > 0).all():
        values = np.log(values)
    how = {"higher_is_better": metric.higher_is_better, "resolution": resolution}
    return _ranked(compared, values, seeds, left_out, **how)


def example(group: Group) -> float:
    """Return one test example as a share of all of them, for metrics that are shares of examples; else 0."""
    counts = [summary.get("test_examples") or 0 for summary in group.summaries]
    return 1 / min(counts) if group.metric.is_share and all(counts) else 0.0


def seconds_to_target(summary: Mapping[str, Any]) -> float | None:
    """Return the virtual seconds of a run to the target; None of one that diverged or misses it.

    They are at least `AT_ONCE`: an untrained network that is there has taken none, which has no logarithm.
    """
    seconds = None if summary["diverged"] else summary["seconds_to_target"]
    return None if seconds is None else max(seconds, AT_ONCE)


def times(summaries: Iterable[Mapping[str, Any]]) -> list[float]:
    """Return the virtual seconds of each run to the target, infinite for one that diverged or misses it."""
    found = map(seconds_to_target, summaries)
    return [math.inf if seconds is None else seconds for seconds in found]


def _paired(groups: Sequence[Group]) -> tuple[list[Group], tuple[int, ...], tuple[Group, ...]]:
    """Return the groups with the seeds that most groups have, the seeds, and the groups with others."""
    seeds = collections.Counter(group.seeds for group in groups)
    most = max(seeds, key=lambda key: (seeds[key], len(key)), default=())
    others = tuple(group for group in groups if group.seeds != most)
    return [group for group in groups if group.seeds == most], most, others


def _ranked(
    groups: Sequence[Group], values: np.ndarray, seeds: tuple[int, ...], left_out: tuple[Group, ...], **how: Any
) -> Ranking:
    means = values.mean(axis=1)
    order = np.argsort(-means if how.get("higher_is_better") else means, kind="stable")
    standing = simultaneous.compare(values[order], **how)
    return Ranking(tuple(groups[index] for index in order), values[order], standing, seeds, left_out)


def _check(groups: Sequence[Group]) -> None:
    counts = sorted({group.num_workers for group in groups})
    if len(counts) > 1:
        raise ValueError(f"groups: they have num_workers={counts}; they must have one number of workers")
