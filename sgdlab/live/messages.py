"""Messages of workers to the server, events of a run, and their spelling in its log."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from sgdlab.types import Tree


class Came(NamedTuple):
    """A gradient; its arrays are valid until the worker's next `begin`."""

    worker: int
    ticket: int
    grads: Tree  # like the parameters
    aux: Tree  # what else the gradient function returned, such as the loss
    seconds: float  # for which the worker computed, by its own clock
    finite: bool | None = None  # `usable`, where that has been asked already


class GaveUp(NamedTuple):
    """A worker was interrupted, as it was told, after `seconds` of work on `ticket`."""

    worker: int
    ticket: int
    seconds: float


class Failed(NamedTuple):
    """A worker's gradient raised; the worker lives, and can begin another."""

    worker: int
    ticket: int
    error: str


class Lost(NamedTuple):
    """A worker's process is gone; `error` says what is known, such as its exit code."""

    worker: int
    error: str


class Joined(NamedTuple):
    """A worker has compiled, and is ready for its first gradient; `process` is its number on `host`."""

    worker: int
    process: int
    host: str


Message = Came | GaveUp | Failed | Lost | Joined


class Start(NamedTuple):
    """The run begins with the workers that have joined, in the order of their numbers."""

    joined: tuple[Joined, ...]
    num_workers: int  # how many there may ever be
    num_gradients: int  # how many gradients the run uses


class Arrived(NamedTuple):
    """A gradient has come; `finite` says whether it is one, and `loss` is NaN where it is unknown."""

    worker: int
    ticket: int
    seconds: float
    loss: float
    finite: bool


class Silent(NamedTuple):
    """A worker has been silent for longer than its patience allows; `seconds` are 0 in logs of before 1.1."""

    worker: int
    seconds: float = 0.0


class Killed(NamedTuple):
    """The server has ended a worker's process; `error` says why, and is empty in logs of before 1.1: it was silent."""

    worker: int
    error: str = ""


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


def event_of(message: Message) -> Event:
    """Return the event of a message: of a gradient, what the log can hold.

    Example:
      >>> event_of(Came(1, 7, grads=np.array([1.0, np.inf]), aux={"loss": 0.5}, seconds=2.0))
      Arrived(worker=1, ticket=7, seconds=2.0, loss=0.5, finite=False)
    """
    if not isinstance(message, Came):
        return message
    worker, ticket, grads, aux, seconds, finite = message
    return Arrived(worker, ticket, seconds, loss_of(aux), usable(grads, aux) if finite is None else finite)


def usable(grads: Tree, aux: Tree) -> bool:
    """Return True if a gradient, and all that came with it but its loss, which may be unknown, is finite.

    Example:
      >>> usable(np.ones(2), {"loss": np.nan}), usable(np.ones(2), {"loss": 0.0, "mean": np.inf})
      (True, False)
    """
    others = {name: each for name, each in aux.items() if name != "loss"} if isinstance(aux, Mapping) else aux
    return is_finite((grads, others))


def spelled(event: Event, now: float) -> list[Any]:
    """Return the log's entry of an event: its name, its instant, its fields.

    Example:
      >>> spelled(Arrived(worker=1, ticket=7, seconds=0.5, loss=math.nan, finite=True), 2.5)
      ['came', 2.5, 1, 7, 0.5, None, True]
    """
    fields = (None if isinstance(value, float) and not math.isfinite(value) else value for value in event)
    return [_NAMES[type(event)], now, *fields]


def read(entry: list[Any]) -> tuple[Event, float]:
    """Return the event of an entry, and its instant.

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


def is_finite(tree: Tree) -> bool:
    """Return True if all numbers of all arrays are finite.

    Example:
      >>> is_finite({"a": np.ones(2), "b": np.array([1.0, np.nan])}), is_finite([np.float32(3e38), np.float32(3e38)])
      (False, True)
    """
    return all(_all_finite(np.asarray(leaf)) for leaf in jax.tree.leaves(tree))


def loss_of(aux: Tree) -> float:
    """Return the entry "loss" of what a gradient function returned, if it is there and one number; otherwise NaN.

    Example:
      >>> loss_of({"loss": np.array(0.5)}), loss_of(())
      (0.5, nan)
    """
    loss = aux.get("loss") if isinstance(aux, Mapping) else None
    return math.nan if loss is None or np.size(loss) != 1 else float(loss)


def _all_finite(array: np.ndarray) -> bool:
    # A sum needs no memory; it is finite if all are, but for numbers so large that it overflows.
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(array.sum())) or bool(np.isfinite(array).all())
