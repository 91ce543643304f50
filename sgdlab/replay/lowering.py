"""What the lowering of every kind of schedule shares: waves, pauses, and arrays padded to a capacity."""

import dataclasses
from typing import Self

import jax
import numpy as np


class Room:
    """Base of what a compiled replay has room for: a frozen dataclass of sizes."""

    def __or__(self, other: Self) -> Self:
        """The capacity that fits both."""
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return type(self)(*(max(pair) for pair in pairs))


class Waved:
    """Base of lowered programs, whose `waves` are the rows at which each wave begins, and the number of rows."""

    waves: np.ndarray

    @property
    def num_rows(self) -> int:
        """R: gradients to compute."""
        return int(self.waves[-1])

    def mean_wave_length(self) -> float:
        """Gradients per wave: how much of the work can be done at once."""
        return self.num_rows / (self.waves.shape[0] - 1)


def check_limits(every: int | None, width: int | None) -> None:
    """Raises a `ValueError` where `every` or `width` is below 1."""
    for name, value in (("every", every), ("width", width)):
        if value is not None and value < 1:
            raise ValueError(f"{name}={value} must be at least 1")


def even_pauses(rows: int, every: int | None) -> np.ndarray:
    """Numbers of gradients after which to pause: every `every`, and all.

    Example:
      >>> even_pauses(5, 2)
      array([2, 4, 5], dtype=int32)
    """
    return np.unique([*range(every or rows, rows, every or rows), rows]).astype(np.int32)


def cut_waves(needs: np.ndarray, pauses: np.ndarray, width: int | None) -> np.ndarray:
    """Cuts the rows before the first one that needs a row of its own wave, at pauses, and where a wave is full.

    Args:
      needs: int[R], the last row that has to be done before each row's gradient is computed; -1 for none.
      pauses: numbers of rows after which a wave must end.
      width: longest wave. None: no limit.

    Returns:
      int32[W + 1], where each wave begins, and R.

    Example:
      >>> cut_waves(np.array([-1, -1, 0, 2]), np.array([4]), None)
      array([0, 2, 3, 4], dtype=int32)
    """
    ends = set(pauses.tolist())
    starts, start = [0], 0
    for row, needed in enumerate(needs.tolist()):
        if row > start and (needed >= start or row in ends or row - start == width):
            starts.append(row)
            start = row
    return np.array([*starts, needs.size], np.int32)


def num_lanes(waves: np.ndarray, num_workers: int, width: int | None) -> int:
    """Gradients that are computed at once: the widest wave's.

    With room for one gradient of every worker, another seed's widest wave needs no other program.
    """
    return max(int(np.diff(waves).max()), min(num_workers, width or num_workers))


def padded(array: np.ndarray, size: int, mode: str = "constant") -> np.ndarray:
    """An array with `size` rows, in its dtype on the device; the rest is 0, or repeats the last row ("edge")."""
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    pads = [(0, size - array.shape[0])] + [(0, 0)] * (array.ndim - 1)
    return np.pad(array, pads, mode=mode).astype(dtype)


def power_of_two(size: int) -> int:
    """The smallest power of two that is no less."""
    return 1 << (max(size, 1) - 1).bit_length()
