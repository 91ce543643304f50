"""`Policy`, the online form of a protocol: what happened -> what to do, in simulation and on real processes alike.

A policy never sees a clock, a gradient or a process. It is told what happened and when, and answers with actions. It is
deterministic: the same events give the same actions, so that a log of events rebuilds its state. What it answers
depends on its attributes alone, and not on the order in a set: a checkpoint holds them (`sgdlab.live.snapshot`).
"""

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, Protocol


class Take(NamedTuple):
    """The gradient of `worker` that has just come enters `update`, the open one."""

    worker: int
    update: int


class Drop(NamedTuple):
    """The gradient of `worker` that has just come is thrown away."""

    worker: int


class Interrupt(NamedTuple):
    """`worker` gives up what it computes, and whatever it still sends of it is ignored; a `Begin` for it follows."""

    worker: int


class Close(NamedTuple):
    """The open update is complete: it is applied, and version `update` + 1 exists. A run may end here."""

    update: int


class Begin(NamedTuple):
    """`worker` begins a gradient on `version`: the newest, or an older one that the policy has held since."""

    worker: int
    version: int


class Wake(NamedTuple):
    """`timer` is to be called at `at` seconds or later. A later Wake cancels none; a policy ignores those outlived.

    An infinite `at` never comes: there is no timer.
    """

    at: float


Action = Take | Drop | Interrupt | Close | Begin | Wake


class Policy(Protocol):
    """Whom to wait for, decided event by event.

    Attributes:
      single: every update has exactly one gradient.
    """

    single: bool

    def start(self, workers: Sequence[int]) -> list[Action]:
        """The run begins, at 0 s, with these workers."""
        ...

    def arrived(self, now: float, worker: int, version: int, seconds: float) -> list[Action]:
        """A gradient has come.

        Args:
          now: seconds since the start; no two events of a run on processes share an instant.
          worker: whose it is.
          version: the version that it was computed on.
          seconds: how long the worker took for it; `now` minus its beginning can differ from it in the last bit.
        """
        ...

    def timer(self, now: float) -> list[Action]:
        """An instant that a `Wake` asked for has come."""
        ...

    def lost(self, now: float, worker: int) -> list[Action]:
        """A worker is gone, and with it what it computed."""
        ...

    def joined(self, now: float, worker: int) -> list[Action]:
        """A worker is there: a new one, or one that was lost."""
        ...

    def held(self) -> Collection[int]:
        """The versions that a later `Begin` may name though they are not the newest by then; drivers keep them.

        A version can be held from when it is the newest on, without a gap. Drivers ask after every event, where a
        policy has it; without it only the newest can be begun on.
        """
        ...

    def warm(self) -> None:
        """Compiles what the policy will need, before the clock starts; it changes no answer.

        Drivers with a real clock call it where a policy has it.
        """
        ...

    def prepare(self) -> None:
        """Computes ahead what the next event will need, while workers compute; it changes no answer.

        Drivers call it when all actions are done.
        """
        ...


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
        try:
            busy = self.busy
        except AttributeError:
            raise ValueError(
                f"policy={type(self).__name__} has no state: its __init__ must call super().__init__(), or the class "
                "must be a dataclass"
            ) from None
        for action in actions:
            busy[action.worker] = self.version
        return actions

    def close(self) -> Close:
        """The action that closes the open update; the next version is the newest from now on."""
        self.version += 1
        return Close(self.version - 1)
