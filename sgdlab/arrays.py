"""Records of arrays: read-only copies, checks that name the bad row, and `.npz` files without pickle."""

import contextlib
import os
import pathlib
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from sgdlab import files

Record = TypeVar("Record")

_DAMAGE = (KeyError, TypeError, AttributeError, NotImplementedError, OSError, EOFError, zipfile.BadZipFile, zlib.error)
"""Errors that NumPy raises on files that are not, or not wholly, archives of arrays."""


def frozen_copy(name: str, values: np.ndarray, dtype: type[np.generic] | str) -> np.ndarray:
    """Return a read-only copy in a dtype; an array that has it, and is read-only with what it is a view of, as it is.

    Raises:
      ValueError: where an integer dtype cannot hold the numbers.
    """
    given = np.asarray(values)
    if given.dtype == dtype and given.flags.c_contiguous and _is_frozen(given):
        return given
    with np.errstate(invalid="ignore"):
        array = np.array(given, dtype, order="C")
    if np.issubdtype(dtype, np.integer) and (array != given).any():
        raise ValueError(f"{name} of dtype {given.dtype} must hold whole numbers of {np.dtype(dtype)}")
    array.flags.writeable = False
    return array


def _is_frozen(array: Any) -> bool:
    """Return True if neither an array nor one that it is a view of can be written."""
    while isinstance(array, np.ndarray) and not array.flags.writeable:
        array = array.base
    return array is None


def refuse(bad: np.ndarray, name: str, values: np.ndarray, right: str, rows: np.ndarray | None = None) -> None:
    """Raises a `ValueError` that names the first bad value, if there is one.

    Args:
      bad: bool, of the shape of `values`.
      name: of the field.
      values: the field.
      right: what would be right.
      rows: the row of each value, if that is not its index.
    """
    if not bad.any():
        return
    first = tuple(int(i) for i in np.argwhere(bad)[0])
    row = int(rows[first[0]]) if rows is not None else first[0]
    raise ValueError(f"{name}={values[first]} in row {row} must be {right}")


def median(values: np.ndarray, *, axis: int | None = None, keepdims: bool = False) -> Any:
    """Return `np.median` of finite numbers, to the last bit and in an eighth of its time where their number is even.

    Args:
      values: float, of any shape, not empty.
      axis: along which the median is taken. None: of all numbers.
      keepdims: whether the axis is kept, with one entry.

    Example:
      >>> median(np.array([[4.0, 1.0, 2.0, 9.0], [3.0, 5.0, 7.0, 8.0]]), axis=1)
      array([3., 6.])
    """
    values = np.ravel(values) if axis is None else np.moveaxis(values, axis, -1)
    half = values.shape[-1] // 2
    # `np.median` asks for both middle elements, which takes many times as long as one.
    parted = np.partition(values, half, axis=-1)
    upper = parted[..., half]
    found = upper if values.shape[-1] % 2 else (upper + parted[..., :half].max(axis=-1)) / 2
    return np.expand_dims(found, axis) if keepdims and axis is not None else found


def known_medians(rows: np.ndarray) -> np.ndarray:
    """Return the median of each row's numbers, [R]; NaN in a row without any.

    Args:
      rows: float[R, C], NaN where missing.

    Example:
      >>> known_medians(np.array([[3.0, 1.0, np.nan], [5.0, 9.0, 7.0]], np.float32))
      array([2., 7.], dtype=float32)
    """
    size = rows.shape[1]
    if size == 0:
        return np.full(len(rows), np.nan, rows.dtype)
    if np.isfinite(rows.sum()):
        return median(rows, axis=1)
    ordered = np.sort(rows, axis=1)  # NaN last
    count = np.isfinite(rows).sum(axis=1)
    row = np.arange(len(rows))
    middle = 0.5 * (ordered[row, np.maximum(count - 1, 0) // 2] + ordered[row, np.minimum(count // 2, size - 1)])
    return np.where(count > 0, middle, np.nan).astype(rows.dtype)


def save(path: str | os.PathLike[str], fields: Mapping[str, Any]) -> None:
    """Writes arrays to one `.npz` file, whole or not at all."""
    with files.replacing(path) as file:
        np.savez_compressed(file, **fields)


@contextlib.contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[np.lib.npyio.NpzFile]:
    """Opens the arrays of an `.npz` file; nothing is unpickled.

    Raises:
      FileNotFoundError: where there is no such file.
      ValueError: where it is no such file, with what it is instead.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        raise ValueError("it is a directory")
    with path.open("rb") as file:  # which NumPy would leave open where it cannot read it
        if not zipfile.is_zipfile(file):
            file.seek(0)
            raise ValueError(_other_kind(file.read(1024)))
        file.seek(0)
        with np.load(file, allow_pickle=False) as stored:
            yield stored


def _other_kind(begin: bytes) -> str:
    """Returns a sentence on a file that is no archive of arrays, from its first bytes."""
    if not begin:
        return "it is empty"
    if begin.startswith(np.lib.format.MAGIC_PREFIX):
        return "it holds a single array, as a file that ends in .npy"
    if begin.startswith(b"PK"):
        return "its end is missing"
    return "it is another kind of file" + " (text)" * (begin.isascii() and b"\0" not in begin)


def load(
    path: str | os.PathLike[str],
    names: Iterable[str],
    make: Callable[..., Record],
    *,
    what: str = "a schedule",
    optional: Iterable[str] = (),
) -> Record:
    """Makes a record of the arrays of a file; nothing is unpickled.

    Args:
      path: of the file.
      names: of the arrays.
      make: the record's class, called with them.
      what: what the message calls the record.
      optional: names of arrays that the record has a default for.

    Raises:
      ValueError: where the file is not such a record.
    """
    kind = make.__name__
    try:
        with opened(path) as stored:
            there = [name for name in optional if name in stored.files]
            return make(**{name: stored[name] for name in (*names, *there)})
    except FileNotFoundError:
        raise
    except (*_DAMAGE, ValueError) as error:
        raise ValueError(f"path={str(path)!r} is not {what} written by {kind}.save: {error}") from error
