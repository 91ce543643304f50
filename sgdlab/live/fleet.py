"""`Fleet`, the workers of a live run and what went wrong with them, and `Patience`, how long each is waited for."""

import collections
import dataclasses
import math
import statistics
from collections.abc import Iterable

from sgdlab.live.messages import Joined
from sgdlab.live.settings import LiveSettings
from sgdlab.live.snapshot import Remembering
from sgdlab.live.transport import ANEW
from sgdlab.report.words import counted, listed

_MOST_SECONDS = 60.0
_NAMED = 3
"""So many workers are named in a line, and so many reasons; of the others, only their number is given."""
_REMEMBERED = 4
"""Times the failures in a row that end a process: so many of a worker's last gradients are looked at; if that number of
them, in whatever order, was bad, and"""
_MORE_OFTEN = 3
"""times the others' share, its process is ended too."""
_PROCESSES = 16
"""So many of a host's processes are named."""
_TIMES = 15
_DOUBLED = 3
"""So often, at most, is the time doubled in which a process must have started."""
_LEAST_PAUSE = 1.0
"""Seconds between two looks that count in any case."""


@dataclasses.dataclass
class Worker:
    """A worker, as the server knows it.

    What a worker keeps from one message to its next, such as the state of its optimizer, is what it had after the last
    of its messages that was used: one that was not leaves no trace, as in a simulation. Each process that joins has
    nothing, and begins anew. A worker that was silent, and whose process lives, goes on.
    """

    worker: int  # its number
    # "down": no process; "starting"; "ready" for the run to begin; "there"; or "silent", and its process may live.
    state: str = "down"
    since: float = 0.0  # seconds, of the run's clock: in this state, or when it began to compute or to wait
    process: int | None = None  # number of its process; None before it has joined
    host: str = ""
    life: int = -1  # which of its processes it is, counted from 0
    after: int = ANEW  # ticket of its last message that was used, from after which its process goes on
    respawn_at: float = 0.0  # if it is down, seconds, when a process is to be started
    respawns: int = 0  # how often its process was started again, for which there is no limit
    deaths: int = 0  # how often it was lost in a row, without a gradient in between
    failures: int = 0  # how many of its gradients failed or were refused in a row
    good: collections.deque[bool] = dataclasses.field(default_factory=collections.deque)  # its process's last gradients
    spoilt: int = 0  # how many of its processes in a row were ended because too many of their gradients were bad
    was_ready: bool = False  # whether its last process had got so far
    worked: bool = False  # whether a good gradient of it has come since the server was started
    came: int = 0  # how many of its gradients have come
    idle: float = 0.0  # seconds that it has waited for others
    error: str = ""  # the last thing that went wrong with it

    @property
    def there(self) -> bool:
        """Return True if the policy counts on it."""
        return self.state == "there"

    @property
    def queued(self) -> bool:
        """Return True if its first process waits for others to have started."""
        return self.state == "down" and not self.deaths

    def enters(self, state: str, now: float) -> None:
        """Count it as in another state from now on."""
        self.state, self.since = state, now

    def spawned(self, now: float) -> None:
        """Count a process that was started."""
        self.respawns += self.deaths > 0
        self.enters("starting", now)

    def joined(self, process: int | None, host: str, now: float) -> None:
        """Count a process that is ready, or one that serves a new run."""
        self.process, self.host, self.life, self.after = process, host, self.life + 1, ANEW
        self.good.clear()
        self.enters("there", now)

    def computes(self, now: float) -> None:
        """Begin to count its time as its own: it has waited, and computes."""
        self.idle, self.since = self.idle + (now - self.since), now

    def sent_good(self) -> None:
        """Count a good gradient that has come."""
        self.good.append(True)
        self.spoilt *= len(self.good) < (self.good.maxlen or 1)  # so many have come, and it was not ended
        self.came, self.deaths, self.failures, self.worked = self.came + 1, self.spoilt, 0, True

    def spoils(self) -> None:
        """Count a process that is ended for its bad gradients: the good ones do not make the next pause short."""
        self.spoilt += 1
        self.deaths = max(self.deaths, self.spoilt - 1)

    def restarted(self, now: float) -> None:
        """Count its process as gone by no fault of its own."""
        self.respawn_at, self.process, self.worked = now, None, False
        self.deaths = self.failures = self.spoilt = 0
        self.enters("down", now)


class Fleet(list[Worker]):
    """All workers that may ever take part, by number.

    A worker whose process ends is started again, however often that was in vain, after a pause that is twice as long
    each time, up to a minute: what has taken it away, such as a machine that is down, may be over.

    Attributes:
      at_once: how many processes may start at the same time; all, unless it is set.
      starts: False where others start the processes, and those that are down or starting are free places.

    Example:
      >>> fleet = Fleet(2, LiveSettings(respawns=1, respawn_seconds=0.5))
      >>> fleet[0].spawned(0.0), fleet[0].joined(17, "here", now=1.0)
      (None, None)
      >>> fleet.ended(0, "killed by SIGKILL", 3.0)
      >>> fleet[0].respawn_at, fleet.due(3.4), fleet.due(3.5)
      (3.5, [1], [0, 1])
      >>> fleet[0].spawned(3.5), fleet.ended(0, "exit code 1", 4.0)
      (None, None)
      >>> fleet[0].respawn_at, fleet.missing()
      (5.0, 'worker 0: exit code 1; worker 1: not started yet')
      >>> fleet.at_once = 1
      >>> fleet.due(9.0), fleet[0].spawned(9.0), fleet.due(9.0)
      ([0], None, [])
    """

    def __init__(self, num_workers: int, settings: LiveSettings):
        remembered = _REMEMBERED * settings.failures
        super().__init__(Worker(n, good=collections.deque(maxlen=remembered)) for n in range(num_workers))
        self._settings, self.at_once, self.starts = settings, num_workers, True

    def there(self) -> list[int]:
        """Return the workers that the policy counts on."""
        return [worker.worker for worker in self if worker.there]

    def due(self, now: float) -> list[int]:
        """Return the workers for which a process is to be started at this instant, as many as may start at once."""
        due = [worker.worker for worker in self if worker.state == "down" and worker.respawn_at <= now]
        return due[: self._free()]

    def next_start(self) -> float:
        """Return the instant at which the next process is to be started, if nothing happens before."""
        down = [worker.respawn_at for worker in self if worker.state == "down"]
        return min(down) if down and self._free() else math.inf

    def _free(self) -> int:
        """Return how many processes may be started while others are starting."""
        return max(self.at_once - sum(worker.state == "starting" for worker in self), 0)

    def ended(self, number: int, error: str, now: float) -> None:
        """Count a process as gone; another is started after a while."""
        worker = self[number]
        worker.error, worker.failures, worker.was_ready = error, 0, worker.state != "starting"
        worker.respawn_at = now + min(self._settings.respawn_seconds * 2**worker.deaths, _MOST_SECONDS)
        worker.deaths += 1
        worker.enters("down", now)

    def hopeless(self, number: int) -> str:
        """Return why nothing will come of the run, after a worker's process has ended; '' if something may.

        So it is if no worker is there that never failed, and each one, or as many as may start at once, was started
        again `respawns` times in a row without a gradient in between. Where gradients have come before, processes that
        do not even get ready are no fault of the code: the machine may be mended.
        """
        if any(worker.worked for worker in self) and not self[number].was_ready:
            return ""
        failing, most = [worker.deaths for worker in self if worker.deaths], self._settings.respawns
        enough = min(len(self), self.at_once)
        in_vain = sum(min(deaths - 1, most) for deaths in failing)
        fine = any(not worker.deaths and worker.state not in ("down", "starting") for worker in self)
        if fine or len(failing) < enough or in_vain < most * enough:
            return ""
        times = counted(sum(failing), "time")
        why = f"of worker {number}: {self[number].error}"
        return f"processes of all workers have ended {times} without a gradient; {why}"

    def failed(self, number: int, error: str) -> bool:
        """Count a gradient that failed or was refused; return True if it was one too many in a row."""
        worker = self[number]
        worker.good.append(False)
        worker.error, worker.failures = error, worker.failures + 1
        return worker.failures >= self._settings.failures

    def spoiling(self) -> list[tuple[int, str]]:
        """Return the workers that send bad gradients far more often than the others, though not in a row, and why.

        So it is where a machine computes wrongly now and then. What all workers do is the model's or the data's fault.
        """
        bad = {worker.worker: worker.good.count(False) for worker in self if worker.there}
        total = sum(len(self[number].good) for number in bad)
        found = []
        for number, own in bad.items():
            if own >= self._settings.failures:
                sent, others = len(self[number].good), total - len(self[number].good)
                if others and own * others >= _MORE_OFTEN * (sum(bad.values()) - own) * sent:
                    words = f"{own} of its last {sent} gradients failed or were refused: {self[number].error}"
                    found.append((number, words))
        return found

    def shift(self, seconds: float) -> None:
        """Move all instants, where the run's clock is set."""
        for worker in self:
            worker.since, worker.respawn_at = worker.since + seconds, worker.respawn_at + seconds

    def missing(self) -> str:
        """Say who is not there, and why, in one line, however many they are.

        Example:
          >>> Fleet(100, LiveSettings()).missing()
          'worker 0, 1, 2 and 97 more: not started yet'
        """
        why: dict[str, list[str]] = {}
        for worker in self:
            if worker.state not in ("there", "ready"):
                state = "nobody has joined" if not self.starts else "not started yet" if worker.queued else worker.state
                why.setdefault(worker.error or state, []).append(str(worker.worker))
        said = [f"worker {listed(workers, _NAMED)}: {reason}" for reason, workers in why.items()]
        others = sum(len(workers) for workers in list(why.values())[_NAMED:])
        return "; ".join([*said[:_NAMED], *([f"and {counted(others, 'worker')} more"] if others else [])])


class Patience(Remembering):
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

    KEPT = ("times", "doubled")

    def __init__(self, settings: LiveSettings):
        self._settings = settings
        self.times: dict[int, collections.deque[float]] = {}
        self.doubled: collections.Counter[int] = collections.Counter()  # worker -> how often since its last gradient
        self.awake = 0.0  # seconds that the server was awake
        self._looked: float | None = None
        self._most = max(4 * settings.turn_seconds, _LEAST_PAUSE)
        self._expected: dict[int, float] = {}  # worker -> since when, of the time awake, it is to be heard of

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
        if self.doubled.pop(worker, 0):
            self.times.pop(worker, None)  # they were too short for it
        self.times.setdefault(worker, collections.deque(maxlen=_TIMES)).append(seconds)

    def double(self, worker: int) -> None:
        """Allow a worker twice as long as before: it was silent for too long, and begins again."""
        self.doubled[worker] += 1

    def usual(self, worker: int) -> float | None:
        """Return the median of a worker's last times; None before the first."""
        return statistics.median(self.times[worker]) if self.times.get(worker) else None

    def newest(self, worker: int) -> float | None:
        """Return a worker's last time; None before the first."""
        return self.times[worker][-1] if self.times.get(worker) else None

    def allowed(self, worker: int) -> float:
        """Return the seconds of silence that are allowed while it computes."""
        usual, settings = self.usual(worker), self._settings
        seconds = settings.first_patience if usual is None else settings.patience * usual
        return max(seconds, settings.least_patience) * 2 ** self.doubled[worker]

    def silence(self, worker: int) -> float:
        """Return the seconds for which a worker has been expected to be heard of."""
        return self.awake - self._expected.get(worker, self.awake)

    def overdue(self, worker: int) -> bool:
        """Return True if it has been silent for too long."""
        return self.silence(worker) > self.allowed(worker)

    def hopeless(self, worker: int, *, starting: bool = False) -> bool:
        """Return True if it has been silent, or starting, for so long that its process is to be killed."""
        if starting:
            return self.silence(worker) > self._settings.join_seconds * 2 ** min(self.doubled[worker], _DOUBLED)
        return self.silence(worker) > self._settings.kill_patience * self.allowed(worker)


NOT_FINITE = "its gradient, or what came with it, was not finite (NaN or infinite)"
"""Reason for refusing a gradient: statistics that came with it would stay in those of the server."""


def processes(joined: Iterable[Joined]) -> str:
    """Say which processes the workers are, for a person who looks for one.

    Example:
      >>> processes([Joined(0, 4711, "here"), Joined(1, 17, "there"), Joined(3, 4713, "here")])
      'on here 0 is process 4711, 3 is process 4713; on there 1 is process 17'
    """
    hosts: dict[str, list[Joined]] = {}
    for worker in joined:
        hosts.setdefault(worker.host, []).append(worker)
    named = lambda workers: [f"{worker.worker} is process {worker.process}" for worker in workers[:_PROCESSES]]
    more = lambda workers: [f"{len(workers) - _PROCESSES} more"] if len(workers) > _PROCESSES else []
    return "; ".join(f"on {host} {', '.join([*named(workers), *more(workers)])}" for host, workers in hosts.items())


def lost(worker: Worker, now: float, *, starts: bool = True) -> str:
    """Say that a worker's process is gone, after it was counted as lost, and when another one is started, or may join.

    Example:
      >>> lost(Worker(3, error="killed by SIGKILL", respawn_at=2.5), 2.0)
      'worker 3 is lost: killed by SIGKILL; started again in 0.5 s'
      >>> lost(Worker(3, error="its connection has ended", respawn_at=2.5), 2.0, starts=False)
      'worker 3 is lost: its connection has ended; its place is free in 0.5 s'
    """
    then = "started again" if starts else "its place is free"
    return f"worker {worker.worker} is lost: {worker.error}; {then} in {worker.respawn_at - now:.1f} s"


def not_started(seconds: float) -> str:
    """Say why a process was given up before it was ready."""
    return f"it was not ready {seconds:.0f} s after its start, and was killed"


def failing(bad: int, worker: int, error: str, fate: str) -> str:
    """Say why a run cannot go on whose last gradients were all bad; `error` and `fate` are of the last one."""
    if fate == "refused":
        return (
            f"the last {bad} gradients of all workers were not finite: they overflow, or the parameters have diverged; "
            "a smaller learning rate, or clip_norm, may help"
        )
    return f"the last {bad} gradients of all workers failed; of worker {worker}: {error}"
