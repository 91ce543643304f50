"""`Callers`, the connections of whoever calls process 0 while it waits: nobody may end the wait, or fill its memory."""

import contextlib
import dataclasses
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

from sgdlab.hosts import messages
from sgdlab.hosts.secret import Seal

_MOST_STRANGERS = 64
"""Connections of those that have not said who they are; more close the oldest of them."""
_SECONDS_TO_SAY = 10.0
"""Seconds after which who has not said who it is does not come from one of ours."""
_MOST_LINES = 20
"""Lines about those that were refused; whoever tries again and again is not said each time."""
_PAUSE = 0.1
"""Seconds after a connection that could not be accepted."""


@dataclasses.dataclass(eq=False)
class Caller:
    """Somebody who has connected."""

    connection: socket.socket
    address: str  # of its host
    inbox: messages.Inbox  # what comes from it
    seal: Seal  # what proves messages to it, and its own
    since: float = dataclasses.field(default_factory=time.monotonic)
    said: bool = False  # a message of its has come, with the proof where one is asked for
    hello: Any = None  # that message, where it belongs to this run; until then it is a stranger


class Callers:
    """Takes in connections, and reads what comes over them; `all` has those that are open, the oldest first.

    Args:
      listener: to whom they connect.
      secret: that they have to prove, one after the other; b"" for none.
    """

    def __init__(self, listener: socket.socket, secret: bytes = b""):
        self._listener, self._selector, self._secret = listener, selectors.DefaultSelector(), secret
        self.all: list[Caller] = []
        self._said: set[str] = set()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    def __enter__(self) -> "Callers":
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        for caller in self.strangers() if kind is None else self.all:
            caller.connection.close()
        self._selector.close()

    def strangers(self) -> list[Caller]:
        """Return those that have not said who they are, the oldest first."""
        return [caller for caller in self.all if caller.hello is None]

    def next(self, seconds: float) -> Iterator[tuple[Caller, bytes]]:
        """Wait for what comes, for so many seconds at most, and yield each line with the caller who sent it."""
        for key, _ in self._selector.select(seconds):
            if key.data is None:
                self._accept()
            else:
                yield from self._lines(key.data)
        strangers, late = self.strangers(), time.monotonic() - _SECONDS_TO_SAY
        for place, caller in enumerate(strangers):
            if caller.since < late:
                self.refuse(caller, f"it has not said who it is in {_SECONDS_TO_SAY:g} s")
            elif place < len(strangers) - _MOST_STRANGERS:
                self.refuse(caller, f"{_MOST_STRANGERS} that have not said who they are have connected after it")

    def refuse(self, caller: Caller, why: str) -> None:
        """Tell one that does not belong to this run so, say it in a line, and end its connection."""
        why = messages.cut(why)
        self._say(f"refused {caller.address}: {why}")
        with contextlib.suppress(OSError):
            caller.connection.sendall(caller.seal.sealed({"why": why, "lost": False}))
        self.forget(caller)

    def _accept(self) -> None:
        try:
            connection, (address, *_) = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # it has gone meanwhile
        except OSError as error:
            self._say(f"a connection cannot be accepted: {error.strerror}")
            for caller in self.strangers()[:1]:  # its descriptor may be the one that is lacking
                self.forget(caller)
            time.sleep(_PAUSE)
            return
        connection.settimeout(1.0)
        caller = Caller(connection, address, messages.Inbox(connection), Seal(self._secret, is_first=True))
        with contextlib.suppress(OSError):  # one that has gone meanwhile is noticed by reading
            connection.sendall(caller.seal.greeting)
        self.all.append(caller)
        self._selector.register(connection, selectors.EVENT_READ, caller)

    def _lines(self, caller: Caller) -> Iterator[tuple[Caller, bytes]]:
        """Yield the lines of a caller that are whole now."""
        try:
            lines = caller.inbox.lines() if caller in self.all else []
        except OSError:
            self.forget(caller)  # it ended, such as one that is started again
        except ValueError as error:
            self.refuse(caller, str(error))
        else:
            yield from ((caller, line) for line in lines if caller in self.all)

    def forget(self, caller: Caller) -> None:
        """End a connection."""
        self._selector.unregister(caller.connection)
        self.all.remove(caller)
        caller.connection.close()

    def _say(self, line: str) -> None:
        if line not in self._said and len(self._said) < _MOST_LINES:
            self._said.add(line)
            print(line, file=sys.stderr, flush=True)
