"""`LostTime`, the seconds of full synchrony in a trace that grows: those that were needed, and what cost the others."""

import collections
import dataclasses
import math
from collections.abc import Iterable, Mapping

import numpy as np

from sgdlab import arrays
from sgdlab.stragglers.diagnosis.causes import ALL_SLOWER, PAUSES, SLOW_NODE, SLOW_WORKER
from sgdlab.stragglers.follow.alarms import CLEARED, RAISED, Alarm

WAITING = "waiting"
"""Seconds that steps wait for their slowest worker, of those that no alarm names: chance, or not known yet."""
CAUSES = (SLOW_WORKER, SLOW_NODE, ALL_SLOWER, PAUSES, WAITING)
HELD = 5
"""Blocks that are held back: an alarm comes after the steps that it is about."""


_Block = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@dataclasses.dataclass
class _Span:
    alarm: Alarm
    workers: np.ndarray  # indices
    until: float = math.inf  # the first step without it

    def rows(self, steps: np.ndarray) -> np.ndarray:
        return (steps >= self.alarm.since) & (steps < self.until)


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
      >>> lost, steps = LostTime(), np.arange(2)
      >>> alarm = Alarm(RAISED, SLOW_WORKER, 1, 1, ("b",))
      >>> lost.add(steps, np.array([[1.0, 3.0, 1.0]] * 2), np.ones(2), np.ones(2), np.zeros(2, bool))
      >>> lost.note([alarm], {"a": 0, "b": 1, "c": 2})
      >>> lost.settle(held=0)
      >>> lost.good, lost.lost["slow worker"], lost.lost["waiting"]
      (2.0, 2.0, 2.0)
    """

    def __init__(self) -> None:
        self.good, self.lost = 0.0, dict.fromkeys(CAUSES, 0.0)
        self._held: collections.deque[_Block] = collections.deque()
        self._spans: list[_Span] = []

    def add(
        self, steps: np.ndarray, runtimes: np.ndarray, medians: np.ndarray, usual: np.ndarray, paused: np.ndarray
    ) -> None:
        """Adds a block.

        Args:
          steps: int64[B], their numbers.
          runtimes: float[B, N], seconds, NaN where missing.
          medians: float[B], over the workers.
          usual: float[B], the median of a usual step.
          paused: bool[B], which steps were slow for all.
        """
        self._held.append((steps, runtimes, medians, usual, paused))

    def note(self, found: Iterable[Alarm], index: Mapping[str, int]) -> None:
        """Takes alarms, which are about the steps since some earlier one; `index` has the place of each worker."""
        for alarm in found:
            if alarm.event == RAISED and alarm.kind in (SLOW_WORKER, SLOW_NODE, ALL_SLOWER):
                self._spans.append(_Span(alarm, np.array([index[name] for name in alarm.workers], int)))
            for span in self._spans if alarm.event == CLEARED else ():
                if span.alarm.cause == alarm.cause and span.until == math.inf:
                    span.until = alarm.since

    def settle(self, normal: float = math.inf, *, held: int = HELD) -> None:
        """Splits all blocks but the last ones, where the median of a step is `normal` seconds while nothing is slow."""
        while len(self._held) > held:
            self._split(*self._held.popleft(), normal)
        oldest = self._held[0][0][0] if self._held else -math.inf
        self._spans = [span for span in self._spans if span.until > oldest]

    def _split(
        self,
        steps: np.ndarray,
        runtimes: np.ndarray,
        medians: np.ndarray,
        usual: np.ndarray,
        paused: np.ndarray,
        normal: float,
    ) -> None:
        spans = [(span, rows) for span in self._spans if (rows := span.rows(steps)).any()]
        top = rest = np.fmax.reduce(runtimes, axis=1)
        middle, slower = medians, np.zeros(steps.size, bool)
        if spans:
            kinds = np.zeros(runtimes.shape, np.int8)
            for span, rows in spans:
                slower |= rows & (span.alarm.kind == ALL_SLOWER)
                members = span.workers[span.workers < runtimes.shape[1]]  # others came later
                kinds[np.ix_(rows, members)] = CAUSES.index(span.alarm.kind) + 1
            others = np.where(kinds == 0, runtimes, np.nan)
            nobody = ~np.isfinite(others).any(axis=1)
            others[nobody] = runtimes[nobody]  # there is nobody to compare with
            rest, middle = np.fmax.reduce(others, axis=1), arrays.known_medians(others)
            slowest = kinds[np.arange(steps.size), np.where(np.isnan(runtimes), -1, runtimes).argmax(axis=1)]
            for cause in (SLOW_WORKER, SLOW_NODE):
                self._lose(cause, np.where(slowest == CAUSES.index(cause) + 1, top - rest, 0.0))
        needed = middle
        if slower.any() or paused.any():
            calm = np.where(paused, np.fmin(middle, usual), middle)
            needed = np.where(slower, np.fmin(calm, normal), calm)
            self._lose(PAUSES, middle - calm)
            self._lose(ALL_SLOWER, calm - needed)
        self._lose(WAITING, rest - middle)
        self.good += float(np.nansum(needed, dtype=np.float64))

    def _lose(self, cause: str, seconds: np.ndarray) -> None:
        self.lost[cause] += float(np.nansum(seconds, dtype=np.float64))
