"""Compute times for protocols: their checks, and drawing as many as a protocol needs."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from sgdlab import arguments
from sgdlab.errors import UsageError

if TYPE_CHECKING:
    from sgdlab.schedule import Schedule


class NotEnoughRuntimes(ValueError):
    """A worker runs out of compute times before the schedule is complete.

    Attributes:
      rows: estimated number of rows that would be enough.
      done: number of gradients that the compute times sufficed for, where that is known.
    """

    def __init__(self, message: str, rows: int, done: int | np.integer | None = None):
        super().__init__(message, rows, done)  # all, so that it can be pickled
        self.rows, self.done = rows, done

    def __str__(self) -> str:
        return self.args[0]

    @classmethod
    def after(
        cls, num_gradients: int, *, rows: int, done: int | np.integer, who: str = "a worker", spare: bool = False
    ) -> "NotEnoughRuntimes":
        """The error of a protocol whose compute times end before enough gradients are done.

        Args:
          num_gradients: how many gradients were asked for.
          rows: T, number of rows of the compute times.
          done: number of gradients that these sufficed for.
          who: which worker runs out of rows, for the message.
          spare: whether to estimate a tenth more rows than in proportion, for workers of unequal speed.
        """
        proportional = -(-(11 if spare else 10) * rows * num_gradients // (10 * max(done, 1)))
        needed = max(rows + 1, proportional)
        return cls(
            f"num_gradients={num_gradients} needs more than the {rows} rows of runtimes: {who} runs out after {done} "
            f"gradients; about {needed} rows would be enough",
            needed,
            done,
        )


_IN_VAIN = 10_000
"""Rows of times, and more where many gradients are asked for, after which more rows must give more gradients."""

_TRUSTED = 3
"""Times that a protocol which does not say how many gradients it uses is given as many rows as it asks for."""


def checked(runtimes: np.ndarray, name: str = "runtimes") -> np.ndarray:
    """Returns compute times as float64[T, N].

    Raises:
      ValueError: where they have another shape, or are not all positive and finite; it names the first bad entry.
    """
    array = np.asarray(runtimes, np.float64)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{name} of shape {array.shape} must have shape [T, N], with T and N at least 1")
    # One sum and one minimum are much faster than two masks, and NaN passes through both.
    with np.errstate(over="ignore"):
        total = array.sum()
    if not (array.min() > 0 and np.isfinite(total)):
        bad = np.argwhere(~(np.isfinite(array) & (array > 0)))
        if bad.size == 0:
            raise ValueError(f"{name} add up to more seconds than a float64 can hold")
        row, worker = bad[0]
        raise ValueError(f"{name}[{row}, {worker}]={array[row, worker]} must be positive and finite")
    return array


def too_short(row: int | np.integer, worker: int | np.integer, seconds: float, now: float) -> ValueError:
    """Return the error for a compute time that a clock at `now` seconds is not moved by."""
    return ValueError(
        f"runtimes[{row}, {worker}]={seconds} does not advance the clock at {now:g} s; compute times must be long "
        "enough to move the clock"
    )


def with_enough_rows(
    protocol: "Callable[[np.ndarray], Schedule]",
    draw: Callable[[int], np.ndarray],
    *,
    rows: int,
    name: str = "the protocol",
) -> "Schedule":
    """Return the schedule of a protocol on as many rows of times as it needs: more are drawn until they are enough.

    A fast worker of a heterogeneous cluster needs many more rows than the average one; how many is known only once the
    schedule is made. `draw` must give the same first rows for any number of rows, as the laws of `sgdlab.cluster` do.

    Args:
      protocol: compute times, float64[T, N] seconds -> Schedule.
      draw: T -> compute times, float64[T, N] seconds.
      rows: number of rows to begin with.
      name: what messages call the protocol.

    Raises:
      UsageError: (a ValueError) where the protocol uses no gradient of very many rows, or does not say that it uses
        more of more rows: it never would; where it asks for no more rows than it has, or `draw` returns fewer than it
        is asked for.

    Example:
      >>> import functools, sgdlab
      >>> draw = lambda rows: sgdlab.cluster.gamma(num_workers=4, num_gradients=rows, heterogeneous=True, seed=0)
      >>> protocol = functools.partial(sgdlab.protocols.asynchronous, num_gradients=100)
      >>> with_enough_rows(protocol, draw, rows=25).num_updates
      100
    """
    first, done, asked = rows, 0, 0
    while True:
        runtimes = draw(rows)
        try:
            return protocol(runtimes)
        except NotEnoughRuntimes as error:
            # Either would never end. More rows than were asked for are welcome.
            if len(runtimes) < rows:
                raise UsageError(
                    f"the draw returned {len(runtimes)} rows of compute times, where {rows} were asked for; it must "
                    "return float64[rows, num_workers]"
                ) from error
            if error.rows <= len(runtimes):
                raise UsageError(
                    f"{name} asks for {error.rows} rows of compute times, where it has {len(runtimes)}; it must ask "
                    "for more"
                ) from error
            if error.done is not None and error.done > done:
                rows, done = error.rows, error.done
                continue
            asked += 1
            if error.done != 0 and asked <= _TRUSTED:
                rows = error.rows
            elif rows < _IN_VAIN + 2 * first * runtimes.shape[1]:
                # In proportion to nothing it would be as many as one likes; one more each time would take for ever.
                rows = min(max(error.rows, 2 * rows), 4 * rows)
            elif error.done == 0:
                raise UsageError(
                    f"{name} uses no gradient in {rows} rows of compute times, the shortest of {runtimes.min():g} s; "
                    "it must not give up or drop all of them"
                ) from error
            else:
                raise UsageError(
                    f"{name} asks for {error.rows} rows of compute times, where it has {len(runtimes)} and has begun "
                    f"with {first}; it must be content with some number"
                ) from error


def ending(make: Callable[[int], Any], seconds: float, *, first: int, name: str = "seconds") -> Any:
    """Return the schedule that ends at an instant, of a protocol that is told how many gradients to use.

    Longer schedules are made, each about as long as is needed by the speed of the one before, until one goes on past
    the instant; what is past it is cut off (`Schedule.until`).

    Args:
      make: number of gradients -> `Schedule` or `PeerSchedule`.
      seconds: since the start, of virtual time.
      first: number of gradients to begin with.
      name: what messages call `seconds`.

    Raises:
      ValueError: where no update is applied by then, or `seconds` is not above 0.
      NotEnoughRuntimes: where the compute times of `make` end before the instant.

    Example:
      >>> import functools, sgdlab
      >>> make = functools.partial(sgdlab.protocols.asynchronous, np.full((9, 2), 2.0))
      >>> ending(lambda gradients: make(num_gradients=gradients), 7.0, first=1).num_updates
      6
    """
    end, gradients = arguments.real(name, seconds, above=0), first
    while (schedule := make(gradients)).wall_clock() <= end:
        wanted = 1.02 * gradients * end / max(schedule.wall_clock(), end / 100)
        gradients = int(wanted) + schedule.num_workers + 1
    try:
        return schedule.until(end)
    except ValueError as error:
        raise ValueError(f"{name}{str(error).removeprefix('seconds')}") from error
