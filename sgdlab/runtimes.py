"""What protocols take: an array of run-times, checked, and long enough."""

from collections.abc import Callable

import numpy as np

from sgdlab.schedule import Schedule


class NotEnoughRuntimes(ValueError):
    """A worker has run out of run-times before the schedule was complete.

    Attributes:
      rows: how many rows will probably be enough.
    """

    def __init__(self, message: str, rows: int):
        super().__init__(message, rows)  # both, so that it survives the way from one process to another
        self.rows = rows

    def __str__(self) -> str:
        return self.args[0]

    @classmethod
    def after(
        cls, num_gradients: int, *, rows: int, done: int, who: str = "a worker", spare: bool = False
    ) -> "NotEnoughRuntimes":
        """What a protocol raises where run-times end before enough gradients are done.

        Args:
          num_gradients: how many were asked for.
          rows: T, of the run-times.
          done: gradients that they sufficed for.
          who: runs out of rows.
          spare: ask for a tenth more than in proportion, where workers use up their rows at unequal speeds.
        """
        proportional = -(-(11 if spare else 10) * rows * num_gradients // (10 * max(done, 1)))
        needed = max(rows + 1, proportional)
        return cls(
            f"num_gradients={num_gradients} needs more than the {rows} rows of runtimes: {who} runs out after {done} "
            f"gradients; about {needed} rows would be enough",
            needed,
        )


def checked(runtimes: np.ndarray, name: str = "runtimes") -> np.ndarray:
    """Returns run-times as float64[T, N].

    Raises:
      ValueError: where they have another shape, or are not all positive and finite; it names the first bad place.
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


def with_enough_rows(
    protocol: Callable[[np.ndarray], Schedule], draw: Callable[[int], np.ndarray], *, rows: int
) -> Schedule:
    """Applies a protocol to as few run-times as it needs: asks for more rows until no worker runs out.

    A fast worker of a heterogeneous cluster needs many more rows than the average one, and nobody knows how many
    before the schedule is made. `draw` must give the same first rows whatever number is asked for, as the models of
    `sgdlab.cluster` do.

    Args:
      protocol: run-times [T, N] -> Schedule.
      draw: T -> run-times [T, N].
      rows: how many to begin with.

    Returns:
      The schedule.

    Example:
      >>> import functools, sgdlab
      >>> draw = lambda rows: sgdlab.cluster.gamma(num_workers=4, num_gradients=rows, heterogeneous=True, seed=0)
      >>> protocol = functools.partial(sgdlab.protocols.asynchronous, num_gradients=100)
      >>> with_enough_rows(protocol, draw, rows=25).num_updates
      100
    """
    while True:
        try:
            return protocol(draw(rows))
        except NotEnoughRuntimes as error:
            rows = error.rows
