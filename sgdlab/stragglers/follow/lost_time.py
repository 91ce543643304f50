"""`LostTime`, the seconds of full synchrony in a trace that grows: those that were needed, and what cost the others."""

import collections
import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from sgdlab import arrays
from sgdlab.stragglers.diagnosis.causes import ALL_SLOWER, PAUSES, SLOW_NODE, SLOW_WORKER
from sgdlab.stragglers.follow.alarms import CLEARED, RAISED, Alarm

WAITING = "waiting"
"""Waiting for the slowest worker of those that no alarm names: chance, or not known yet."""
CAUSES = (WAITING, SLOW_WORKER, SLOW_NODE, ALL_SLOWER, PAUSES)
HELD = 5
"""Blocks that are held back: an alarm comes after the steps that it is about."""


class StepBlock(NamedTuple):
    """Holds successive steps."""

    steps: np.ndarray  # int64[B], their numbers
    runtimes: np.ndarray  # float[B, N], seconds, NaN where missing
    medians: np.ndarray  # float[B], over the workers
    usual: np.ndarray  # float[B], the median of a usual step
    paused: np.ndarray  # bool[B], which were slow for all


@dataclasses.dataclass
class _Span:
    alarm: Alarm
    workers: np.ndarray  # indices
    until: float = math.inf  # the first step without it


class LostTime:
    r"""Splits the seconds of each step exactly, by the alarms that are about it.

    A step takes as long as its slowest worker, :math:`\max_i x_i`. Let B be the workers that alarms name, and m the
    median of the others. What a step waits for B, :math:`\max_i x_i - \max_{i \notin B} x_i`, is lost to the cause of
    the slowest worker; :math:`\max_{i \notin B} x_i - m` to `WAITING`; of a step that is slow for all, what m exceeds
    the usual by to pauses; and while the whole cluster is slower, what is left of m beyond the normal to that. The rest
    was needed. Communication, which compute times do not contain, counts nowhere.

    Attributes:
      good: seconds that were needed.
      lost: cause -> seconds.

    Example:
      >>> lost, runtimes = LostTime(), np.array([[1.0, 3.0, 1.0]] * 2)
      >>> alarm = Alarm(RAISED, SLOW_WORKER, 1, 1, ("b",))
      >>> block = StepBlock(np.arange(2), runtimes, np.ones(2), np.ones(2), np.zeros(2, bool))
      >>> lost.add(block, [alarm], {"a": 0, "b": 1, "c": 2})
      >>> lost.settle(held=0)
      >>> lost.good, lost.lost["slow worker"], lost.lost["waiting"]
      (2.0, 2.0, 2.0)
    """

    def __init__(self) -> None:
        self.good, self.lost = 0.0, dict.fromkeys(CAUSES, 0.0)
        self._held: collections.deque[StepBlock] = collections.deque()
        self._spans: list[_Span] = []

    def add(self, block: StepBlock, found: Iterable[Alarm], index: Mapping[str, int]) -> None:
        """Adds a block, and the alarms that were found in it; `index` has the place of each worker."""
        self._held.append(block)
        self.tell(found, index)

    def tell(self, found: Iterable[Alarm], index: Mapping[str, int]) -> None:
        """Adds alarms that were found since the last block."""
        for alarm in found:
            if alarm.event == RAISED and alarm.kind in (SLOW_WORKER, SLOW_NODE, ALL_SLOWER):
                self._spans.append(_Span(alarm, np.array([index[name] for name in alarm.workers], int)))
            for span in self._spans if alarm.event == CLEARED else ():
                if span.alarm.cause == alarm.cause:
                    span.until = min(span.until, alarm.since)

    def settle(self, normal: float = math.inf, *, held: int = HELD) -> None:
        """Splits all blocks but the last ones, where the median of a step is `normal` seconds while nothing is slow."""
        while len(self._held) > held:
            block = self._held.popleft()
            self._split(block, normal)
            self._spans = [span for span in self._spans if span.until > block.steps[-1]]

    def _split(self, block: StepBlock, normal: float) -> None:
        steps, runtimes, middle, usual, paused = block
        top = rest = np.fmax.reduce(runtimes, axis=1)
        spans = [(span, (steps >= span.alarm.since) & (steps < span.until)) for span in self._spans]
        slower = np.zeros(steps.size, bool)
        if any(rows.any() for _, rows in spans):
            kinds = np.zeros(runtimes.shape, np.int8)
            for span, rows in spans:
                slower |= rows & (span.alarm.kind == ALL_SLOWER)
                members = span.workers[span.workers < runtimes.shape[1]]  # others came later
                kinds[np.ix_(rows, members)] = CAUSES.index(span.alarm.kind)
            others = np.where(kinds == 0, runtimes, np.nan)
            nobody = ~np.isfinite(others).any(axis=1)
            others[nobody] = runtimes[nobody]  # there is nobody to compare with
            rest, middle = np.fmax.reduce(others, axis=1), arrays.known_medians(others)
            slowest = kinds[np.arange(steps.size), np.where(np.isnan(runtimes), -1, runtimes).argmax(axis=1)]
            for cause in (SLOW_WORKER, SLOW_NODE):
                self.lost[cause] += _sum(np.where(slowest == CAUSES.index(cause), top - rest, 0.0))
        self.lost[WAITING] += _sum(rest - middle)
        if slower.any() or paused.any():
            calm = np.where(paused, np.minimum(middle, usual), middle)
            needed = np.where(slower, np.minimum(calm, normal), calm)
            self.lost[PAUSES] += _sum(middle - calm)
            self.lost[ALL_SLOWER] += _sum(calm - needed)
            middle = needed
        self.good += _sum(middle)


def _sum(seconds: np.ndarray) -> float:
    found = float(seconds.sum(dtype=np.float64))
    return found if math.isfinite(found) else float(np.nansum(seconds, dtype=np.float64))
