"""A live run as a page in the browser of the same machine: it shows, and changes nothing."""

import collections
import dataclasses
import importlib.resources
import threading
import time
from typing import Any, Self

from sgdlab.live.status import Status
from sgdlab.loopback import Loopback

STRIP_SECONDS = 60.0
"""The page shows what each worker did for so long."""
CURVE_POINTS = 500
"""A curve has at most so many points; then every second one is left out."""


class StatusPage:
    """Serves the newest `Status` on loopback, to whoever is logged in on this machine.

    `show` only keeps the status, so that the server of the run is not held up; requests are answered by other threads.
    To look from elsewhere, forward the port: `ssh -L 8000:127.0.0.1:PORT machine`.

    Args:
      port: where to listen; 0 takes a free port.

    Attributes:
      address: what to open in a browser.

    Raises:
      ValueError: if the port cannot be used.
    """

    def __init__(self, port: int = 0):
        self._run = _Run()
        text = (importlib.resources.files("sgdlab.live") / "page.html").read_text(encoding="utf-8")
        answers = {"/status.json": self._run.status, "/history.json": self._run.history}
        self._served = Loopback(text, answers, port)
        self.address = self._served.address

    def show(self, status: Status) -> None:
        """Makes a status the newest one."""
        self._run.show(status)

    def close(self, patience: float = 1.5) -> None:
        """Ends the page; those who watch it are given `patience` seconds to read the last status."""
        self._served.close(self._run.is_awaited, patience)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Run:
    """The newest status, and what is kept of earlier ones, for pages that are opened in the middle of a run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._status: Status | None = None
        self._recent: collections.deque[tuple[float, str]] = collections.deque()
        self._curve: list[tuple[int, float | None, float]] = []
        self._every, self._shown = 1, 0
        self._asked = float("-inf")
        self._is_read = True

    def show(self, status: Status) -> None:
        with self._lock:
            if (
                self._status is not None and status.seconds < self._status.seconds
            ):  # the clock has begun, or begins anew
                self._recent.clear()
                self._curve.clear()
                self._every, self._shown = 1, 0
            self._status, self._is_read = status, False
            self._recent.append((status.seconds, "".join(worker.state[:1] for worker in status.workers)))
            while self._recent[0][0] < status.seconds - STRIP_SECONDS:
                self._recent.popleft()
            if self._shown % self._every == 0:
                self._curve.append((status.gradients, status.loss, status.gradients_per_second))
            if len(self._curve) > CURVE_POINTS:
                self._curve = self._curve[::2]
                self._every *= 2
            self._shown += 1

    def status(self) -> dict[str, Any] | None:
        with self._lock:
            status, self._is_read, self._asked = self._status, True, time.monotonic()
        return None if status is None else dataclasses.asdict(status)

    def history(self) -> dict[str, Any]:
        with self._lock:
            return {"recent": list(self._recent), "curve": list(self._curve)}

    def is_awaited(self) -> bool:
        """Return True if somebody watches who has not read the newest status."""
        with self._lock:
            return not self._is_read and time.monotonic() - self._asked < 2
