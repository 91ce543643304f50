"""The orders of `ordering` are stable sorts, as Python's `sorted` makes them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.tiers import examples

from sgdlab.ordering import by_number, by_time

check = settings(derandomize=True, deadline=None, max_examples=examples(200), database=None)
TIMES = st.lists(st.one_of(st.sampled_from([0.0, -0.0, 1.0, 2.5, np.inf]), st.floats(0, 1e300)), max_size=40)


@check
@given(times=TIMES)
def test_equal_times_stay_in_order(times):
    found = by_time(np.array(times, float))
    assert found.tolist() == sorted(range(len(times)), key=times.__getitem__)


@pytest.mark.parametrize("count", [3, 2**15 - 1, 2**15, 100_000])  # up to 15 bits are sorted in another way
@check
@given(data=st.data())
def test_equal_numbers_stay_in_order(count, data):
    numbers = data.draw(st.lists(st.one_of(st.integers(0, count - 1), st.integers(0, 2)), max_size=40))
    found = by_number(np.array(numbers, np.int32), count)
    assert found.tolist() == sorted(range(len(numbers)), key=numbers.__getitem__)


@pytest.mark.parametrize("size", [1000, 2**16])
def test_long_arrays(size):
    generator = np.random.default_rng(0)
    times = generator.integers(0, size // 4, size).astype(float)
    np.testing.assert_array_equal(by_time(times), np.argsort(times, kind="stable"))
    numbers = generator.integers(0, 50_000, size).astype(np.int32)
    np.testing.assert_array_equal(by_number(numbers, 50_000), np.argsort(numbers, kind="stable"))
