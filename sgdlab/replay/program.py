"""A schedule lowered to a program for one compiled loop: parameter slots given out like registers, and waves."""

import dataclasses

import numpy as np

from sgdlab.replay.block_program import BlockProgram, lower_blocks
from sgdlab.replay.capacity import Capacity
from sgdlab.replay.lowering import Waved, check_limits, cut_waves, num_lanes, power_of_two
from sgdlab.replay.registers import assign
from sgdlab.schedule import Schedule


@dataclasses.dataclass(frozen=True, eq=False)
class Program(Waved):
    """Instructions for the gradients that enter an update, in order; arrays of length R, one entry a gradient.

    Attributes:
      gradient: int32[R], the gradient's row in the schedule.
      worker: int32[R], who computed it.
      load: int32[R], the slot that holds the version it was computed on.
      store: int32[R], where it completes an update: the slot for the new version.
      first: bool[R], it is the first gradient of its update.
      last: bool[R], it completes its update.
      delay: float64[R], its staleness + 1.
      mean_delay: float64[R], the mean delay of its update's gradients.
      count: int32[R], how many gradients its update has.
      waves: int32[W + 1], where each wave begins, and R.
      read: int32[R], the version it was computed on.
      update: int32[R], the update it enters.
      arrived: float64[R], seconds, when the server had it.
      applied: float64[R], seconds, when its update was applied.
      pauses: int32[P], numbers of gradients after which a runner may look at the parameters; the last one is R.
      every: gradients between two pauses, as asked for.
      num_slots: slots that are used.
      num_workers: N of the schedule.
      capacity: what a compiled replay must hold; at least what this program uses.
    """

    gradient: np.ndarray
    worker: np.ndarray
    load: np.ndarray
    store: np.ndarray
    first: np.ndarray
    last: np.ndarray
    delay: np.ndarray
    mean_delay: np.ndarray
    count: np.ndarray
    waves: np.ndarray
    read: np.ndarray
    update: np.ndarray
    arrived: np.ndarray
    applied: np.ndarray
    pauses: np.ndarray
    every: int | None
    num_slots: int
    num_workers: int
    capacity: Capacity

    @property
    def single(self) -> bool:
        """Whether every update has exactly one gradient."""
        return bool(self.first.all())

    def made(self, gradients: int) -> tuple[int, float]:
        """Updates made after so many gradients, and when the last of them was, in seconds."""
        complete = np.flatnonzero(self.last[:gradients])
        return (int(self.update[complete[-1]]) + 1, float(self.applied[complete[-1]])) if complete.size else (0, 0.0)


def lower(
    schedule: Schedule, *, capacity: Capacity | None = None, every: int | None = None, width: int | None = None
) -> Program | BlockProgram:
    """Lowers a schedule to a program.

    Only gradients that enter an update are kept. Slots are given out like registers: a version lives from the
    gradient that completes it to the last one computed on it; so synchronous runs need one slot and asynchronous
    ones at most N. A wave is a maximal run of gradients that read only versions made before it.

    Args:
      schedule: of any number of blocks.
      capacity: shapes to make room for at least; so that several programs share one compilation.
      every: pause at the first complete update after each `every` gradients; of several blocks, at the gradient itself.
        None: only at the end.
      width: longest wave. None: no limit.

    Returns:
      A `Program` where the schedule has one block, else a `BlockProgram`; its capacity is rounded up to powers of two.

    Raises:
      ValueError: where no gradient enters an update, or `every` or `width` is below 1.

    Example:
      >>> import numpy as np
      >>> from sgdlab import protocols
      >>> program = lower(protocols.asynchronous(np.array([[2.0, 3.0], [2.0, 3.0], [2.0, 3.0]])))
      >>> program.load, program.store, program.waves
      (array([0, 0, 1, 0], dtype=int32), array([1, 0, 0, 0], dtype=int32), array([0, 2, 3, 4], dtype=int32))
    """
    check_limits(every, width)
    if schedule.num_blocks > 1:
        return lower_blocks(schedule, capacity=capacity, every=every, width=width)
    gradient = np.flatnonzero(schedule.update[:, 0] >= 0).astype(np.int32)
    if gradient.size == 0:
        raise ValueError("schedule has no gradient that enters an update: there is nothing to replay")
    read, update = schedule.read[gradient, 0], schedule.update[gradient, 0]
    first = np.diff(update, prepend=-1) != 0
    last = np.diff(update, append=-1) != 0
    count = np.bincount(update)
    delay = (update - read + 1).astype(np.float64)
    mean_delay = np.bincount(update, weights=delay) / count
    load, _, store, num_slots = assign(read, last, read, np.arange(read.size))
    pauses = _pauses(last, every)
    maker = np.concatenate([[-1], np.flatnonzero(last)])  # the row that makes each version
    waves = cut_waves(maker[read], pauses, width)
    lanes = num_lanes(waves, schedule.num_workers, width)
    needed = Capacity(*(power_of_two(size) for size in (gradient.size, num_slots, lanes)))
    return Program(
        gradient=gradient,
        worker=schedule.worker[gradient],
        load=load,
        store=store,
        first=first,
        last=last,
        delay=delay,
        mean_delay=mean_delay[update],
        count=count[update].astype(np.int32),
        waves=waves,
        read=read,
        update=update,
        arrived=schedule.arrived[gradient, 0],
        applied=schedule.applied[update, 0],
        pauses=pauses,
        every=every,
        num_slots=num_slots,
        num_workers=schedule.num_workers,
        capacity=needed | capacity if capacity else needed,
    )


def _pauses(last: np.ndarray, every: int | None) -> np.ndarray:
    """Numbers of gradients after which to pause: ends of updates."""
    ends = np.flatnonzero(last) + 1
    wanted = np.arange(every, ends[-1], every) if every else np.empty(0, int)
    return np.unique([*ends[np.searchsorted(ends, wanted)], ends[-1]]).astype(np.int32)
