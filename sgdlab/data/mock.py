"""The part `mock`: random labelled images of any shape that a network can learn, drawn from a seed."""

import functools
from typing import Any

import numpy as np

from sgdlab import arguments
from sgdlab.bounds import Count, NotNegative, Whole
from sgdlab.data.family import DATASETS
from sgdlab.data.preprocess import Preprocess
from sgdlab.data.source import Dataset, Images

SHAPES = {
    "mnist": ((28, 28, 1), 10),
    "cifar10": ((32, 32, 3), 10),
    "cifar100": ((32, 32, 3), 100),
    "imagenet": ((224, 224, 3), 1000),
}
"""Image shape and number of classes of the data sets that `mock` stands for."""

_CELLS = 4
_CHUNK = 256


@DATASETS.register(title="Mocked images")
def mock(
    *,
    shape: str = "cifar10",
    image_shape: tuple[int, int, int] | None = None,
    num_classes: Count | None = None,
    num_examples: Count = 4096,
    num_test: Count = 1024,
    noise: NotNegative = 0.2,
    augment: bool = False,
    seed: Whole = 0,
) -> Dataset:
    """Random labelled images that stand for a data set of the same shape, to try and to time what would train on it.

    Every class has a mean: 4x4 cells of random colours. An image is the mean of its class plus independent Gaussian
    noise in every pixel, rounded to uint8; all classes have equally many images, but for one. A split depends on its
    own number of examples, and not on that of the other.

    Args:
      shape: data set whose shape and number of classes it has: mnist, cifar10, cifar100 or imagenet.
      image_shape: height, width and channels, such as (8,8,1), instead of those of `shape`.
      num_classes: number of classes, instead of that of `shape`.
      num_examples: number of images to train on.
      num_test: number of images to test on.
      noise: standard deviation of the noise, in units of white.
      augment: whether training images are padded by an eighth, 4 pixels at most, cropped and mirrored at random.
      seed: seed of means, labels and noise.

    Example:
      >>> found = mock(image_shape=(8, 8, 1), num_classes=3, num_examples=30, num_test=6)
      >>> found.image_shape, found.num_classes, np.bincount(found.train.labels).tolist()
      ((8, 8, 1), 3, [10, 10, 10])
    """
    arguments.one_of("shape", shape, tuple(SHAPES))
    size, classes = SHAPES[shape]
    if image_shape is not None:
        if len(image_shape) != 3:
            raise ValueError(f"{image_shape=} must be height, width and channels")
        size = tuple(arguments.whole("image_shape", number) for number in image_shape)
    if num_classes is not None:
        classes = num_classes
    found = _drawn(size, classes, num_examples, num_test, noise, seed)
    augmentation = None
    if augment:
        # Not at the top: it needs JAX, and the part is registered in every process.
        from sgdlab.data.augment import crop_and_flip  # noqa: PLC0415

        augmentation = crop_and_flip(padding=min(4, -(-size[0] // 8)))
    return Dataset(*found, classes, Preprocess((0.5,) * size[2], (0.25,) * size[2], augmentation))


@functools.lru_cache(maxsize=2)
def _drawn(
    size: tuple[int, int, int], classes: int, num_examples: int, num_test: int, noise: float, seed: int
) -> tuple[Images, Images]:
    height, width, channels = size
    cells = np.random.default_rng([seed, 0]).uniform(0.2, 0.8, (classes, _CELLS, _CELLS, channels)).astype(np.float32)
    rows, columns = np.arange(height) * _CELLS // height, np.arange(width) * _CELLS // width
    splits: list[Any] = []
    for number, stream in ((num_examples, 1), (num_test, 2)):
        generator = np.random.default_rng([seed, stream])
        labels = generator.permutation(np.arange(number, dtype=np.int32) % classes)
        pixels = np.empty((number, *size), np.uint8)
        for begin in range(0, number, _CHUNK):  # images of ImageNet's size take much memory as float32
            chosen = slice(begin, begin + _CHUNK)
            drawn = noise * generator.standard_normal(pixels[chosen].shape, np.float32)
            drawn += cells[labels[chosen]][:, rows][:, :, columns]
            pixels[chosen] = np.rint(255 * drawn.clip(0, 1))
        splits.append(Images(pixels, labels))
    return splits[0], splits[1]
