"""The part `digits`: the UCI handwritten digits, read once per process."""

import functools
import os

from sgdlab.data.family import DATASETS
from sgdlab.data.reading import load
from sgdlab.data.source import Dataset

_WHITE = 16
"""The value of a white pixel: there are 17 levels."""


@DATASETS.register(title="UCI digits", source="Alpaydin and Kaynak 1998")
def digits() -> Dataset:
    """UCI handwritten digits: 1437 images of 8x8 pixels to train on, 360 to test on, 10 classes.

    They come with scikit-learn: nothing is downloaded.

    Returns:
      The `Dataset`.
    """
    return read()


@functools.cache
def read(data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """Reads both splits, once per process.

    Args:
      data_dir: the TFDS directory. None: `TFDS_DATA_DIR`, or `~/tensorflow_datasets`.

    Returns:
      The `Dataset`.
    """
    # Not at the top: TFDS and scikit-learn take seconds to import, and the part is registered in every process.
    from sgdlab.data.digits_builder import Digits  # noqa: PLC0415

    train, test = (load(Digits, split, white=_WHITE, data_dir=data_dir) for split in ("train", "test"))
    return Dataset(train, test, num_classes=10)
