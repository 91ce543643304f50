"""`Patience`, which workers have been silent for too long: by their own usual times, not by a heartbeat."""

import collections
import statistics

from sgdlab.live.settings import LiveSettings

_REMEMBERED = 15
_LEAST_PAUSE = 1.0
"""Seconds between two looks that count in any case."""


class Patience:
    """How long to wait for each worker.

    A worker that computes must be heard of within `patience` times its median time, but not sooner than within
    `least_patience` seconds. Only time counts in which the server itself was awake: what it slept through, or spent on
    something else, is no silence of its workers.

    A worker that was silent for too long may only have become slower: when it is back, or started anew, it is allowed
    twice as long as before, until a gradient of it comes, by which its usual time is learned anew.

    Args:
      settings: of the run.

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
        self._awake = 0.0
        self._looked: float | None = None
        self._most = max(4 * settings.turn_seconds, _LEAST_PAUSE)
        self._expected: dict[int, float] = {}  # worker -> since when, of the time awake, it is to be heard of

    def look(self, now: float) -> None:
        """The server is awake at this instant."""
        if self._looked is not None:
            self._awake += min(max(now - self._looked, 0.0), self._most)
        self._looked = now

    @property
    def awake(self) -> float:
        """Seconds that the server was awake."""
        return self._awake

    def expect(self, worker: int) -> None:
        """The worker begins what it will be heard of; unless it was heard of since, it was expected to before."""
        self._expected.setdefault(worker, self._awake)

    def heard(self, worker: int) -> None:
        """Nothing is expected of the worker any more."""
        self._expected.pop(worker, None)

    def learn(self, worker: int, seconds: float) -> None:
        """A gradient of the worker took so long."""
        if self._doubled.pop(worker, 0):
            self._times.pop(worker, None)  # they were too short for it
        self._times.setdefault(worker, collections.deque(maxlen=_REMEMBERED)).append(seconds)

    def double(self, worker: int) -> None:
        """The worker was silent for too long, and begins again."""
        self._doubled[worker] += 1

    def usual(self, worker: int) -> float | None:
        """Median of the worker's last times; None before the first."""
        return statistics.median(self._times[worker]) if self._times.get(worker) else None

    def newest(self, worker: int) -> float | None:
        """The worker's last time; None before the first."""
        return self._times[worker][-1] if self._times.get(worker) else None

    def allowed(self, worker: int) -> float:
        """Seconds of silence that are allowed while it computes."""
        usual, settings = self.usual(worker), self._settings
        seconds = settings.first_patience if usual is None else settings.patience * usual
        return max(seconds, settings.least_patience) * 2 ** self._doubled[worker]

    def silence(self, worker: int) -> float:
        """Seconds for which the worker has been expected to be heard of."""
        return self._awake - self._expected.get(worker, self._awake)

    def overdue(self, worker: int) -> bool:
        """Whether it has been silent for too long."""
        return self.silence(worker) > self.allowed(worker)

    def hopeless(self, worker: int, *, starting: bool = False) -> bool:
        """Whether it has been silent, or starting, for so long that its process is to be killed."""
        allowed = self._settings.first_patience if starting else self.allowed(worker)
        return self.silence(worker) > self._settings.kill_patience * allowed
