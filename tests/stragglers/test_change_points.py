"""The noise of a series, its changes of level, and that noise alone rarely makes one."""

import numpy as np
import pytest

from sgdlab.stragglers.diagnosis import change_points, slowdown


def ar(rho: float, shape: tuple[int, int], seed: int = 0) -> np.ndarray:
    white = np.random.default_rng(seed).standard_normal(shape)
    for row in range(1, shape[0]):
        white[row] = rho * white[row - 1] + np.sqrt(1 - rho**2) * white[row]
    return white


def test_noise_of_normal_series_is_their_standard_deviation():
    spread = np.array([0.05, 0.1, 0.1, 0.2])
    series = spread * np.random.default_rng(0).standard_normal((2000, 4)) + 3.0
    series[1000:, 3] += 2.0  # a change of level does not count
    np.testing.assert_allclose(change_points.noise(series).deviation[1:], spread[1:], rtol=0.1)


def test_noise_with_a_memory_has_the_deviation_of_its_long_run_variance():
    # AR(1) of unit variance: the mean of T values has the variance (1 + rho) / (1 - rho) / T.
    rho = 0.5
    found = change_points.noise(0.1 * ar(rho, (4000, 8))).deviation
    np.testing.assert_allclose(found, 0.1 * np.sqrt((1 + rho) / (1 - rho)), rtol=0.12)


def test_strongest_is_the_largest_statistic_of_all_seeded_intervals():
    series = np.random.default_rng(1).standard_normal((40, 3))
    deviation = np.array([1.0, 0.8, 1.2])
    score = np.clip((series - np.median(series, axis=0)) / deviation, -3, 3)
    least, best = change_points.LEAST, np.zeros(3)
    for length in (8, 16, 32, 40):
        for start in {*range(0, 40 - length + 1, length // 2), 40 - length}:
            part = score[start : start + length]
            for cut in range(least, length - least + 1):
                left, right = part[:cut].mean(axis=0), part[cut:].mean(axis=0)
                best = np.maximum(best, np.abs(left - right) * np.sqrt(cut * (length - cut) / length))
    np.testing.assert_allclose(change_points.strongest(series, deviation), best)


@pytest.mark.parametrize("sizes", [[7], [8], [9], [40], [64], [200], [], [200, 7, 8, 64, 8, 50]], ids=str)
def test_the_statistic_of_every_split_of_every_interval_of_every_stretch(sizes):
    generator = np.random.default_rng(7)
    scores = [generator.standard_normal((rows, 2)) for rows in sizes]
    expected = []
    for stretch, rows in enumerate(sizes):
        lengths = [8 * 2**k for k in range(10) if 8 * 2**k < rows] + [rows] * (rows >= 8)
        expected += [(stretch, n, s) for n in lengths for s in {*range(0, rows - n + 1, n // 2), rows - n}]
    found = []
    for stretches, starts, n, statistic in change_points.scan(scores):
        cuts = np.arange(4, n - 3)[:, None]
        for i, (stretch, start) in enumerate(zip(stretches.tolist(), starts.tolist(), strict=True)):
            found.append((stretch, n, start))
            sums = np.cumsum(scores[stretch][start : start + n], axis=0)
            means = sums[3 : n - 4] / cuts - (sums[-1] - sums[3 : n - 4]) / (n - cuts)
            np.testing.assert_allclose(statistic[:, i], (np.abs(means) * np.sqrt(cuts * (n - cuts) / n)).T, atol=1e-12)
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("changes", [[], [30], [30, 60], [20, 40, 60, 80], [4, 96]])
def test_changes_of_level_are_found_where_they_are(changes):
    series = np.zeros(100)
    for i, row in enumerate(changes):
        series[row:] = (i + 1) % 2
    series += 0.08 * np.random.default_rng(2).standard_normal(100)
    assert change_points.changes(series, 0.08, 4.5) == changes


def test_small_and_large_changes_in_one_series():
    series = np.repeat([0.0, 0.3, 2.0], 100) + 0.05 * np.random.default_rng(3).standard_normal(300)
    assert change_points.changes(series, 0.05, 4.5) == [100, 200]


def test_outliers_do_not_make_a_change():
    series = 0.05 * np.random.default_rng(4).standard_normal(400)
    series[::37] = 3.0
    series[200:202] = 5.0
    assert change_points.changes(series, 0.05, 4.5) == []


@pytest.mark.parametrize("kind", ["normal", "heavy", "memory"])
def test_noise_alone_rarely_makes_a_change(kind):
    generator = np.random.default_rng(5)
    found = 0
    for draw in range(25):
        shape = (300, 16)
        series = {
            "normal": lambda shape=shape: generator.standard_normal(shape),
            "heavy": lambda shape=shape: generator.standard_t(2, shape),
            "memory": lambda shape=shape, draw=draw: ar(0.6, shape, draw),
        }[kind]()
        noise = change_points.noise(0.1 * series)
        found += sum(
            bool(change_points.changes(0.1 * series[:, i], noise.deviation[i], noise.critical)) for i in range(16)
        )
    assert found <= 1


def test_strongest_split_is_the_best_of_all():
    series = np.random.default_rng(6).standard_normal(50) + np.repeat([0.0, 1.0], [20, 30])
    score = np.clip(series - np.median(series), -3, 3)
    least = change_points.LEAST
    stat = [abs(score[:k].mean() - score[k:].mean()) * np.sqrt(k * (50 - k) / 50) for k in range(least, 50 - least + 1)]
    assert change_points.strongest_split(series, 1.0) == least + int(np.argmax(stat))


@pytest.mark.parametrize("least", [0, 4])
def test_the_first_row_after_a_change_is_the_one_of_least_distances(least):
    for seed in range(50):
        generator = np.random.default_rng(seed)
        series = np.repeat([0.0, 0.5], [seed % 30, 30 - seed % 30]) + generator.normal(0.0, 0.3, 30)
        distances = [np.abs(series[:t]).sum() + np.abs(series[t:] - 0.5).sum() for t in range(31)]
        allowed = range(least, 31 - max(least, 1))
        assert change_points.first_row_after(series, 0.0, 0.5, least) == min(allowed, key=distances.__getitem__)


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
