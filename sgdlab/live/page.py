"""A live run as a page in the browser of the same machine: it shows, and changes nothing."""

import collections
from typing import Any

from sgdlab.live.status import Status
from sgdlab.report.status_page import StatusPage

STRIP_SECONDS = 60.0
"""The page shows what each worker did for so long."""
CURVE_POINTS = 500
"""A curve has at most so many points; then every second one is left out."""


class RunPage(StatusPage):
    """Shows the newest `Status`, and what is kept of earlier ones, for pages that are opened in the middle of a run."""

    def __init__(self, port: int = 0):
        self._recent: collections.deque[tuple[float, str]] = collections.deque()
        self._curve: list[tuple[int, float | None, float]] = []
        self._every, self._shown = 1, 0
        super().__init__("sgdlab.live", port, {"/history.json": self._history})

    def show(self, state: Status) -> None:
        """Make a status the newest one."""
        with self._lock:
            if self._state is not None and state.seconds < self._state.seconds:  # the clock has begun, or begins anew
                self._recent.clear()
                self._curve.clear()
                self._every, self._shown = 1, 0
            self._recent.append((state.seconds, "".join(worker.state[:1] for worker in state.workers)))
            while self._recent[0][0] < state.seconds - STRIP_SECONDS:
                self._recent.popleft()
            if self._shown % self._every == 0:
                self._curve.append((state.gradients, state.loss, state.gradients_per_second))
            if len(self._curve) > CURVE_POINTS:
                self._curve = self._curve[::2]
                self._every *= 2
            self._shown += 1
            super().show(state)

    def _history(self) -> dict[str, Any]:
        with self._lock:
            return {"recent": list(self._recent), "curve": list(self._curve)}
