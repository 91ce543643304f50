"""The suspects of a recording: causes of slow steps, each with what mending it would make of the compute times.

Single slow compute times have an owner, or strike any worker by chance.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from sgdlab import arrays
from sgdlab.stragglers import repairs
from sgdlab.stragglers.diagnosis import change_points, grouping, history, slowdown
from sgdlab.stragglers.diagnosis.causes import ALL_SLOWER, DRIFT, HEAVY_TAIL, PAUSES, SLOW_NODE, SLOW_WORKER, Cause
from sgdlab.stragglers.diagnosis.grouping import SlowGroup
from sgdlab.stragglers.diagnosis.history import SLOWER, Episode, Histories
from sgdlab.stragglers.diagnosis.pauses import Pauses
from sgdlab.traces import Recording

HEAVY = 0.02
"""Least share of full synchrony's time that single slow compute times cost if tails are called heavy."""

_MOST = 16
"""Most groups of workers that are weighed."""

_DEVIATIONS = 5.0
"""Deviations above the median (from the upper quartile) from which a compute time is an outlier."""

_LEAST = 1.2
"""Smallest multiple of the usual from which a compute time is an outlier."""

_CERTAIN = 0.002
"""Probability that in a fleet whose outliers strike by chance any worker is called their owner."""

_TIMES = 4.0
"""An owner has at least so many times the outliers of the median worker."""

_FEWEST = 4

_BEYOND = 1.5
"""Least distance of an owner's median outlier from the usual, in units of the limit's: skewed noise ends sooner."""


@dataclasses.dataclass(frozen=True, eq=False)
class Tails:
    """Single slow compute times.

    Attributes:
      outlier: bool[T, N].
      owners: indices of the workers that have many more of them than the others.
      limit: float64[N], multiple of the step's usual compute time from which a compute time is an outlier.
    """

    outlier: np.ndarray
    owners: np.ndarray
    limit: np.ndarray


def find_outliers(relative: np.ndarray, slow: np.ndarray) -> Tails:
    r"""Finds single slow compute times.

    A compute time is an outlier if, relative to the usual of its step, it exceeds :math:`1 + 5 \sigma_i`, where
    :math:`\sigma_i` is the distance of the worker's upper quartile from 1 over that of the standard normal law, or the
    median of the workers' distances, or that of their upper tenths, whichever is largest. Workers are owners if a
    Poisson law with twice the typical number of the workers' outliers does not explain theirs,
    and half of theirs are 1.5 times as far from the usual as the limit.

    Args:
      relative: float64[T, N], compute times over the usual of their step.
      slow: bool[T, N], stretches in which workers are slow; they are not searched.

    Source: own definition.
    """
    quarter, tenth = np.quantile(relative[change_points.sampled(len(relative))], [0.75, 0.9], axis=0) - 1.0
    typical = max(float(np.median(quarter)) / 0.6745, float(np.median(tenth)) / 1.2816)
    limit = np.maximum(1.0 + _DEVIATIONS * np.maximum(quarter / 0.6745, typical), _LEAST)
    outlier = (relative > limit) & ~slow
    count = outlier.sum(axis=0)
    usual = (np.median(count) + np.mean(np.sort(count)[: max(count.size - 1, 1)])) / 2 + 0.5
    level = _CERTAIN / count.size
    owners = [
        worker
        for worker in np.flatnonzero(count >= max(_FEWEST, _TIMES * usual))
        if special.pdtrc(count[worker] - 1, 2 * usual) < level
        and np.median(relative[outlier[:, worker], worker]) - 1 >= _BEYOND * (limit[worker] - 1)
    ]
    return Tails(outlier, np.array(owners, int), limit)


def find_suspects(complete: Recording, pauses: Pauses) -> tuple[list[Cause], tuple[tuple[Episode, ...], ...]]:
    """Finds the suspects.

    Returns:
      Causes with their repairs, whose shares are not known yet; and of each worker the stretches of its slow steps.
    """
    kept = np.flatnonzero(~pauses.among(len(complete.steps)))
    if kept.size < change_points.LEAST:
        return [], ((),) * len(complete.workers)
    runtimes, nodes = complete.runtimes[kept], complete.nodes
    found = history.find_slow_stretches(runtimes, nodes, complete.medians[kept])
    relative = runtimes / found.usual[:, None]
    tail = find_outliers(relative, found.slow)
    episodes = [_with_single(own, tail, worker, relative) for worker, own in enumerate(found.episodes)]
    slow = history.among(episodes, len(kept))
    groups = grouping.find_groups(episodes, slow, nodes)
    groups.sort(key=lambda group: -sum(e.rows * (e.factor - 1) for e in group.episodes))
    rows = _Rows(complete, kept)
    suspects = [_of_group(group, found, relative, rows) for group in groups[:_MOST]]
    suspects += _of_fleet(found.usual, rows)
    if pauses.rows.size:
        suspects.append(_of_pauses(pauses, complete.steps))
    suspects += _of_tail(tail, slow, relative, rows)
    return suspects, tuple(rows.extended(own, (worker,)) for worker, own in enumerate(episodes))


class _Rows:
    """Rows of the steps without pauses, as rows of all complete steps."""

    def __init__(self, complete: Recording, kept: np.ndarray):
        self.runtimes, self.kept, self.medians = complete.runtimes, kept, complete.medians

    def extended(self, episodes: Sequence[Episode], workers: Sequence[int]) -> tuple[Episode, ...]:
        """Return episodes in rows of all steps, with the pauses at their ends in which their workers are slow too."""
        if not episodes:
            return ()
        excess = arrays.median(self.runtimes[:, list(workers)], axis=1) - self.medians
        result = []
        for episode in episodes:
            first, last = int(self.kept[episode.first]), int(self.kept[episode.last])
            before = int(self.kept[episode.first - 1]) if episode.first else -1
            after = int(self.kept[episode.last + 1]) if episode.last + 1 < self.kept.size else len(excess)
            half = arrays.median(excess[self.kept[episode.first : episode.last + 1]]) / 2
            while first - 1 > before and (before < 0 or excess[first - 1] > half):
                first -= 1
            while last + 1 < after and (after == len(excess) or excess[last + 1] > half):
                last += 1
            result.append(Episode(first, last, episode.factor))
        return tuple(result)


def _with_single(own: Sequence[Episode], tail: Tails, worker: int, relative: np.ndarray) -> tuple[Episode, ...]:
    """Return a worker's episodes, and its single slow steps if it has many more of them than the others."""
    if worker not in tail.owners:
        return tuple(own)
    single = [
        Episode(first, last, float(np.median(relative[first : last + 1, worker])))
        for first, last in history.runs(np.flatnonzero(tail.outlier[:, worker]))
    ]
    return tuple(sorted([*own, *single], key=lambda e: e.first))


def _of_group(group: SlowGroup, found: Histories, relative: np.ndarray, rows: _Rows) -> Cause:
    workers = list(group.workers)
    kept, _, _ = grouping.essential(group.episodes, len(relative))
    series = np.log(arrays.median(relative[:, workers], axis=1))
    deviation = float(arrays.median(found.noise.deviation[workers]))
    inside = np.concatenate([np.arange(e.first, e.last + 1) for e in kept])
    factor = float(arrays.median(relative[np.ix_(inside, workers)]))
    whole = rows.extended(kept, workers)
    _, since, until = grouping.essential(whole, len(rows.runtimes))
    kind = SLOW_NODE if group.node else SLOW_WORKER
    over = np.count_nonzero(arrays.median(relative[np.ix_(inside, workers)], axis=1) > 1)
    evidence = f"{factor:.2f} times the median of the others, and above it in {over} of {inside.size} steps"
    shape = slowdown.fit_trend(series, deviation, found.noise.critical)
    lasting = len(group.episodes) > 1 or len(kept) == 1
    if until is None and lasting and shape.rise is not None and shape.rise >= math.log(SLOWER):
        kind, since = DRIFT, int(rows.kept[shape.start])
        factor = math.exp(shape.fitted[-1])
        evidence = f"up to {factor:.2f} times the median of the others, at the end"
        whole = (Episode(since, len(rows.runtimes) - 1, factor),)
    elif len(whole) == 1 and until is None and since <= (1 - grouping.ALWAYS) * len(rows.runtimes):
        since = 0 if since <= 2 or since <= 0.01 * len(rows.runtimes) else since
    mended = np.concatenate([np.arange(e.first, e.last + 1) for e in whole])
    repair = repairs.AtMedian(group.workers, mended)
    return Cause(kind, group.workers, group.node, since, until, factor, 0.0, evidence, whole, repair=repair)


def _of_fleet(usual: np.ndarray, rows: _Rows) -> list[Cause]:
    found = slowdown.find_slowdown(usual)
    if not found.episodes:
        return []
    everyone = range(rows.runtimes.shape[1])
    divisor = np.interp(np.arange(len(rows.runtimes)), rows.kept, found.factor)[:, None]
    repair = functools.partial(repairs.faster, factor=divisor)
    if found.gradual:
        first = int(rows.kept[found.episodes[0].first])
        factor = found.episodes[0].factor
        whole = (Episode(first, len(rows.runtimes) - 1, factor),)
        evidence = f"{factor:.2f} times as long at the end"
        return [Cause(DRIFT, (), None, first, None, factor, 0.0, evidence, whole, repair=repair)]
    kept, _, _ = grouping.essential(grouping.calm(found.episodes), usual.size)
    whole = rows.extended(kept, everyone)
    _, since, until = grouping.essential(whole, len(rows.runtimes))
    factor = float(np.average([e.factor for e in kept], weights=[e.rows for e in kept]))
    evidence = f"{factor:.2f} times as long as before" if since else f"{factor:.2f} times as long as at its best"
    return [Cause(ALL_SLOWER, (), None, since, until, factor, 0.0, evidence, whole, repair=repair)]


def _of_pauses(pauses: Pauses, steps: np.ndarray) -> Cause:
    factor = 1 + float(np.median(pauses.extra)) / pauses.usual
    return Cause(PAUSES, (), None, None, None, factor, 0.0, pauses.describe(steps), repair=pauses.removed)


def _of_tail(tail: Tails, slow: np.ndarray, relative: np.ndarray, rows: _Rows) -> list[Cause]:
    """Name heavy tails that strike any worker, if they cost enough."""
    single = tail.outlier & ~slow
    limit = rows.runtimes[rows.kept]
    longest = limit.max(axis=1).sum()
    row, worker = np.nonzero(single)
    limit[row, worker] *= tail.limit[worker] / relative[row, worker]
    share = 1 - limit.max(axis=1).sum() / longest
    if not single.any() or share < HEAVY:
        return []
    everywhere = rows.runtimes.copy()
    everywhere[rows.kept] = limit
    factor = float(np.median(relative[single]))
    hit = np.count_nonzero(single.any(axis=0))
    who = "any worker" if hit > single.shape[1] / 2 else f"{hit} of the {single.shape[1]} workers"
    evidence = (
        f"single slow steps come by chance: {100 * single.mean():.2g} % of the compute times, of {who}, take "
        f"{factor:.2f} times the median of their step; no machine is to blame, and waiting for fewer workers helps"
    )
    repair = lambda runtimes: np.minimum(runtimes, everywhere)
    return [Cause(HEAVY_TAIL, (), None, None, None, factor, 0.0, evidence, repair=repair)]
