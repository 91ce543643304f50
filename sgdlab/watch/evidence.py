"""What an alarm says beside its name: since which step, how much, in how many steps."""

import math
from typing import Any

import numpy as np

from sgdlab.watch import alarms as kinds
from sgdlab.watch.alarms import Alarm
from sgdlab.watch.charts import LEAST_FACTOR, Charts
from sgdlab.watch.common import Common
from sgdlab.watch.recent import Recent, change_point


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
    numbers, ratios = recent.ratios(members)
    itself = ~charts.against_fleet[members] & charts.slow[members]
    normal = math.exp(float(np.mean([charts.normal(each) for each in members[itself]]))) if itself.all() else 1.0
    after = ratios[numbers >= start[1]]
    level = float(np.median(after)) if after.size else normal
    raised = known["event"] == kinds.RAISED
    before = normal if raised else LEAST_FACTOR**2 * normal
    near = numbers >= start[0]
    since = change_point(numbers[near], ratios[near], before, level) if raised == (level > before) else None
    since = start[1] if since is None or start[0] == start[1] else since
    after = ratios[numbers >= since]
    fleet, own = recent.scores_since(members, since)
    if not raised:
        return Alarm(since=since, against_fleet=fleet, against_itself=own, **known)
    factor = float(np.median(after)) / normal if after.size else level / normal
    many = int((after >= LEAST_FACTOR * normal).sum())
    whose = "its own usual" if normal != 1.0 else "the median of the step"
    words = f"more than {LEAST_FACTOR} times {whose} in {many} of {after.size} steps"
    return Alarm(since=since, factor=factor, against_fleet=fleet, against_itself=own, evidence=words, **known)


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
    before, now = math.exp(common.normal), float(np.median(after)) * math.exp(common.normal)
    words = f"the median of the workers was {before:.3g} s, and is {now:.3g} s"
    return Alarm(event, kinds.ALL_SLOWER, last, since, factor=float(np.median(after)), evidence=words)


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
