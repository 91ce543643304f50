"""`Silence`, workers that have no run-times while others have."""

from typing import Any

import numpy as np

from sgdlab.watch import alarms as kinds
from sgdlab.watch import evidence
from sgdlab.watch.alarms import Alarm
from sgdlab.watch.naming import Naming
from sgdlab.watch.recent import BLOCK, Recent

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
        self._open: dict[tuple[int, ...], Alarm] = {}

    def grow(self, workers: int) -> None:
        """Adds workers, up to so many."""
        more = workers - self._heard.size
        self._heard, self._blocks = np.pad(self._heard, (0, more)), np.pad(self._blocks, (0, more))

    def observe(self, last: int, there: np.ndarray) -> list[Alarm]:
        """Adds a block.

        Args:
          last: its newest step.
          there: bool[N], which workers have a run-time in it.
        """
        self._heard |= there
        gone = self._heard & ~there
        if not there.any() or not (gone.any() or self._blocks.any()):
            return []
        self._blocks = np.where(gone, self._blocks + 1, 0)
        return self._cleared(last, there) + self._raised(last)

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
            alarm = Alarm(kinds.RAISED, kinds.SILENT, last, since, **self._who(group), evidence=words)
            self._open[group] = alarm
            found.append(self._naming.opened(alarm))
        return found

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
