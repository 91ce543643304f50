"""The part `tfds`: any image-classification data set of TensorFlow Datasets, read without TensorFlow."""

import functools
import os
from importlib.util import find_spec
from typing import Any

from sgdlab.data.family import DATASETS
from sgdlab.data.preparing import first_line
from sgdlab.data.reading import data_source, prepare, read_split
from sgdlab.data.source import Dataset


@DATASETS.register(title="TFDS images")
def tfds(*, name: str = "", data_dir: str | None = None, train: str = "train", test: str = "test") -> Dataset:
    """A data set of TensorFlow Datasets: images of one size with a label each.

    It is read from files of the format array_record, about a millisecond an example, once per process; where they are
    missing it is prepared first. Preparing a builder that gives PIL images, as `sgdlab.data.Digits` does, needs no
    TensorFlow. Those that TFDS itself provides need TensorFlow and a network connection to be prepared once, on any
    machine; reading them needs neither. (The parts mnist, cifar10, cifar100 and imagenet are prepared without
    TensorFlow.) Pixels of uint8 are divided by 255.

    Args:
      name: TFDS builder, such as "mnist" or "my_dataset:1.0.0".
      data_dir: TFDS directory; None is TFDS_DATA_DIR, or ~/tensorflow_datasets.
      train: split to train on, such as "train[:80%]".
      test: split to test on.

    Returns:
      The `Dataset`; its number of classes is that of the label feature.

    Raises:
      ValueError: if the builder is not known, is not prepared and cannot be, has no image with a class label, or a
        split is not one of its own; the message begins with the argument.
    """
    if not name:
        raise ValueError(f"{name=} must be the name of a TFDS builder, such as 'mnist' or 'my_dataset:1.0.0'")
    return _read(name, None if data_dir is None else os.path.expanduser(data_dir), train, test)


@functools.lru_cache(maxsize=4)
def _read(name: str, data_dir: str | None, train: str, test: str) -> Dataset:
    builder = _builder(name, data_dir)
    image, label = _keys(name, builder)
    _prepare(name, data_dir, builder)
    builder = _builder(name, data_dir)  # one that has read what was prepared
    splits = []
    for argument, split in (("train", train), ("test", test)):
        try:
            source = data_source(builder, split)
        except NotImplementedError as error:  # files that cannot be read at random, such as tfrecord
            raise ValueError(f"{name=} must be prepared as array_record: {first_line(error)}") from error
        except Exception as error:  # TFDS raises many kinds for a split that it does not have
            known = ", ".join(builder.info.splits)
            raise ValueError(
                f"{argument}={split!r} must be a split of {name}, or a part of one; its splits are {known} "
                f"({first_line(error)})"
            ) from error
        if len(source) == 0:
            raise ValueError(f"{argument}={split!r} must have at least one example of {name}")
        try:
            splits.append(read_split(source, white=255, image=image, label=label))
        except ValueError as error:
            raise ValueError(f"{name=}: {error}") from error
    return Dataset(*splits, num_classes=builder.info.features[label].num_classes)


def _builder(name: str, data_dir: str | None) -> Any:
    # Not at the top: it takes seconds to import, and the part is registered in every process.
    import tensorflow_datasets as library  # noqa: PLC0415

    try:
        return library.builder(name, data_dir=data_dir, file_format="array_record")
    except Exception as error:  # its kinds of error depend on what the name looks like
        raise ValueError(
            f"{name=} must be a TFDS builder, of TFDS itself or a class that has been imported: {first_line(error)}"
        ) from error


def _prepare(name: str, data_dir: str | None, builder: Any) -> None:
    """Makes sure that the builder's files exist."""
    import tensorflow_datasets as library  # noqa: PLC0415 (as above)

    if builder.is_prepared():
        return
    why, cause = "TensorFlow is not installed", None
    # TFDS would download everything before it asks for TensorFlow; without a network it retries for minutes.
    if find_spec("tensorflow") or not type(builder).__module__.startswith("tensorflow_datasets."):
        try:
            prepare(functools.partial(library.builder, name), data_dir)
            return
        except Exception as error:  # no network, no TensorFlow, no space on the disk, a mistake in the builder
            why, cause = first_line(error), error
    raise ValueError(
        f"{name=} is not prepared in {builder.data_path} and cannot be prepared here ({why}); where there are "
        f"TensorFlow and a network connection, run tfds.builder({name!r}, file_format='array_record')"
        ".download_and_prepare(), and name its directory by data_dir"
    ) from cause


def _keys(name: str, builder: Any) -> tuple[str, str]:
    """The names of the image and the label among the features."""
    import tensorflow_datasets as library  # noqa: PLC0415

    features, keys = dict(builder.info.features), builder.info.supervised_keys
    image, label = keys if isinstance(keys, tuple) and len(keys) == 2 else ("image", "label")
    for key, kind in ((image, library.features.Image), (label, library.features.ClassLabel)):
        if not isinstance(features.get(key) if isinstance(key, str) else None, kind):
            found = ", ".join(f"{key}: {type(feature).__name__}" for key, feature in features.items())
            raise ValueError(
                f"{name=} must have an image and a class label as supervised keys, or as features 'image' and 'label'; "
                f"it has {found}"
            )
    if not features[label].num_classes:
        raise ValueError(f"{name=} must have a label with a known number of classes")
    return image, label
