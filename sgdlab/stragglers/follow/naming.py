"""`Naming`, what alarms say, and which are not over."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sgdlab import arrays
from sgdlab.stragglers.diagnosis import causes, change_points
from sgdlab.stragglers.diagnosis.history import MOST_OF_NODE, of_nodes
from sgdlab.stragglers.follow.alarms import CLEARED, GONE, RAISED, WORSE, Alarm
from sgdlab.stragglers.follow.charts import LEAST_FACTOR, Charts
from sgdlab.stragglers.follow.recent import STEPS, WINDOW, Recent

OF_ALL = 0.75
"""The whole cluster is slower where so many of the workers are."""

_WORSE = 1.1
"""A cause that has become so many times slower than was said is said again."""

_TOGETHER = 10
"""Workers of a node that are back within so many blocks are so together."""


class Naming:
    """Keeps the alarms that are not over, and makes those of something slow.

    Args:
      charts: the tests of workers.
      cluster: the test of the whole cluster.
      recent: the last steps.
      start_of: the first step of a block.

    Attributes:
      open: alarms that are not over, by their cause.
      index: worker -> its place.
    """

    def __init__(self, charts: Charts, cluster: Charts, recent: Recent, start_of: Callable[[int], int]):
        self.open: dict[tuple, Alarm] = {}
        self._of_nodes: dict[Any, np.ndarray] = {}
        self._charts, self._cluster, self._recent, self._start_of = charts, cluster, recent, start_of

    @property
    def normal(self) -> float:
        """Return the median of a step while nothing is slow, seconds."""
        return math.exp(self._cluster.own[0])

    def grow(self, workers: Sequence[str], nodes: Sequence[str]) -> None:
        """Adds workers: names of all of them, and the machine of each, or none if unknown.

        Raises:
          ValueError: where names are not unique, or there are not as many nodes.
        """
        self.workers, self.nodes = tuple(workers), tuple(nodes)
        if len(set(self.workers)) != len(self.workers):
            raise ValueError(f"workers={list(workers)!r} must have different names")
        self.index = {name: index for index, name in enumerate(self.workers)}
        if self.nodes and len(self.nodes) != len(self.workers):
            raise ValueError(f"nodes={list(nodes)!r} must be one for each of the {len(workers)} workers, or empty")
        self._of_nodes |= of_nodes(self.nodes)  # with those that were known, where they are unknown of a new worker

    def kept(self, alarm: Alarm) -> Alarm:
        """Keeps an alarm, or forgets it where it says that its cause is over."""
        if alarm.event == CLEARED:
            self.open.pop(alarm.cause, None)
        else:
            self.open[alarm.cause] = alarm
        return alarm

    def is_open(self, kind: str, worker: int | None = None, node: str | None = None) -> bool:
        """Return whether an alarm is not over: of a worker, of a node, or of all."""
        return (kind, () if worker is None else (self.workers[worker],), node) in self.open

    def node(self, worker: int) -> str | None:
        """Return the machine of a worker."""
        return self.nodes[worker] if self.nodes else None

    def slow(self, last: int, raised: np.ndarray, cleared: np.ndarray) -> list[Alarm]:
        """Return the alarms of workers that have become slow, or are back to normal.

        A node in which most are slow is one cause; a worker is one only where its node is none.
        """
        found = []
        for node in dict.fromkeys(self.node(worker) for worker in raised.tolist()):
            if node not in self._of_nodes or self.is_open(causes.SLOW_NODE, node=node):
                continue
            members = self._of_nodes[node]
            slow = self._charts.elevated()[members]
            if slow.sum() >= max(2, MOST_OF_NODE * members.size):
                began = min(self._charts.began(each) for each in members[slow].tolist())
                found.append(self.alarm(RAISED, causes.SLOW_NODE, last, began, members.tolist(), node))
        found += self._slow_workers(last, raised)
        for worker in cleared.tolist():
            if self.is_open(causes.SLOW_WORKER, worker):
                began = int(self._charts.back_since[worker])
                found.append(self.alarm(CLEARED, causes.SLOW_WORKER, last, began, [worker], self.node(worker)))
        return found

    def silenced(self, last: int, workers: Sequence[int], since: int) -> list[Alarm]:
        """Return the ends of alarms of slow workers, and of slow nodes, that are silent since a step.

        Those that come again, and are still slow, are found anew.
        """
        self._charts.forget(np.asarray(workers, int))
        self._charts.back_since[list(workers)] = self._charts.block
        gone, slow = {self.workers[worker] for worker in workers}, self._charts.elevated()
        return [
            self.kept(Alarm(CLEARED, alarm.kind, last, since, alarm.workers, alarm.node, evidence=GONE))
            for alarm in list(self.open.values())
            if alarm.kind in (causes.SLOW_WORKER, causes.SLOW_NODE) and gone & {*alarm.workers}
            if not slow[[self.index[name] for name in alarm.workers]].any()
        ]

    def settle(self, last: int) -> list[Alarm]:
        """Nodes that are back to normal, and their workers that are not."""
        found = []
        for kind, _, node in list(self.open):
            if kind != causes.SLOW_NODE:
                continue
            members = self._of_nodes[node]
            slow = members[self._charts.elevated()[members]]
            # Workers are back at nearly the same time: those that are about to be are waited for.
            if 3 * slow.size <= members.size and not self._charts.returning(slow).any():
                back = self._charts.back_since[members]
                began = int(back[back >= back.max() - _TOGETHER].min())
                found.append(self.alarm(CLEARED, causes.SLOW_NODE, last, began, members.tolist(), node))
                found += self._slow_workers(last, slow[self._charts.slow[slow]])
        return found

    def _slow_workers(self, last: int, workers: np.ndarray) -> list[Alarm]:
        """Return the alarms of slow workers, unless they or their nodes have one already."""
        found = []
        for worker in workers.tolist():
            node = self.node(worker)
            if not self.is_open(causes.SLOW_NODE, node=node) and not self.is_open(causes.SLOW_WORKER, worker):
                found.append(self.alarm(RAISED, causes.SLOW_WORKER, last, self._charts.began(worker), [worker], node))
        return found

    def alarm(
        self, event: str, kind: str, last: int, began: int, workers: Sequence[int] = (), node: str | None = None
    ) -> Alarm:
        """Makes and keeps an alarm of something slow, or that it is back to normal.

        Args:
          event: "raised" or "cleared".
          kind: of the cause.
          last: the newest step.
          began: the block in which it began, as the charts say.
          workers: their indices; empty where it concerns all.
          node: their machine.
        """
        numbers, ratios = self._ratios(kind, np.asarray(workers, int))
        start, before = self._start_of(began), self._start_of(began - 1)
        after = ratios[numbers >= start]
        level = float(np.median(after)) if after.size else 1.0
        usual = 1.0 if event == RAISED else LEAST_FACTOR**2
        since = start
        if after.size and before != start and (event == RAISED) == (level > usual):
            near = numbers >= before
            row = change_points.first_row_after(np.log(ratios[near]), math.log(usual), math.log(level))
            since = int(numbers[near][row])
        names = tuple(self.workers[worker] for worker in workers)
        found, _ = self.current(Alarm(event, kind, last, since, names, node, factor=level), STEPS)
        if event == CLEARED:
            found = dataclasses.replace(found, factor=None, evidence="")
        return self.kept(found)

    def current(self, alarm: Alarm, last: int = WINDOW) -> tuple[Alarm, float]:
        """Update an alarm of something slow, by so many of the last steps, and return its factor's standard error."""
        members = np.array([self.index[name] for name in alarm.workers], int)
        numbers, ratios = self._ratios(alarm.kind, members)
        rows = np.flatnonzero(numbers >= alarm.since)[-last:]
        ratios = ratios[rows]
        if not rows.size:
            return alarm, math.inf
        factor = float(np.median(ratios))
        # Of a Gaussian: the deviation is 1.48 times the median absolute one, that of a median 1.25 times a mean's.
        error = 1.25 * 1.48 * float(np.median(np.abs(ratios - factor))) / math.sqrt(rows.size)
        if alarm.kind == causes.ALL_SLOWER:
            before = self.normal
            words = f"the median of the workers was {before:.3g} s, and is {factor * before:.3g} s"
            return dataclasses.replace(alarm, factor=factor, evidence=words), error
        many = int((ratios >= LEAST_FACTOR).sum())
        normal = self._normal(members)
        whose = "the others' median" if normal == 1.0 else "its own usual"
        words = f"more than {LEAST_FACTOR} times {whose} in {many} of {rows.size} steps"
        own = self._recent.against_best(members, int(numbers[rows[0]]))
        now = dataclasses.replace(
            alarm, factor=factor, evidence=words, against_fleet=factor * normal, against_itself=own
        )
        return now, error

    def worse(self, last: int) -> list[Alarm]:
        """Return the alarms of causes that have become slower still."""
        found = []
        for alarm in list(self.open.values()):
            if alarm.kind in (causes.PAUSES, causes.SILENT):
                continue
            now, error = self.current(alarm)
            # pyrefly: ignore[unsupported-operation]  # known, but of silence
            if now.factor - 3 * error < _WORSE * alarm.factor:
                continue
            self.kept(dataclasses.replace(now, step=last))
            since = max(alarm.since, int(self._recent.rows(WINDOW)[0][0]))
            found.append(dataclasses.replace(now, event=WORSE, step=last, since=since))
        return found

    def is_of_all(self, start: int) -> tuple[bool, bool]:
        """Return whether most workers are slower since a step, and whether those that are not blamed are."""
        numbers, runtimes, medians = self._recent.others(self._charts.elevated())
        now, before = numbers >= start, numbers < start
        others = float(np.nanmedian(medians[now])) / self.normal >= LEAST_FACTOR
        if not before.any():
            return True, others
        each, usual = (arrays.known_medians(np.ascontiguousarray(runtimes[rows].T)) for rows in (now, before))
        each = each / usual
        each = each[np.isfinite(each)]
        return not each.size or float((each > math.sqrt(LEAST_FACTOR)).mean()) >= OF_ALL, others

    def _ratios(self, kind: str, members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Numbers int64[R] of the last steps, and how many times as long as usual some workers, or all, took."""
        if kind != causes.ALL_SLOWER:
            numbers, ratios = self._recent.ratios(members, self._charts.elevated())
            return numbers, ratios / self._normal(members)
        numbers, _, medians = self._recent.rows()
        known = np.isfinite(medians)
        return numbers[known], medians[known].astype(np.float64) / self.normal

    def _normal(self, members: np.ndarray) -> float:
        """Return the usual ratio of workers that are slow against themselves; 1 of the others."""
        itself = ~self._charts.against_fleet[members] & self._charts.slow[members]
        return math.exp(self._charts.normal[members].astype(np.float64).mean()) if itself.all() else 1.0
