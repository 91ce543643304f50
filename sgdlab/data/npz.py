"""The part `npz`: images and labels of a user, or rows of a table, from one file of NumPy arrays."""

import functools
import pathlib
import zipfile

import numpy as np

from sgdlab import arrays
from sgdlab.data.family import DATASETS
from sgdlab.data.measured import MeasuredDataset, MeasuredImages
from sgdlab.data.source import Dataset, Images, check_finite

_NAMES = ("x_train", "y_train", "x_test", "y_test")
_CONTENT = "an .npz file with x_train, y_train, x_test, y_test, such as numpy.savez writes"
_MOST = np.iinfo(np.int32).max


@DATASETS.register(title="Images of an .npz file", files=("path",))
def npz(*, path: str = "") -> Dataset:
    """Labelled images of a user, or rows of a table, from one .npz file.

    The file holds images `x_train` and `x_test`, [n, H, W] or [n, H, W, C], or floating rows, [n, d], and labels
    `y_train` and `y_test`, [n] or [n, 1]. Images of uint8 are divided by 255; floating numbers are taken as they are,
    in float32. Labels are whole numbers from 0; there is one class more than the largest of them. Floating labels, [n]
    or [n, k], are real numbers, for a custom task. A file is read once per process, and again when it has
    changed.

    Args:
      path: .npz file with x_train, y_train, x_test, y_test.

    Raises:
      ValueError: if the file does not exist, is not an .npz file, or its arrays are missing or do not fit; the message
        begins with `path=` and names the array.

    Example:
      >>> import pathlib, tempfile
      >>> file = pathlib.Path(tempfile.mkdtemp()) / "mine.npz"
      >>> images, labels = np.zeros((6, 4, 5), np.uint8), np.array([0, 1, 2, 0, 1, 2])
      >>> np.savez(file, x_train=images, y_train=labels, x_test=images[:3], y_test=labels[:3])
      >>> found = npz(path=str(file))
      >>> found.image_shape, found.num_classes, len(found.train)
      ((4, 5, 1), 3, 6)
    """
    file = pathlib.Path(path).expanduser()
    if not path or not file.exists():
        found = "there is no such file" if path else "no file is named"
        raise ValueError(f"{path=} must be {_CONTENT}: {found}")
    facts = file.stat()
    try:
        return _read(file.resolve(), facts.st_mtime_ns, facts.st_size)
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path=} must be {_CONTENT}: {error}") from error


@functools.lru_cache(maxsize=4)
def _read(file: pathlib.Path, changed: int, size: int) -> Dataset:
    """Reads a file; when it was changed and its size are arguments so that a file that has changed is read anew."""
    found = _arrays(file)
    real = all(np.issubdtype(found[name].dtype, np.floating) for name in ("y_train", "y_test"))
    splits: list[Images] = []
    for split in ("train", "test"):
        name = f"y_{split}"
        pixels, labels = _pixels(f"x_{split}", found[f"x_{split}"]), found[name] if real else _labels(name, found[name])
        if len(pixels) != len(labels):
            raise ValueError(f"x_{split} has {len(pixels)} images, y_{split} {len(labels)} labels")
        splits.append(MeasuredImages(pixels, labels) if real else Images(pixels, labels))
    train, test = splits
    if train.image_shape != test.image_shape:
        shapes = [found[f"x_{split}"].shape for split in ("train", "test")]
        raise ValueError(f"images of x_train, {shapes[0]}, and of x_test, {shapes[1]}, must be of one size")
    if real:
        return MeasuredDataset(train, test)
    return Dataset(train, test, num_classes=1 + int(max(train.labels.max(), test.labels.max())))


def _arrays(file: pathlib.Path) -> dict[str, np.ndarray]:
    with arrays.opened(file) as archive:
        missing = [name for name in _NAMES if name not in archive]
        if missing:
            raise ValueError(f"{', '.join(missing)} missing; it holds {', '.join(archive) or 'nothing'}")
        return {name: archive[name] for name in _NAMES}


def _pixels(name: str, array: np.ndarray) -> np.ndarray:
    """uint8 or float32 [n, H, W, C]."""
    if array.ndim == 2 and np.issubdtype(array.dtype, np.floating):
        array = array[:, np.newaxis, np.newaxis, :]  # a table: of each row, one pixel with a channel for each feature
    if array.ndim not in (3, 4) or array.size == 0:
        raise ValueError(
            f"{name} of shape {array.shape} must be images [n, H, W] or [n, H, W, C], or floating rows [n, d], at "
            "least one"
        )
    if array.dtype != np.uint8:
        if not np.issubdtype(array.dtype, np.floating):
            raise ValueError(f"{name} of dtype {array.dtype} must be uint8, or floating")
        check_finite(name, array)
        array = array.astype(np.float32)
    return array if array.ndim == 4 else array[..., np.newaxis]


def _labels(name: str, array: np.ndarray) -> np.ndarray:
    """int32[n]."""
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{name} of shape {array.shape} and dtype {array.dtype} must be integers [n]")
    if array.size and not (array.min() >= 0 and array.max() < _MOST):
        raise ValueError(f"{name} from {array.min()} to {array.max()} must be labels from 0 to {_MOST - 1}")
    return array.astype(np.int32)
