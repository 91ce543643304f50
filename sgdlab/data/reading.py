"""Reads TFDS data sets without TensorFlow: `prepare`, `data_source`, `read_split` and `load`."""

import contextlib
import importlib
import importlib.util
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import flags, logging

from sgdlab.data.source import Images

if TYPE_CHECKING:
    from logging import LogRecord

    import tensorflow_datasets as tfds


def prepare(
    make_builder: Callable[..., "tfds.core.DatasetBuilder"],
    data_dir: str | os.PathLike[str] | None = None,
    *,
    progress: bool = False,
) -> "tfds.core.DatasetBuilder":
    """Makes sure that the files of a data set are in the TFDS directory, as array_record, and returns its builder.

    Args:
      make_builder: the builder's class, or a function of `data_dir` and `file_format` that returns a builder.
      data_dir: the TFDS directory. None: `TFDS_DATA_DIR`, or `~/tensorflow_datasets`.
      progress: whether TFDS shows its bars, in the error output.
    """
    import tensorflow_datasets as tfds  # noqa: PLC0415 (it takes longer to import than most commands to fail)

    builder = make_builder(data_dir=data_dir, file_format="array_record")
    if builder.is_prepared():
        return builder
    if progress:
        tfds.enable_progress_bar()
    else:
        tfds.disable_progress_bar()  # a second's work, and error output belongs to errors
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # TFDS prints sizes that it does not know
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
      white: the value of a white pixel.
      data_dir: the TFDS directory. None: `TFDS_DATA_DIR`, or `~/tensorflow_datasets`.
    """
    return read_split(data_source(prepare(make_builder, data_dir), split), white=white)


def data_source(builder: "tfds.core.DatasetBuilder", split: str, **options: Any) -> Sequence[Mapping[str, Any]]:
    """The examples of one split of a prepared data set, which are decoded when they are indexed.

    Args:
      builder: of a data set whose files are of the format array_record.
      split: a TFDS split, such as "train" or "test[:100]".
      **options: of TFDS's `as_data_source`.

    Returns:
      The TFDS data source.
    """
    define_flags_of("array_record.python.array_record_data_source")
    return builder.as_data_source(split=split, **options)


def read_split(
    examples: Sequence[Mapping[str, Any]], *, white: int = 255, image: str = "image", label: str = "label"
) -> Images:
    """Reads examples into memory.

    Args:
      examples: such as TFDS data sources, of length at least 1.
      white: the value of a white pixel, by which integers are divided; floating images are taken as they are.
      image: key of the image, uint8 or floating [H, W, C].
      label: key of the label, a whole number.

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
    return Images(images if first.dtype == np.uint8 else images.astype(np.float32), labels, white)


def define_flags_of(module: str) -> None:
    """Makes sure that absl has the flags that a library's module reads.

    Libraries define them when they are imported. absl's flagsaver deletes flags that were defined inside of its block,
    and so does `sgdlab.commands.launch.Command.answer`: without this, nothing could be read with the library any more
    after a block that contained the first import.

    Args:
      module: name of the module that defines flags, which is imported.
    """
    library: Any = importlib.import_module(module)
    holders = [value for value in vars(library).values() if isinstance(value, flags.FlagHolder)]
    if any(holder.name not in flags.FLAGS for holder in holders):
        # Executed in a copy, since reloading the module would replace classes that others have imported from it.
        library.__spec__.loader.exec_module(importlib.util.module_from_spec(library.__spec__))


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
