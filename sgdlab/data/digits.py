"""The parts `digits`, the UCI handwritten digits, and `digit_pairs`, two side by side: a harder task, at hand."""

import functools
import os

import numpy as np

from sgdlab.bounds import Count, Whole
from sgdlab.data.family import DATASETS
from sgdlab.data.reading import load
from sgdlab.data.source import Dataset, Images

CLASSES = (10, 100)
"""Of `digit_pairs`."""
_WHITE = 16
"""The value of a white pixel: there are 17 levels."""


@DATASETS.register(title="UCI digits", source="Alpaydin and Kaynak 1998")
def digits() -> Dataset:
    """UCI handwritten digits: 1437 images of 8x8 pixels to train on, 360 to test on, 10 classes.

    They come with this package: nothing is downloaded.
    """
    return read()


@functools.cache
def read(data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """Reads both splits, once per process.

    Args:
      data_dir: the TFDS directory. None: `TFDS_DATA_DIR`, or `~/tensorflow_datasets`.
    """
    # Not at the top: TFDS takes seconds to import, and the part is registered in every process.
    from sgdlab.data.digits_builder import Digits  # noqa: PLC0415

    train, test = (load(Digits, split, white=_WHITE, data_dir=data_dir) for split in ("train", "test"))
    return Dataset(train, test, num_classes=10)


@DATASETS.register(title="Pairs of UCI digits", source="Alpaydin and Kaynak 1998")
def digit_pairs(*, classes: int = 100, num_examples: Count = 4096, num_test: Count = 2048, seed: Whole = 0) -> Dataset:
    """Images of 8x16 pixels, each of two UCI digits that are drawn at random: what CIFAR-10 and CIFAR-100 are to MNIST.

    With 100 classes the label is the number that the two digits form, `10 left + right`. With 10 classes it is the left
    digit, and the right one only distracts. Both have the same images. Pairs to train on are of digits to train on, and
    pairs to test on of digits to test on; each split depends on its own number of examples, and not on that of the
    other. Nothing is downloaded.

    Args:
      classes: 100 or 10.
      num_examples: number of pairs to train on.
      num_test: number of pairs to test on.
      seed: seed of the pairs.

    Example:
      >>> found = digit_pairs(num_examples=100, num_test=50)
      >>> found.image_shape, found.num_classes, len(found.train), len(found.test)
      ((8, 16, 1), 100, 100, 50)
    """
    if classes not in CLASSES:
        raise ValueError(f"{classes=} must be {' or '.join(map(str, CLASSES))}")
    splits = (_pairs(name, count, seed) for name, count in (("train", num_examples), ("test", num_test)))
    named = (Images(pixels, labels // (100 // classes), white=white) for pixels, labels, white in splits)
    return Dataset(*named, num_classes=classes)


@functools.lru_cache(maxsize=4)
def _pairs(split: str, count: int, seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Pixels [count, 8, 16, 1], labels [count] from 0 to 99, and white."""
    single = getattr(read(), split)
    drawn = np.random.default_rng((seed, split == "test")).integers(len(single), size=(count, 2))
    left, right = drawn.T
    pixels = np.concatenate([single.pixels[left], single.pixels[right]], axis=2)
    return pixels, 10 * single.labels[left] + single.labels[right], single.white
