"""What workers say to the server."""

from typing import Any, NamedTuple

Tree = Any


class Came(NamedTuple):
    """A gradient.

    Attributes:
      worker: who computed it.
      ticket: which gradient it is.
      grads: a pytree like the parameters, of arrays that are valid until the worker's next `begin`.
      aux: what else the gradient function returned, such as the loss; valid as long.
      seconds: how long the worker computed, by its own clock.
    """

    worker: int
    ticket: int
    grads: Tree
    aux: Tree
    seconds: float


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
