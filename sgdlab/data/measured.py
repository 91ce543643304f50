"""Examples whose labels are real numbers, for regression: `MeasuredImages`, a split, and `MeasuredDataset`."""

import dataclasses

import numpy as np

from sgdlab.data.source import Dataset, Images, check_finite


@dataclasses.dataclass(frozen=True)
class MeasuredImages(Images):
    """One split of a data set in memory, images or rows of a table, with one or several real numbers for each.

    Attributes:
      pixels: images uint8[n, H, W, C] or floating, as of `Images`; or floating [n, d], the rows of a table, which
        become images of one pixel with d channels, [n, 1, 1, d]. Floating ones are held in float32.
      labels: real [n, k], or [n], which becomes [n, 1]; held in float32.
      white: as of `Images`.

    Raises:
      ValueError: if there is no example, the shapes do not fit, or a number is not finite.

    Example:
      >>> split = MeasuredImages(np.zeros((6, 3)), np.arange(6))
      >>> split.pixels.shape, split.labels.shape, str(split.labels.dtype)
      ((6, 1, 1, 3), (6, 1), 'float32')
    """

    def __post_init__(self) -> None:
        pixels, labels = np.asarray(self.pixels), np.asarray(self.labels)
        if labels.ndim not in (1, 2) or labels.size == 0 or labels.shape[0] != len(pixels):
            raise ValueError(
                f"labels of shape {labels.shape} must be real numbers [n] or [n, k] of n = {len(pixels)} examples, at "
                "least one"
            )
        if not np.issubdtype(labels.dtype, np.floating) and not np.issubdtype(labels.dtype, np.integer):
            raise ValueError(f"labels of dtype {labels.dtype} must be real numbers")
        if pixels.ndim == 2:
            pixels = pixels[:, np.newaxis, np.newaxis, :]
        Images(pixels, np.zeros(len(pixels), np.int32), self.white)  # which refuses what cannot be pixels
        check_finite("labels", labels.astype(float))
        if np.issubdtype(pixels.dtype, np.floating):
            pixels = pixels.astype(np.float32)
        object.__setattr__(self, "pixels", pixels)
        object.__setattr__(self, "labels", labels.reshape(len(labels), -1).astype(np.float32))


@dataclasses.dataclass(frozen=True)
class MeasuredDataset(Dataset):
    """Examples with real labels to train and to test on: what a part of the family `data` returns for a regression.

    Attributes:
      train: the examples that gradients are computed on.
      test: the examples that runs are evaluated on.
      num_classes: k, the numbers of each example, as many as a network has outputs.
      preprocess: what happens to pixels before a network sees them.

    Raises:
      ValueError: if the two differ in the size of their images, the numbers of an example, or white.

    Example:
      >>> split = MeasuredImages(np.zeros((6, 3)), np.zeros((6, 2)))
      >>> found = MeasuredDataset(split, split)
      >>> found.image_shape, found.num_classes
      ((1, 1, 3), 2)
    """

    num_classes: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        for name in ("image_shape", "white"):
            ours, theirs = getattr(self.test, name), getattr(self.train, name)
            if ours != theirs:
                raise ValueError(f"test.{name}={ours} must be that of train, {theirs}")
        numbers = {name: getattr(self, name).labels.shape[1:] for name in ("train", "test")}
        if len(set(numbers.values())) > 1 or not numbers["train"]:
            raise ValueError(
                f"labels of each example, {numbers}, must be as many in train and test, as of `MeasuredImages`"
            )
        object.__setattr__(self, "num_classes", numbers["train"][0])
