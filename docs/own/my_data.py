# my_data.py
import numpy as np
from sgdlab.data import Dataset, Images
from sgdlab.data import DATASETS


def bars(generator, count, size):
    """Images of one bright row or column in noise: uint8[n, H, W, 1]; labels: which one."""
    labels = generator.integers(0, 2 * size, count).astype(np.int32)
    pixels = generator.integers(0, 128, (count, size, size, 1)).astype(np.uint8)
    for image, label in zip(pixels, labels, strict=True):
        (image if label < size else image.swapaxes(0, 1))[label % size] = 255
    return Images(pixels, labels)


@DATASETS.register(title="Bars")
def bars_in_noise(*, size: int = 8, train: int = 1024, test: int = 256):
    """Finds a bright row or column: there are twice as many classes as rows."""
    if size < 2:
        raise ValueError(f"size={size} must be at least 2")
    generator = np.random.default_rng(0)
    return Dataset(bars(generator, train, size), bars(generator, test, size), num_classes=2 * size)
