"""Levels are told from a gradual rise, of one worker's series and of the whole cluster."""

import numpy as np
import pytest

from sgdlab.advice.diagnosis import slowdown

NOISE, CRITICAL = 0.05, 4.5


def noisy(series: np.ndarray, seed: int = 0) -> np.ndarray:
    return series + NOISE * np.random.default_rng(seed).standard_normal(series.size)


def test_a_rise_from_the_first_row():
    found = slowdown.fit_trend(noisy(np.linspace(0.0, 0.5, 400)), NOISE, CRITICAL)
    assert found.rise == pytest.approx(0.5, abs=0.03)
    assert found.start <= 20


def test_a_rise_from_a_later_row():
    series = np.maximum(np.linspace(-0.5, 0.5, 400), 0.0)
    found = slowdown.fit_trend(noisy(series, 1), NOISE, CRITICAL)
    assert found.rise == pytest.approx(0.5, abs=0.05)
    assert found.start == pytest.approx(200, abs=40)
    np.testing.assert_allclose(found.fitted, series, atol=0.04)


@pytest.mark.parametrize("size", [0.15, 0.5, 2.0])
def test_a_jump_is_no_rise(size):
    found = slowdown.fit_trend(noisy(np.repeat([0.0, size], 200), 2), NOISE, CRITICAL)
    assert found.rise is None
    assert [first for first, _, _ in found.stretches] == [0, 200]


def test_line_is_least_squares_where_nothing_is_an_outlier():
    series = noisy(np.linspace(0.0, 1.0, 50), 3)
    fitted, rise = slowdown.line(series, 0, 100.0)
    slope, level = np.polyfit(np.arange(50), series, 1)
    np.testing.assert_allclose(fitted, level + slope * np.arange(50))
    assert rise == pytest.approx(49 * slope)


def test_line_hardly_follows_outliers():
    series = noisy(np.linspace(0.0, 1.0, 200), 4)
    series[::20] += 10.0
    assert slowdown.line(series, 0, NOISE)[1] == pytest.approx(1.0, abs=0.05)


def test_the_cluster_is_slower_for_a_while():
    usual = np.exp(noisy(np.zeros(300), 5))
    usual[100:180] *= 1.5
    found = slowdown.find_slowdown(usual)
    assert [(e.first, e.last) for e in found.episodes] == [(100, 179)]
    assert not found.gradual
    np.testing.assert_array_equal(found.factor > 1, (np.arange(300) >= 100) & (np.arange(300) < 180))


def test_the_cluster_was_slower_at_first():
    usual = np.where(np.arange(300) < 100, 1.4, 1.0) * np.exp(noisy(np.zeros(300), 6))
    assert [(e.first, e.last) for e in slowdown.find_slowdown(usual).episodes] == [(0, 99)]


def test_the_cluster_becomes_gradually_slower():
    found = slowdown.find_slowdown(np.exp(noisy(np.log(np.linspace(1.0, 1.5, 500)), 7)))
    assert found.gradual
    (only,) = found.episodes
    assert only.last == 499
    assert only.factor == pytest.approx(1.5, rel=0.05)
    # Each step divided by its factor is as fast as the first.
    np.testing.assert_allclose(np.linspace(1.0, 1.5, 500) / found.factor, 1.0, atol=0.04)


def test_a_cluster_that_becomes_faster_is_not_slower():
    assert slowdown.find_slowdown(np.exp(noisy(np.linspace(0.0, -0.5, 300), 8))).episodes == ()


def test_swings_with_a_memory_are_seldom_changes():
    named = 0
    for seed in range(40):
        white = np.random.default_rng(seed).standard_normal(400)
        for row in range(1, 400):
            white[row] = 0.8 * white[row - 1] + 0.6 * white[row]
        named += bool(slowdown.find_slowdown(np.exp(0.05 * white)).episodes)
    assert named <= 2


def test_without_noise_the_stretch_is_exact():
    (only,) = slowdown.find_slowdown(np.repeat([2.0, 3.0, 2.0], 20)).episodes
    assert (only.first, only.last) == (20, 39)
    assert only.factor == pytest.approx(1.5)
