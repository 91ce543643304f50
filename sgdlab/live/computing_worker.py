"""`ComputingWorker`, a worker that joins a live run, and learns from its server what it computes."""

from collections.abc import Callable
from typing import Any

from sgdlab.live import frames
from sgdlab.live.fields import aligned
from sgdlab.live.join import JoinedWorker


class ComputingWorker(JoinedWorker):
    """A worker that learns from the server what it computes.

    Args:
      make: makes that of what the server says to worker `worker`: a `sgdlab.live.gradients.Computer`.
      address: as of `join`; `token`, `certificate` and `wait_seconds` too.
    """

    def __init__(
        self, make: Callable[[dict[str, Any]], Any], address: str, token: str, certificate: Any, wait_seconds: float
    ):
        super().__init__(address, token, certificate, None, wait_seconds)
        self._make = make

    def run(self) -> None:
        """Compute all that is asked for, until the run has ended."""
        while (asked := self._next()) is not None:
            line, memory = self._line, asked.memory
            said = self._computer.answer(asked.said, lambda _, memory=memory: memory, self._views, line.void)
            body = frames.chunks(self._computer.sent, self._views) if said["kind"] == "came" else ()
            line.answer(asked, said["kind"], said.get("seconds", 0.0), error=said.get("error", ""), body=body)

    def _prepare(self, line: Any, welcome: dict[str, Any]) -> None:
        if "work" not in welcome:
            raise ConnectionRefusedError(f"{self.address} trains no configuration: `sgdlab.live.join` joins it")
        self._computer = self._make(welcome)
        self._views = self._computer.sent.views(aligned(self._computer.sent.size))
