"""`ServerProgram`: a lowered schedule of parameter servers, its gradients in order and the uses of each block."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float64, Int32

from sgdlab.replay.blocks import check_num_blocks
from sgdlab.replay.program import Capacity, Every, Program, after_own, pauses_after, power_of_two, waves_and_width
from sgdlab.replay.registers import allocate
from sgdlab.schedule import Schedule


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ServerProgram(Program):
    """Instructions for the gradients that enter an update of some block, and for the blocks that use them.

    There are R gradients and S blocks. A block uses its gradients in the order of its own updates, which can differ
    from that of other blocks: a gradient is buffered until the last block has used it. Block s makes its uses
    `ends[r, s]` to `ends[r + 1, s]` (not included) as soon as gradient r is computed. If the program is `aligned`, as
    with one block, every gradient is used at once: gradient r is use r of every block, and none is buffered.

    Attributes:
      number: int32[R], the number of each gradient that rules are told: r, or of a recorded run the ticket.
      anew: bool[R], whether its worker begins anew with a gradient, as a process does after a loss.
      load: int32[R, S], the slot that holds the version of each block that a gradient is computed on.
      kept: int32[R], the index in the buffer at which a gradient stays until the last block has used it.
      ends: int32[R + 1, S], number of uses of each block before each gradient, and the number of all uses.
      row: int32[K, S], the gradient of each use; like the next arrays, 0 past the last use of a block.
      reload: int32[K, S], the slot that holds the version that gradient was computed on.
      store: int32[K, S], the slot for the new version if a use completes an update.
      first, last: bool[K, S], whether a use is the first, the last of its update.
      delay: float64[K, S], staleness + 1.
      mean_delay: float64[K, S], mean delay of the gradients of the update.
      count: int32[K, S], number of gradients of the update.
      read: int32[R, S], the version that a gradient is computed on.
      update: int32[R, S], the update that it enters; negative if it enters none.
      arrived: float64[R, S], seconds, when it reaches the server.
      applied: float64[R, S], seconds, when its update is applied; NaN if it enters none.
    """

    number: Int32[np.ndarray, " R"]
    anew: Bool[np.ndarray, " R"]
    load: Int32[np.ndarray, "R S"]
    kept: Int32[np.ndarray, " R"]
    ends: Int32[np.ndarray, "R+1 S"]
    row: Int32[np.ndarray, "K S"]
    reload: Int32[np.ndarray, "K S"]
    store: Int32[np.ndarray, "K S"]
    first: Bool[np.ndarray, "K S"]
    last: Bool[np.ndarray, "K S"]
    delay: Float64[np.ndarray, "K S"]
    mean_delay: Float64[np.ndarray, "K S"]
    count: Int32[np.ndarray, "K S"]
    read: Int32[np.ndarray, "R S"]
    update: Int32[np.ndarray, "R S"]
    arrived: Float64[np.ndarray, "R S"]
    applied: Float64[np.ndarray, "R S"]

    def of_run(self, tickets: np.ndarray, anew: np.ndarray) -> "ServerProgram":
        """Return the program of a run on processes, whose rules were told tickets, and workers that began anew.

        Args:
          tickets: int[G], the number of each gradient of the schedule in the run.
          anew: int[G], the version from which its worker began anew with it; negative where it went on.
        """
        rows = self.gradient
        return dataclasses.replace(self, number=tickets[rows].astype(np.int32), anew=anew[rows] >= 0)

    @property
    def num_blocks(self) -> int:
        """S, number of blocks."""
        return self.load.shape[1]

    @property
    def single(self) -> bool:
        """Return True if every update of every block has exactly one gradient."""
        return bool((self.count <= 1).all())

    @property
    def aligned(self) -> bool:
        """Return True if every block uses every gradient as soon as it is computed, so that none is buffered."""
        return _aligned(self.ends, self.row)

    @property
    def synchronous(self) -> bool:
        """Return True if every wave has the gradients of one update, of several, all computed on one version.

        Example:
          >>> from sgdlab import protocols, replay
          >>> replay.lower(protocols.synchronous(np.ones((3, 2)))).synchronous
          True
          >>> replay.lower(protocols.asynchronous(np.ones((3, 2)))).synchronous
          False
        """
        if self.single or not (self.aligned and self.uniform):
            return False
        first, last = self.waves[:-1], self.waves[1:] - 1
        ends = self.last[: self.num_rows]
        return bool(self.first[first].all() and ends[last].all() and (ends.sum(axis=0) == last.size).all())

    @property
    def versions(self) -> int:
        """Copies of the parameters: versions, buffered gradients, and a gradient and a version of each lane."""
        capacity = self.capacity
        return capacity.slots + capacity.kept + capacity.width * (1 if self.uniform else 2)

    def made(self, gradients: int) -> tuple[int, float]:
        """Updates of the block that has made most after so many gradients, and the time of the last update of any."""
        updates, seconds = 0, 0.0
        for block, end in enumerate(self.ends[gradients].tolist()):
            complete = np.flatnonzero(self.last[:end, block])
            if complete.size:
                row = self.row[complete[-1], block]
                updates = max(updates, int(self.update[row, block]) + 1)
                seconds = max(seconds, float(self.applied[row, block]))
        return updates, seconds

    def record(self) -> dict[str, np.ndarray]:
        """The fields of `History` that are known from the schedule."""
        delay = np.where(self.update >= 0, self.update - self.read + 1.0, np.nan)
        by_block = {"update": self.update, "delay": delay, "arrived": self.arrived, "applied": self.applied}
        if self.num_blocks == 1:
            by_block = {name: array[:, 0] for name, array in by_block.items()}
        return {"gradient": self.gradient, "worker": self.worker, **by_block}


def lower_servers(
    schedule: Schedule, *, capacity: Capacity | None, every: Every, width: int | None, by_worker: bool
) -> ServerProgram:
    """Lowers a schedule of parameter servers; see `sgdlab.replay.lowering.lower`."""
    check_num_blocks(schedule.num_blocks)
    used = schedule.used()
    gradient = np.flatnonzero(used.any(axis=1)).astype(np.int32)
    if gradient.size == 0:
        raise ValueError("schedule has no gradient that enters an update: there is nothing to replay")
    read, update, used = schedule.read[gradient], schedule.update[gradient], used[gradient]
    (rows, blocks), longest = read.shape, int(used.sum(axis=0).max())
    names = {"row": int, "reload": int, "store": int, "first": bool, "last": bool}
    names |= {"delay": float, "mean_delay": float, "count": int}
    uses = {name: np.zeros((longest, blocks), dtype) for name, dtype in names.items()}
    load, ends = np.zeros((rows, blocks), np.int32), np.zeros((rows + 1, blocks), np.int32)
    needs, last_use, num_slots = np.full(rows, -1), np.arange(rows), 0
    for block in range(blocks):
        order = np.flatnonzero(used[:, block])
        order = order[np.argsort(update[order, block], kind="stable")]
        # A use takes place as soon as all gradients up to it, in the order of use, are computed.
        ready = np.maximum.accumulate(order)
        ends[1:, block] = np.searchsorted(ready, np.arange(rows), side="right")
        np.maximum.at(last_use, order, ready)
        columns = _uses(order, read[order, block], update[order, block])
        load[:, block], columns["reload"], columns["store"], size = _slots(
            columns["last"], read[order, block], read[:, block], ends[:-1, block]
        )
        for name, values in columns.items():
            uses[name][: order.size, block] = values
        num_slots = max(num_slots, size)
        maker = np.concatenate([[-1], ready[columns["last"]]])  # the row after which each version exists
        needs = np.maximum(needs, maker[read[:, block]])
    aligned = _aligned(ends, uses["row"])
    complete = uses["last"].all(axis=1) if aligned else np.ones(rows, bool)
    pauses = pauses_after(np.flatnonzero(complete) + 1, every)
    if by_worker:
        needs = after_own(needs, schedule.worker[gradient])
    waves, lanes = waves_and_width(needs, pauses, schedule.num_workers, width)
    of_wave = np.repeat(waves[:-1], np.diff(waves))
    kept, num_kept = allocate(np.arange(rows), last_use)
    needed = Capacity(
        rows=power_of_two(rows),
        slots=power_of_two(num_slots),
        width=lanes,
        workers=power_of_two(schedule.num_workers),
        kept=0 if aligned else power_of_two(num_kept),
    )
    return ServerProgram(
        gradient=gradient,
        worker=schedule.worker[gradient],
        waves=waves,
        uniform=bool((read == read[of_wave]).all()),
        pauses=pauses,
        every=every,
        by_worker=by_worker,
        num_workers=schedule.num_workers,
        num_slots=num_slots,
        capacity=needed | capacity if capacity else needed,
        number=np.arange(rows, dtype=np.int32),
        anew=np.zeros(rows, bool),
        load=load,
        kept=kept,
        ends=ends,
        **{name: values.astype(np.int32) if values.dtype.kind == "i" else values for name, values in uses.items()},
        read=read,
        update=update,
        arrived=schedule.arrived[gradient],
        applied=np.where(used, np.take_along_axis(schedule.applied, np.maximum(update, 0), axis=0), np.nan),
    )


def _aligned(ends: np.ndarray, row: np.ndarray) -> bool:
    return bool((np.diff(ends, axis=0) == 1).all() and (row == np.arange(len(row))[:, None]).all())


def _uses(order: np.ndarray, read: np.ndarray, update: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of one block's uses, except the slots.

    Args:
      order: int[K], the gradient of each use, in order.
      read: int[K], the version that each was computed on.
      update: int[K], the update that each enters.
    """
    delay, count = update - read + 1.0, np.bincount(update, minlength=1)
    return {
        "row": order,
        "first": np.diff(update, prepend=-1) != 0,
        "last": np.diff(update, append=-1) != 0,
        "delay": delay,
        "mean_delay": np.bincount(update, weights=delay, minlength=1)[update] / count[update],
        "count": count[update],
    }


def _slots(
    last: np.ndarray, read: np.ndarray, computed_on: np.ndarray, when: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Slots for the versions of one block. Its use k reads at time 2 k and stores at time 2 k + 1.

    Args:
      last: bool[K], whether a use completes an update.
      read: int[K], the version that the gradient of each use was computed on.
      computed_on: int[R], the version that each gradient is computed on.
      when: int[R], the number of uses before each gradient is computed.

    Returns:
      The slots that gradients load, that uses read, and that uses store to (0 for a use that completes no update), and
      the number of slots.
    """
    born = np.concatenate([[-1], 2 * np.flatnonzero(last) + 1])
    last_use = born.copy()
    np.maximum.at(last_use, read, 2 * np.arange(read.size))
    np.maximum.at(last_use, computed_on, 2 * when)
    slot, size = allocate(born, last_use)
    store = np.zeros(read.size, int)
    store[last] = slot[1:]
    return slot[computed_on], slot[read], store, size
