"""The watch on a trace as a page in the browser of the same machine: it shows, and changes nothing."""

import importlib.resources
import threading
import time
from typing import Any, Self

from sgdlab.loopback import Loopback


class WatchPage:
    """Serves the newest state on loopback, to whoever is logged in on this machine.

    Args:
      port: where to listen; 0 takes a free port.

    Attributes:
      address: what to open in a browser.

    Raises:
      ValueError: if the port cannot be used.
    """

    def __init__(self, port: int = 0):
        self._lock = threading.Lock()
        self._state: dict[str, Any] | None = None
        self._asked, self._is_read = float("-inf"), True
        text = (importlib.resources.files("sgdlab.watch") / "page.html").read_text(encoding="utf-8")
        self._served = Loopback(text, {"/status.json": self._read}, port)
        self.address = self._served.address

    def show(self, state: dict[str, Any]) -> None:
        """Makes a state, as of `Follower.state`, the newest one."""
        with self._lock:
            self._state, self._is_read = state, False

    def close(self, patience: float = 1.5) -> None:
        """Ends the page; those who watch it are given `patience` seconds to read the last state."""
        self._served.close(self._is_awaited, patience)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> dict[str, Any] | None:
        with self._lock:
            self._is_read, self._asked = True, time.monotonic()
            return self._state

    def _is_awaited(self) -> bool:
        """Whether somebody watches who has not read the newest state."""
        with self._lock:
            return not self._is_read and time.monotonic() - self._asked < 2
