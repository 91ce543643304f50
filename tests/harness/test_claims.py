"""Verdicts of intervals: on which side they are, and what decides nothing."""

import numpy as np
import pytest

from experiments.gap_aware.figures9_11 import in_print
from experiments.gap_aware.table1 import at_least
from experiments.harness import Interval, above, all_of, below, interval

EQUAL = {
    "two": [0.001, 0.001],
    "of both signs of zero": [0.0, -0.0, 0.0],
    "five": [-3.0] * 5,
    "many": [2.0] * 200,
    "but for rounding": np.array([0.95, 0.96, 0.97]) - np.array([0.94, 0.95, 0.96]),
}


@pytest.mark.parametrize("values", EQUAL.values(), ids=EQUAL)
def test_equal_values_decide_nothing(values):
    for threshold in (-10.0, 0.0, 10.0):
        verdicts = [compared(values, threshold) for compared in (above, below)]
        of_all_at_once = interval(values, comparisons=10)
        verdicts += [compared(of_all_at_once, threshold) for compared in (above, below, at_least)]
        assert verdicts == [None] * 5
    assert all_of([True, above(values, -10.0)]) is None
    assert interval(values).half == 0.0
    assert "±" not in str(interval(values))  # as if nothing else could come out


@pytest.mark.parametrize("values", [[0.001, 0.0011], [5.0, 6.0], [5.0], [5.0, 5.0]], ids=str)
def test_fewer_than_three_values_decide_nothing(values):
    for resolution in (0.0, 1e-6):
        assert above(values, -1e6, resolution=resolution) is below(values, 1e6, resolution=resolution) is None
        assert at_least(interval(values, resolution=resolution), -1e6) is None


def test_three_of_which_one_differs_decide():
    assert below([-3.0] * 2 + [-3.1]) is True
    assert above([1.0, 1.0, 1.0 + 1e-9]) is True


def test_a_resolution_is_the_least_half_width():
    """Three runs that all have 350 of 360 test examples right: another may have one more or less."""
    example, values = 100 / 360, [100 * 350 / 360] * 3
    found = interval(values, resolution=example)
    assert found.half == example
    assert str(found) == "97.2 ± 0.28"
    for given, wide in ((values, {"resolution": example}), (interval(values), {"resolution": example}), (found, {})):
        assert above(given, values[0] - 1.01 * example, **wide) is True
        assert above(given, values[0] - 0.99 * example, **wide) is None
        assert below(given, values[0] + 1.01 * example, **wide) is True
        assert above(given, values[0] + 1.01 * example, **wide) is False
    # An interval that is wider keeps its width.
    spread = [96.0, 97.0, 98.0]
    assert interval(spread, resolution=example) == interval(spread)
    with pytest.raises(ValueError, match="resolution=-1"):
        interval(values, resolution=-1.0)
    with pytest.raises(ValueError, match="resolution=nan"):
        above(values, resolution=float("nan"))


def test_exact_numbers_decide():
    printed = Interval(2.0, 0.0, 1)
    assert [above(printed, 1.0), above(printed, 2.0), above(printed, 3.0)] == [True, None, False]
    assert above(printed, 1.9, resolution=0.5) is True  # the resolution is one of what was measured
    assert at_least(printed, 2.0) is True
    assert above([2.0]) is None  # a single one that was measured


def test_a_printed_accuracy_is_of_many_test_images():
    cells = {(0.9, 0.1): 90.0, (0.0, 0.1): 80.0}
    difference = in_print(_Cells(cells))
    assert above(difference(*cells)) is True


class _Cells:
    """A table of accuracies, by cell."""

    def __init__(self, cells):
        self.loc = cells


def test_what_is_not_a_number_decides_nothing():
    assert above([]) is below([]) is above([1.0, np.nan]) is below([1.0, np.inf]) is None
    assert above([1.0, 1.0, np.nan], resolution=0.1) is None
