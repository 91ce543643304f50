"""Labelled images: `Images`, a split in memory, `StreamedImages`, and `Dataset`, what parts of `data` return."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sgdlab import arguments
from sgdlab.data.preprocess import Preprocess


def check_finite(name: str, pixels: np.ndarray) -> None:
    """Refuses floating pixels that float32, in which networks compute, cannot hold as finite numbers.

    Args:
      name: of the array.
      pixels: floating [n, ...].

    Raises:
      ValueError: which names the first of them by its index.

    Example:
      >>> check_finite("pixels", np.array([[0.5], [np.nan]]))
      Traceback (most recent call last):
      ...
      ValueError: pixels[1, 0]=nan must be finite in float32; 1 of 2 examples are not
    """
    with np.errstate(over="ignore"):
        ends = np.array([pixels.min(), pixels.max()]).astype(np.float32)  # NaN if there is one
        if np.isfinite(ends).all():
            return
        bad = ~np.isfinite(pixels.astype(np.float32))
    index = np.unravel_index(bad.argmax(), bad.shape)
    examples = bad.reshape(len(bad), -1).any(axis=1).sum()
    place = ", ".join(map(str, index))
    raise ValueError(
        f"{name}[{place}]={pixels[index]} must be finite in float32; {examples} of {len(bad)} examples are not"
    )


@dataclasses.dataclass(frozen=True)
class Images:
    """One split of a data set, in memory.

    Attributes:
      pixels: uint8[n, H, W, C] from 0 to `white`, or floating.
      labels: int32[n], from 0.
      white: the value of a white pixel, by which integers are divided. Floating pixels are taken as they are.

    Raises:
      ValueError: if there is no example, the shapes do not fit, the pixels are neither uint8 nor floating, or not
        finite, the labels are not whole numbers, or `white` is not one from 1 to 255, or below a pixel.

    Example:
      >>> split = Images(np.array([[[[0], [51]]]], np.uint8), np.array([3], np.int32))
      >>> len(split), split.image_shape, split.images.ravel()
      (1, (1, 2, 1), array([0. , 0.2], dtype=float32))
    """

    pixels: np.ndarray
    labels: np.ndarray
    white: int = 255

    def __post_init__(self) -> None:
        shapes = self.pixels.shape, self.labels.shape
        if self.pixels.ndim != 4 or self.labels.shape != self.pixels.shape[:1] or self.pixels.size == 0:
            raise ValueError(
                f"pixels of shape {shapes[0]} and labels of shape {shapes[1]} must be images [n, H, W, C] and labels "
                "[n], at least one"
            )
        if self.pixels.dtype != np.uint8 and not np.issubdtype(self.pixels.dtype, np.floating):
            raise ValueError(f"pixels of dtype {self.pixels.dtype} must be uint8, or floating")
        if not np.issubdtype(self.labels.dtype, np.integer):
            raise ValueError(
                f"labels of dtype {self.labels.dtype} must be whole numbers, the classes from 0 on: int32[n]"
            )
        if np.issubdtype(self.pixels.dtype, np.floating):
            check_finite("pixels", self.pixels)
        arguments.whole("white", self.white, most=255)
        if self.pixels.dtype == np.uint8 and self.white < 255 and self.pixels.max() > self.white:
            raise ValueError(f"white={self.white} must be at least {self.pixels.max()}, the largest pixel")

    def __len__(self) -> int:
        return self.labels.shape[0]

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels."""
        return self.pixels.shape[1:]

    @property
    def images(self) -> np.ndarray:
        """float32[n, H, W, C] from 0 to 1; floating pixels as they are."""
        if np.issubdtype(self.pixels.dtype, np.floating):
            return self.pixels
        return self.pixels.astype(np.float32) / np.float32(self.white)


@dataclasses.dataclass(frozen=True, eq=False)
class StreamedImages:
    """One split of a data set whose images are decoded when they are needed.

    Attributes:
      source: encoded examples by index, such as a TFDS data source. It is read by several threads at once and, where
        processes decode, it is pickled.
      labels: int32[n].
      decode: `(example, seed) -> uint8[H, W, C]`. The seed, a `np.random.SeedSequence`, is what its augmentation
        depends on; None asks for the image to evaluate on. A function of a module, or an instance of a class of one.
      image_shape: height, width and channels of decoded images.
      white: the value of a white pixel.

    Raises:
      ValueError: if there are not as many labels as examples, at least one.
    """

    source: Sequence[Any] | np.ndarray
    labels: np.ndarray
    decode: Callable[[Any, np.random.SeedSequence | None], np.ndarray]
    image_shape: tuple[int, int, int]
    white: int = 255

    def __post_init__(self) -> None:
        if self.labels.shape != (len(self.source),) or len(self.source) == 0:
            raise ValueError(
                f"labels of shape {self.labels.shape} must be labels [n] of n = {len(self.source)} examples, at least "
                "one"
            )
        arguments.whole("white", self.white, most=255)

    def __len__(self) -> int:
        return self.labels.shape[0]


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Labelled images to train and to test on: what a part of the family `data` returns for images.

    Attributes:
      train: the examples that gradients are computed on: `Images`, or `StreamedImages`.
      test: the examples that runs are evaluated on.
      num_classes: number of classes; labels are from 0 to num_classes - 1.
      preprocess: what happens to pixels before a network sees them.

    Raises:
      ValueError: if the images of the two are of different sizes or have another white, or a label is out of its range.

    Example:
      >>> split = Images(np.zeros((6, 8, 8, 1), np.uint8), np.arange(6, dtype=np.int32), white=16)
      >>> found = Dataset(split, split, num_classes=6)
      >>> found.image_shape, found.levels
      ((8, 8, 1), 17)
    """

    train: Images | StreamedImages
    test: Images | StreamedImages
    num_classes: int
    preprocess: Preprocess = Preprocess()  # noqa: RUF009 (frozen)

    def __post_init__(self) -> None:
        arguments.whole("num_classes", self.num_classes)
        for name in ("train", "test"):
            labels = getattr(self, name).labels
            if labels.min() < 0 or labels.max() >= self.num_classes:
                raise ValueError(
                    f"{name}.labels from {labels.min()} to {labels.max()} must be from 0 to {self.num_classes - 1}, "
                    f"below num_classes={self.num_classes}"
                )
        if self.train.image_shape != self.test.image_shape:
            raise ValueError(
                f"test.image_shape={self.test.image_shape} must be that of train, {self.train.image_shape}"
            )
        if self.train.white != self.test.white:
            raise ValueError(f"test.white={self.test.white} must be that of train, {self.train.white}")

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels."""
        return self.train.image_shape

    @property
    def levels(self) -> int:
        """Number of values that a pixel can have.

        Raises:
          ValueError: if the pixels are floating.
        """
        for name in ("train", "test"):
            split = getattr(self, name)
            if isinstance(split, Images) and split.pixels.dtype != np.uint8:
                raise ValueError(f"{name}.pixels of dtype {split.pixels.dtype} must be uint8 to have levels")
        return self.train.white + 1
