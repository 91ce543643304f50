"""`Monitor`, who is slow in a trace that grows: memory and time a step do not depend on how many steps there were."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sgdlab import arrays
from sgdlab.stragglers.diagnosis import causes
from sgdlab.stragglers.follow.alarms import CLEARED, NAMED, RAISED, Alarm
from sgdlab.stragglers.follow.charts import Charts
from sgdlab.stragglers.follow.lost_time import LostTime, StepBlock
from sgdlab.stragglers.follow.naming import Naming
from sgdlab.stragglers.follow.pause_counter import PAUSE_FACTOR, PauseCounter
from sgdlab.stragglers.follow.recent import BLOCK, STEPS, WINDOW, Recent, RecentScores
from sgdlab.stragglers.follow.silence import Silence

CLIP = math.log(2.5)
"""The most that a single step adds to the mean logarithm of a block."""
PAUSED_SHARE = 0.9
"""A step is slow for all where so many of them are slow."""
STRIP = 120
"""Blocks of which each worker's mean is kept, for a picture."""

_MANY, _CHANCE = 16, 0.01
"""Fewer workers may be slow together by chance: a step is a pause where this is the chance of it, at most."""
_LOOK = 10
"""Causes that are not over are looked at again every so many blocks."""
_PATIENCE = 5  # blocks in which workers may be found to blame, before a slower cluster is said to be so as a whole
_BATCH = 8  # blocks whose medians are computed together
_WARM_UP_RUNTIMES, _WARM_UP_BLOCKS = 60, (5, 30)
_FEW = 3.0
"""So many times the deviation of fewer blocks is assumed, where a worker may be slow beyond doubt."""


class Monitor:
    """Finds slow workers, slow nodes, a slower cluster, pauses and silent workers, as the steps come.

    Steps are tested in blocks of `BLOCK`, wherever the calls of `observe` end: a run gives the same alarms however it
    is cut. A worker is slow where a sequential test says so (`sgdlab.stragglers.follow.charts`), against the fleet or
    against itself; the first blocks are tested together, when they tell how much compute times vary.

    Args:
      workers: names of the N workers.
      nodes: the machine of each worker; empty if unknown.

    Attributes:
      steps: how many were observed.
      newest: the number of the last one; None before.
      blocks: how many were tested.
      missing: how many compute times were not there, in blocks that were tested.
      strip: float32[STRIP, N], the last blocks' mean logarithms of compute times over the step's median, block b in row
        b modulo STRIP.

    Raises:
      ValueError: where names are not unique, or there are not as many nodes.

    Example:
      >>> monitor = Monitor([str(number) for number in range(8)])
      >>> runtimes = np.random.default_rng(0).gamma(50.0, 0.02, (600, 8))
      >>> runtimes[300:, 5] *= 1.6
      >>> for alarm in monitor.observe(np.arange(600), runtimes):
      ...     print(alarm.kind, alarm.workers, alarm.since)
      slow worker ('5',) 300
    """

    def __init__(self, workers: Sequence[str], nodes: Sequence[str] = ()):
        self.workers: tuple[str, ...] = ()
        self.steps = 0
        self.newest: Any = None
        self.charts, self.recent = Charts(0), Recent(0)
        self.cluster = Charts(1, fleet=False)  # of the mean logarithms of the steps' medians
        self.pauses, self.lost = PauseCounter(), LostTime()
        self.strip = np.zeros((STRIP, 0), np.float32)
        self.missing = 0
        self.naming = Naming(self.charts, self.cluster, self.recent, self.start_of)
        self._held = np.zeros(0, np.int64), np.zeros((0, 0), np.float32)  # steps of the block that is not whole
        self.blocks = 0
        self._first: list[np.ndarray] | None = []  # x of the first blocks, before they are tested
        self._starts = np.zeros(max(STEPS // BLOCK, STRIP), np.int64)  # the first step of each of the last blocks
        self.silence = Silence(self.naming, self.recent)
        self._slower, self._waited = 0, 0  # the block since which the cluster is slower, and for how many it has been
        self.grow(workers, nodes)

    def grow(self, workers: Sequence[str], nodes: Sequence[str] = ()) -> None:
        """Adds workers, which have no compute times in the steps so far.

        Args:
          workers: all of them, those that were there first.
          nodes: the machine of each; empty if unknown.
        """
        if tuple(workers)[: len(self.workers)] != self.workers:
            raise ValueError(f"workers={list(workers)!r} must begin with those that are there: {list(self.workers)!r}")
        more = len(workers) - len(self.workers)
        self.workers, self.nodes = tuple(workers), tuple(nodes)
        self.naming.grow(workers, nodes)
        for part in (self.charts, self.recent):
            part.grow(len(workers))
        self.strip = np.pad(self.strip, [(0, 0), (0, more)], constant_values=np.nan)
        self._held = self._held[0], np.pad(self._held[1], [(0, 0), (0, more)], constant_values=np.nan)
        self.silence.grow(len(workers))
        if self._first is not None:
            self._first = [np.pad(x, (0, more), constant_values=np.nan) for x in self._first]

    def observe(self, steps: np.ndarray, runtimes: np.ndarray) -> list[Alarm]:
        """Adds steps, and returns what was found in them.

        Args:
          steps: int64[B], their numbers, rising.
          runtimes: float[B, N], seconds; NaN where a worker has none. What is not above zero counts as missing.
        """
        steps, runtimes = np.asarray(steps), np.asarray(runtimes)
        if runtimes.ndim != 2 or runtimes.shape != (steps.size, len(self.workers)):
            raise ValueError(
                f"runtimes of shape {runtimes.shape} must be [{steps.size} steps, {len(self.workers)} workers]"
            )
        self.steps += steps.size
        self.newest = int(steps[-1]) if steps.size else self.newest
        if self._held[0].size:
            steps, runtimes = np.concatenate([self._held[0], steps]), np.concatenate([self._held[1], runtimes])
        found: list[Alarm] = []
        whole = steps.size // BLOCK * BLOCK
        for at in range(0, whole, _BATCH * BLOCK):
            rows = slice(at, min(at + _BATCH * BLOCK, whole))
            found += self._batch(steps[rows], runtimes[rows].astype(np.float32, copy=False))
        self._held = steps[whole:].astype(np.int64), runtimes[whole:].astype(np.float32)
        return found

    def declared(self, since: Mapping[int, int]) -> list[Alarm]:
        """Return what follows from workers that are silent by the clock: {worker: the first step that it lacks}."""
        found = self.silence.declared(self.newest, since)
        self.lost.tell(found, self.naming.index)
        return found

    @property
    def needed(self) -> int:
        """Return from how many steps on workers are tested; what is clear is told before."""
        least, most = _WARM_UP_BLOCKS
        return BLOCK * min(max(least, -(-_WARM_UP_RUNTIMES // max(len(self.workers), 1))), most)

    @property
    def usual(self) -> float:
        """Return the seconds of a usual step, the median of its slowest worker's compute time; nan before a block."""
        longest = np.fmax.reduce(self.recent.rows(WINDOW)[1], axis=1, initial=np.nan)
        return float(arrays.known_medians(longest[None])[0])

    def scores(self) -> RecentScores:
        """Return the two scores of every worker, over its last steps."""
        return self.recent.scores(self.charts.elevated())

    def standing(self) -> list[Alarm]:
        """Alarms that are not over, but for pauses, with what they say now."""
        return [
            alarm
            if alarm.kind == causes.SILENT
            else dataclasses.replace(self.naming.current(alarm)[0], step=self.newest)
            for alarm in self.naming.open.values()
            if alarm.kind != causes.PAUSES
        ]

    def start_of(self, block: int) -> int:
        """Return the first step of a block; of the oldest one that is remembered, if it was before."""
        oldest = max(0, self.blocks - self._starts.size)
        return int(self._starts[max(block, oldest) % self._starts.size])

    def _batch(self, steps: np.ndarray, runtimes: np.ndarray) -> list[Alarm]:
        """Adds whole blocks; what concerns single steps is computed for all of them at once."""
        with np.errstate(invalid="ignore", divide="ignore"):
            logs = np.log(runtimes)
            if not np.isfinite(logs.sum()):
                known = (runtimes > 0) & np.isfinite(runtimes)
                self.missing += int(known.size - known.sum())
                runtimes = np.where(known, runtimes, np.float32(np.nan))
                logs = np.log(runtimes)
            medians = arrays.known_medians(runtimes)
            levels = np.log(medians)
            ratios = np.clip(logs - levels[:, None], -CLIP, CLIP)
        shape = (-1, BLOCK, len(self.workers))
        ratios = ratios.reshape(shape)
        means = _mean(ratios)
        centred = means - arrays.known_medians(means)[:, None]
        found: list[Alarm] = []
        for index, x in enumerate(centred):
            rows = slice(index * BLOCK, (index + 1) * BLOCK)
            found += self._block(
                steps[rows], runtimes[rows], medians[rows], levels[rows].astype(np.float64), ratios[index], x
            )
        return found

    def _block(
        self,
        steps: np.ndarray,
        runtimes: np.ndarray,
        medians: np.ndarray,
        levels: np.ndarray,
        ratios: np.ndarray,
        x: np.ndarray,
    ) -> list[Alarm]:
        self._starts[self.blocks % self._starts.size] = steps[0]
        high, factors = self.pauses.find(levels)
        slow = high
        if high.any():  # of few workers, half may be slow by chance, and one that is very slow makes the median high
            least = PAUSE_FACTOR * medians / factors
            with np.errstate(invalid="ignore"):
                many = (runtimes > least[:, None]).sum(axis=1)
            slow = high & (many >= PAUSED_SHARE * np.isfinite(runtimes).sum(axis=1))
            for row in np.flatnonzero(slow & (many < _MANY)):
                slow[row] = self.recent.chance(least[row], int(many[row])) <= _CHANCE
        left_out = slow & (2 * slow.sum() <= BLOCK)
        if left_out.any():
            x = _mean(ratios[None, ~left_out])[0]
            x = x - arrays.known_medians(x[None])[0]
        level = self.pauses.level(levels, left_out)
        x = self.charts.centred(x, level - self.cluster.own[0])
        self.recent.add(steps, runtimes, medians, left_out)
        self.strip[self.blocks % STRIP] = x
        last = int(steps[-1])
        found = self._pauses(last, steps, high, slow, factors)
        found += self._workers(last, x)
        found += self._whole_cluster(last, level)
        found += self.silence.observe(int(steps[0]), last, np.isfinite(x))
        self.blocks += 1
        self.lost.add(StepBlock(steps, runtimes, medians, medians / factors, slow), found, self.naming.index)
        if self._first is None:
            self.lost.settle(self.naming.normal)
        return found if self.blocks % _LOOK else found + self.naming.worse(last)

    def _pauses(
        self, last: int, steps: np.ndarray, high: np.ndarray, slow: np.ndarray, factors: np.ndarray
    ) -> list[Alarm]:
        if not self.blocks:  # the first steps of a program compile and load
            return []
        pauses = self.pauses
        if not pauses.observe(steps, high, slow, factors):
            return []
        known = {"factor": pauses.factor, "count": pauses.count, "period": pauses.period}
        found = Alarm(RAISED, causes.PAUSES, last, pauses.first, **known)
        if said := self.naming.open.get(found.cause):
            if pauses.period in (None, said.period):
                return []
            words = f"{pauses.count} of them so far, since step {pauses.first}"
            found = dataclasses.replace(found, event=NAMED, evidence=words)
        return [self.naming.kept(found)]

    def _is_clear(self) -> bool:
        """Return whether the first blocks tell that a worker is slow, though so few say little of the noise."""
        blocks = np.array(self._first)
        if len(blocks) < _WARM_UP_BLOCKS[0]:
            return False
        trial = Charts(len(self.workers))
        trial.learn(blocks, times=_FEW)
        for each in blocks:
            trial.observe(each)
        return bool(trial.slow.any())

    def _whole_cluster(self, last: int, level: float) -> list[Alarm]:
        raised, _ = self.cluster.observe(np.array([level], np.float32))
        slow = self.cluster.slow[0]
        self._slower = self.cluster.began(0) if raised[0] else self._slower
        self._waited = self._waited + 1 if slow else 0
        if self.naming.is_open(causes.ALL_SLOWER):
            back = int(self.cluster.back_since[0])
            return [] if slow else [self.naming.alarm(CLEARED, causes.ALL_SLOWER, last, back)]
        # Later it may be so for all workers, even if it is not now.
        if slow and (self._waited <= _PATIENCE or not self._waited % _LOOK):
            most, others = self.naming.is_of_all(self.start_of(self._slower))
            if others and (most or self._waited >= _PATIENCE):
                return [self.naming.alarm(RAISED, causes.ALL_SLOWER, last, self._slower)]
        return []

    def _workers(self, last: int, x: np.ndarray) -> list[Alarm]:
        blocks = [x]
        if self._first is not None:
            self._first.append(x)
            if BLOCK * len(self._first) < self.needed and not self._is_clear():
                return []
            blocks, self._first = self._first, None
            self.charts.learn(np.array(blocks))
        found = []
        for each in blocks:
            raised, cleared = self.charts.observe(each)
            if raised.any() or cleared.any():
                found += self.naming.slow(last, np.flatnonzero(raised), np.flatnonzero(cleared))
        return found + self.naming.settle(last)


def _mean(ratios: np.ndarray) -> np.ndarray:
    """Return the means over the steps of each block, float32[blocks, N]; NaN where a worker has none."""
    means = ratios.sum(axis=1) / np.float32(max(ratios.shape[1], 1))
    if np.isfinite(means.sum()):
        return means
    there = np.isfinite(ratios)
    counts = there.sum(axis=1)
    sums = np.where(there, ratios, np.float32(0)).sum(axis=1)
    return np.where(counts > 0, sums / np.maximum(counts, 1).astype(np.float32), np.float32(np.nan))
