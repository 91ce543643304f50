"""`Fleet`, the workers of a live run and their states, and what went wrong with them, in words."""

import dataclasses
from collections.abc import Iterable

from sgdlab.live.messages import Joined
from sgdlab.live.settings import LiveSettings
from sgdlab.live.transport import ANEW

_MOST_SECONDS = 60.0


@dataclasses.dataclass
class Worker:
    """A worker, as the server knows it.

    What a worker keeps from one message to its next, such as the state of its optimizer, is what it had after the last
    of its messages that was used: one that was not leaves no trace, as in a simulation. Each process that joins has
    nothing, and begins anew. A worker that was silent, and whose process lives, goes on.
    """

    worker: int  # its number
    state: str = "down"  # no process; or "starting", "there", "silent" (its process may live), "gone" (for good)
    since: float = 0.0  # seconds, of the run's clock: in this state, or when it began to compute or to wait
    process: int | None = None  # number of its process; None before it has joined
    host: str = ""
    life: int = -1  # which of its processes it is, counted from 0
    after: int = ANEW  # ticket of its last message that was used, from after which its process goes on
    respawn_at: float = 0.0  # if it is down, seconds, when a process is to be started
    respawns: int = 0  # how often its process was started again
    deaths: int = 0  # how often it was lost in a row, without a gradient in between
    failures: int = 0  # how many of its gradients failed or were refused in a row
    came: int = 0  # how many of its gradients have come
    idle: float = 0.0  # seconds that it has waited for others
    error: str = ""  # the last thing that went wrong with it

    @property
    def there(self) -> bool:
        """Return True if the policy counts on it."""
        return self.state == "there"

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
        self.enters("there", now)

    def computes(self, now: float) -> None:
        """Begin to count its time as its own: it has waited, and computes."""
        self.idle, self.since = self.idle + (now - self.since), now

    def sent_good(self) -> None:
        """Count a good gradient that has come."""
        self.came, self.deaths, self.failures = self.came + 1, 0, 0

    def restarted(self, now: float) -> None:
        """Count its process as gone by no fault of its own."""
        self.respawn_at, self.deaths, self.failures, self.process = now, 0, 0, None
        self.enters("down", now)


class Fleet(list[Worker]):
    """All workers that may ever take part, by number.

    Example:
      >>> fleet = Fleet(2, LiveSettings(respawns=1, respawn_seconds=0.5))
      >>> fleet[0].spawned(0.0), fleet[0].joined(17, "here", now=1.0)
      (None, None)
      >>> fleet.ended(0, "killed by SIGKILL", 3.0)
      >>> fleet[0].respawn_at, fleet.due(3.4), fleet.due(3.5)
      (3.5, [1], [0, 1])
      >>> fleet[0].spawned(3.5), fleet.ended(0, "exit code 1", 4.0)
      (None, None)
      >>> fleet[0].state, fleet.missing()
      ('gone', 'worker 0: exit code 1; worker 1: down')
    """

    def __init__(self, num_workers: int, settings: LiveSettings):
        super().__init__(Worker(number) for number in range(num_workers))
        self._settings = settings

    def there(self) -> list[int]:
        """Return the workers that the policy counts on."""
        return [worker.worker for worker in self if worker.there]

    def can_come(self) -> int:
        """Return how many workers are there or can still come."""
        return sum(worker.state != "gone" for worker in self)

    def due(self, now: float) -> list[int]:
        """Return the workers for which a process is to be started at this instant."""
        return [worker.worker for worker in self if worker.state == "down" and worker.respawn_at <= now]

    def ended(self, number: int, error: str, now: float) -> None:
        """Count a process as gone; another is started after a while, unless that has helped too seldom."""
        worker = self[number]
        worker.error, worker.failures = error, 0
        worker.respawn_at = now + min(self._settings.respawn_seconds * 2**worker.deaths, _MOST_SECONDS)
        worker.deaths += 1
        worker.enters("gone" if worker.deaths > self._settings.respawns else "down", now)

    def failed(self, number: int, error: str) -> bool:
        """Count a gradient that failed or was refused; return True if it was one too many in a row."""
        worker = self[number]
        worker.error, worker.failures = error, worker.failures + 1
        return worker.failures >= self._settings.failures

    def shift(self, seconds: float) -> None:
        """Move all instants, where the run's clock is set."""
        for worker in self:
            worker.since, worker.respawn_at = worker.since + seconds, worker.respawn_at + seconds

    def missing(self) -> str:
        """Say who is not there, and why."""
        return "; ".join(
            f"worker {worker.worker}: {worker.error or worker.state}" for worker in self if not worker.there
        )


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
    listed = lambda workers: ", ".join(f"{worker.worker} is process {worker.process}" for worker in workers)
    return "; ".join(f"on {host} {listed(workers)}" for host, workers in hosts.items())


def lost(worker: Worker, now: float) -> str:
    """Say that a worker's process is gone, after it was counted as lost, and whether another one is started.

    Example:
      >>> lost(Worker(3, error="killed by SIGKILL", respawn_at=2.5), 2.0)
      'worker 3 is lost: killed by SIGKILL; started again in 0.5 s'
    """
    then = "" if worker.state == "gone" else f"; started again in {worker.respawn_at - now:.1f} s"
    return f"worker {worker.worker} is lost: {worker.error}{then}"


def failing(bad: int, worker: int, error: str, fate: str) -> str:
    """Say why a run cannot go on whose last gradients were all bad; `error` and `fate` are of the last one."""
    if fate == "refused":
        return (
            f"the last {bad} gradients of all workers were not finite: the parameters have diverged; a smaller "
            "learning rate, or clip_norm, may help"
        )
    return f"the last {bad} gradients of all workers failed; of worker {worker}: {error}"
