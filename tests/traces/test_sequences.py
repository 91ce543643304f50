"""Where a sequence repeats itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdlab.traces.nccl_flight_recorder import period, step_begins


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(4, 8))
def test_the_period_of_a_sequence_without_anything_else(cycle, times):
    kinds = np.array(cycle * times)
    shortest = next(p for p in range(1, len(cycle) + 1) if cycle * 2 == (cycle[:p] * 2 * len(cycle))[: 2 * len(cycle)]
                    and len(cycle) % p == 0)  # fmt: skip
    assert period(kinds) == (shortest, 0, kinds.size)


@pytest.mark.parametrize("layers", [3, 40])
def test_equal_operations_within_a_step_are_not_taken_for_the_period(layers):
    step = [1] * layers + [2] * layers + [3]  # as of layers that are all alike
    kinds = np.array([7, 8, 9] + step * 5 + [1, 1])
    length, begin, end = period(kinds)
    assert (length, begin) == (len(step), 3)
    assert end == kinds.size


def test_a_step_begins_behind_the_longest_gap():
    kinds, gaps = np.array([0, 1, 2] * 4), np.array([1.0, 5.0, 2.0] * 4)
    np.testing.assert_array_equal(step_begins(kinds, gaps), [1, 4, 7, 10])


def test_extra_operations_do_not_shift_the_steps_behind_them():
    kinds = np.array([0, 1, 0, 1, 0, 1, 5, 5, 5, 0, 1, 0, 1, 0, 1, 0, 1])
    np.testing.assert_array_equal(step_begins(kinds, np.where(kinds == 0, 3.0, 1.0)), np.flatnonzero(kinds == 0))


def test_a_step_in_which_everything_comes_twice_is_counted_off():
    kinds = np.array([9, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1])
    gaps = np.where(np.arange(13) % 4 == 1, 3.0, 1.0)
    np.testing.assert_array_equal(step_begins(kinds, gaps), [1, 5, 9])


def test_nothing_repeats_itself():
    assert step_begins(np.arange(9), np.ones(9)) is None
    assert step_begins(np.array([], np.int64), np.array([])) is None
