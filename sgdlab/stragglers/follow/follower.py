"""`Follower`, a trace that is read as it grows, what was found in it, and what a changed protocol would gain."""

import collections
import dataclasses
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sgdlab.report.words import counted, some
from sgdlab.stragglers.diagnosis.causes import HANGS, PAUSES, SLOW_NODE, SLOW_WORKER
from sgdlab.stragglers.follow.alarms import CLEARED, RAISED, Alarm
from sgdlab.stragglers.follow.clock import ArrivalClock
from sgdlab.stragglers.follow.monitor import STRIP, Monitor
from sgdlab.stragglers.follow.tail import Tail
from sgdlab.traces.options import Options

SHOWN = 50
"""So many workers are shown, the latest ones first."""
_ALARMS_KEPT = 200
_GAINS_EVERY = 50
_GAINS_LEAST = 50

LEAST_STEPS = 20
MOST_CAUSES = 4
"""Of the machines to leave out, so many are named, those that gain most."""
_LEAST = 1.005
"""Least ratio that counts as a gain."""


@dataclasses.dataclass(frozen=True)
class Gain:
    """Tells what one change would gain, over the last steps.

    Attributes:
      without: what is left out, such as "worker 5"; empty where all take part, and updates do not wait for all.
      waits_for: how many workers an update waits for.
      of: how many take part.
      factor: gradients per second over those of full synchrony of all.
      steps: how many steps it was computed from.
    """

    without: str
    waits_for: int
    of: int
    factor: float
    steps: int

    def sentence(self) -> str:
        """Say what to do, in one line.

        Example:
          >>> Gain("worker 5", 15, 15, 1.172, 500).sentence()
          'without worker 5: x 1.17 gradients per second'
          >>> Gain("", 15, 16, 1.168, 500).sentence()
          'wait for 15 of 16: x 1.17 gradients per second'
          >>> Gain("node n1", 4, 4, 0.8, 500).sentence()
          'leaving node n1 out gains nothing'
        """
        if self.without and self.factor < _LEAST:
            return f"leaving {self.without} out gains nothing"
        what = f"without {self.without}" if self.without else f"wait for {self.waits_for} of {self.of}"
        return f"{what}: x {self.factor:.2f} gradients per second"


def find_gains(runtimes: np.ndarray, causes: Mapping[str, Sequence[int]]) -> list[Gain]:
    r"""Find what the best number of backup workers, and leaving out the workers to blame, gain over full synchrony.

    With compute times in order, :math:`t_{(1)} \le \dots \le t_{(N)}`, an update that waits for k of N workers takes
    :math:`t_{(k)}`, and brings k gradients. Over the steps, the gain is

    .. math:: \frac{k \, / \sum t_{(k)}}{N \, / \sum t_{(N)}}

    Workers that are missing in a step, and the time of communication, which the compute times do not contain, are not
    counted: the latter makes gains smaller.

    Args:
      runtimes: float[R, N], seconds, NaN where missing.
      causes: for each alarm what it blames, such as "worker 5", and the indices of these workers. Where there are
        several, leaving out all of them is another change.

    Returns:
      The gains, the largest first; empty where fewer than `LEAST_STEPS` steps have all workers that have any.

    Example:
      >>> runtimes = np.tile([1.0, 1.0, 1.0, 2.0], (50, 1))
      >>> [(gain.without, gain.waits_for, gain.factor) for gain in find_gains(runtimes, {"worker d": [3]})]
      [('', 3, 1.5), ('worker d', 3, 1.5)]
    """
    present = np.flatnonzero(np.isfinite(runtimes).any(axis=0))
    whole = runtimes[:, present]
    whole = whole[np.isfinite(whole).all(axis=1)].astype(np.float64)
    size = present.size
    if len(whole) < LEAST_STEPS or size < 2:
        return []
    rates = np.arange(1, size + 1) / np.sort(whole, axis=1).sum(axis=0)

    def gain(name: str, out: Sequence[int]) -> list[Gain]:
        kept = ~np.isin(present, np.asarray(out, int))
        rest = int(kept.sum())
        if rest in (0, size):
            return []
        return [Gain(name, rest, rest, float(rest / whole[:, kept].max(axis=1).sum() / rates[-1]), len(whole))]

    wait = int(rates.argmax()) + 1
    gains = [Gain("", wait, size, float(rates[wait - 1] / rates[-1]), len(whole))] if wait < size else []
    if len(causes) > 1:
        gains += gain("all that are slow", [worker for out in causes.values() for worker in out])
    order = lambda found: -found.factor
    gains += sorted((each for name, out in causes.items() for each in gain(name, out)), key=order)[:MOST_CAUSES]
    return sorted(gains, key=order)


class Follower:
    """Reads a trace, from its beginning, and watches it.

    Args:
      path: of a file, a directory or a pattern, as of `sgdlab.stragglers.follow.tail.Tail`.
      options: how it is read.
      clock: tells seconds.

    Attributes:
      tail: what reads.
      monitor: what finds.
      restarts: how often the trace was replaced by another.
      caught_up: whether everything was read that is there.
      counts: of alarms, by kind and event.
    """

    def __init__(self, path: str | os.PathLike[str], options: Options, *, clock: Callable[[], float] = time.monotonic):
        self.tail, self._clock = Tail(path, options), clock
        self.restarts = 0
        self._begin()

    def _begin(self) -> None:
        self.monitor = Monitor(())
        self.caught_up = False
        self.arrivals = ArrivalClock(self._clock)
        self._hangs: Alarm | None = None
        self._alarms: collections.deque[Alarm] = collections.deque(maxlen=_ALARMS_KEPT)
        self.counts: collections.Counter[tuple[str, str]] = collections.Counter()
        self._gains: list[Gain] = []
        self._gains_of: tuple[int, dict[str, tuple[int, ...]]] = -_GAINS_EVERY, {}  # the steps, and the causes

    def poll(self, *, end: bool = False) -> list[Alarm]:
        """Reads what is new, and returns what was found in it.

        Args:
          end: nothing more comes: steps that lack workers, and a line without an end, are used too.

        Raises:
          ValueError: where the trace has not the columns of one.
        """
        read, usual = self.tail.bytes_read, self.monitor.usual
        self.tail.overdue = self.arrivals.overdue(usual)
        taken = self.tail.poll(end=end)
        if taken is None:
            self.restarts += 1
            self._begin()
            return []
        self.caught_up = not self.tail.unread
        grew = self.tail.bytes_read > read
        self.arrivals.read(self.tail.steps, self.tail.offset, grew=grew, caught_up=self.caught_up)
        found = [*self._observed(*taken), *self._by_the_clock(self.arrivals.overdue(usual), usual, end=end)]
        self._alarms += found
        self.counts.update((alarm.kind, alarm.event) for alarm in found)
        if end:
            self.monitor.lost.settle(self.monitor.naming.normal, held=0)
        return found

    def _observed(self, steps: np.ndarray, runtimes: np.ndarray) -> list[Alarm]:
        if not steps.size:
            return []
        workers, nodes = self.tail.steps.workers, self.tail.nodes
        if len(workers) > len(self.monitor.workers):
            self.monitor.grow(workers, nodes)
        return self.monitor.observe(steps, runtimes)

    def _by_the_clock(self, overdue: np.ndarray, usual: float, *, end: bool) -> list[Alarm]:
        """Return the alarms that steps cannot tell: that a worker, or the whole job, has none any more."""
        if self.monitor.newest is None:
            return []
        steps, newest = self.tail.steps, self.monitor.newest
        behind, latest = self.arrivals.behind, self.arrivals.latest
        # The monitor has no worker yet of whom no step was given out.
        gone = [worker for worker in np.flatnonzero(overdue[: len(self.monitor.workers)]).tolist() if worker in behind]
        since = {worker: latest - behind[worker] + 1 for worker in gone}
        found = self.monitor.declared(since)
        seconds = None if end else self.arrivals.hangs(usual)
        if seconds is None:
            if self._hangs is not None and not end:
                found.append(dataclasses.replace(self._hangs, event=CLEARED, step=latest, evidence=""))
                self._hangs = None
        elif self._hangs is None:
            # Who is silent already has an alarm of its own.
            others = [worker for worker in behind if worker not in since] or list(behind)
            late = {steps.workers[worker]: behind[worker] for worker in others}
            last, names = max(newest, latest), tuple(late) if len(late) < len(steps.workers) else ()
            factor = seconds / usual if math.isfinite(usual) and usual > 0 else None
            self._hangs = Alarm(
                RAISED, HANGS, last, last, names, factor=factor, evidence=_of_a_hang(seconds, factor, late)
            )
            found.append(self._hangs)
        return found

    @property
    def idle(self) -> float:
        """Seconds since the trace grew."""
        return self._clock() - self.arrivals.grew

    @property
    def standing(self) -> list[Alarm]:
        """Alarms that are not over: something is slow, a worker is silent, or there are no steps."""
        return [*([] if self._hangs is None else [self._hangs]), *self.monitor.standing()]

    def gains(self) -> list[Gain]:
        """Return what a changed protocol would gain from here; computed anew every `_GAINS_EVERY` steps."""
        monitor = self.monitor
        if not monitor.blocks:
            return []
        index = {name: number for number, name in enumerate(monitor.workers)}
        blamed = [alarm for alarm in self.standing if alarm.kind in (SLOW_WORKER, SLOW_NODE)]
        causes = {alarm.who: tuple(index[name] for name in alarm.workers) for alarm in blamed}
        steps, before = self._gains_of
        if monitor.steps - steps >= _GAINS_EVERY or causes != before:
            numbers, runtimes, _ = monitor.recent.rows(pauses=True)
            # What was before the newest change says nothing of what comes.
            changed = max((alarm.since for alarm in self._alarms if alarm.kind != PAUSES), default=numbers[0])
            begin = min(int(np.searchsorted(numbers, changed)), max(numbers.size - _GAINS_LEAST, 0))
            self._gains = find_gains(runtimes[begin:], causes)
            self._gains_of = monitor.steps, causes
        return self._gains

    def lacks(self) -> tuple[int, list[str]] | None:
        """Return the step that is not whole yet, and the workers that it lacks, once the trace has been read."""
        return self.tail.steps.lacks() if self.caught_up else None

    def state(self, *, finished: bool = False) -> dict[str, Any]:
        """Return all that the page shows, as JSON holds it."""
        monitor, lacks = self.monitor, self.lacks()
        state: dict[str, Any] = {
            "title": self.tail.path,
            "finished": finished,
            "caught_up": self.caught_up,
            "idle": self.idle,
            "restarts": self.restarts,
            "steps": 0,
            "bad_rows": dict(self.tail.bad),
            "late_rows": self.tail.steps.late,
            "repeated_rows": self.tail.steps.repeated,
            "lacks": None if lacks is None else {"step": lacks[0], "workers": lacks[1]},
            "alarms": [dataclasses.asdict(alarm) | {"sentence": alarm.sentence()} for alarm in reversed(self._alarms)],
        }
        if not monitor.steps:
            return state
        scores = monitor.scores()
        shown = self._shown(scores.against_fleet, scores.against_itself)
        numbers, ratios = self._strip(shown)
        pauses = monitor.pauses
        known = scores.seconds[np.isfinite(scores.seconds)]
        return state | {
            "steps": monitor.steps,
            "newest": monitor.newest,
            "workers": len(monitor.workers),
            "missing": monitor.missing,
            "seconds": float(np.median(known)) if known.size else None,
            "standing": [dataclasses.asdict(alarm) | {"sentence": alarm.sentence()} for alarm in self.standing],
            "pauses": {"count": pauses.count, "period": pauses.period, "factor": pauses.factor, "first": pauses.first},
            "scores": [
                {
                    "worker": monitor.workers[index],
                    "node": monitor.nodes[index] if monitor.nodes else None,
                    "seconds": _rounded(scores.seconds[index]),
                    "against_fleet": _rounded(scores.against_fleet[index]),
                    "against_itself": _rounded(scores.against_itself[index]),
                }
                for index in shown.tolist()
            ],
            "strip": {"steps": numbers, "ratios": ratios},
            "gains": [
                {"sentence": gain.sentence(), "factor": gain.factor, "steps": gain.steps} for gain in self.gains()
            ],
        }

    def _shown(self, against_fleet: np.ndarray, against_itself: np.ndarray) -> np.ndarray:
        """Those with an alarm first, then by the larger of the scores."""
        blamed = {name for alarm in self.standing for name in alarm.workers}
        worst = np.fmax(np.fmax(against_fleet, against_itself), 0.0)
        worst = np.where(np.isfinite(worst), worst, 0.0)
        worst += np.where([name in blamed for name in self.monitor.workers], 1e6, 0.0)
        return np.argsort(-worst, kind="stable")[:SHOWN]

    def _strip(self, shown: np.ndarray) -> tuple[list[int], list[list[float | None]]]:
        """First steps of the last blocks, and for each worker its mean ratio to the step's median in each."""
        monitor = self.monitor
        blocks = monitor.blocks
        kept = np.arange(max(0, blocks - STRIP), blocks)
        ratios = np.exp(monitor.strip[kept % STRIP][:, shown].T.astype(np.float64))
        steps = [monitor.start_of(int(kept[0])), monitor.newest] if kept.size else []
        return steps, [[_rounded(ratio) for ratio in row] for row in ratios.tolist()]


def _of_a_hang(seconds: float, factor: float | None, behind: Mapping[str, int]) -> str:
    """Say for how long there were no steps, and who is behind the others."""
    times = "" if factor is None else f", {factor:,.0f} times the usual"
    text = f"no step for {seconds:.0f} s{times}"
    if not behind:
        return f"{text}; all workers are equally far"
    farthest = max(behind.values())
    names = [name for name, count in behind.items() if count == farthest]
    is_behind = f"{'is' if len(names) == 1 else 'are'} {counted(farthest, 'step')} behind the others"
    return f"{text}; worker {some(names)} {is_behind}"


def _rounded(value: float) -> float | None:
    return float(f"{value:.4g}") if np.isfinite(value) else None
