"""Unions, differences and covered times against sums over small cells of time."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sgdlab.traces import intervals

END = 40
WHOLE = st.lists(st.tuples(st.integers(0, END - 1), st.integers(0, 8)), max_size=8)


def arrays(spans):
    begin = np.array([left for left, _ in spans], np.float64)
    return begin, begin + np.array([length for _, length in spans], np.float64)


def cells(begin, end):
    """bool[END + 8]: whether each unit of time is covered, one interval after the other."""
    covered = np.zeros(END + 8, bool)
    for left, right in zip(begin.astype(int), end.astype(int), strict=True):
        covered[left:right] = True
    return covered


@given(WHOLE)
def test_a_union_covers_the_same_times_once(spans):
    begin, end = arrays(spans)
    left, right = intervals.union(begin, end)
    np.testing.assert_array_equal(cells(left, right), cells(begin, end))
    assert (left[1:] > right[:-1]).all()


@given(WHOLE, st.integers(0, END), st.integers(0, 8))
def test_the_covered_time_of_a_window(spans, left, length):
    begin, end = arrays(spans)
    time = intervals.covered(begin, end, np.array([float(left)]), np.array([float(left + length)]))
    assert time == [cells(begin, end)[left : left + length].sum()]


@given(WHOLE, WHOLE)
def test_a_difference_covers_what_only_the_first_covers(first, second):
    first, second = arrays(first), arrays(second)
    left, right = intervals.difference(first, second)
    np.testing.assert_array_equal(cells(left, right), cells(*first) & ~cells(*second))


@given(WHOLE, WHOLE, WHOLE)
def test_exposed_parts_add_up_to_what_nothing_hides(first, second, hiding):
    first, second, hiding = arrays(first), arrays(second), arrays(hiding)
    left, right = np.array([0.0, 10.0]), np.array([10.0, END + 8.0])
    times = intervals.exposed({"a": first, "b": second}, hiding, left, right)
    seen = (cells(*first) | cells(*second)) & ~cells(*hiding)
    np.testing.assert_array_equal(times["a"] + times["b"], [seen[:10].sum(), seen[10:].sum()])
    alone = cells(*first) & ~cells(*hiding)
    np.testing.assert_array_equal(times["a"], [alone[:10].sum(), alone[10:].sum()])
