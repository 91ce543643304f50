"""Verdicts of intervals: on which side they are, and what decides nothing."""

import numpy as np
import pytest

from experiments.gap_aware.table1 import at_least
from experiments.harness import Interval, above, all_of, below, interval

EQUAL = {
    "two": [0.001, 0.001],
    "of both signs of zero": [0.0, -0.0, 0.0],
    "five": [-3.0] * 5,
    "58": [2.0] * 58,
    "but for rounding": np.array([0.95, 0.96, 0.97]) - np.array([0.94, 0.95, 0.96]),
}


@pytest.mark.parametrize("values", EQUAL.values(), ids=EQUAL)
def test_a_few_equal_values_decide_nothing(values):
    for threshold in (-10.0, 0.0, 10.0):
        verdicts = [compared(values, threshold) for compared in (above, below)]
        of_all_at_once = interval(values, comparisons=10)
        verdicts += [compared(of_all_at_once, threshold) for compared in (above, below, at_least)]
        assert verdicts == [None] * 5
    assert all_of([True, above(values, -10.0)]) is None
    assert interval(values).half == 0.0  # which tables show


def test_one_that_differs_decides():
    assert above([0.001, 0.0011]) is True
    assert below([-3.0] * 5 + [-3.1]) is True
    assert above([1.0, 1.0 + 1e-9]) is True


def test_many_equal_values_and_exact_numbers_decide():
    count = 59
    assert 0.95**count < 0.05 < 0.95 ** (count - 1)  # else one in twenty could differ, and none of these would show it
    assert above([2.0] * count) is True
    assert below([2.0] * count) is False
    printed = Interval(2.0, 0.0, 1)
    assert [above(printed, 1.0), above(printed, 2.0), above(printed, 3.0)] == [True, None, False]
    assert at_least(printed, 2.0) is True
    assert above([2.0]) is None  # a single one that was measured


def test_what_is_not_a_number_decides_nothing():
    assert above([]) is below([]) is above([1.0, np.nan]) is below([1.0, np.inf]) is None
