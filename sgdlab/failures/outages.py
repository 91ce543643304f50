"""`Outages`: when each worker is down; drawn as far as a run asks, and the same however far that is."""

import bisect
import heapq
import math
from collections.abc import Iterator, Sequence

from sgdlab.failures.rollback import CheckpointCosts


class Outages:
    """Holds the intervals in which workers are down, each [down, back).

    A worker that fails again while it comes back has not been there: such intervals are one.

    Args:
      intervals: of each worker, and of the server if it fails too: (down, up), seconds, in order of `down`, with an end
        or without.
      pauses: a worker goes on where it was; else what it computes is lost.
      checkpoints: the whole job restarts from the last of these: a run is that without failures, and its times move.
      detect_seconds: until the server knows that a worker is lost; at most until it is back.
      rejoin_seconds: from `up` until a worker can begin again, such as to read a checkpoint.
      notice_seconds: from when a worker is told that it will be stopped; it finishes what it can, and begins no more.

    Example:
      >>> outages = Outages([iter([(5.0, 8.0), (8.5, 9.0)])], rejoin_seconds=1.0)
      >>> outages.away(0, 6.0), outages.away(0, 20.0)
      ((5.0, 10.0), (inf, inf))
      >>> outages.finish(0, 4.0, 3.0)
      12.0
    """

    def __init__(
        self,
        intervals: Sequence[Iterator[tuple[float, float]]],
        *,
        pauses: bool = False,
        checkpoints: CheckpointCosts | None = None,
        detect_seconds: float = 0.0,
        rejoin_seconds: float = 0.0,
        notice_seconds: float = 0.0,
    ):
        self.checkpoints = checkpoints
        self.pauses, self.detect_seconds, self.notice_seconds = pauses, detect_seconds, notice_seconds
        self._coming = [_merged(each, rejoin_seconds) for each in intervals]
        self._known: list[list[tuple[float, float]]] = [[] for _ in intervals]

    def __len__(self) -> int:
        return len(self._known)

    @property
    def never(self) -> bool:
        """Tell whether nobody ever fails."""
        return not self._known

    def away(self, worker: int, now: float) -> tuple[float, float]:
        """Return the interval in which a worker is down at `now` or next, (inf, inf) where there is none."""
        if now == math.inf:
            return now, now
        known = self._known[worker]
        while not known or known[-1][1] <= now:
            known.append(next(self._coming[worker]))
        return known[bisect.bisect_right(known, now, key=lambda interval: interval[1])]

    def finish(self, worker: int, start: float, seconds: float) -> float:
        """Return when work of so many seconds is done that pauses while the worker is down."""
        now, left = start, seconds
        while True:
            down, back = self.away(worker, now)
            if now + left <= down:
                return now + left
            left -= max(down - now, 0.0)
            now = back

    def of_job(self) -> Iterator[tuple[float, float]]:
        """Yield the intervals of all workers in order of when they are down."""
        return heapq.merge(*map(self.of_worker, range(len(self))))

    def of_worker(self, worker: int, start: float = 0.0, end: float = math.inf) -> Iterator[tuple[float, float]]:
        """Yield the intervals of a worker that are not over at one instant, and begin before another."""
        now = start
        while (interval := self.away(worker, now))[0] < end:
            yield interval
            now = interval[1]

    def within(self, worker: int, start: float, end: float) -> float:
        """Return the seconds between two instants in which a worker is down."""
        seconds = 0.0
        for down, up in self.of_worker(worker, start, end):
            seconds += min(up, end) - max(down, start)
        return seconds


def _merged(intervals: Iterator[tuple[float, float]], rejoin: float) -> Iterator[tuple[float, float]]:
    """Yield intervals with the time to rejoin, overlapping ones as one; then one that never comes, again and again."""
    last = None
    for down, up in intervals:
        back = up + rejoin
        if last is not None and down <= last[1]:
            last = last[0], max(last[1], back)
            continue
        if last is not None:
            yield last
        last = down, back
    if last is not None:
        yield last
    while True:
        yield math.inf, math.inf
