"""What can happen to a live run, and how its log spells it."""

import math
from typing import Any, NamedTuple

from sgdlab.live.messages import Failed, GaveUp, Joined, Lost


class Start(NamedTuple):
    """The run begins with the workers that have joined, in the order of their numbers.

    Attributes:
      joined: these workers.
      num_workers: how many there may ever be.
      num_gradients: how many gradients the run uses.
    """

    joined: tuple[Joined, ...]
    num_workers: int
    num_gradients: int


class Arrived(NamedTuple):
    """A gradient has come; `finite` says whether it is one, and `loss` is NaN where it is unknown."""

    worker: int
    ticket: int
    seconds: float
    loss: float
    finite: bool


class Silent(NamedTuple):
    """A worker has been silent for longer than its patience allows."""

    worker: int


class Killed(NamedTuple):
    """A worker has been silent for so long that the server has ended its process."""

    worker: int


class Spawned(NamedTuple):
    """A process was started for a worker."""

    worker: int


class Timer(NamedTuple):
    """An instant that the policy asked for has come."""


class Restarted(NamedTuple):
    """The server was started again, and with all processes of before this worker's is gone."""

    worker: int


class Resumed(NamedTuple):
    """The server was started again where these versions, by name, are others than before."""

    versions: dict[str, str]


Event = Start | Arrived | GaveUp | Failed | Lost | Joined | Silent | Killed | Spawned | Timer | Restarted | Resumed

_KINDS = {
    "start": Start,
    "came": Arrived,
    "gave_up": GaveUp,
    "failed": Failed,
    "lost": Lost,
    "joined": Joined,
    "silent": Silent,
    "killed": Killed,
    "spawned": Spawned,
    "timer": Timer,
    "restart": Restarted,
    "resumed": Resumed,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
BEGUN = "begun"
"""The line of a clock reading and the first ticket that was begun then, after the event because of which it was."""


def spelled(event: Event, now: float) -> list[Any]:
    """The log's entry of an event: its name, its instant, its fields.

    Example:
      >>> spelled(Arrived(worker=1, ticket=7, seconds=0.5, loss=math.nan, finite=True), 2.5)
      ['came', 2.5, 1, 7, 0.5, None, True]
    """
    fields = (None if isinstance(value, float) and not math.isfinite(value) else value for value in event)
    return [_NAMES[type(event)], now, *fields]


def read(entry: list[Any]) -> tuple[Event, float]:
    """The event of an entry, and its instant.

    Raises:
      ValueError: if there is no such event.

    Example:
      >>> read(["came", 2.5, 1, 7, 0.5, None, True])
      (Arrived(worker=1, ticket=7, seconds=0.5, loss=nan, finite=True), 2.5)
    """
    name, now, *fields = entry
    if name not in _KINDS:
        raise ValueError(f"entry={entry} must begin with one of {', '.join((*_KINDS, BEGUN))}")
    kind: Any = _KINDS[name]
    if kind is Start:
        return Start(tuple(Joined(*joined) for joined in fields[0]), *fields[1:]), now
    # The only field that can be missing is a number that is not finite.
    return kind(*(math.nan if value is None else value for value in fields)), now
