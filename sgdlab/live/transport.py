"""`Transport`, all that the server knows of its workers, `Workers`, what those in processes share, and `Clock`."""

import math
import os
import pathlib
import sys
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from sgdlab.live import environment
from sgdlab.live.messages import Came, Failed, GaveUp, Joined, Message
from sgdlab.live.shared_arrays import MemoryLayout
from sgdlab.types import Tree

if TYPE_CHECKING:
    from sgdlab.live.work import WorkSource

_NOTHING: Mapping[str, str] = MappingProxyType({})
ANEW = -1
"""In the place of a ticket: the process has sent nothing that was used, and begins with nothing of its own."""


class Transport(Protocol):
    """Workers, and the ways to them. All calls come from one thread; none but `next` and `close` may wait.

    Attributes:
      at_once: how many processes may start at the same time.
    """

    STARTS: bool = True
    """True where `spawn` starts a process, so that something is wrong if none joins."""

    at_once: int

    def time(self) -> float:
        """Return seconds since some instant; they never fall."""
        ...

    def spawn(self, worker: int) -> None:
        """Start a process for a worker: `Joined` follows, or `Lost`.

        A worker that is ready already, as after another run on the same transport, is answered by `Joined` at once;
        nothing that it was sent before is answered any more. For one that is starting, `Joined` follows when it is
        ready.
        """
        ...

    def publish(self, tree: Tree) -> Any:
        """Make a version of the parameters available to workers, and return its handle; called once a version."""
        ...

    def release(self, handle: Any) -> None:
        """Give a version up: nobody will begin another gradient on it, and no ticket on it is valid any more."""
        ...

    def begin(self, worker: int, ticket: int, handle: Any, *, after: int = ANEW, version: int = 0) -> None:
        """Send a worker its next gradient; a worker that has ended is reported by `Lost`, not by an exception.

        Args:
          worker: its number.
          ticket: of the gradient.
          handle: of the version to compute it on.
          after: the ticket from after which the worker goes on, if it keeps anything; `ANEW`: it begins anew.
          version: the number of that version.
        """
        ...

    def interrupt(self, worker: int, ticket: int) -> None:
        """Tell a worker to give up a gradient, if it still computes it."""
        ...

    def kill(self, worker: int) -> None:
        """End a worker's process, wherever it is; no message of it follows, not even `Lost`."""
        ...

    def next(self, timeout: float | None) -> list[Message]:
        """Return all messages that have come, the earlier question's answer first.

        A gradient's arrays are valid until its worker's next `begin`: who needs them longer copies them.

        Args:
          timeout: seconds after which it returns []; None: it waits for a message.
        """
        ...

    def close(self) -> None:
        """End all workers; no process is left behind."""
        ...


class Nobody:
    """A `Transport` without workers, while a log is read: what it is told was told before, and no time passes."""

    STARTS, at_once = True, 1

    def time(self) -> float:
        """Return 0."""
        return 0.0

    def next(self, timeout: float | None) -> list[Message]:
        """Return no message."""
        return []

    def _ignore(self, *told: Any, **given: Any) -> None:
        """Do nothing."""

    spawn = publish = release = begin = interrupt = kill = close = _ignore


class Clock:
    """Seconds since the start of a run, by one clock alone: no two machines' clocks are compared.

    Args:
      time: seconds since some instant; it never falls.

    Example:
      >>> clock = Clock(lambda: 7.0)
      >>> clock.start()
      >>> clock.reading(), clock.event() > 0.0
      (0.0, True)
    """

    def __init__(self, time: Callable[[], float]):
        self._time, self._begin, self.last = time, time(), 0.0

    def start(self) -> None:
        """Let the clock run, from its last reading on."""
        self._begin = self._time() - self.last

    def now(self) -> float:
        """Return seconds, for what is not recorded."""
        return max(self._time() - self._begin, self.last)

    def reading(self) -> float:
        """Return seconds, no earlier than the last event or reading."""
        self.last = self.now()
        return self.last

    def event(self) -> float:
        """Return the instant of an event, later than all before: the order of a record's rows is that of its times."""
        self.last = max(self._time() - self._begin, math.nextafter(self.last, math.inf))
        return self.last

    def resume(self, last: float) -> None:
        """Set the clock to an instant that was read before, where it stands until `start`."""
        self.last = last


class WorkerLink:
    """The way to one process of a worker, from its start to its end, and what it was asked for: the base class of ways.

    Attributes:
      joined: what it said when it was ready; None before.
      run: how many runs it has served before; what it says of another one is passed over.
      void: largest ticket of this run that it was told to give up.
      question: the last ticket that it was asked for.
    """

    def __init__(self) -> None:
        self.joined: Any = None
        self.run, self.void, self.question = 0, -1, -1

    def begin(self, ticket: int, handle: Any, **kept: int) -> None:
        """Ask for a gradient on a version of the parameters; `after` and `version` as of `Transport.begin`."""
        self.question = ticket
        self._ask({"run": self.run, "ticket": ticket, **kept}, handle)

    def interrupt(self, ticket: int) -> None:
        """Tell it to give up what it was asked for, up to `ticket`."""
        self.void = max(self.void, ticket)
        self._give_up({"run": self.run, "ticket": ticket})

    def begin_run(self) -> None:
        """Void everything that it was asked for: the tickets of a new run begin at 0 again."""
        self.interrupt(sys.maxsize)
        self.run, self.void, self.question = self.run + 1, -1, -1

    def is_gone(self) -> bool:
        """Return True if it has ended, and nobody was told."""
        return False

    def kill(self) -> None:
        """End it without a message."""
        raise NotImplementedError

    def _ask(self, asked: dict[str, int], handle: Any) -> None:
        raise NotImplementedError

    def _give_up(self, asked: dict[str, int]) -> None:
        raise NotImplementedError


class Workers:
    """Workers in processes of their own: the base class of `sgdlab.live.transport.Transport`s.

    Each `begin` that reaches a living worker is answered once, by `Came`, `GaveUp` or `Failed`.

    Args:
      source: where a worker finds what it computes; None: it knows.
      params_like: arrays, or `jax.ShapeDtypeStruct`s, like the parameters.
      aux_like: the same of what the gradient function returns beside gradients.
      num_workers: the largest number of workers at once; their numbers are 0, ..., `num_workers` - 1.
      sent_like: the same of what workers send in the place of gradients; None: they are like the parameters.
      env: environment variables of workers that win over those of `sgdlab.live.environment`.
      gpus_per_worker: GPUs of a worker, such as 1 or 0.5; None: workers compute on the CPU.
      logs: a folder for what workers print, worker_0.log and so on; None: they print where this process does.

    Raises:
      ValueError: if the source cannot be found by another process, or there are not GPUs enough.

    Attributes:
      at_once: how many processes may start at the same time: more than two for each core make all of them late. A
        cluster has cores enough.
    """

    FIRST: int | None = 0
    """The worker of whose devices `sgdlab.live.environment.devices` is asked; None where a cluster gives them out."""

    STARTS = True

    def __init__(
        self,
        source: "WorkSource | None",
        params_like: Tree,
        aux_like: Tree,
        *,
        num_workers: int,
        sent_like: Tree = None,
        env: Mapping[str, str] = _NOTHING,
        gpus_per_worker: float | None = None,
        logs: str | os.PathLike[str] | None = None,
    ):
        if source is not None:
            source.check()
        environment.devices(self.FIRST, num_workers, gpus_per_worker)
        self._source: Any = source
        self._num_workers, self._env, self._gpus_per_worker = num_workers, env, gpus_per_worker
        self._logs = None if logs is None else pathlib.Path(logs)
        own = self.STARTS and self.FIRST is not None
        self.at_once = 2 * environment.own_cores() if own else num_workers
        self._params = MemoryLayout(params_like)
        self._answer = MemoryLayout({"params": params_like if sent_like is None else sent_like, "aux": aux_like})
        self._workers: dict[int, Any] = {}  # worker -> its `WorkerLink`
        self._said: list[Message] = []  # what is known without a process having said it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers."""
        raise NotImplementedError

    def time(self) -> float:
        """Return seconds."""
        return time.monotonic()

    def spawn(self, worker: int) -> None:
        """Start a process for a worker, or let one that is there serve a new run, whose tickets begin at 0 again."""
        if not 0 <= worker < self._num_workers:
            raise ValueError(f"worker={worker} must be from 0 to {self._num_workers - 1}")
        link = self._workers.get(worker)
        if link is None or link.is_gone():
            self._forget(worker)
            self._begin_process(worker)
        elif link.joined is not None:
            link.begin_run()
            self._said.append(link.joined)

    def begin(self, worker: int, ticket: int, handle: Any, *, after: int = ANEW, version: int = 0) -> None:
        """Send a worker its next gradient, and the parameters if it does not have them."""
        if worker in self._workers:
            self._workers[worker].begin(ticket, handle, after=after, version=version)

    def interrupt(self, worker: int, ticket: int) -> None:
        """Tell a worker to give up a gradient; `GaveUp` answers, also if it has sent the gradient already."""
        if worker in self._workers:
            self._workers[worker].interrupt(ticket)

    def release(self, handle: Any) -> None:
        """Do nothing: who gives a version up holds its handle no longer."""

    def kill(self, worker: int) -> None:
        """End a worker's process without a message."""
        self._said = [message for message in self._said if message.worker != worker]
        if (link := self._forget(worker)) is not None:
            link.kill()

    def next(self, timeout: float | None) -> list[Message]:
        """Return all messages that have come, the earlier question's answer first; [] after `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        found: list[tuple[int, Message]] = [(-1, message) for message in self._said]
        self._said.clear()
        while True:
            left = None if end is None else max(end - time.monotonic(), 0.0)
            found += self._receive(0.0 if found else left)
            if found or left == 0:
                found.sort(key=lambda pair: pair[0])  # stable: what one worker said stays in its order
                return [message for _, message in found]

    def _begin_process(self, worker: int) -> None:
        """Start a process of a worker that has none."""
        raise NotImplementedError

    def _forget(self, worker: int) -> WorkerLink | None:
        """Let a worker have no process any more, and return the way to the one that it had."""
        raise NotImplementedError

    def _receive(self, seconds: float | None) -> list[tuple[int, Message]]:
        """Return what has come within some seconds, or sooner, each with the number of its question."""
        raise NotImplementedError

    def _log(self, worker: int) -> pathlib.Path | None:
        """Return the file for what a worker prints."""
        return None if self._logs is None else self._logs / f"worker_{worker}.log"

    def _start(self) -> dict[str, Any]:
        """Return what a worker is told first: the source, where its modules are, and what is sent, as both must see."""
        return {
            "source": {**self._source._asdict(), "modules": dict(self._source.modules)},
            "path": [entry or str(pathlib.Path.cwd()) for entry in sys.path],
            "layout": self._answer.described(),
        }

    def _message(self, worker: int, of: WorkerLink, said: dict[str, Any], memory: Callable[[], np.ndarray]) -> Message:
        """Return the message of what a worker has said.

        Args:
          worker: its number.
          of: the way to its process, whose `joined` is set here.
          said: as `sgdlab.live.gradients.Computer.answer` returns, or {"kind": "joined", "process": ..., "host": ...}.
          memory: `() -> uint8`, where a gradient that came lies.
        """
        match said["kind"]:
            case "joined":
                of.joined = Joined(worker, said["process"], said["host"])
                return of.joined
            case "failed":
                return Failed(worker, said["ticket"], said["error"])
            case "came" if said["ticket"] > of.void:
                tree = self._answer.tree(memory())
                return Came(worker, said["ticket"], tree["params"], tree["aux"], said["seconds"], said.get("finite"))
        # A gradient that crossed its interrupt is nobody's, and the next one may be overwriting it.
        return GaveUp(worker, said["ticket"], said["seconds"])
