"""`Updated`, what `serve` tells its caller about each update."""

from typing import NamedTuple


class Taken(NamedTuple):
    """A gradient of an update; `delay` is its staleness + 1, `loss` NaN where it is unknown."""

    ticket: int
    worker: int
    delay: int
    loss: float


class Updated(NamedTuple):
    """An update that was made.

    Attributes:
      number: how many updates there are now; it is the newest version.
      gradients: how many gradients have entered updates.
      seconds: since the start of the run.
      taken: the gradients of this update, in their order.
      computed: whether `steps` holds this version. False for the updates of a resumed run before its checkpoint, of
        which only the log is read.
    """

    number: int
    gradients: int
    seconds: float
    taken: tuple[Taken, ...]
    computed: bool
