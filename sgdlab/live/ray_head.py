"""`Head`, which notices that the head of a Ray cluster is lost, before Ray ends this process without a line."""

import errno
import os
import socket
import sys
import threading
import time
from collections.abc import Callable

from sgdlab.errors import HostLost
from sgdlab.hosts.lifeline import LOST

SECONDS = 10.0
"""Without an answer, after which the head counts as lost; Ray itself ends this process after 60."""
GRACE = 5.0
"""Seconds in which the main thread may end the process with the line, unless Ray holds it up."""
_INTERVAL, _TIMEOUT = 1.0, 2.0
_OURS = (errno.EMFILE, errno.ENFILE)
"""Errors that say nothing of the head."""


class Head:
    """Calls the head of a cluster once a second, in a thread: `check` raises `HostLost` once it counts as lost.

    Args:
      address: HOST:PORT.
      end: called with exit code 69 where the process has not called `close` a few seconds after that.

    Example:
      >>> with socket.create_server(("127.0.0.1", 0)) as listener:
      ...     head = Head(f"127.0.0.1:{listener.getsockname()[1]}")
      ...     head.check()
      ...     head.close()
    """

    def __init__(self, address: str, *, end: Callable[[int], object] = os._exit):
        self._address, self._end = address, end
        self._closed = threading.Event()
        self.lost = ""  # why, once it is
        threading.Thread(target=self._watch, daemon=True).start()

    def check(self) -> None:
        """Raise HostLost if the head is lost."""
        if self.lost:
            raise HostLost(self.lost)

    def close(self) -> None:
        """End the watch."""
        self._closed.set()

    def _watch(self) -> None:
        heard = last = time.monotonic()
        while not self.lost:
            if self._closed.wait(_INTERVAL):
                return
            answers, now = self._answers(), time.monotonic()
            if answers or now - last > SECONDS / 2:  # or this process itself was suspended
                heard = now
            last = now
            if now - heard > SECONDS:
                self.lost = (
                    f"the head of the Ray cluster, {self._address}, has not answered for {SECONDS:g} s; once it is "
                    "started again, the same command continues"
                )
        if not self._closed.wait(GRACE):
            sys.stderr.write(f"error: {self.lost}\n")
            sys.stderr.flush()
            self._end(LOST)

    def _answers(self) -> bool:
        try:
            call(self._address)
        except OSError as error:
            return error.errno in _OURS
        return True


def call(address: str) -> None:
    """Connect to HOST:PORT for a moment; OSError where nobody answers within two seconds."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=_TIMEOUT).close()
