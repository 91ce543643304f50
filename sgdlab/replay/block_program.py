"""A schedule of several parameter blocks lowered to a program: gradients in order, and for each block its own uses."""

import dataclasses
import heapq
import itertools

import numpy as np

from sgdlab.replay.capacity import Capacity
from sgdlab.replay.lowering import Waved, cut_waves, even_pauses, num_lanes, power_of_two
from sgdlab.replay.registers import assign
from sgdlab.schedule import Schedule


@dataclasses.dataclass(frozen=True, eq=False)
class BlockProgram(Waved):
    """Instructions for the gradients that enter an update of some block, and for the blocks that use them.

    R gradients, S blocks. A block uses its gradients in the order of its own updates, which can differ from that of the
    other blocks: a gradient is kept until the last block has used it. Block s makes its uses `ends[r, s]` to
    `ends[r + 1, s]` (not included) as soon as gradient r is there.

    Attributes:
      gradient: int32[R], the gradient's row in the schedule.
      worker: int32[R], who computed it.
      load: int32[R, S], the slot that holds the version of each block that it was computed on.
      waves: int32[W + 1], where each wave begins, and R.
      ends: int32[R + 1, S], uses of each block before each gradient, and all.
      row: int32[K, S], which gradient a use is of; like all that follow, 0 past a block's last use.
      reload: int32[K, S], the slot that holds the version that gradient was computed on.
      store: int32[K, S], where a use completes an update: the slot for the new version.
      first, last: bool[K, S], whether a use is the first, the last of its update.
      delay: float64[K, S], staleness + 1.
      mean_delay: float64[K, S], of the update's gradients.
      count: int32[K, S], how many gradients the update has.
      read: int32[R, S], the version that a gradient was computed on.
      update: int32[R, S], the update that it enters; negative where it enters none.
      arrived: float64[R, S], seconds.
      applied: float64[R, S], seconds; NaN where it enters no update.
      pauses: int32[P], numbers of gradients after which a runner may look at the parameters; the last one is R.
      every: gradients between two pauses, as asked for.
      num_workers: N of the schedule.
      capacity: what a compiled replay must hold; at least what this program uses.
    """

    gradient: np.ndarray
    worker: np.ndarray
    load: np.ndarray
    waves: np.ndarray
    ends: np.ndarray
    row: np.ndarray
    reload: np.ndarray
    store: np.ndarray
    first: np.ndarray
    last: np.ndarray
    delay: np.ndarray
    mean_delay: np.ndarray
    count: np.ndarray
    read: np.ndarray
    update: np.ndarray
    arrived: np.ndarray
    applied: np.ndarray
    pauses: np.ndarray
    every: int | None
    num_workers: int
    capacity: Capacity

    @property
    def num_blocks(self) -> int:
        """S."""
        return self.load.shape[1]

    @property
    def single(self) -> bool:
        """Whether every update of every block has exactly one gradient."""
        used = np.arange(self.count.shape[0])[:, None] < self.ends[-1]
        return bool((self.count[used] == 1).all())

    @property
    def aligned(self) -> bool:
        """Whether every block uses every gradient as soon as it is there: none has to be kept."""
        return bool((np.diff(self.ends, axis=0) == 1).all() and (self.row == np.arange(len(self.row))[:, None]).all())

    def made(self, gradients: int) -> tuple[int, float]:
        """Updates of the block with most after so many gradients, and when the last of all was, in seconds."""
        updates, seconds = 0, 0.0
        for block, end in enumerate(self.ends[gradients].tolist()):
            complete = np.flatnonzero(self.last[:end, block])
            if complete.size:
                row = self.row[complete[-1], block]
                updates = max(updates, int(self.update[row, block]) + 1)
                seconds = max(seconds, float(self.applied[row, block]))
        return updates, seconds

    def kept(self, *, by_wave: bool) -> tuple[np.ndarray, int]:
        """Gives gradients places to be kept in: int32[R], and how many places there are.

        Args:
          by_wave: all gradients of a wave are there before any of them is used.
        """
        last_use = np.zeros(self.num_rows, np.int64)
        for block in range(self.num_blocks):
            uses = int(self.ends[-1, block])
            when = np.searchsorted(self.ends[1:, block], np.arange(uses), side="right")
            np.maximum.at(last_use, self.row[:uses, block], when)
        until: dict[int, list[int]] = {}
        place, size, free = np.zeros(self.num_rows, np.int32), 0, []
        starts = self.waves if by_wave else np.arange(self.num_rows + 1)
        for begin, end in itertools.pairwise(starts.tolist()):
            for row in range(begin, end):
                if not free:
                    free.append(size)
                    size += 1
                place[row] = heapq.heappop(free)
                until.setdefault(int(last_use[row]), []).append(row)
            for row in range(begin, end):
                for done in until.pop(row, ()):
                    heapq.heappush(free, int(place[done]))
        return place, size


def lower_blocks(
    schedule: Schedule, *, capacity: Capacity | None, every: int | None, width: int | None
) -> BlockProgram:
    """Lowers a schedule of several blocks; see `sgdlab.replay.program.lower`."""
    used = schedule.used()
    gradient = np.flatnonzero(used.any(axis=1)).astype(np.int32)
    if gradient.size == 0:
        raise ValueError("schedule has no gradient that enters an update: there is nothing to replay")
    read, update, used = schedule.read[gradient], schedule.update[gradient], used[gradient]
    rows, blocks = read.shape
    longest = int(used.sum(axis=0).max())
    table = lambda dtype: np.zeros((longest, blocks), dtype)
    names = {"row": int, "reload": int, "store": int, "first": bool, "last": bool}
    names |= {"delay": float, "mean_delay": float, "count": int}
    uses = {name: table(dtype) for name, dtype in names.items()}
    load, ends = np.zeros((rows, blocks), np.int32), np.zeros((rows + 1, blocks), np.int32)
    made_by = []  # for each block and version: the use that makes it
    slots = 0
    for block in range(blocks):
        order = np.flatnonzero(used[:, block])
        order = order[np.argsort(update[order, block], kind="stable")]
        size, entered, versions = order.size, update[order, block], read[order, block]
        first, last = np.diff(entered, prepend=-1) != 0, np.diff(entered, append=-1) != 0
        # A use takes place once all gradients up to it, in the order of use, are there.
        ends[1:, block] = np.searchsorted(np.maximum.accumulate(order), np.arange(rows), side="right")
        maker = np.concatenate([[-1], np.flatnonzero(last)])
        loads, reloads, stores, count = assign(versions, last, read[:, block], ends[:-1, block])
        slots = max(slots, count)
        load[:, block] = loads
        delay = entered - versions + 1.0
        per_update = np.bincount(entered, minlength=1)
        columns = {
            "row": order,
            "reload": reloads,
            "store": stores,
            "first": first,
            "last": last,
            "delay": delay,
            "mean_delay": (np.bincount(entered, weights=delay) / per_update)[entered] if size else delay,
            "count": per_update[entered],
        }
        for name, values in columns.items():
            uses[name][:size, block] = values
        made_by.append(maker)
    pauses = even_pauses(rows, every)
    waves = cut_waves(_needs(read, made_by, ends), pauses, width)
    lanes = num_lanes(waves, schedule.num_workers, width)
    applied = np.where(used, np.take_along_axis(schedule.applied, np.maximum(update, 0), axis=0), np.nan)
    program = BlockProgram(
        gradient=gradient,
        worker=schedule.worker[gradient],
        load=load,
        waves=waves,
        ends=ends,
        **{name: values.astype(np.int32) if values.dtype.kind == "i" else values for name, values in uses.items()},
        read=read,
        update=update,
        arrived=schedule.arrived[gradient],
        applied=applied,
        pauses=pauses,
        every=every,
        num_workers=schedule.num_workers,
        capacity=Capacity(rows=power_of_two(rows), slots=power_of_two(slots), width=power_of_two(lanes)),
    )
    needed = dataclasses.replace(program.capacity, kept=power_of_two(program.kept(by_wave=False)[1]))
    return dataclasses.replace(program, capacity=needed | capacity if capacity else needed)


def _needs(read: np.ndarray, made_by: list[np.ndarray], ends: np.ndarray) -> np.ndarray:
    """int64[R]: the last row whose uses make a version, of any block, that a row's gradient is computed on."""
    makers = np.empty(read.shape, np.int64)
    for block, maker in enumerate(made_by):
        # A use takes place behind the first row that has it behind itself.
        makers[:, block] = np.searchsorted(ends[:, block], maker[read[:, block]] + 1, side="left") - 1
    return makers.max(axis=1)
