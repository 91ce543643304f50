"""Data sets in the TFDS directory: where they are, whether they are prepared, and how a missing one is reported."""

import os
import pathlib
import pkgutil
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sgdlab.data.family import DatasetFacts
from sgdlab.data.reading import data_source, prepare, read_split
from sgdlab.data.source import Images
from sgdlab.files import replacing

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

_CHECKSUM = re.compile(r"Artifact (\S+), downloaded to (\S+), has wrong checksum")


def directory(data_dir: str | os.PathLike[str] | None) -> pathlib.Path:
    """The TFDS directory.

    Args:
      data_dir: as an entry of the configuration gives it. None: `TFDS_DATA_DIR`, or `~/tensorflow_datasets`.
    """
    found = data_dir if data_dir is not None else os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    return pathlib.Path(found).expanduser()


def by_hand(data_dir: str | os.PathLike[str] | None) -> pathlib.Path:
    """The directory in which TFDS looks for files that are given by hand."""
    return directory(data_dir) / "downloads" / "manual"


def version(name: str, data_dir: str | os.PathLike[str] | None) -> pathlib.Path | None:
    """The directory of the newest version of a data set that somebody has prepared; None where there is none.

    Args:
      name: of the TFDS builder.
      data_dir: the TFDS directory.
    """
    found = [path.parent for path in (directory(data_dir) / name).glob("*/dataset_info.json")]
    numbers = lambda path: [int(part) for part in re.findall(r"\d+", path.name)]
    return max(found, key=numbers, default=None)


def prepared(facts: DatasetFacts, data_dir: str | os.PathLike[str] | None, builder: str) -> "tfds.core.DatasetBuilder":
    """The builder of a data set, which is prepared first where nobody has done so.

    Args:
      facts: its name in TFDS, the original files, and where they are from.
      data_dir: the TFDS directory.
      builder: of its class, "module:name", which is imported only where the data set is not prepared.

    Raises:
      ValueError: if the data set is missing and cannot be prepared, or a file is not the official one; the message is
        one line, begins with `data_dir=` and names the files and their directory.
    """
    import tensorflow_datasets as library  # noqa: PLC0415 (it takes seconds to import)

    name = facts.tfds or ""
    found = version(name, data_dir)
    if found is None:
        try:
            return prepare(pkgutil.resolve_name(builder), directory(data_dir), progress=sys.stderr.isatty())
        except Exception as error:  # no network, no file, a wrong file, no space on the disk
            raise ValueError(_refusal(facts, data_dir, error)) from error
    try:
        return library.builder_from_directory(found)
    except Exception as error:  # TFDS raises many kinds for damaged files
        raise ValueError(
            f"data_dir={str(directory(data_dir))!r} must hold {name} as TFDS prepares it, but {found} cannot be read: "
            f"{first_line(error)}; delete that directory to prepare it anew"
        ) from error


def _refusal(facts: DatasetFacts, data_dir: str | os.PathLike[str] | None, error: Exception) -> str:
    beginning = f"data_dir={str(directory(data_dir))!r} must hold {facts.tfds}"
    wrong = _CHECKSUM.search(str(error))
    if wrong:
        url, path = wrong.groups()
        return (
            f"{beginning}: {path} is not the file {pathlib.PurePosixPath(url).name} of {url}, whose size and SHA-256 "
            "are known; it is cut off or another file: delete it, and run the same command again"
        )
    files = ", ".join(facts.by_hand)
    return (
        f"{beginning}, which cannot be prepared here ({first_line(error)}): put {files} ({facts.where}) into "
        f"{by_hand(data_dir)}, and run the same command again"
    )


def in_memory(
    builder: "tfds.core.DatasetBuilder", split: str, *, white: int = 255, image: str = "image", label: str = "label"
) -> Images:
    """A split as arrays, which are saved beside its records: TFDS needs up to a millisecond for an example.

    Args:
      builder: of a prepared data set.
      split: one of its splits, such as "train".
      white: the value of a white pixel.
      image: key of the image.
      label: key of the label.

    Raises:
      ValueError: if the records cannot be read without TensorFlow.
    """
    pixels, labels = (load_array(builder, f"{split}_{content}") for content in ("pixels", "labels"))
    number = builder.info.splits[split].num_examples
    if pixels is None or labels is None or not (len(pixels) == len(labels) == number):
        found = read_split(source(builder, split), white=white, image=image, label=label)
        pixels, labels = found.pixels, found.labels
        save_array(builder, f"{split}_pixels", pixels)
        save_array(builder, f"{split}_labels", labels)
    return Images(pixels, labels, white)


def source(builder: "tfds.core.DatasetBuilder", split: str, **options: Any) -> Sequence[Any]:
    """The examples of a split of a prepared data set.

    Args:
      builder: of the data set.
      split: such as "train".
      **options: of TFDS's `as_data_source`.

    Raises:
      ValueError: if there is no such split, or its files are not of the format array_record.
    """
    path = builder.data_path
    if split not in builder.info.splits:
        known = ", ".join(builder.info.splits)
        raise ValueError(f"data_dir={str(path.parents[1])!r} must hold a split {split}; {path} has {known}")
    try:
        return data_source(builder, split, **options)
    except NotImplementedError as error:  # files that cannot be read at random, such as tfrecord
        raise ValueError(
            f"data_dir={str(path.parents[1])!r} must hold {builder.name} as array_record, but {path} is of another "
            f"format ({first_line(error)}); TFDS's `tfds convert_format` converts it, or another directory is prepared"
        ) from error


def load_array(builder: "tfds.core.DatasetBuilder", name: str, *, memory_map: bool = False) -> np.ndarray | None:
    """An array that `save_array` has written beside the records; None where there is none, or a damaged one."""
    try:
        return np.load(_file(builder, name), mmap_mode="r" if memory_map else None)
    except (OSError, ValueError, EOFError):
        return None


def save_array(builder: "tfds.core.DatasetBuilder", name: str, array: np.ndarray) -> None:
    """Writes an array beside the records of a data set, if its directory can be written."""
    try:
        with replacing(_file(builder, name)) as file:
            np.save(file, array)
    except OSError:
        pass  # somebody else's copy, or a full disk: the records are read again the next time


def _file(builder: "tfds.core.DatasetBuilder", name: str) -> pathlib.Path:
    return pathlib.Path(builder.data_path) / "sgdlab" / f"{name}.npy"


def first_line(error: Exception) -> str:
    """The kind of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
