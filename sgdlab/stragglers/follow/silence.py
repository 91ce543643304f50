"""`Silence`, workers that have no compute times any more: by the steps that the others have, or by the clock."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from sgdlab.stragglers.diagnosis.causes import SILENT
from sgdlab.stragglers.follow.alarms import CLEARED, RAISED, Alarm
from sgdlab.stragglers.follow.naming import Naming
from sgdlab.stragglers.follow.recent import BLOCK, Recent

SILENT_BLOCKS = 3
"""A worker without any compute time in so many blocks of steps that the others have is silent."""
MOST_BLOCKS = 10
"""Blocks that are waited for where most workers have none: the trace may be sampled."""


class Silence:
    """Finds workers that had compute times, and have none any more.

    Where more than half of the N workers are silent, that is one alarm.
    """

    def __init__(self, naming: Naming, recent: Recent):
        self._naming, self._recent = naming, recent
        self._heard, self._blocks, self._since = np.zeros(0, bool), np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._open: set[tuple[int, ...]] = set()

    def grow(self, workers: int) -> None:
        """Adds workers, up to so many."""
        more = workers - self._heard.size
        self._heard, self._blocks = np.pad(self._heard, (0, more)), np.pad(self._blocks, (0, more))
        self._since = np.pad(self._since, (0, more), constant_values=np.iinfo(np.int64).min)

    def observe(self, first: int, last: int, there: np.ndarray) -> list[Alarm]:
        """Adds a block, of its oldest and its newest step, and which workers have a compute time in it: bool[N]."""
        there = there & (first >= self._since)  # what came before a silence that the clock has told
        self._heard |= there
        gone = self._heard & ~there
        if not there.any() or not (gone.any() or self._blocks.any()):
            return []
        self._blocks = np.where(gone, self._blocks + 1, 0)
        found = []
        for group in sorted(self._open):
            back = [worker for worker in group if there[worker]]
            if 2 * len(back) > len(group):
                self._open.remove(group)
                since = min(self._recent.since(worker, there=True) for worker in back)
                found += self._alarms(CLEARED, last, group, since)
        return found + self._raised(last)

    def declared(self, last: int, since: Mapping[int, int]) -> list[Alarm]:
        """Return the alarms of workers that are silent by the clock: {worker: the first step that it lacks}."""
        known = {worker for group in self._open for worker in group}
        found = []
        for worker in (worker for worker in since if worker not in known and self._heard[worker]):
            self._blocks[worker], self._since[worker] = SILENT_BLOCKS, since[worker]
            words = f"the others have steps up to {last}"
            found += self._alarms(RAISED, last, (worker,), since[worker], words)
        return found

    def _raised(self, last: int) -> list[Alarm]:
        silent = self._blocks >= SILENT_BLOCKS
        most = 2 * silent.sum() > self._heard.sum()
        new = silent & (self._blocks >= MOST_BLOCKS) if most else silent.copy()
        new[[worker for group in self._open for worker in group]] = False
        workers = np.flatnonzero(new).tolist()
        rest = int(self._heard.sum() - silent.sum())
        found = []
        for group in [tuple(workers)] if most and workers else [(worker,) for worker in workers]:
            steps = BLOCK * int(self._blocks[list(group)].min())
            words = f"the {rest} others have {steps} steps or more since"
            since = min(self._recent.since(worker, there=False) for worker in group)
            found += self._alarms(RAISED, last, group, since, words)
        return found

    def _alarms(self, event: str, last: int, group: tuple[int, ...], since: int, words: str = "") -> list[Alarm]:
        """Return the alarm of a group; who is silent has its alarm of being slow ended too."""
        ended = []
        if event == RAISED:
            self._open.add(group)
            ended = self._naming.silenced(last, group, since)
        names: Any = tuple(self._naming.workers[worker] for worker in group)
        node = self._naming.node(group[0]) if len(group) == 1 else None
        return [*ended, self._naming.kept(Alarm(event, SILENT, last, since, names, node, evidence=words))]
