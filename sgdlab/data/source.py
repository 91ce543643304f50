"""Small image data sets, whole in memory: read through `tfds.data_source`, without TensorFlow."""

import dataclasses
import os
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import tensorflow_datasets as tfds


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


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Labelled images to train and to test on; what a part of the family `data` makes.

    Attributes:
      train: what gradients are computed on.
      test: what runs are judged by.
      num_classes: labels are from 0 to num_classes - 1.
    """

    train: Images
    test: Images
    num_classes: int

    def __post_init__(self) -> None:
        for name in ("train", "test"):
            split = getattr(self, name)
            if split.images.ndim != 4 or len(split) == 0 or len(split.images) != len(split):
                raise ValueError(
                    f"{name} of shapes {split.images.shape} and {split.labels.shape} must be images [n, H, W, C] and "
                    "labels [n], at least one"
                )
            if split.labels.min() < 0 or split.labels.max() >= self.num_classes:
                raise ValueError(f"{name}.labels must be from 0 to {self.num_classes - 1}, below num_classes")
        if self.train.images.shape[1:] != self.test.images.shape[1:]:
            raise ValueError(
                f"test.images of shape {self.test.images.shape} must have those of train, {self.train.images.shape}"
            )

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels."""
        return self.train.images.shape[1:]


def prepare(
    make_builder: "type[tfds.core.GeneratorBasedBuilder]", data_dir: str | os.PathLike[str] | None = None
) -> "tfds.core.DatasetBuilder":
    """Makes sure that a data set lies in the user's TFDS directory, as array_record, and returns its builder.

    Args:
      make_builder: the builder's class.
      data_dir: the TFDS directory. None: `TFDS_DATA_DIR`, or `~/tensorflow_datasets`.
    """
    import tensorflow_datasets as tfds  # noqa: PLC0415 (it takes longer to import than most commands to fail)

    builder = make_builder(data_dir=data_dir, file_format="array_record")
    tfds.disable_progress_bar()  # a second's work, and error output belongs to errors
    try:
        builder.download_and_prepare()
    except OSError:
        # TFDS renames a finished directory into place, which fails where another process was first.
        builder = make_builder(data_dir=data_dir, file_format="array_record")
        if not builder.is_prepared():
            raise
    return builder


def load(
    make_builder: "type[tfds.core.GeneratorBasedBuilder]",
    split: str,
    *,
    white: int = 255,
    data_dir: str | os.PathLike[str] | None = None,
) -> Images:
    """Reads a whole split into memory, preparing the data set first where need be.

    Args:
      make_builder: the class of a builder with features `image` and `label`.
      split: a TFDS split, such as "train" or "test[:100]".
      white: the largest pixel value.
      data_dir: the TFDS directory. None: `TFDS_DATA_DIR`, or `~/tensorflow_datasets`.

    Returns:
      The `Images`.
    """
    examples = list(prepare(make_builder, data_dir).as_data_source(split=split))
    images = np.stack([example["image"] for example in examples]).astype(np.float32) / white
    return Images(images, np.array([example["label"] for example in examples], np.int32))
