"""`StepCollector`, whole steps of all workers, from rows in any order of workers, and in nearly that of the steps."""

import numpy as np

from sgdlab.stragglers.follow.parsing import ParsedRows
from sgdlab.traces.paths import in_order
from sgdlab.traces.problems import BadTrace

WINDOW = 200
"""A worker that is more steps behind the newest one is not waited for, however little time has passed."""
FIRST = 20
"""So many steps are there before the first is given out: by then, all workers have been seen. A worker that has a step
so much later has none before it."""

_MOST_CELLS = 1 << 22


class StepCollector:
    """Collects rows, and gives out steps in their order, each once.

    A step is given out when all known workers have it: those that are more than `WINDOW` steps behind, or overdue by
    the clock, are not waited for, until they have newer ones, and neither is one that has a step much later. With
    phases, of which a compute time is the sum, workers must have a later step too.

    Attributes:
      has_phases: whether several rows make a compute time.
      in_order: whether a worker that has a step has no earlier one any more.
      sorts: whether the workers that were seen in the first steps are sorted by name.
      workers: names; those that were not seen in the first steps stand behind the others, as they came.
      nodes: machine of each, if it was told.
      late: rows of steps that had been given out already.
      repeated: rows of a worker's step that it had already; the first counts.
      added: all rows.
      given: the newest step that was given out.
      restarted: whether the steps of most workers went back: the job was started again. All steps before that are given
        out by the next `take`, and `anew` makes those that follow.
    """

    def __init__(self, *, has_phases: bool = False):
        self.workers: list[str] = []
        self.nodes: dict[str, str] = {}
        self.late = self.repeated = self.added = 0
        self.restarted = False
        self._back: list[ParsedRows] = []  # rows of workers whose steps went back
        self.has_phases, self.in_order, self.sorts = has_phases, False, True
        self._index: dict[str, int] = {}
        self._numbers = np.zeros(0, np.int64)
        self._seconds, self._seen = np.zeros((0, 0)), np.zeros((0, 0), bool)
        self._newest, self._behind = np.zeros(0, np.int64), np.zeros(0, bool)
        self.given = np.iinfo(np.int64).min
        self._began = False

    @property
    def newest(self) -> np.ndarray:
        """Return int64[N], the newest step of each worker, from the time on at which their order is known."""
        return self._newest if self._began else self._newest[:0]

    def lacks(self) -> tuple[int, list[str]] | None:
        """The oldest step that is not given out, and the workers that it lacks; None if there is none."""
        if not self._numbers.size:
            return None
        missing = np.flatnonzero(~self._seen[0] & ~self._behind)
        return int(self._numbers[0]), [self.workers[worker] for worker in missing.tolist()]

    def add(self, rows: ParsedRows) -> None:
        """Adds rows.

        Raises:
          BadTrace: where they are in no order of steps.
        """
        self.nodes.update(rows.nodes)
        used = np.flatnonzero(np.bincount(rows.worker, minlength=len(rows.names))).tolist()
        self._know([rows.names[name] for name in used if rows.names[name] not in self._index])
        names = np.array([self._index.get(name, -1) for name in rows.names], np.int64)
        worker, step, seconds = names[rows.worker], rows.step, rows.seconds
        self.added += worker.size
        back = goes_back(worker, step, self._newest, self._workers_back())
        if back is not None:
            if in_no_order(worker, step):
                raise BadTrace(
                    "its rows are in no order of steps, as those of a trace that grows are: `sgdlab advise` reads such "
                    "a file without --follow"
                )
            self._back.append(ParsedRows(tuple(self.workers), worker[back], step[back], seconds[back]))
            worker, step, seconds = worker[~back], step[~back], seconds[~back]
        rough = max(1, _MOST_CELLS // max(len(self.workers), 1))
        for begin in range(0, worker.size, rough):
            part = slice(begin, begin + rough)
            self._add(worker[part], step[part], seconds[part])

    def take(
        self, *, oldest_unread: int | None = None, overdue: np.ndarray | None = None, end: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Steps that are ready: their numbers int64[B], and compute times float64[B, N] of the `workers`.

        Args:
          oldest_unread: workers are not behind with steps from this one on, because they may stand in a part of a file
            that is not read yet; None if everything is read.
          overdue: bool[M], of the first M workers those that are not waited for any more.
          end: nothing more comes: all steps are ready.
        """
        if overdue is not None and overdue.any():
            self._behind[: overdue.size] |= overdue
        if self._back:
            self._look_back()
        end |= self.restarted
        if not self._began and not end and self._numbers.size < FIRST:
            return self._numbers[:0], self._seconds[:0]
        if not self._began and self.sorts:
            self._sort()
        self._began = True
        ready = self._numbers.size if end else self._ready(oldest_unread)
        numbers, seconds = self._numbers[:ready], self._seconds[:ready]
        if ready:
            self.given = int(numbers[-1])
        self._numbers, self._seconds, self._seen = self._numbers[ready:], self._seconds[ready:], self._seen[ready:]
        return numbers, seconds

    def anew(self, *, same_workers: bool = False) -> "StepCollector":
        """Return those of the job that was started again, or of its next epoch, whose workers are known by now."""
        steps = StepCollector(has_phases=self.has_phases)
        steps.in_order, steps.sorts = self.in_order, self.sorts and not same_workers
        if same_workers:
            steps._know(self.workers)
            steps._began = True
        steps.nodes = self.nodes
        for rows in self._back:
            steps.add(rows)
        return steps

    def _workers_back(self) -> np.ndarray:
        """bool[N]: whose steps went back."""
        back = np.zeros(len(self.workers), bool)
        for rows in self._back:
            back[rows.worker] = True
        return back

    def _look_back(self) -> None:
        """Find whether the job was started again; rows of a few workers that went back are like all others."""
        self.restarted = bool(2 * self._workers_back().sum() > (~self._behind).sum())
        if not self.restarted:
            for rows in self._back:
                self._add(rows.worker, rows.step, rows.seconds)
            self._back = []

    def _ready(self, oldest_unread: int | None) -> int:
        ready = self._whole()
        forced = self._numbers.size - WINDOW
        if oldest_unread is not None:
            forced = min(forced, int(np.searchsorted(self._numbers, oldest_unread)))
        if ready >= forced:
            return ready
        self._behind |= self._newest < self._numbers[forced - 1]
        self._behind &= self._newest < self._numbers[-1]
        return max(forced, self._whole())

    def _whole(self) -> int:
        """Return the number of the oldest steps that have all workers."""
        passed = self._newest >= self._numbers[:, None] + (1 if self.in_order else FIRST)
        whole = (self._seen | self._behind | passed).all(axis=1)
        if self.has_phases:
            there = ~self._behind
            whole &= self._numbers < (self._newest[there].min() if there.any() else self.given)
        return int(whole.size if whole.all() else whole.argmin())

    def _know(self, names: list[str]) -> None:
        if not names:
            return
        more = len(names)
        self._index |= {name: len(self.workers) + number for number, name in enumerate(names)}
        self.workers += names
        self._seconds = np.pad(self._seconds, [(0, 0), (0, more)], constant_values=np.nan)
        self._seen = np.pad(self._seen, [(0, 0), (0, more)])
        self._newest = np.pad(self._newest, (0, more), constant_values=np.iinfo(np.int64).min)
        self._behind = np.pad(self._behind, (0, more))

    def _sort(self) -> None:
        """Workers are named in their order, as if the trace were read when it is whole."""
        order = sorted(range(len(self.workers)), key=lambda worker: in_order(self.workers[worker]))
        self.workers = [self.workers[worker] for worker in order]
        self._index = {name: worker for worker, name in enumerate(self.workers)}
        # Rows are added through flat views, which only contiguous arrays have.
        self._seconds = np.ascontiguousarray(self._seconds[:, order])
        self._seen = np.ascontiguousarray(self._seen[:, order])
        self._newest, self._behind = self._newest[order], self._behind[order]

    def _add(self, worker: np.ndarray, step: np.ndarray, seconds: np.ndarray) -> None:
        late = step <= self.given
        if late.any():
            self.late += int(late.sum())
            worker, step, seconds = worker[~late], step[~late], seconds[~late]
        if not step.size:
            return
        self._make_room(np.unique(step))
        place = np.searchsorted(self._numbers, step) * len(self.workers) + worker
        seen, times = self._seen.reshape(-1), self._seconds.reshape(-1)
        if self.has_phases:
            parts = np.bincount(place, np.nan_to_num(seconds), times.size)
            unknown = np.bincount(place, np.isnan(seconds), times.size) > 0
            touched = np.bincount(place, minlength=times.size) > 0
            total = np.where(seen, times, 0.0) + np.where(unknown, np.nan, parts)
            times[touched] = total[touched]
            seen[place] = True
        else:
            self.repeated += int(seen[place].sum())
            fresh = ~seen[place]
            place, seconds = place[fresh], seconds[fresh]
            before = int(seen.sum())
            seen[place] = True
            self.repeated += place.size - (int(seen.sum()) - before)
            times[place[::-1]] = seconds[::-1]  # the first of several is written last
        newest = np.full(len(self.workers), np.iinfo(np.int64).min)
        np.maximum.at(newest, worker, step)
        self._newest = np.maximum(self._newest, newest)
        self._behind &= self._newest <= self.given

    def _make_room(self, steps: np.ndarray) -> None:
        numbers = np.union1d(self._numbers, steps)
        if numbers.size == self._numbers.size:
            return
        at = np.searchsorted(numbers, self._numbers)
        shape = numbers.size, len(self.workers)
        seconds, seen = np.full(shape, np.nan), np.zeros(shape, bool)
        seconds[at], seen[at] = self._seconds, self._seen
        self._numbers, self._seconds, self._seen = numbers, seconds, seen


BACK = 10
"""Rows that are fewer steps back may be out of order, and no more."""


def goes_back(worker: np.ndarray, step: np.ndarray, newest: np.ndarray, known: np.ndarray) -> np.ndarray | None:
    """Return bool[R], the rows of each worker from the first one on whose step is far behind an earlier one of it.

    The newest step of each worker before is known, int64[N], and of workers bool[N] whose steps went back before, all
    rows count. None where there are no such rows.

    Example:
      >>> worker, step = np.array([0, 1, 0, 1, 0]), np.array([50, 50, 51, 10, 52])
      >>> goes_back(worker, step, np.zeros(2, int), np.zeros(2, bool))
      array([False, False, False,  True, False])
    """
    if not step.size:
        return None
    rows_back = (step + BACK <= np.maximum.accumulate(step)).any() or (step + BACK <= newest[worker]).any()
    if not (known.any() or rows_back):
        return None
    order = np.argsort(worker, kind="stable")
    own, (levels, level) = worker[order], np.unique(step, return_inverse=True)
    apart = own * levels.size  # so that what accumulates begins anew with each worker
    ahead = levels[np.maximum.accumulate(level[order] + apart) - apart]
    far = known[own] | (step[order] + BACK <= np.maximum(ahead, newest[own]))
    back = np.zeros(step.size, bool)
    back[order] = np.maximum.accumulate(far + 2 * own) > 2 * own
    return back if back.any() else None


def in_no_order(worker: np.ndarray, step: np.ndarray) -> bool:
    """Tell whether rows are shuffled, or run backwards: no job is started again so often.

    Of the rows of a worker, two of five are behind the one before them, and one of twenty by `BACK` steps or more; or
    three of four are behind. Of fewer than `BACK` rows of each worker nothing is told.

    Example:
      >>> worker, step = np.zeros(40, int), np.arange(40)
      >>> in_no_order(worker, np.random.default_rng(0).permutation(step)), in_no_order(worker, step % 20)
      (True, False)
    """
    order = np.argsort(worker, kind="stable")
    change = np.diff(step[order])[np.diff(worker[order]) == 0]
    if change.size < BACK * np.unique(worker).size:
        return False
    behind, far = (change < 0).mean(), (change <= -BACK).mean()
    return bool((behind > 0.4 and far > 0.05) or behind > 0.75)
