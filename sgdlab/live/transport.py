"""`Transport`, all that the server knows of its workers and the way to them, and `Clock`, the instants of a run."""

import math
from collections.abc import Callable
from typing import Any, Protocol

from sgdlab.live.messages import Message
from sgdlab.types import Tree

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
