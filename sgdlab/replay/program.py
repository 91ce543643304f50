"""`Program`, the base of lowered programs of servers and of peers, and `Capacity`, the sizes of a compiled replay."""

import abc
import dataclasses
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import Int32

from sgdlab import arguments

MOST_LANES_PER_GRADIENT = 1.5


Every = int | tuple[int, ...] | None
"""Gradients between two pauses, or the numbers of gradients after which to pause; None: a pause at the end only."""


@dataclasses.dataclass(frozen=True)
class Capacity:
    """Sizes of the arrays of a compiled replay. Programs of one capacity share one compilation.

    Attributes:
      rows: number of gradients.
      slots: number of versions of the parameters; the only memory that grows with the number of workers.
      width: number of lanes, the gradients of a wave that are computed at once.
      workers: number of per-worker states to allocate, such as DANA's velocities.
      kept: most gradients buffered at one time, until the last of several blocks has used them.
      events: number of events of peers: gradients and moves of the center.
      edges: number of edges of peers, over all events.

    Example:
      >>> Capacity(rows=64, slots=4, width=2, workers=4) | Capacity(rows=32, slots=8, width=8, workers=4)
      Capacity(rows=64, slots=8, width=2, workers=4, kept=0, events=0, edges=0)
    """

    rows: int
    slots: int
    width: int
    workers: int = 1
    kept: int = 0
    events: int = 0
    edges: int = 0

    def __or__(self, other: "Capacity") -> "Capacity":
        """The larger of every size, except the width, which is that of `self`: more lanes would be idle."""
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return dataclasses.replace(Capacity(*(max(pair) for pair in pairs)), width=self.width)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Program(abc.ABC):
    """Instructions for R gradients, in order.

    Attributes:
      gradient: int32[R], the gradient's row in the schedule; for peers, its event.
      worker: int32[R], the worker that computes it.
      waves: int32[W + 1], the rows at which waves begin, and R. The gradients of a wave can be computed at once.
      uniform: whether all gradients of each wave are computed on one version of the parameters.
      pauses: int32[P], numbers of gradients after which a run may evaluate; the last one is R.
      every: pauses, as given to `lower`.
      by_worker: whether no wave has two gradients of one worker.
      num_workers: N of the schedule.
      num_slots: number of slots that are used.
      capacity: sizes of the compiled replay; at least what this program uses.
    """

    gradient: Int32[np.ndarray, " R"]
    worker: Int32[np.ndarray, " R"]
    waves: Int32[np.ndarray, " W"]
    uniform: bool
    pauses: Int32[np.ndarray, " P"]
    every: Every
    by_worker: bool
    num_workers: int
    num_slots: int
    capacity: Capacity

    @property
    def num_rows(self) -> int:
        """R: number of gradients to compute."""
        return self.gradient.size

    @property
    @abc.abstractmethod
    def single(self) -> bool:
        """Return True if every update has exactly one gradient."""

    @property
    @abc.abstractmethod
    def synchronous(self) -> bool:
        """Return True if every wave has the gradients of one update, of several, all computed on one version."""

    @property
    @abc.abstractmethod
    def versions(self) -> int:
        """Copies of the parameters that a run in wave mode holds at most, without the states of rules."""

    @abc.abstractmethod
    def made(self, gradients: int) -> tuple[int, float]:
        """Number of updates made after so many gradients, and the time of the last of them, in seconds."""

    @abc.abstractmethod
    def record(self) -> dict[str, np.ndarray]:
        """The fields of `History` that are known from the schedule, without a run."""

    def mean_wave_length(self) -> float:
        """Mean number of gradients per wave, which can be computed at once."""
        return self.num_rows / (self.waves.size - 1)

    def lanes_per_gradient(self) -> float:
        """Gradients that wave mode computes per gradient needed; lanes that a wave does not fill are wasted."""
        return (self.waves.size - 1) * self.capacity.width / self.num_rows


def checked_limits(every: Every, width: int | None) -> None:
    """Raises a `ValueError` if `width`, `every` or one of its numbers is not a whole number of at least 1."""
    numbers = every if isinstance(every, tuple) else (every,)
    for name, value in (*(("every", number) for number in numbers), ("width", width)):
        if value is not None:
            arguments.whole(name, value)


def pauses_after(ends: np.ndarray, every: Every) -> np.ndarray:
    """Numbers of gradients after which to pause: the first of `ends` at or after each that is wanted, and the last one.

    Args:
      ends: int[.], ascending: numbers of gradients after which a pause is allowed.
      every: gradients between two pauses, or the numbers that are wanted. None: a pause at the end only.

    Example:
      >>> pauses_after(np.array([2, 4, 5, 8]), 3), pauses_after(np.array([2, 4, 5, 8]), (1, 5))
      (array([4, 8], dtype=int32), array([2, 5, 8], dtype=int32))
    """
    if isinstance(every, tuple):
        wanted = np.array([number for number in every if number < ends[-1]], int)
    else:
        wanted = np.arange(every, ends[-1], every) if every else np.empty(0, int)
    return np.unique([*ends[np.searchsorted(ends, wanted)], ends[-1]]).astype(np.int32)


def after_own(needs: np.ndarray, worker: np.ndarray) -> np.ndarray:
    """Return what each row needs where it also needs its own worker's row before it, as `needs` of `cut_waves`.

    Args:
      needs: int[R], as for `cut_waves`.
      worker: int[R], the worker of each row.

    Example:
      >>> after_own(np.array([-1, -1, -1, 1]), np.array([0, 1, 0, 0]))
      array([-1, -1,  0,  2])
    """
    order = np.argsort(worker, kind="stable")
    same = worker[order[1:]] == worker[order[:-1]]
    before = np.full(needs.size, -1)
    before[order[1:][same]] = order[:-1][same]
    return np.maximum(needs, before)


def cut_waves(needs: np.ndarray, pauses: np.ndarray, width: int) -> np.ndarray:
    """Cuts the rows into waves: before a row that needs a row of the current wave, at pauses, and at full width.

    Args:
      needs: int[R], the last row that must be finished before each row's gradient is computed; -1 for none.
      pauses: numbers of rows after which a wave must end.
      width: largest size of a wave.

    Returns:
      int32[W + 1], the first row of each wave, and R.

    Example:
      >>> cut_waves(np.array([-1, -1, 0, 2]), np.array([4]), 8)
      array([0, 2, 3, 4], dtype=int32)
    """
    return _Cuts(needs, pauses).waves(width)


class _Cuts:
    """Holds where waves end, for any width.

    Args:
      needs: as for `cut_waves`.
      pauses: as for `cut_waves`.
    """

    def __init__(self, needs: np.ndarray, pauses: np.ndarray):
        # The latest end of a wave that begins at each row: the next row that needs a row from there on, or a pause.
        begins = np.arange(needs.size)
        needed = np.searchsorted(np.maximum.accumulate(needs), begins)
        pauses = np.unique(np.append(pauses, needs.size))
        self._ends = np.minimum(needed, pauses[np.searchsorted(pauses, begins, side="right")]).tolist()

    def waves(self, width: int) -> np.ndarray:
        """int32[W + 1], as `cut_waves`."""
        ends, starts, start = self._ends, [0], 0
        while start < len(ends):
            start = min(ends[start], start + width)
            starts.append(start)
        return np.array(starts, np.int32)


def waves_and_width(
    needs: np.ndarray, pauses: np.ndarray, num_workers: int, width: int | None
) -> tuple[np.ndarray, int]:
    """Cuts waves, and chooses the number of lanes.

    All waves are computed at one width, since each further width would be compiled separately. It is the largest power
    of two, up to the number of workers rounded up, for which at most 1.5 gradients are computed per gradient needed.
    Waves that are all of one length, such as synchronous ones, are computed at that length.

    Args:
      needs: int[R], as for `cut_waves`.
      pauses: as for `cut_waves`.
      num_workers: N.
      width: the number of lanes. None: as above.

    Returns:
      int32[W + 1], the first row of each wave and R, and the number of lanes.

    Example:
      >>> waves_and_width(np.array([-1, -1, 0, 1, 2, 3]), np.array([6]), 4, None)
      (array([0, 2, 4, 6], dtype=int32), 2)
    """
    cuts = _Cuts(needs, pauses)
    lanes = width or power_of_two(num_workers)
    waves = cuts.waves(lanes)
    whole = np.diff(waves)
    if width is None and (whole == whole[0]).all():
        return waves, int(whole[0])
    while width is None and lanes * (waves.size - 1) > MOST_LANES_PER_GRADIENT * needs.size:
        lanes //= 2
        waves = cuts.waves(lanes)
    return waves, lanes


def padded(array: np.ndarray, size: int, mode: Literal["constant", "edge"] = "constant") -> Any:
    """An array padded to `size` rows, in its dtype on the device; new rows are 0, or repeat the last one ("edge")."""
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    pads = [(0, size - array.shape[0])] + [(0, 0)] * (array.ndim - 1)
    return np.pad(array, pads, mode=mode).astype(dtype)


def power_of_two(size: int) -> int:
    """The smallest power of two of at least `size`."""
    return 1 << (max(size, 1) - 1).bit_length()
