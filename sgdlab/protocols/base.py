"""`Base`, what policies share: which workers are there, what each of them computes on, and the number of updates."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from sgdlab.protocols.policy import Action, Begin, Close


@dataclasses.dataclass
class Base:
    """A policy that starts all workers, and restarts whoever joins; subclasses say what an arrival means.

    All state is in fields that compare by value: two policies that were told the same are equal.

    Attributes:
      version: number of updates that were closed, which is the newest version.
      busy: worker -> the version that it computes on.
      alive: workers that are there, whether they compute or wait.
    """

    version: int = dataclasses.field(default=0, init=False)
    busy: dict[int, int] = dataclasses.field(default_factory=dict, init=False)
    alive: set[int] = dataclasses.field(default_factory=set, init=False)

    @property
    def single(self) -> bool:
        """Tell whether every update has exactly one gradient."""
        return False

    def wanted(self) -> int | None:
        """Return how many gradients the open update wants; None where that is not said."""
        return None

    def start(self, workers: Sequence[int]) -> list[Action]:
        """All workers begin on the initial parameters."""
        self.alive = set(workers)
        return self.begin(sorted(workers))

    def arrived(self, now: float, worker: int, version: int, seconds: float) -> list[Action]:
        """Say what becomes of a gradient, and what its worker does next; `arrival` decides."""
        del self.busy[worker]
        return self.arrival(now, worker, version, seconds)

    def arrival(self, now: float, worker: int, version: int, seconds: float) -> list[Action]:
        """The actions of `arrived`; the worker is idle by now, and busy again where `begin` names it."""
        raise NotImplementedError

    def timer(self, now: float) -> list[Action]:
        """Do nothing: without a `Wake` there is no timer."""
        return []

    def lost(self, now: float, worker: int) -> list[Action]:
        """The worker is forgotten, with what it computed; `after_loss` says what others do because of it."""
        self.alive.discard(worker)
        self.busy.pop(worker, None)
        return self.after_loss(now)

    def after_loss(self, now: float) -> list[Action]:
        """Do nothing: nobody waits for the worker that was lost."""
        return []

    def joined(self, now: float, worker: int) -> list[Action]:
        """The worker begins on the newest version."""
        self.alive.add(worker)
        return self.begin([worker])

    def warm(self) -> None:
        """Do nothing: no program is compiled."""

    def prepare(self) -> None:
        """Do nothing: no answer takes long."""

    def begin(self, workers: Iterable[int]) -> list[Action]:
        """The actions with which workers begin on the newest version; they are busy from now on."""
        actions: list[Any] = [Begin(worker, self.version) for worker in workers]
        for action in actions:
            self.busy[action.worker] = self.version
        return actions

    def close(self) -> Close:
        """The action that closes the open update; the next version is the newest from now on."""
        self.version += 1
        return Close(self.version - 1)
