"""Medians are NumPy's to the last bit."""

import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
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


NUMBERS = st.one_of(st.floats(0.125, 8.0, width=32), st.just(np.nan))


@hypothesis.given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=9), elements=NUMBERS))
@hypothesis.settings(deadline=None)
def test_medians_of_what_is_known(rows):
    for row, median in zip(rows, arrays.known_medians(rows), strict=True):
        expected = np.median(row[np.isfinite(row)]) if np.isfinite(row).any() else np.nan
        np.testing.assert_allclose(median, expected, rtol=1e-6)
