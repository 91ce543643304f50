"""`Naming`, which alarm a finding is and which are not over; and `Silence`, workers that have no run-times any more."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sgdlab.stragglers.follow import alarms as kinds
from sgdlab.stragglers.follow import evidence
from sgdlab.stragglers.follow.alarms import Alarm
from sgdlab.stragglers.follow.charts import Charts
from sgdlab.stragglers.follow.recent import BLOCK, Recent

_TOGETHER = 10
"""Workers of a node that are back within so many blocks are so together."""


class Naming:
    """Keeps the alarms that are not over, and makes those of slow workers and nodes.

    Args:
      workers: names of the N workers.
      nodes: the machine of each worker; empty if unknown.
      charts: the tests.
      recent: the last steps.
      start_of: the first step of a block.

    Attributes:
      open: alarms that are not over, by their cause.

    Raises:
      ValueError: where names are not unique, or there are not as many nodes.
    """

    def __init__(
        self,
        workers: Sequence[str],
        nodes: Sequence[str],
        charts: Charts,
        recent: Recent,
        start_of: Callable[[int], int],
    ):
        self.open: dict[tuple, Alarm] = {}
        self._charts, self._recent, self._start_of = charts, recent, start_of
        self.grow(workers, nodes)

    def grow(self, workers: Sequence[str], nodes: Sequence[str]) -> None:
        """Adds workers."""
        self.workers, self.nodes = tuple(workers), tuple(nodes)
        if len(set(self.workers)) != len(self.workers):
            raise ValueError(f"workers={list(workers)!r} must have different names")
        self._index = {name: index for index, name in enumerate(self.workers)}
        if self.nodes and len(self.nodes) != len(self.workers):
            raise ValueError(f"nodes={list(nodes)!r} must be one for each of the {len(workers)} workers, or empty")

    def opened(self, alarm: Alarm) -> Alarm:
        """Keeps an alarm."""
        self.open[alarm.cause] = alarm
        return alarm

    def changed(self, alarm: Alarm) -> list[Alarm]:
        """Keeps an alarm that is raised, and forgets one that is cleared."""
        if alarm.event == kinds.RAISED:
            return [self.opened(alarm)]
        self.open.pop(alarm.cause, None)
        return [alarm]

    def is_open(self, kind: str, workers: tuple[str, ...], node: str | None) -> bool:
        """Return whether an alarm is not over."""
        return (kind, workers, node) in self.open

    def members(self, alarm: Alarm) -> np.ndarray:
        """int64[M]: the indices of an alarm's workers."""
        if alarm.kind == kinds.SLOW_NODE:
            return self._members(alarm.node)
        return np.array([self._index[name] for name in alarm.workers], int)

    def node(self, worker: int) -> str | None:
        """The machine of a worker."""
        return self.nodes[worker] if self.nodes else None

    def slow(self, last: int, raised: np.ndarray, cleared: np.ndarray) -> list[Alarm]:
        """The alarms of workers that have become slow, or are back to normal.

        A node in which most are slow is one cause; a worker is one only where its node is none.
        """
        found = []
        for node in dict.fromkeys(self.nodes[worker] for worker in raised.tolist()) if self.nodes else ():
            members = self._members(node)
            slow = self._charts.elevated()[members]
            is_one = 2 <= members.size < len(self.workers) and slow.sum() >= max(2, 2 / 3 * members.size)
            if is_one and not self.is_open(kinds.SLOW_NODE, (), node):
                found.append(self.opened(self._alarm(kinds.RAISED, kinds.SLOW_NODE, last, members, node)))
        for worker in raised.tolist():
            found += self._slow_worker(last, worker)
        for worker in cleared.tolist():
            if self.is_open(kinds.SLOW_WORKER, (self.workers[worker],), self.node(worker)):
                found += self.changed(
                    self._alarm(kinds.CLEARED, kinds.SLOW_WORKER, last, np.array([worker]), self.node(worker))
                )
        return found

    def settle(self, last: int) -> list[Alarm]:
        """Nodes that are back to normal, and their workers that are not."""
        found = []
        for kind, _, node in list(self.open):
            if kind != kinds.SLOW_NODE:
                continue
            members = self._members(node)
            slow = members[self._charts.elevated()[members]]
            # Workers are back at nearly the same time: those that are about to be are waited for.
            if 3 * slow.size <= members.size and not self._charts.returning(slow).any():
                found += self.changed(self._alarm(kinds.CLEARED, kinds.SLOW_NODE, last, members, node))
                for worker in slow[self._charts.slow[slow]].tolist():
                    found += self._slow_worker(last, worker)
        return found

    def _slow_worker(self, last: int, worker: int) -> list[Alarm]:
        node = self.node(worker)
        if self.is_open(kinds.SLOW_NODE, (), node) or self.is_open(kinds.SLOW_WORKER, (self.workers[worker],), node):
            return []
        return [self.opened(self._alarm(kinds.RAISED, kinds.SLOW_WORKER, last, np.array([worker]), node))]

    def _alarm(self, event: str, kind: str, last: int, members: np.ndarray, node: str | None) -> Alarm:
        charts = self._charts
        if event == kinds.RAISED:
            slow = members[charts.elevated()[members]]
            began = min(charts.began(each) for each in slow.tolist())
        else:
            returned = [charts.back_since(each) for each in members.tolist()]
            began = min(block for block in returned if block >= max(returned) - _TOGETHER)
        start = self._start_of(began - 1), self._start_of(began)
        names = tuple(self.workers[each] for each in members.tolist())
        known = {"event": event, "kind": kind, "step": last, "workers": names, "node": node}
        return evidence.slow(self._recent, charts, members, start, known)

    def _members(self, node: str | None) -> np.ndarray:
        return np.array([index for index, name in enumerate(self.nodes) if name == node], int)


SILENT_BLOCKS = 3
"""A worker without any run-time in so many blocks of steps that the others have is silent."""
MOST_BLOCKS = 10
"""Where most workers have none, so many blocks are waited for: the trace may be sampled."""


class Silence:
    """Finds workers that had run-times, and have none any more.

    Where more than half of the workers are silent, that is one alarm.

    Args:
      workers: N, how many there are.
      naming: keeps the alarms.
      recent: the last steps.
    """

    def __init__(self, workers: int, naming: Naming, recent: Recent):
        self._naming, self._recent = naming, recent
        self._heard, self._blocks = np.zeros(workers, bool), np.zeros(workers, np.int64)
        self._since = np.full(workers, np.iinfo(np.int64).min)
        self._open: dict[tuple[int, ...], Alarm] = {}

    def grow(self, workers: int) -> None:
        """Adds workers, up to so many."""
        more = workers - self._heard.size
        self._heard, self._blocks = np.pad(self._heard, (0, more)), np.pad(self._blocks, (0, more))
        self._since = np.pad(self._since, (0, more), constant_values=np.iinfo(np.int64).min)

    def observe(self, first: int, last: int, there: np.ndarray) -> list[Alarm]:
        """Adds a block.

        Args:
          first: its oldest step.
          last: its newest step.
          there: bool[N], which workers have a run-time in it.
        """
        there = there & (first >= self._since)  # what came before a silence that the clock has told
        self._heard |= there
        gone = self._heard & ~there
        if not there.any() or not (gone.any() or self._blocks.any()):
            return []
        self._blocks = np.where(gone, self._blocks + 1, 0)
        return self._cleared(last, there) + self._raised(last)

    def declared(self, last: int, since: Mapping[int, int]) -> list[Alarm]:
        """Return the alarms of workers that are silent by the clock, before enough steps have come without them.

        Args:
          last: the newest step.
          since: worker -> the first step that it lacks.
        """
        known = {worker for group in self._open for worker in group}
        found = []
        for worker in (worker for worker in since if worker not in known and self._heard[worker]):
            self._blocks[worker], self._since[worker] = SILENT_BLOCKS, since[worker]
            words = f"the others have steps up to {last}"
            found.append(self._opened(last, (worker,), since[worker], words))
        return found

    def _raised(self, last: int) -> list[Alarm]:
        silent = self._blocks >= SILENT_BLOCKS
        most = 2 * silent.sum() > self._heard.sum()
        known = [worker for group in self._open for worker in group]
        new = silent & (self._blocks >= MOST_BLOCKS) if most else silent.copy()
        new[known] = False
        workers = np.flatnonzero(new).tolist()
        groups = [tuple(workers)] if most and workers else [(worker,) for worker in workers]
        rest = int(self._heard.sum() - silent.sum())
        found = []
        for group in groups:
            steps = BLOCK * int(self._blocks[list(group)].min())
            words = f"the {rest} others have {steps} steps or more since"
            since = min(evidence.silent_since(self._recent, worker) for worker in group)
            found.append(self._opened(last, group, since, words))
        return found

    def _opened(self, last: int, group: tuple[int, ...], since: int, words: str) -> Alarm:
        alarm = Alarm(kinds.RAISED, kinds.SILENT, last, since, **self._who(group), evidence=words)
        self._open[group] = alarm
        return self._naming.opened(alarm)

    def _cleared(self, last: int, there: np.ndarray) -> list[Alarm]:
        found = []
        for group in list(self._open):
            back = [worker for worker in group if there[worker]]
            if 2 * len(back) > len(group):
                since = min(evidence.heard_since(self._recent, worker) for worker in back)
                del self._open[group]
                found += self._naming.changed(Alarm(kinds.CLEARED, kinds.SILENT, last, since, **self._who(group)))
        return found

    def _who(self, group: tuple[int, ...]) -> dict[str, Any]:
        naming = self._naming
        return {
            "workers": tuple(naming.workers[worker] for worker in group),
            "node": naming.node(group[0]) if len(group) == 1 else None,
        }
