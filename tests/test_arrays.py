"""Medians are NumPy's to the last bit."""

import numpy as np
import pytest

from sgdlab import arrays


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (2, 1), (5, 4), (4, 5), (31, 64)])
def test_medians_are_those_of_numpy(shape, axis, dtype):
    values = np.random.default_rng(0).gamma(2.0, 1.0, shape).astype(dtype)
    values[0] = values[-1]  # ties
    found = arrays.median(values, axis=axis)
    np.testing.assert_array_equal(found, np.median(values, axis=axis))
    assert found.dtype == dtype
