"""A schedule lowered to a program for one compiled loop: parameter slots given out like registers, and waves."""

import dataclasses
import heapq

import numpy as np

from sgdlab.schedule import Schedule


@dataclasses.dataclass(frozen=True)
class Capacity:
    """Shapes of a compiled replay. Programs of one capacity share one compilation.

    Attributes:
      rows: gradients that fit.
      slots: versions of the parameters that fit; the only memory that grows with the number of workers.
      width: gradients of a wave that are computed at once.
    """

    rows: int
    slots: int
    width: int

    def __or__(self, other: "Capacity") -> "Capacity":
        """The capacity that fits both."""
        return Capacity(
            *(max(a, b) for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True))
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
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
    def num_rows(self) -> int:
        """R: gradients to compute."""
        return self.gradient.shape[0]

    @property
    def single(self) -> bool:
        """Whether every update has exactly one gradient."""
        return bool(self.first.all())

    def mean_wave_length(self) -> float:
        """Gradients per wave: how much of the work can be done at once."""
        return self.num_rows / (self.waves.shape[0] - 1)


def lower(
    schedule: Schedule, *, capacity: Capacity | None = None, every: int | None = None, width: int | None = None
) -> Program:
    """Lowers a schedule of one parameter block.

    Only gradients that enter an update are kept. Slots are given out like registers: a version lives from the
    gradient that completes it to the last one computed on it; so synchronous runs need one slot and asynchronous
    ones at most N. A wave is a maximal run of gradients that read only versions made before it.

    Args:
      schedule: with S = 1.
      capacity: shapes to make room for at least; so that several programs share one compilation.
      every: pause at the first complete update after each `every` gradients. None: only at the end.
      width: longest wave. None: no limit.

    Returns:
      The `Program`, whose capacity is rounded up to powers of two.

    Raises:
      ValueError: where the schedule has several blocks, no gradient enters an update, or `every` or `width` is below 1.

    Example:
      >>> import numpy as np
      >>> from sgdlab import protocols
      >>> program = lower(protocols.asynchronous(np.array([[2.0, 3.0], [2.0, 3.0], [2.0, 3.0]])))
      >>> program.load, program.store, program.waves
      (array([0, 0, 1, 0], dtype=int32), array([1, 0, 0, 0], dtype=int32), array([0, 2, 3, 4], dtype=int32))
    """
    if schedule.num_blocks != 1:
        raise ValueError(f"schedule has {schedule.num_blocks} parameter blocks; replay executes schedules of 1")
    for name, value in (("every", every), ("width", width)):
        if value is not None and value < 1:
            raise ValueError(f"{name}={value} must be at least 1")
    gradient = np.flatnonzero(schedule.update[:, 0] >= 0).astype(np.int32)
    if gradient.size == 0:
        raise ValueError("schedule has no gradient that enters an update: there is nothing to replay")
    read, update = schedule.read[gradient, 0], schedule.update[gradient, 0]
    first = np.diff(update, prepend=-1) != 0
    last = np.diff(update, append=-1) != 0
    count = np.bincount(update)
    delay = (update - read + 1).astype(np.float64)
    mean_delay = np.bincount(update, weights=delay) / count
    load, store, num_slots = _slots(read, update, last)
    pauses = _pauses(last, every)
    waves = _waves(read, update, last, set(pauses.tolist()), width)
    widest = int(np.diff(waves).max())
    # With room for one gradient of every worker, another seed's widest wave needs no other program.
    lanes = max(widest, min(schedule.num_workers, width or schedule.num_workers))
    needed = Capacity(*(_power_of_two(size) for size in (gradient.size, num_slots, lanes)))
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


def _slots(read: np.ndarray, update: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Gives slots to versions; returns what each row loads, what it stores, and how many slots there are."""
    rows = np.arange(read.size)
    versions = int(update[-1]) + 2
    until = np.full(versions, -1)
    until[update[last] + 1] = rows[last]
    np.maximum.at(until, read, rows)

    load, store = np.zeros(read.size, np.int32), np.zeros(read.size, np.int32)
    slot = np.full(versions, -1)
    slot[0], size, free = 0, 1, []
    for row, (version, made, complete) in enumerate(
        zip(read.tolist(), (update + 1).tolist(), last.tolist(), strict=True)
    ):
        load[row] = slot[version]
        if until[version] == row:
            heapq.heappush(free, slot[version])
        if complete:
            if not free:
                free.append(size)
                size += 1
            slot[made] = store[row] = heapq.heappop(free)
            if until[made] == row:  # nobody reads it
                heapq.heappush(free, slot[made])
    return load, store, size


def _pauses(last: np.ndarray, every: int | None) -> np.ndarray:
    """Numbers of gradients after which to pause: ends of updates."""
    ends = np.flatnonzero(last) + 1
    wanted = np.arange(every, ends[-1], every) if every else np.empty(0, int)
    return np.unique([*ends[np.searchsorted(ends, wanted)], ends[-1]]).astype(np.int32)


def _waves(read: np.ndarray, update: np.ndarray, last: np.ndarray, pauses: set[int], width: int | None) -> np.ndarray:
    """Cuts the rows before the first one that reads a version made inside its wave."""
    maker = np.full(int(update[-1]) + 2, -1)
    maker[update[last] + 1] = np.flatnonzero(last)
    starts, start = [0], 0
    for row, made_in in enumerate(maker[read].tolist()):
        if row > start and (made_in >= start or row in pauses or row - start == width):
            starts.append(row)
            start = row
    return np.array([*starts, read.size], np.int32)


def _power_of_two(size: int) -> int:
    return 1 << (max(size, 1) - 1).bit_length()
