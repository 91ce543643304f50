"""The array program of rounds that end by the clock, for `sgdlab.protocols.threshold`."""

import math
from typing import TYPE_CHECKING

import numpy as np

from sgdlab.runtimes import NotEnoughRuntimes, too_short
from sgdlab.schedule import DROPPED, Schedule

if TYPE_CHECKING:
    from sgdlab.protocols.threshold import Threshold

EMPTY_ROUNDS = 1000
"""So many rounds in a row without a gradient, and the threshold is taken for an error."""


def threshold_rounds(policy: "Threshold", runtimes: np.ndarray, num_gradients: int | None) -> Schedule:
    """Make the schedule of `simulate`: gradients that were given up are dropped, none is pending.

    Raises:
      ValueError: where a run-time does not advance the clock, or 1000 rounds in a row have no gradient.
      NotEnoughRuntimes: (a ValueError) where run-times end first; it says how many rows would be enough.
    """
    wanted = math.inf if num_gradients is None else num_gradients
    run = _Run(runtimes, policy)
    while run.used < wanted and run.next_round():
        pass
    if run.used < (num_gradients or 1):
        raise NotEnoughRuntimes.after(
            num_gradients or runtimes.shape[1], rows=runtimes.shape[0], done=run.used, spare=True
        )
    return run.schedule()


class _Run:
    """The rounds so far."""

    def __init__(self, runtimes: np.ndarray, policy: "Threshold"):
        self.runtimes, self.policy = runtimes, policy
        self.workers = runtimes.shape[1]
        self.begun = np.zeros(self.workers, np.int64)
        self.now, self.used = 0.0, 0
        self.learned: list[np.ndarray] = []
        self.threshold = policy.threshold
        self.applied: list[float] = []
        self.rows: list[tuple[np.ndarray, ...]] = []  # worker, read, update, started, arrived
        self.idle: list[tuple[np.ndarray, ...]] = []  # the same of rounds since, which made no update

    def next_round(self) -> bool:
        """Makes a round; False where a worker runs out of run-times in it."""
        learning = len(self.learned) < self.policy.window
        threshold = math.inf if learning else self.threshold
        deadline = self.now + threshold
        most = self.policy.patient if learning else self.policy.most
        free, made = np.full(self.workers, self.now), 0
        steps: list[tuple[np.ndarray, ...]] = []  # worker, started, ended, whether it is used
        while made < most:
            worker = np.flatnonzero(free < deadline if self.policy.interrupt else free <= deadline)
            if not worker.size:
                break
            if (self.begun[worker] == len(self.runtimes)).any():
                return False
            started = free[worker]
            ended = started + self._seconds(worker, started)
            used = ended < deadline if self.policy.interrupt else np.ones(worker.size, bool)
            ended = np.where(used, ended, deadline)
            steps.append((worker, started, ended, used))
            self.begun[worker] += 1
            made += 1
            if made < most:
                free = np.full(self.workers, np.inf)
                free[worker] = ended
        if learning:
            self._learn(made)
        self._close(steps)
        return True

    def _seconds(self, worker: np.ndarray, started: np.ndarray) -> np.ndarray:
        rows = self.begun[worker]
        seconds = self.runtimes[rows, worker]
        stuck = ~(started + seconds > started)
        if stuck.any():
            first = int(np.argmax(stuck))
            raise too_short(rows[first], worker[first], seconds[first], started[first])
        return seconds

    def _learn(self, made: int) -> None:
        first = int(self.begun[0]) - made  # while it learns, all workers make as many
        self.learned.append(self.runtimes[first : first + made].T)
        if len(self.learned) == self.policy.window:
            self.threshold = self.policy.choose_threshold(self.learned)

    def _close(self, steps: list[tuple[np.ndarray, ...]]) -> None:
        worker, started, ended, used = (np.concatenate(column) for column in zip(*steps, strict=True))
        order = np.lexsort((worker, ended))
        update = len(self.applied)
        entered = np.where(used, update, DROPPED)
        self.idle.append((worker[order], np.full(order.size, update), entered[order], started[order], ended[order]))
        at = float(ended.max())
        self.now = at + self.policy.communication
        if used.any():
            self.applied.append(self.now)
            self.used += int(np.count_nonzero(used))
            self.rows += self.idle
            self.idle = []
        elif len(self.idle) >= EMPTY_ROUNDS:
            raise ValueError(
                f"seconds={self.threshold:g} must be longer than a gradient takes: in {len(self.idle)} rounds in a row "
                f"no gradient was finished in time, of which the shortest takes {self._shortest():g} s"
            )

    def _shortest(self) -> float:
        """Run-time of the gradients since the last update."""
        numbers = np.bincount(np.concatenate([worker for worker, *_ in self.idle]), minlength=self.workers)
        spans = enumerate(zip(self.begun - numbers, self.begun, strict=True))
        return min(self.runtimes[first:end, worker].min(initial=math.inf) for worker, (first, end) in spans)

    def schedule(self) -> Schedule:
        worker, read, update, started, arrived = (np.concatenate(column) for column in zip(*self.rows, strict=True))
        return Schedule(
            worker=worker,
            read=read[:, None],
            update=update[:, None],
            started=started,
            arrived=arrived[:, None],
            applied=np.array(self.applied)[:, None],
            num_workers=self.workers,
        )
