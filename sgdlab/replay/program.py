"""What the lowered programs of servers and of peers share: rows, waves, pauses, and the sizes of a compiled replay."""

import abc
import dataclasses

import jax
import numpy as np

from sgdlab import arguments

MOST_LANES_PER_GRADIENT = 1.5


@dataclasses.dataclass(frozen=True)
class Capacity:
    """Sizes of the arrays of a compiled replay. Programs of one capacity share one compilation.

    Attributes:
      rows: gradients.
      slots: versions of the parameters; the only memory that grows with the number of workers.
      width: lanes, that is gradients of a wave that are computed at once.
      workers: per-worker states to allocate, such as DANA's velocities.
      kept: most gradients that wait at one time for the last of several blocks.
      events: of peers, gradients and moves of the center.
      edges: of peers, of all events.

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
        """The larger of every size but the width, which stays: lanes that others need would be wasted here."""
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return dataclasses.replace(Capacity(*(max(pair) for pair in pairs)), width=self.width)


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Program(abc.ABC):
    """Instructions for R gradients, in order.

    Attributes:
      gradient: int32[R], the gradient's row in the schedule; of peers, its event.
      worker: int32[R], who computes it.
      waves: int32[W + 1], the rows at which waves begin, and R. The gradients of a wave can be computed at once.
      uniform: whether all gradients of each wave are computed on one version of the parameters.
      pauses: int32[P], numbers of gradients after which a runner may evaluate; the last one is R.
      every: gradients between two pauses, as asked for.
      num_workers: N of the schedule.
      num_slots: slots that are used.
      capacity: sizes of the compiled replay; at least what this program uses.
    """

    gradient: np.ndarray
    worker: np.ndarray
    waves: np.ndarray
    uniform: bool
    pauses: np.ndarray
    every: int | None
    num_workers: int
    num_slots: int
    capacity: Capacity

    @property
    def num_rows(self) -> int:
        """R: gradients to compute."""
        return self.gradient.size

    @property
    @abc.abstractmethod
    def single(self) -> bool:
        """Whether every update has exactly one gradient."""

    @abc.abstractmethod
    def made(self, gradients: int) -> tuple[int, float]:
        """Updates made after so many gradients, and when the last of them was, in seconds."""

    @abc.abstractmethod
    def record(self) -> dict[str, np.ndarray]:
        """What the schedule says of each gradient: the fields of `History` that no run is needed for."""

    def mean_wave_length(self) -> float:
        """Gradients per wave: how much of the work can be done at once."""
        return self.num_rows / (self.waves.size - 1)

    def lanes_per_gradient(self) -> float:
        """Gradients that wave mode computes over those that are needed: what a wave leaves of its lanes is lost."""
        return (self.waves.size - 1) * self.capacity.width / self.num_rows


def checked_limits(every: int | None, width: int | None) -> None:
    """Raises a `ValueError` where `every` or `width` is not a whole number of at least 1."""
    for name, value in (("every", every), ("width", width)):
        if value is not None:
            arguments.whole(name, value)


def pauses_after(ends: np.ndarray, every: int | None) -> np.ndarray:
    """Numbers of gradients after which to pause: the first of `ends` after each multiple of `every`, and the last one.

    Args:
      ends: int[.], ascending: numbers of gradients after which a pause is allowed.
      every: gradients between two pauses. None: only at the end.

    Example:
      >>> pauses_after(np.array([2, 4, 5, 8]), 3)
      array([4, 8], dtype=int32)
    """
    wanted = np.arange(every, ends[-1], every) if every else np.empty(0, int)
    return np.unique([*ends[np.searchsorted(ends, wanted)], ends[-1]]).astype(np.int32)


def cut_waves(needs: np.ndarray, pauses: np.ndarray, width: int) -> np.ndarray:
    """Cuts the rows before the first one that needs a row of its own wave, at pauses, and where a wave is full.

    Args:
      needs: int[R], the last row that has to be done before each row's gradient is computed; -1 for none.
      pauses: numbers of rows after which a wave must end.
      width: longest wave.

    Returns:
      int32[W + 1], where each wave begins, and R.

    Example:
      >>> cut_waves(np.array([-1, -1, 0, 2]), np.array([4]), 8)
      array([0, 2, 3, 4], dtype=int32)
    """
    ends = set(pauses.tolist())
    starts, start = [0], 0
    for row, needed in enumerate(needs.tolist()):
        if row > start and (needed >= start or row in ends or row - start == width):
            starts.append(row)
            start = row
    return np.array([*starts, needs.size], np.int32)


def waves_and_width(
    needs: np.ndarray, pauses: np.ndarray, num_workers: int, width: int | None
) -> tuple[np.ndarray, int]:
    """Waves, and the number of lanes that computes them.

    Every wave is computed at one width, since a branch for each of several compiles each of them. Waves are therefore
    cut at the widest power of two, up to the number of workers rounded up, that computes at most half as many gradients
    again as are needed. Waves that are all of one length, such as synchronous ones, are computed at that length.

    Args:
      needs: int[R], as for `cut_waves`.
      pauses: as for `cut_waves`.
      num_workers: N.
      width: the number of lanes. None: as above.

    Example:
      >>> waves_and_width(np.array([-1, -1, 0, 1, 2, 3]), np.array([6]), 4, None)
      (array([0, 2, 4, 6], dtype=int32), 2)
    """
    lanes = width or power_of_two(num_workers)
    whole = np.diff(cut_waves(needs, pauses, lanes))
    if width is None and (whole == whole[0]).all():
        lanes = int(whole[0])
    waves = cut_waves(needs, pauses, lanes)
    while width is None and lanes * (waves.size - 1) > MOST_LANES_PER_GRADIENT * needs.size:
        lanes //= 2
        waves = cut_waves(needs, pauses, lanes)
    return waves, lanes


def padded(array: np.ndarray, size: int, mode: str = "constant") -> np.ndarray:
    """An array with `size` rows, in its dtype on the device; the rest is 0, or repeats the last row ("edge")."""
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    pads = [(0, size - array.shape[0])] + [(0, 0)] * (array.ndim - 1)
    return np.pad(array, pads, mode=mode).astype(dtype)


def power_of_two(size: int) -> int:
    """The smallest power of two that is no less."""
    return 1 << (max(size, 1) - 1).bit_length()
