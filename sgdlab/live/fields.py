"""`Fields`, where arrays lie in a piece of memory, by their names, shapes and dtypes alone: without JAX."""

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

ALIGNMENT = 64
"""Bytes; what vector instructions want, and the width of a cache line."""


class Field(NamedTuple):
    """Holds the place of one array."""

    path: str  # its place in the tree, such as "['params']['kernel']"
    shape: tuple[int, ...]
    dtype: np.dtype
    offset: int  # bytes from the beginning, a multiple of `ALIGNMENT`


class Fields:
    """Arrays one after the other in memory.

    Args:
      arrays: [path, dtype and shape] of each, as `described` returns.

    Attributes:
      fields: their places.
      size: bytes that they take together.

    Example:
      >>> fields = Fields([["['bias']", "float32[2]"], ["['kernel']", "float32[3, 2]"]])
      >>> [field.offset for field in fields.fields], fields.size
      ([0, 64], 128)
    """

    def __init__(self, arrays: Iterable[Sequence[str]]):
        self.fields: list[Field] = []
        offset = 0
        for path, form in arrays:
            name, _, dimensions = form.partition("[")
            dtype, shape = dtype_of(name), tuple(json.loads("[" + dimensions))
            self.fields.append(Field(path, shape, dtype, offset))
            offset += -(-int(np.prod(shape, dtype=np.int64)) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
        self.size = max(offset, ALIGNMENT)  # nothing at all cannot be mapped

    def described(self) -> list[list[str]]:
        """Return [path, dtype and shape] of each array: what both sides must agree on."""
        return [[field.path, f"{field.dtype.name}{list(field.shape)}"] for field in self.fields]

    def check(self, described: Sequence[Sequence[str]]) -> None:
        """Check that the arrays are those of another process, where `described` has returned this.

        Raises:
          ValueError: if they are not; it names the first array that differs.

        Example:
          >>> Fields([["['bias']", "float32[2]"]]).check([["['bias']", "float64[2]"]])
          Traceback (most recent call last):
          ...
          ValueError: ['bias'] is float32[2] in the worker and float64[2] in the server; both must make the same task
          with the same settings of JAX
        """
        ours, theirs = dict(map(tuple, self.described())), dict(map(tuple, described))
        for path in [*theirs, *ours]:
            if ours.get(path) != theirs.get(path):
                raise ValueError(
                    f"{path} is {ours.get(path, 'missing')} in the worker and {theirs.get(path, 'missing')} in the "
                    "server; both must make the same task with the same settings of JAX"
                )

    def views(self, memory: np.ndarray) -> list[np.ndarray]:
        """Return the arrays in a piece of memory, uint8[size], which they alias."""
        return [np.ndarray(field.shape, field.dtype, memory, field.offset) for field in self.fields]

    def check_arrays(self, arrays: Sequence[np.ndarray]) -> None:
        """Check that arrays are those; ValueError, which names the place, if one has another shape or dtype."""
        if len(arrays) != len(self.fields):
            raise ValueError(f"{len(arrays)} arrays have come where {len(self.fields)} were expected")
        for field, array in zip(self.fields, arrays, strict=True):
            if (array.shape, array.dtype) != (field.shape, field.dtype):
                raise ValueError(
                    f"{field.path} must be {field.dtype.name}{list(field.shape)}; it is "
                    f"{array.dtype.name}{list(array.shape)}"
                )


def aligned(size: int) -> np.ndarray:
    """Return new memory, uint8[size], whose first byte's address is a multiple of `ALIGNMENT`."""
    more = np.empty(size + ALIGNMENT, np.uint8)
    return more[-more.ctypes.data % ALIGNMENT :][:size]


def dtype_of(name: str) -> np.dtype:
    """Return the dtype of a name, of NumPy or JAX."""
    try:
        return np.dtype(name)
    except TypeError:  # such as bfloat16, which NumPy has not
        import jax.numpy as jnp  # noqa: PLC0415

        return np.dtype(getattr(jnp, name))
