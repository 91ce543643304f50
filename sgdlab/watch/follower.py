"""`Follower`, a trace that is read as it grows, what was found in it, and what a page or a terminal shows of it."""

import collections
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from sgdlab.traces.options import Options
from sgdlab.watch import alarms as kinds
from sgdlab.watch import gains
from sgdlab.watch.alarms import Alarm
from sgdlab.watch.gains import Gain
from sgdlab.watch.monitor import STRIP, Monitor
from sgdlab.watch.tail import Tail

SHOWN = 50
"""So many workers are shown, the latest ones first."""
_ALARMS_KEPT = 200
_GAINS_EVERY = 50
_GAINS_LEAST = 50


class Follower:
    """Reads a trace, from its beginning, and watches it.

    Args:
      path: of a file, a directory or a pattern, as of `sgdlab.watch.tail.Tail`.
      options: how it is read.
      clock: tells seconds.

    Attributes:
      tail: what reads.
      monitor: what finds.
      restarts: how often the trace was replaced by another.
      caught_up: whether everything was read that is there.
    """

    def __init__(self, path: str | os.PathLike[str], options: Options, *, clock: Callable[[], float] = time.monotonic):
        self.tail, self._clock = Tail(path, options), clock
        self.monitor: Any = None  # Monitor | None
        self.restarts, self.caught_up = 0, False
        self.grew = clock()
        self._alarms: collections.deque[Alarm] = collections.deque(maxlen=_ALARMS_KEPT)
        self._gains: list[Gain] = []
        self._gains_at = -_GAINS_EVERY
        self._causes: dict[str, tuple[int, ...]] = {}

    def poll(self, *, end: bool = False) -> list[Alarm]:
        """Reads what is new, and returns what was found in it.

        Args:
          end: nothing more comes: steps that lack workers, and a line without an end, are used too.

        Raises:
          ValueError: where the trace has not the columns of one.
        """
        read = self.tail.bytes_read
        taken = self.tail.poll(end=end)
        if taken is None:
            self.monitor, self.restarts, self.caught_up = None, self.restarts + 1, False
            self.grew, self._gains, self._gains_at = self._clock(), [], -_GAINS_EVERY
            self._alarms.clear()
            return []
        if self.tail.bytes_read > read:
            self.grew = self._clock()
        self.caught_up = not self.tail.unread
        steps, runtimes = taken
        if not steps.size:
            return []
        workers, nodes = self.tail.steps.workers, self.tail.nodes
        if self.monitor is None:
            self.monitor = Monitor(workers, nodes)
        elif len(workers) > len(self.monitor.workers):
            self.monitor.grow(workers, nodes)
        found = self.monitor.observe(steps, runtimes)
        self._alarms += found
        return found

    @property
    def idle(self) -> float:
        """Seconds since the trace grew."""
        return self._clock() - self.grew

    @property
    def standing(self) -> list[Alarm]:
        """Alarms that are not over: a worker, a node or the cluster is slow, or a worker is silent."""
        return [] if self.monitor is None else self.monitor.standing()

    def gains(self) -> list[Gain]:
        """Return what a changed protocol would gain from here; computed anew every `_GAINS_EVERY` steps."""
        monitor = self.monitor
        if monitor is None or not monitor.blocks:
            return []
        index = {name: number for number, name in enumerate(monitor.workers)}
        blamed = [alarm for alarm in self.standing if alarm.kind in (kinds.SLOW_WORKER, kinds.SLOW_NODE)]
        causes = {alarm.who: tuple(index[name] for name in alarm.workers) for alarm in blamed}
        if monitor.steps - self._gains_at >= _GAINS_EVERY or causes != self._causes:
            numbers, runtimes, _ = monitor.recent.rows(pauses=True)
            # What was before the newest change says nothing of what comes.
            changed = max((alarm.since for alarm in self._alarms if alarm.kind != kinds.PAUSES), default=numbers[0])
            begin = min(int(np.searchsorted(numbers, changed)), max(numbers.size - _GAINS_LEAST, 0))
            self._gains = gains.find_gains(runtimes[begin:], causes)
            self._gains_at, self._causes = monitor.steps, causes
        return self._gains

    def lacks(self) -> tuple[int, list[str]] | None:
        """The step that is not whole yet, and the workers that it lacks, once the trace has been read."""
        return self.tail.steps.lacks() if self.caught_up else None

    def state(self, *, finished: bool = False) -> dict[str, Any]:
        """All that the page shows, as JSON holds it."""
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
            "alarms": [alarm.record() | {"sentence": alarm.sentence()} for alarm in reversed(self._alarms)],
        }
        if monitor is None:
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
            "standing": [alarm.record() | {"sentence": alarm.sentence()} for alarm in self.standing],
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


def _rounded(value: float) -> float | None:
    return float(f"{value:.4g}") if np.isfinite(value) else None
