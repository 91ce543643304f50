"""The parts `mnist`, `cifar10` and `cifar100`, read and prepared through TFDS without TensorFlow."""

import functools
from typing import Any

from sgdlab.data import preparing
from sgdlab.data.family import DATASETS
from sgdlab.data.preprocess import Preprocess
from sgdlab.data.source import Dataset

_MNIST_FILES = tuple(
    f"{split}-{content}-ubyte.gz" for split in ("train", "t10k") for content in ("images-idx3", "labels-idx1")
)
_BUILDERS = {"mnist": "MNIST", "cifar10": "Cifar10", "cifar100": "Cifar100"}
_MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist"
_CIFAR = "https://www.cs.toronto.edu/~kriz/cifar.html"


@DATASETS.register(
    title="MNIST", source="LeCun et al. 1998", tfds="mnist", by_hand=_MNIST_FILES, where=_MNIST, downloaded=True
)
def mnist(*, data_dir: str | None = None, augment: bool = False, degrees: float = 10.0, zoom: float = 0.1) -> Dataset:
    """MNIST: 60,000 images of 28x28 pixels to train on, 10,000 to test on, 10 classes.

    A copy that TFDS has prepared is read; else it is prepared from the original files, which are downloaded or given by
    hand, and whose checksums are compared with TFDS's.

    Args:
      data_dir: TFDS directory; None is TFDS_DATA_DIR, or ~/tensorflow_datasets.
      augment: whether training images are rotated and zoomed.
      degrees: largest angle of the rotations.
      zoom: largest enlargement less 1; reductions are as large.

    Raises:
      ValueError: if it is missing and cannot be prepared; the message begins with `data_dir=` and names the files.
    """
    augmentation = None
    if augment:
        # Not at the top: it needs JAX, and the part is registered in every process.
        from sgdlab.data.augment import rotate_and_zoom  # noqa: PLC0415

        augmentation = rotate_and_zoom(degrees, zoom)
    return _read("mnist", data_dir, Preprocess((0.1307,), (0.3081,), augmentation))


@DATASETS.register(
    title="CIFAR-10",
    source="Krizhevsky 2009",
    tfds="cifar10",
    by_hand=("cifar-10-binary.tar.gz",),
    where=_CIFAR,
    downloaded=True,
)
def cifar10(*, data_dir: str | None = None, augment: bool = True, padding: int = 4) -> Dataset:
    """CIFAR-10: 50,000 images of 32x32 pixels to train on, 10,000 to test on, 10 classes.

    A copy that TFDS has prepared is read; else it is prepared from the original file, which is downloaded or given by
    hand, and whose checksum is compared with TFDS's. Every channel is normalised.

    Args:
      data_dir: TFDS directory; None is TFDS_DATA_DIR, or ~/tensorflow_datasets.
      augment: whether training images are padded, cropped and mirrored at random.
      padding: pixels of black that are added on each side before cropping.

    Raises:
      ValueError: if it is missing and cannot be prepared; the message begins with `data_dir=` and names the file.
    """
    statistics = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
    return _read("cifar10", data_dir, Preprocess(*statistics, _crops(augment, padding)))


@DATASETS.register(
    title="CIFAR-100",
    source="Krizhevsky 2009",
    tfds="cifar100",
    by_hand=("cifar-100-binary.tar.gz",),
    where=_CIFAR,
    downloaded=True,
)
def cifar100(*, data_dir: str | None = None, augment: bool = True, padding: int = 4) -> Dataset:
    """CIFAR-100: 50,000 images of 32x32 pixels to train on, 10,000 to test on, 100 classes (the fine labels).

    A copy that TFDS has prepared is read; else it is prepared from the original file, which is downloaded or given by
    hand, and whose checksum is compared with TFDS's. Every channel is normalised.

    Args:
      data_dir: TFDS directory; None is TFDS_DATA_DIR, or ~/tensorflow_datasets.
      augment: whether training images are padded, cropped and mirrored at random.
      padding: pixels of black that are added on each side before cropping.

    Raises:
      ValueError: if it is missing and cannot be prepared; the message begins with `data_dir=` and names the file.
    """
    statistics = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
    return _read("cifar100", data_dir, Preprocess(*statistics, _crops(augment, padding)))


def _crops(augment: bool, padding: int) -> Any:
    if not augment:
        return None
    from sgdlab.data.augment import crop_and_flip  # noqa: PLC0415 (as above)

    return crop_and_flip(padding)


def _read(name: str, data_dir: str | None, preprocess: Preprocess) -> Dataset:
    train, test, num_classes = _splits(name, str(preparing.directory(data_dir)))
    return Dataset(train, test, num_classes, preprocess)


@functools.lru_cache(maxsize=4)
def _splits(name: str, data_dir: str) -> tuple:
    builder = preparing.prepared(DATASETS[name].facts, data_dir, f"sgdlab.data.original_builders:{_BUILDERS[name]}")
    splits = [preparing.in_memory(builder, split) for split in ("train", "test")]
    return *splits, builder.info.features["label"].num_classes
