"""Small image data sets, whole in memory: read through `tfds.data_source`, without TensorFlow."""

import dataclasses
import os

import numpy as np
import tensorflow_datasets as tfds

from sgdlab.data.digits import Digits

BUILDERS = {"digits": Digits}
"""Data sets that the lab can prepare by itself."""

WHITE = {"digits": 16}
"""The largest pixel value, where it is not 255."""


@dataclasses.dataclass(frozen=True)
class Images:
    """One split of a data set.

    Attributes:
      images: float32[n, H, W, C], from 0 to 1.
      labels: int32[n].
    """

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return self.labels.shape[0]


def prepare(name: str, data_dir: str | os.PathLike[str] | None = None) -> tfds.core.DatasetBuilder:
    """Makes sure that a data set lies in the user's TFDS directory, as array_record, and returns its builder.

    Args:
      name: one of `BUILDERS`.
      data_dir: the TFDS directory. None: `TFDS_DATA_DIR`, or `~/tensorflow_datasets`.

    Raises:
      ValueError: where the name is not known.
    """
    if name not in BUILDERS:
        raise ValueError(f"dataset={name!r} must be one of {', '.join(sorted(BUILDERS))}")
    builder = BUILDERS[name](data_dir=data_dir, file_format="array_record")
    tfds.disable_progress_bar()  # a second's work, and error output belongs to errors
    try:
        builder.download_and_prepare()
    except OSError:
        # TFDS renames a finished directory into place, which fails where another process was first.
        builder = BUILDERS[name](data_dir=data_dir, file_format="array_record")
        if not builder.is_prepared():
            raise
    return builder


def load(name: str, split: str, data_dir: str | os.PathLike[str] | None = None) -> Images:
    """Reads a whole split into memory, preparing the data set first where need be.

    Args:
      name: one of `BUILDERS`.
      split: a TFDS split, such as "train" or "test[:100]".
      data_dir: the TFDS directory. None: `TFDS_DATA_DIR`, or `~/tensorflow_datasets`.

    Returns:
      The `Images`.

    Raises:
      ValueError: where the name is not known.
    """
    builder = prepare(name, data_dir)
    examples = list(tfds.data_source(name, split=split, data_dir=builder.data_dir_root))
    images = np.stack([example["image"] for example in examples]).astype(np.float32) / WHITE.get(name, 255)
    return Images(images, np.array([example["label"] for example in examples], np.int32))
