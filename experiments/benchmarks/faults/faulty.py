"""`Faulty`, a transport that does to its workers what a scenario says, and counts what it sees."""

import pathlib
import time
from collections.abc import Hashable

from experiments.benchmarks.faults.acts import Acts
from experiments.benchmarks.faults.scenario import Scenario, Step
from sgdlab.live.messages import Came, Joined, Lost, Message
from sgdlab.live.transport import Transport

_AFTERWARDS = 12
"""Gradients that come after the last worker is back, before the run may end."""
_PAUSE = 0.05


class Faulty(Acts):
    """Between a server and its workers.

    Attributes:
      tickets: all tickets, in the order in which their gradients were begun.
      pids: process numbers of all workers that have joined.
      recovery: seconds from the last step to the first gradient, begun after it, of the last of the affected workers.
    """

    def __init__(self, transport: Transport, scenario: Scenario, folder: pathlib.Path, *, seconds: float):
        super().__init__(transport, folder, seconds=seconds, absent=scenario.absent)
        self._affected, self._steps = scenario.affected, list(scenario.steps)
        self.tickets: list[int] = []
        self.pids: set[int] = set()
        self.recovery: float | None = None
        self._came, self._came_before, self._since = 0, 0, time.monotonic()
        self._mark, self._back = 0, set()  # tickets begun since the last step, and workers that have answered one
        self._came_at_end = 0

    @property
    def finished(self) -> bool:
        """Return whether everything was done, the workers are back, and the run has gone on for a while."""
        return self.recovery is not None and self._came >= self._came_at_end

    @property
    def missing(self) -> set[int]:
        """Return the affected workers that are not back."""
        return self._affected - self._back

    def begin(self, worker: int, ticket: int, handle: Hashable, **kept: int) -> None:
        """As the other does."""
        self.tickets.append(ticket)
        self.asked[worker] = time.monotonic()
        self.inner.begin(worker, ticket, handle, **kept)

    def kill(self, worker: int) -> None:
        """As the other does."""
        self.alive.pop(worker, None)
        self.inner.kill(worker)

    def next(self, timeout: float | None) -> list[Message]:
        """Return the messages, after what is due was done."""
        self.kill_due()
        while self._steps and self._is_due(self._steps[0]):
            left = self._left_of(self._steps[0])
            if left is not None:
                self._steps[0] = left
                break
            self._steps.pop(0)
            self._since, self._came_before = time.monotonic(), self._came
            self._mark, self._back = len(self.tickets), set()
        soon = (self._steps or self.busy) and timeout is not None
        messages = super().next(min(timeout, _PAUSE) if soon else timeout)
        for message in messages:
            self._see(message)
        return messages

    def _is_due(self, step: Step) -> bool:
        return self._came - self._came_before >= step.after and time.monotonic() - self._since >= step.seconds

    def _left_of(self, step: Step) -> Step | None:
        """Does a step, to all at once; what is left of it, for those to whom it cannot be done yet."""
        act = getattr(self, step.act)
        if not step.workers:
            return None if act() else step
        left = tuple(worker for worker in step.workers if not act(worker))
        return step._replace(workers=left, after=0, seconds=0.0) if left else None

    def _see(self, message: Message) -> None:
        worker = message.worker
        if isinstance(message, Joined):
            self.pids.add(message.process)
            self.alive[worker] = message.process
        elif isinstance(message, Lost):
            self.alive.pop(worker, None)
        if not isinstance(message, Joined):
            self.asked.pop(worker, None)
        if not isinstance(message, Came):
            return
        self._came += 1
        if worker in self.dead:
            self.dead.remove(worker)
            self.notes["heard after its death"] = 1
        if self._steps:
            return
        if message.ticket >= self._mark:
            self._back.add(worker)
        if not self.missing and not self.growing and self.recovery is None:
            self.recovery = time.monotonic() - self._since
            self._came_at_end = self._came + _AFTERWARDS
