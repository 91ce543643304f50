"""Arguments: what is possible comes back as a plain number, everything else is refused by its name and value."""

import fractions
import math
import re

import numpy as np
import pytest

from sgdlab import arguments

NAN, INFINITE = math.nan, math.inf


def refused(check, message: str) -> None:
    with pytest.raises(ValueError, match=rf"^{re.escape(message)}$"):
        check()


class TestWhole:
    @pytest.mark.parametrize("value", [1, 7, np.int64(7), np.uint8(7), 10**30])
    def test_comes_back(self, value):
        given = arguments.whole("rows", value)
        assert given == value
        assert type(given) is int

    @pytest.mark.parametrize("value", [0, -1, 1.0, np.float64(2), "3", None, True, False, NAN, np.True_, [1]])
    def test_refused(self, value):
        refused(lambda: arguments.whole("rows", value), f"rows={value!r} must be a whole number of at least 1")

    @pytest.mark.parametrize(("value", "least", "most"), [(0, 0, 3), (3, 0, 3), (-2, -2, -2)])
    def test_bounds_belong(self, value, least, most):
        assert arguments.whole("b", value, least=least, most=most) == value

    @pytest.mark.parametrize("value", [-1, 4, 2.0])
    def test_from_to(self, value):
        refused(lambda: arguments.whole("b", value, least=0, most=3), f"b={value!r} must be a whole number from 0 to 3")

    def test_why(self):
        refused(
            lambda: arguments.whole("b", 4, least=0, most=3, why="one of 4 workers is waited for"),
            "b=4 must be a whole number from 0 to 3: one of 4 workers is waited for",
        )


class TestReal:
    @pytest.mark.parametrize("value", [0, -1.5, 3, np.float32(0.5), np.int64(3), fractions.Fraction(1, 4)])
    def test_comes_back(self, value):
        given = arguments.real("seconds", value)
        assert given == value
        assert type(given) is float

    @pytest.mark.parametrize("value", [NAN, INFINITE, -INFINITE, "1", None, True, 1j, [1.0], np.float64(NAN)])
    def test_refused(self, value):
        refused(lambda: arguments.real("seconds", value), f"seconds={value!r} must be a finite number")

    @pytest.mark.parametrize(
        ("bounds", "inside", "outside", "words"),
        [
            ({"least": 0}, [0, 1e-300, 1e300], [-1e-300, -1], " at least 0"),
            ({"above": 0}, [1e-300, 1], [0, 0.0, -1], " above 0"),
            ({"most": 1}, [1, -5], [1.0000001], " at most 1"),
            ({"least": 0, "most": 0.25}, [0, 0.25], [-0.1, 0.26], " at least 0 and at most 0.25"),
            ({"above": 0, "most": 2}, [2, 0.1], [0, 2.1], " above 0 and at most 2"),
        ],
    )
    def test_bounds(self, bounds, inside, outside, words):
        for value in inside:
            assert arguments.real("x", value, **bounds) == value
        for value in [*outside, NAN, INFINITE]:
            refused(
                lambda value=value: arguments.real("x", value, **bounds), f"x={value!r} must be a finite number{words}"
            )

    def test_whole_number_beyond_floats(self):
        with pytest.raises(ValueError, match="must be a finite number"):
            arguments.real("seconds", 10**400)


class TestShare:
    @pytest.mark.parametrize("count", [1, 5, 32, np.int32(32)])
    def test_counts(self, count):
        given = arguments.share("at_least", count, 32, "workers")
        assert given == count
        assert type(given) is int

    @pytest.mark.parametrize("total", [1, 3, 7, 10, 32, 100])
    def test_shares_are_rounded_up(self, total):
        """k of `total` asked for as a quotient are k, whatever the quotient's rounding is."""
        for count in range(1, total + 1):
            assert arguments.share("at_least", count / total, total, "workers") == count
            more = (count - 0.5) / total
            assert arguments.share("at_least", more, total, "workers") == count
        assert arguments.share("at_least", np.float64(1.0), total, "workers") == total
        assert arguments.share("at_least", fractions.Fraction(1, total), total, "workers") == 1

    def test_a_product_that_is_rounded_up_by_a_hair_is_not_one_more(self):
        assert 0.07 * 100 > 7
        assert arguments.share("at_least", 0.07, 100, "workers") == 7

    @pytest.mark.parametrize("value", [0, -1, 5, 0.0, -0.5, 1.0000001, NAN, INFINITE, "2", None, True, False])
    def test_refused(self, value):
        refused(
            lambda: arguments.share("at_least", value, 4, "servers"),
            f"at_least={value!r} must be a whole number from 1 to 4, the number of servers, or a share above 0.0 and "
            "at most 1.0",
        )

    @pytest.mark.parametrize(("value", "total"), [(0.01, 1), (0.01, 32), (1e-12, 4)])
    def test_a_share_asks_for_one_at_least(self, value, total):
        assert arguments.share("at_least", value, total, "servers") == 1


class TestOneOf:
    def test_comes_back(self):
        assert arguments.one_of("kind", "push", ("pull", "push")) == "push"

    @pytest.mark.parametrize("value", ["", "Pull", "pul", None, 1, ("pull",), ["pull"]])
    def test_refused(self, value):
        refused(lambda: arguments.one_of("kind", value, ("pull", "push")), f"kind={value!r} must be one of pull, push")
