"""Examples that no network could be trained on: named where they are made."""

import numpy as np
import pytest

from sgdlab.data import Images


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_pixels_are_finite_in_float32(value):
    pixels = np.zeros((5, 1, 1, 2))
    Images(pixels, np.zeros(5, int))
    pixels[3, 0, 0, 1] = value
    with pytest.raises(ValueError, match=r"pixels\[3, 0, 0, 1\]=.* must be finite in float32; 1 of 5 examples are not"):
        Images(pixels, np.zeros(5, int))


@pytest.mark.parametrize("dtype", [float, bool])
def test_labels_are_whole_numbers(dtype):
    with pytest.raises(ValueError, match=f"labels of dtype {np.dtype(dtype)} must be whole numbers"):
        Images(np.zeros((2, 1, 1, 1), np.uint8), np.zeros(2, dtype))
