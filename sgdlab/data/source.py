"""Labelled images in memory (`Images`, `Dataset`), and how they are read from TFDS files without TensorFlow."""

import contextlib
import dataclasses
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import flags, logging

if TYPE_CHECKING:
    from logging import LogRecord

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
    """Labelled images to train and to test on: what a part of the family `data` returns.

    Attributes:
      train: the examples that gradients are computed on.
      test: the examples that runs are evaluated on.
      num_classes: number of classes; labels are from 0 to num_classes - 1.

    Raises:
      ValueError: if a split is empty, the images of the two are of different sizes, or a label is out of its range.
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
    make_builder: Callable[..., "tfds.core.DatasetBuilder"], data_dir: str | os.PathLike[str] | None = None
) -> "tfds.core.DatasetBuilder":
    """Makes sure that the files of a data set are in the TFDS directory, as array_record, and returns its builder.

    Args:
      make_builder: the builder's class, or a function of `data_dir` and `file_format` that returns a builder.
      data_dir: the TFDS directory. None: `TFDS_DATA_DIR`, or `~/tensorflow_datasets`.

    Returns:
      The builder.
    """
    import tensorflow_datasets as tfds  # noqa: PLC0415 (it takes longer to import than most commands to fail)

    builder = make_builder(data_dir=data_dir, file_format="array_record")
    if builder.is_prepared():
        return builder
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
    make_builder: Callable[..., "tfds.core.DatasetBuilder"],
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
    return read_split(data_source(prepare(make_builder, data_dir), split), white=white)


def data_source(builder: "tfds.core.DatasetBuilder", split: str) -> Sequence[Mapping[str, Any]]:
    """The examples of one split of a prepared data set, which are decoded when they are indexed.

    Args:
      builder: of a data set whose files are of the format array_record.
      split: a TFDS split, such as "train" or "test[:100]".

    Returns:
      The TFDS data source.
    """
    _define_flags_of_array_record()
    return builder.as_data_source(split=split)


def read_split(
    examples: Sequence[Mapping[str, Any]], *, white: int = 255, image: str = "image", label: str = "label"
) -> Images:
    """Reads examples into memory.

    Args:
      examples: such as TFDS data sources, of length at least 1.
      white: the largest pixel value, by which integers are divided; floating images are taken as they are.
      image: key of the image, uint8 or floating [H, W, C].
      label: key of the label, a whole number.

    Returns:
      The `Images`.

    Raises:
      ValueError: if the images are not of one size, or neither uint8 nor floating.

    Example:
      >>> read_split([{"image": np.full((2, 2, 1), 51, np.uint8), "label": 3}]).images.ravel()
      array([0.2, 0.2, 0.2, 0.2], dtype=float32)
    """
    with _without_advice_on_opencv():
        first = np.asarray(examples[0][image])
        if first.dtype != np.uint8 and not np.issubdtype(first.dtype, np.floating):
            raise ValueError(f"images of dtype {first.dtype} must be uint8, or floating")
        images, labels = np.empty((len(examples), *first.shape), first.dtype), np.empty(len(examples), np.int32)
        for index, example in enumerate(examples):
            if np.shape(example[image]) != first.shape:
                raise ValueError(f"images of shapes {first.shape} and {np.shape(example[image])} must be of one size")
            images[index], labels[index] = example[image], example[label]
    scaled = images.astype(np.float32)
    return Images(scaled / white if first.dtype == np.uint8 else scaled, labels)


def _define_flags_of_array_record() -> None:
    """Makes sure that absl has the flags that array_record reads.

    array_record defines them when TFDS imports it, at the first reading in a process. absl's flagsaver deletes flags
    that were defined inside of its block, and so does `sgdlab.commands.launch.answer`: without this, no data set could
    be read any more after a block that contained the first reading.
    """
    # Not at the top: it is needed only by processes that read TFDS files.
    from array_record.python import array_record_data_source as reader  # noqa: PLC0415

    holders = [value for value in vars(reader).values() if isinstance(value, flags.FlagHolder)]
    if any(holder.name not in flags.FLAGS for holder in holders):
        # Executed in a copy, since reloading the module would replace classes that others have imported from it.
        reader.__spec__.loader.exec_module(importlib.util.module_from_spec(reader.__spec__))


@contextlib.contextmanager
def _without_advice_on_opencv() -> Iterator[None]:
    """Images are decoded by Pillow without TFDS's warning that OpenCV, which sgdlab does not require, is faster."""

    def passes(record: "LogRecord") -> bool:
        return not str(record.msg).startswith("OpenCV is not installed")

    logger = logging.get_absl_logger()
    logger.addFilter(passes)
    try:
        yield
    finally:
        logger.removeFilter(passes)
