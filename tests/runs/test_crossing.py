"""Time to target: on curves whose crossing is known, and where later evaluations may still move it."""

import numpy as np
import pytest

from sgdlab.runs import crossing


def naive(gradients, values):
    """Fits a line in each window, by least squares of NumPy."""
    found = []
    for n in gradients:
        if n == 0:
            found.append(values[0])
            continue
        near = [(np.log(m / n), v) for m, v in zip(gradients, values, strict=True) if m and abs(np.log(m / n)) < 0.4]
        at, weight = np.array([x for x, _ in near]), np.array([(1 - abs(x / 0.4) ** 3) ** 3 for x, _ in near])
        line = np.polyfit(at, [v for _, v in near], 1, w=np.sqrt(weight)) if at.size > 1 else [0, near[0][1]]
        found.append(line[1])
    return found


def test_smoothing_is_the_formula():
    rng = np.random.default_rng(0)
    gradients = np.array([0, *np.unique(np.rint(np.geomspace(20, 3000, 60)))])
    values = rng.uniform(size=gradients.size)
    np.testing.assert_allclose(crossing.smoothed(gradients, values), naive(gradients, values), rtol=1e-9)


@pytest.mark.parametrize("number", [100, 400])
@pytest.mark.parametrize("at", [0.03, 0.2, 0.9])
def test_a_line_in_the_logarithm_is_crossed_where_it_is(number, at):
    gradients = [0, *crossing.geometric(100_000, number)]
    values = [-9.0, *np.log(gradients[1:])]
    place = crossing.first(gradients, values, np.log(at * 100_000))
    found = np.interp(place, np.arange(len(gradients)), gradients)
    assert abs(found / (at * 100_000) - 1) < 0.01  # the chord between two evaluations


def test_lower_may_be_better():
    gradients = [0, 1000, 2000, 4000]
    assert crossing.first(gradients, [9.0, 5.0, 3.0, 1.0], 4.0, higher_is_better=False) == pytest.approx(1.5)
    assert crossing.first(gradients, [9.0, 5.0, 3.0, 1.0], 0.5, higher_is_better=False) is None


def test_a_run_that_blows_up_keeps_its_crossing():
    gradients = [0, 1000, 2000, 4000, 8000]
    assert crossing.first(gradients, [0.1, 0.5, 0.9, np.nan, np.nan], 0.7) == pytest.approx(1.5)
    assert crossing.first(gradients, [np.nan] * 5, 0.7) is None


def test_what_is_known_stays():
    """As a run goes on, a crossing that is known never moves; before, noise may move it."""
    rng = np.random.default_rng(1)
    gradients = [0, *crossing.geometric(50_000, 100)]
    for _ in range(10):
        values = 1 - np.exp(-np.asarray(gradients) / 8000) + 0.05 * rng.normal(size=len(gradients))
        settled, under_way = None, crossing.Crossing(0.6)
        for end, (number, value) in enumerate(zip(gradients, values, strict=True), 1):
            under_way.add(number, value)
            if settled is None and under_way.known():
                settled = under_way.place()
                assert number >= gradients[int(np.ceil(settled))] * np.exp(0.4)
            if settled is not None:
                assert under_way.place() == settled == crossing.first(gradients[:end], values[:end], 0.6)
        assert settled == pytest.approx(naive_place(gradients, naive(gradients, values), 0.6), abs=1e-9)


def naive_place(gradients, curve, target):
    place = next(k for k, value in enumerate(curve) if value >= target)
    return place - 1 + (target - curve[place - 1]) / (curve[place] - curve[place - 1])


def test_evaluations_are_later_by_one_factor():
    found = np.array(crossing.geometric(10**6, 100))
    assert found.size == 100
    assert found[0] == 10_000
    np.testing.assert_allclose(found[1:] / found[:-1], 100 ** (1 / 99), rtol=1e-3)
    assert crossing.geometric(3, 100) == (1, 2, 3)
    assert crossing.geometric(7, 1) == (7,)
