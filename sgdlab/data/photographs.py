"""The part `photographs`: patches of the two photographs that come with scikit-learn, for density estimation."""

import functools

import numpy as np

from sgdlab import arguments
from sgdlab.bounds import Count
from sgdlab.data.family import DATASETS
from sgdlab.data.source import Dataset, Images
from sgdlab.errors import UsageError


@DATASETS.register(title="Patches of photographs", source="scikit-learn's china.jpg and flower.jpg")
def photographs(*, size: Count = 32, stride: Count = 8, levels: int = 256, test_share: float = 0.25) -> Dataset:
    """Patches of two photographs of 427x640 pixels in colour, natural images that come with scikit-learn.

    The split is by place: patches to test on lie in the right-hand columns of both photographs, those to train on in
    the others, and no pixel is in both. Patches overlap where the stride is below their size. The label says which
    photograph a patch is from. Two photographs are enough to see a likelihood rise, and too few for a claim.

    Args:
      size: height and width of a patch, pixels.
      stride: distance of neighbouring patches, pixels.
      levels: number of values of each channel, a power of 2 from 2 to 256; the lowest bits are left out.
      test_share: share of the columns to test on.

    Returns:
      The `Dataset`; its 2 classes are the photographs.

    Example:
      >>> found = photographs(size=32, stride=32)
      >>> found.image_shape, len(found.train), len(found.test)
      ((32, 32, 3), 390, 130)
    """
    arguments.whole("levels", levels, least=2, most=256)
    if levels & (levels - 1):
        raise ValueError(f"{levels=} must be a power of 2")
    arguments.real("test_share", test_share, above=0, below=1)
    images = _images()
    height, width, _ = images[0].shape
    cut = round(width * (1 - test_share))
    if size > min(height, cut, width - cut):
        raise ValueError(f"{size=} must be at most {min(height, cut, width - cut)}, the size of what is cut up")
    splits = []
    for columns in (slice(0, cut), slice(cut, width)):
        patches = [_patches(image[:, columns] // (256 // levels), size, stride) for image in images]
        labels = np.repeat(np.arange(len(images), dtype=np.int32), [len(found) for found in patches])
        splits.append(Images(np.concatenate(patches), labels, white=levels - 1))
    return Dataset(*splits, num_classes=len(images))


@functools.cache
def _images() -> list[np.ndarray]:
    try:
        from sklearn.datasets import load_sample_images  # noqa: PLC0415 (an optional requirement)
    except ImportError as error:
        raise UsageError(
            "--config.data.kind=photographs needs scikit-learn, which is not installed: "
            "pip install 'sgdlab[photographs]'"
        ) from error
    return load_sample_images().images


def _patches(image: np.ndarray, size: int, stride: int) -> np.ndarray:
    """uint8[n, size, size, C], in reading order."""
    windows = np.lib.stride_tricks.sliding_window_view(image, (size, size), axis=(0, 1))[::stride, ::stride]
    return np.ascontiguousarray(windows.transpose(0, 1, 3, 4, 2).reshape(-1, size, size, image.shape[-1]))
