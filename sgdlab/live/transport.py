"""`Transport`, how parameters get to workers and gradients back; the server knows these calls and nothing else."""

from collections.abc import Hashable
from typing import Any, Protocol

from sgdlab.live.lives import ANEW
from sgdlab.live.messages import Message

Tree = Any


class Transport(Protocol):
    """Workers, and the ways to them. All calls come from one thread; none but `next` and `close` may wait."""

    def time(self) -> float:
        """Seconds since some instant; it never falls."""
        ...

    def spawn(self, worker: int) -> None:
        """Starts a process for a worker: `Joined` follows, or `Lost`.

        A worker that is ready already, as after another run on the same transport, is answered by `Joined` at once;
        nothing that it was sent before is answered any more. For one that is starting, `Joined` follows when it is
        ready.
        """
        ...

    def publish(self, tree: Tree) -> Hashable:
        """Makes a version of the parameters available to workers; called once a version.

        Returns:
          A handle of it.
        """
        ...

    def release(self, handle: Any) -> None:
        """Nobody will begin another gradient on that version, and no ticket on it is valid any more."""
        ...

    def begin(self, worker: int, ticket: int, handle: Hashable, *, after: int = ANEW, version: int = 0) -> None:
        """Sends a worker its next gradient; a worker that has ended is reported by `Lost`, not by an exception.

        Args:
          worker: its number.
          ticket: of the gradient.
          handle: of the version to compute it on.
          after: the ticket from after which the worker goes on, if it keeps anything; `ANEW`: it begins anew.
          version: the number of that version.
        """
        ...

    def interrupt(self, worker: int, ticket: int) -> None:
        """Tells a worker to give up a gradient, if it still computes it."""
        ...

    def kill(self, worker: int) -> None:
        """Ends a worker's process, wherever it is; no message of it follows, not even `Lost`."""
        ...

    def next(self, timeout: float | None) -> list[Message]:
        """All messages that have come, the earlier question's answer first; [] after `timeout` seconds (None: none).

        A gradient's arrays are valid until its worker's next `begin`: who needs them longer copies them.
        """
        ...

    def close(self) -> None:
        """Ends all workers; no process is left behind."""
        ...
