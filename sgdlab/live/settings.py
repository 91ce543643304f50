"""`LiveSettings`, what a server does about workers that fail, and `Patience`, how long it waits for each of them."""

import collections
import dataclasses
import statistics
from typing import Any

from sgdlab import arguments

_RESPAWNS = 1000
"""Number of times in a row, at least, that a place is freed without a gradient in between: it costs nothing."""


@dataclasses.dataclass(frozen=True)
class LiveSettings:
    """Sets what the server does about workers that are missing, silent or wrong, and how often it saves.

    Attributes:
      title: the method, for those who watch.
      unit: what workers send, for the same: a "gradient", or a "message" of several local steps.
      min_workers: how many workers a run needs. It begins, and goes on, with fewer than all of them, but ends with an
        error if fewer than these are there for `wait_seconds`.
      join_seconds: how long a worker's process may take until it is ready; then it is given up and started anew, and
        may take twice as long, and so on, at last 8 times as long. The start waits for the first process of every
        worker; then those that are there begin, if they are enough.
      wait_seconds: how long the run waits for `min_workers` whenever workers are lost; at the start, once every worker
        had a process, since the last one was ready.
      patience: a worker that says nothing for this many times its own usual time is lost.
      least_patience: seconds; no worker is lost earlier than this, however fast it usually is.
      first_patience: seconds; patience with a worker whose usual time is not known yet.
      kill_patience: a worker that says nothing for this many times as long is killed and started anew.
      respawns: how often in a row all workers' processes are started anew without a gradient in between before the run
        fails. A worker alone is started anew for ever while another is fine; and so are all that do not get ready where
        gradients have come before, until `wait_seconds` are over.
      respawn_seconds: time before a process is started anew; each further time in a row it is twice as long, at most a
        minute.
      failures: gradients in a row that may raise or be refused before their worker is started anew; so it is too if so
        many of its last 4 times as many were bad, and its share is 3 times that of the others. If all workers together
        fail so often on average, without one good gradient in between, the run fails.
      checkpoint_updates: updates between two checkpoints, at least.
      checkpoint_seconds: time between two checkpoints, at least.
      turn_seconds: longest time between two looks at the clock, at `stop` and at workers that are silent.
      watch_seconds: time between two calls of `watch`.

    Raises:
      ValueError: if a number is out of its range.
    """

    title: str = ""
    unit: str = "gradient"
    min_workers: int = 1
    join_seconds: float = 60.0
    wait_seconds: float = 300.0
    patience: float = 20.0
    least_patience: float = 10.0
    first_patience: float = 120.0
    kill_patience: float = 4.0
    respawns: int = 5
    respawn_seconds: float = 0.5
    failures: int = 10
    checkpoint_updates: int = 100
    checkpoint_seconds: float = 5.0
    turn_seconds: float = 0.25
    watch_seconds: float = 0.5

    def __post_init__(self) -> None:
        arguments.whole("min_workers", self.min_workers)
        arguments.whole("respawns", self.respawns, least=0)
        arguments.whole("failures", self.failures)
        arguments.whole("checkpoint_updates", self.checkpoint_updates)
        arguments.real("patience", self.patience, above=1)
        arguments.real("kill_patience", self.kill_patience, least=1)
        for name in ("wait_seconds", "respawn_seconds", "checkpoint_seconds", "watch_seconds"):
            arguments.real(name, getattr(self, name), least=0)
        for name in ("join_seconds", "least_patience", "first_patience", "turn_seconds"):
            arguments.real(name, getattr(self, name), above=0)


_REMEMBERED = 15
_DOUBLED = 3
"""So often, at most, is the time doubled in which a process must have started."""
_LEAST_PAUSE = 1.0
"""Seconds between two looks that count in any case."""


def patient(settings: LiveSettings) -> LiveSettings:
    """Return settings of a server that starts no process, by which a place may be freed as often as one likes."""
    return dataclasses.replace(settings, respawns=max(settings.respawns, _RESPAWNS))


class Patience:
    """Decides how long to wait for each worker.

    A worker that computes must be heard of within `patience` times its median time, but not sooner than within
    `least_patience` seconds. Only time counts in which the server itself was awake: what it slept through, or spent on
    something else, is no silence of its workers.

    A worker that was silent for too long may only have become slower: when it is back, or started anew, it is allowed
    twice as long as before, until a gradient of it comes, by which its usual time is learned anew.

    Example:
      >>> patience = Patience(LiveSettings(patience=20, least_patience=10, first_patience=120))
      >>> patience.allowed(3)
      120
      >>> patience.learn(3, 2.0)
      >>> patience.allowed(3), patience.usual(3)
      (40.0, 2.0)
      >>> patience.double(3)
      >>> patience.allowed(3)
      80.0
      >>> patience.learn(3, 50.0)
      >>> patience.allowed(3), patience.usual(3)
      (1000.0, 50.0)
    """

    def __init__(self, settings: LiveSettings):
        self._settings = settings
        self._times: dict[int, collections.deque[float]] = {}
        self._doubled: collections.Counter[int] = collections.Counter()  # worker -> how often since its last gradient
        self.awake = 0.0  # seconds that the server was awake
        self._looked: float | None = None
        self._most = max(4 * settings.turn_seconds, _LEAST_PAUSE)
        self._expected: dict[int, float] = {}  # worker -> since when, of the time awake, it is to be heard of

    def state(self) -> dict[str, Any]:
        """Return what was learned of the workers; what is expected of them ends with the server."""
        return {"times": self._times, "doubled": self._doubled}

    def go_on(self, state: dict[str, Any]) -> None:
        """Know of the workers what was learned before."""
        self._times, self._doubled = state["times"], state["doubled"]

    def look(self, now: float) -> None:
        """Count the time since the last look as time awake, but for what the server slept through."""
        if self._looked is not None:
            self.awake += min(max(now - self._looked, 0.0), self._most)
        self._looked = now

    def expect(self, worker: int) -> None:
        """Expect to hear of a worker from now on, or from before on, if it was expected and not heard of since."""
        self._expected.setdefault(worker, self.awake)

    def heard(self, worker: int) -> None:
        """Expect nothing of a worker any more."""
        self._expected.pop(worker, None)

    def learn(self, worker: int, seconds: float) -> None:
        """Learn how long a gradient of a worker took."""
        if self._doubled.pop(worker, 0):
            self._times.pop(worker, None)  # they were too short for it
        self._times.setdefault(worker, collections.deque(maxlen=_REMEMBERED)).append(seconds)

    def double(self, worker: int) -> None:
        """Allow a worker twice as long as before: it was silent for too long, and begins again."""
        self._doubled[worker] += 1

    def usual(self, worker: int) -> float | None:
        """Return the median of a worker's last times; None before the first."""
        return statistics.median(self._times[worker]) if self._times.get(worker) else None

    def newest(self, worker: int) -> float | None:
        """Return a worker's last time; None before the first."""
        return self._times[worker][-1] if self._times.get(worker) else None

    def allowed(self, worker: int) -> float:
        """Return the seconds of silence that are allowed while it computes."""
        usual, settings = self.usual(worker), self._settings
        seconds = settings.first_patience if usual is None else settings.patience * usual
        return max(seconds, settings.least_patience) * 2 ** self._doubled[worker]

    def silence(self, worker: int) -> float:
        """Return the seconds for which a worker has been expected to be heard of."""
        return self.awake - self._expected.get(worker, self.awake)

    def overdue(self, worker: int) -> bool:
        """Return True if it has been silent for too long."""
        return self.silence(worker) > self.allowed(worker)

    def hopeless(self, worker: int, *, starting: bool = False) -> bool:
        """Return True if it has been silent, or starting, for so long that its process is to be killed."""
        if starting:
            return self.silence(worker) > self._settings.join_seconds * 2 ** min(self._doubled[worker], _DOUBLED)
        return self.silence(worker) > self._settings.kill_patience * self.allowed(worker)
