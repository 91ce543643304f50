"""What an alarm says beside its name: since which step, how much, in how many steps."""

import dataclasses
import math
from typing import Any

import numpy as np

from sgdlab.stragglers.follow import alarms as kinds
from sgdlab.stragglers.follow.alarms import Alarm
from sgdlab.stragglers.follow.charts import LEAST_FACTOR, Charts
from sgdlab.stragglers.follow.common import Common
from sgdlab.stragglers.follow.recent import WINDOW, Recent, change_point, medians_of

WORSE = 1.1
"""A cause that has become so many times slower than was said is said again."""
OF_ALL = 0.75
"""The whole cluster is slower where so many of the workers are."""


def slow(recent: Recent, charts: Charts, members: np.ndarray, start: tuple[int, int], known: dict[str, Any]) -> Alarm:
    """A slow worker or node, or that it is back to normal.

    Args:
      recent: the last steps.
      charts: the tests that found it.
      members: int64[M], indices of the workers.
      start: a step before it began, and the first one of the block in which it did, as the charts say; the same one
        where it began with the trace.
      known: the other fields of the alarm.
    """
    blamed = charts.elevated()
    numbers, ratios = recent.ratios(members, blamed)
    normal = _normal(charts, members)
    after = ratios[numbers >= start[1]]
    level = float(np.median(after)) if after.size else normal
    raised = known["event"] == kinds.RAISED
    before = normal if raised else LEAST_FACTOR**2 * normal
    near = numbers >= start[0]
    since = change_point(numbers[near], ratios[near], before, level) if raised == (level > before) else None
    since = start[1] if since is None or start[0] == start[1] else since
    after = ratios[numbers >= since]
    fleet, own = recent.scores_since(members, since, blamed)
    if not raised:
        return Alarm(since=since, against_fleet=fleet, against_itself=own, **known)
    factor = float(np.median(after)) / normal if after.size else level / normal
    words = _words(after, normal)
    return Alarm(since=since, factor=factor, against_fleet=fleet, against_itself=own, evidence=words, **known)


def current(recent: Recent, charts: Charts, common: Common, members: np.ndarray, alarm: Alarm) -> tuple[Alarm, float]:
    """Update an alarm that is not over, by the last `WINDOW` steps, and return the standard error of its factor.

    Args:
      recent: the last steps.
      charts: the tests of workers.
      common: the test of the whole cluster.
      members: int64[M], indices of the alarm's workers.
      alarm: one of something slow.
    """
    if alarm.kind == kinds.ALL_SLOWER:
        numbers, _, medians = recent.rows()
        ratios, normal = medians.astype(np.float64) / math.exp(common.normal), 1.0
    else:
        blamed, normal = charts.elevated(), _normal(charts, members)
        numbers, ratios = recent.ratios(members, blamed)
    ratios = ratios[numbers >= alarm.since][-WINDOW:]
    ratios = ratios[np.isfinite(ratios)]
    if not ratios.size:
        return alarm, math.inf
    factor = float(np.median(ratios)) / normal
    # Of a Gaussian: the deviation is 1.48 times the median absolute one, that of a median 1.25 times a mean's.
    spread = 1.25 * 1.48 * float(np.median(np.abs(ratios / normal - factor))) / math.sqrt(ratios.size)
    if alarm.kind == kinds.ALL_SLOWER:
        return dataclasses.replace(alarm, factor=factor, evidence=_seconds(common, factor)), spread
    fleet, own = recent.scores_since(members, int(numbers[max(0, numbers.size - ratios.size)]), blamed)
    scores = {"against_fleet": fleet, "against_itself": own}
    return dataclasses.replace(alarm, factor=factor, evidence=_words(ratios, normal), **scores), spread


def is_of_all(recent: Recent, charts: Charts, common: Common, start: int) -> tuple[bool, bool]:
    """Return whether most workers are slower since a step, and whether those that are not blamed are."""
    numbers, runtimes, medians = recent.others(charts.elevated())
    now, before = numbers >= start, numbers < start
    normal = math.exp(common.normal)
    others = float(np.nanmedian(medians[now])) / normal
    if not before.any():
        return True, others >= LEAST_FACTOR
    each = medians_of(np.ascontiguousarray(runtimes[now].T)) / medians_of(np.ascontiguousarray(runtimes[before].T))
    each = each[np.isfinite(each)]
    return float((each > math.sqrt(LEAST_FACTOR)).mean()) >= OF_ALL if each.size else True, others >= LEAST_FACTOR


def _normal(charts: Charts, members: np.ndarray) -> float:
    """The usual ratio of workers that are slow against themselves; 1 of the others."""
    itself = ~charts.against_fleet[members] & charts.slow[members]
    return math.exp(float(np.mean([charts.normal(each) for each in members[itself]]))) if itself.all() else 1.0


def _words(ratios: np.ndarray, normal: float) -> str:
    many = int((ratios >= LEAST_FACTOR * normal).sum())
    whose = "its own usual" if normal != 1.0 else "the others' median"
    return f"more than {LEAST_FACTOR} times {whose} in {many} of {ratios.size} steps"


def _seconds(common: Common, factor: float) -> str:
    before = math.exp(common.normal)
    return f"the median of the workers was {before:.3g} s, and is {factor * before:.3g} s"


def all_slower(recent: Recent, common: Common, event: str, last: int, start: int) -> Alarm:
    """A cluster that has become slower, or that is back to normal.

    Args:
      recent: the last steps.
      common: the test that found it.
      event: "raised" or "cleared".
      last: the newest step.
      start: the first step of the block in which it began, as the chart says.
    """
    numbers, _, medians = recent.rows()
    ratios = medians.astype(np.float64) / math.exp(common.normal)
    numbers, ratios = numbers[np.isfinite(ratios)], ratios[np.isfinite(ratios)]
    after = ratios[numbers >= start]
    level = float(np.median(after)) if after.size else 1.0
    raised = event == kinds.RAISED
    near = numbers >= (numbers[max(int(np.searchsorted(numbers, start)) - 10, 0)] if numbers.size else start)
    before = 1.0 if raised else LEAST_FACTOR**2
    since = change_point(numbers[near], ratios[near], before, level) if raised == (level > before) else None
    since = start if since is None else since
    after = ratios[numbers >= since]
    if not raised:
        return Alarm(event, kinds.ALL_SLOWER, last, since)
    factor = float(np.median(after))
    return Alarm(event, kinds.ALL_SLOWER, last, since, factor=factor, evidence=_seconds(common, factor))


def silent_since(recent: Recent, worker: int) -> int:
    """The first of the last steps after a worker's newest one."""
    numbers, runtimes, _ = recent.rows(pauses=True)
    has = np.flatnonzero(np.isfinite(runtimes[:, worker]))
    return int(numbers[min(int(has[-1]) + 1, numbers.size - 1)] if has.size else numbers[0])


def heard_since(recent: Recent, worker: int) -> int:
    """The first step that a worker has after its last gap."""
    numbers, runtimes, _ = recent.rows(pauses=True)
    there = np.isfinite(runtimes[:, worker])
    gaps = np.flatnonzero(~there[: int(np.flatnonzero(there)[-1])])
    return int(numbers[int(gaps[-1]) + 1 if gaps.size else int(there.argmax())])
