"""The machines of reinforcement learning of language models: engines that decode in slots, a trainer, a transfer."""

import dataclasses
import math
from collections.abc import Callable

from sgdlab import arguments

HOLDS = ("none", "trainer", "engines", "both")
"""Names who waits while a version is sent: nobody, the trainer, the engines, or all."""

REFRESHES = ("in_flight", "drain")
"""Names when an engine loads a version: at once, in the middle of its rollouts; or when these are over."""


@dataclasses.dataclass(frozen=True)
class LoadedSpeed:
    r"""Tokens a second of a slot, which fall as more slots of its engine are busy.

    .. math:: v(n) = v_0 / (1 + n / h)

    Attributes:
      alone: v_0, tokens a second of a slot on an engine without load.
      halved_at: h, busy slots at which it is half of that.

    Example:
      >>> LoadedSpeed(alone=100.0, halved_at=32.0)(32)
      50.0
    """

    alone: float
    halved_at: float

    def __post_init__(self) -> None:
        arguments.real("alone", self.alone, above=0)
        arguments.real("halved_at", self.halved_at, above=0)

    def __call__(self, busy: int) -> float:
        """Return the tokens a second of each of so many busy slots."""
        return self.alone / (1 + busy / self.halved_at)


@dataclasses.dataclass(frozen=True)
class System:
    """Says how many engines there are, how fast they decode, and how long training and sending take.

    Attributes:
      engines: E, number of engines.
      slots: rollouts that an engine decodes at a time.
      speed: tokens a second of each slot: a number, or a function of the busy slots of its engine (`LoadedSpeed`).
      batch: groups of a trainer step.
      train: seconds of a trainer step.
      train_token: seconds more for each token in it.
      transfer: seconds from the end of a step until the new version is at the engines.
      hold: who waits meanwhile: "none", "trainer", "engines" or "both".
      refresh: "in_flight": engines load a version at once; "drain": when the rollouts they have are over, and they take
        no others before.

    Raises:
      ValueError: from the constructor, where a number is out of its range.
    """

    engines: int = 4
    slots: int = 64
    speed: float | Callable[[int], float] = 100.0
    batch: int = 32
    train: float = 5.0
    train_token: float = 0.0
    transfer: float = 1.0
    hold: str = "trainer"
    refresh: str = "in_flight"

    def __post_init__(self) -> None:
        for name in ("engines", "slots", "batch"):
            arguments.whole(name, getattr(self, name))
        for name in ("train", "train_token", "transfer"):
            arguments.real(name, getattr(self, name), least=0)
        arguments.one_of("hold", self.hold, HOLDS)
        arguments.one_of("refresh", self.refresh, REFRESHES)
        self.rates()

    @property
    def trainer_waits(self) -> bool:
        """True where a step begins only when the version before it is at the engines."""
        return self.hold in ("trainer", "both")

    def rates(self) -> list[float]:
        """Return the tokens a second of each slot by the number of busy ones, from 0 (as of one) to all."""
        busy = [max(count, 1) for count in range(self.slots + 1)]
        rates = [self.speed(count) if callable(self.speed) else self.speed for count in busy]
        for rate in rates:
            arguments.real("speed", rate, above=0)
        return [float(rate) for rate in rates]


class Decoder:
    """Slots that decode side by side, by one clock of tokens: all of them advance alike.

    A rollout of n tokens that begins at clock c is over at clock c + n, whatever speeds, pauses and other rollouts do
    to the seconds.
    """

    __slots__ = ("at", "busy_seconds", "clock", "loads", "paused", "rates", "rollouts", "stamp", "switches", "version")

    def __init__(self, rates: list[float]):
        self.rates = rates
        self.clock, self.at, self.busy_seconds = 0.0, 0.0, 0.0
        self.rollouts: list[tuple[float, int]] = []  # heap of (clock at the end, row)
        self.stamp, self.paused, self.version = 0, False, 0
        self.switches, self.loads = [-math.inf], [0]  # clock at which each version was loaded, and which

    def advance(self, now: float) -> None:
        """Moves the clock on to an instant."""
        passed = now - self.at
        if passed:
            self.at = now
            if not self.paused:
                busy = len(self.rollouts)
                self.clock += passed * self.rates[busy]
                self.busy_seconds += passed * busy

    def next_end(self) -> float:
        """Return when the next rollout is over, in seconds, unless anything changes."""
        return self.at + max(self.rollouts[0][0] - self.clock, 0.0) / self.rates[len(self.rollouts)]

    def load(self, version: int) -> None:
        """Takes a version; tokens from now on are its."""
        self.version = version
        self.switches.append(self.clock)
        self.loads.append(version)
