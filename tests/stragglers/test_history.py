"""When each worker was slow, also where many are."""

import math

import numpy as np
import pytest

from sgdlab.stragglers.diagnosis import history
from sgdlab.stragglers.diagnosis.change_points import Noise
from sgdlab.stragglers.diagnosis.history import Episode, reference


def fleet(steps: int, workers: int, seed: int = 0, noise: float = 0.05) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return np.exp(noise * generator.standard_normal((steps, workers)) + 0.1 * generator.standard_normal((steps, 1)))


def rows(found: history.Histories) -> dict[int, list[tuple[int, int]]]:
    return {worker: [(e.first, e.last) for e in own] for worker, own in enumerate(found.episodes) if own}


@pytest.mark.parametrize("workers", [2, 4, 16])
def test_one_worker_slow_for_a_while(workers):
    times = fleet(400, workers)
    times[100:250, 1] *= 1.5
    found = history.find_slow_stretches(times)
    assert rows(found) == {1: [(100, 249)]}
    assert found.episodes[1][0].factor == pytest.approx(1.5, rel=0.03)
    assert found.slow.sum() == 150
    assert found.slow[100:250, 1].all()


@pytest.mark.parametrize(
    ("workers", "slow", "first", "end"),
    [
        *((4, [0, 3], 200, 400), (4, [0, 1, 3], 200, 400), (16, range(8), 200, 400), (16, range(5, 16), 200, 400)),
        (8, range(4), 0, 150),
        (8, range(4), 0, 400),
    ],
)
def test_half_or_more_of_the_workers_are_slow(workers, slow, first, end):
    times = fleet(400, workers, seed=1)
    times[first:end, list(slow)] *= 1.4
    found = history.find_slow_stretches(times)
    assert rows(found) == {worker: [(first, end - 1)] for worker in slow}
    # Against the workers that are not slow, not against a median that the slow ones have moved.
    np.testing.assert_allclose([found.episodes[worker][0].factor for worker in slow], 1.4, rtol=0.04)


def test_bursts():
    times = fleet(600, 8, seed=4)
    for start in range(50, 600, 100):
        times[start : start + 20, 2] *= 1.8
    assert rows(history.find_slow_stretches(times)) == {2: [(start, start + 19) for start in range(50, 600, 100)]}


def test_a_node_that_is_hardly_slower_is_found_by_all_its_workers():
    times = fleet(300, 16, seed=5, noise=0.08)
    times[150:, 4:8] *= 1.07
    alone, together = (
        history.find_slow_stretches(times),
        history.find_slow_stretches(times, [f"n{worker // 4}" for worker in range(16)]),
    )
    assert len(rows(alone)) < 4
    assert sorted(rows(together)) == [4, 5, 6, 7]
    (only,) = rows(together)[4]
    assert abs(only[0] - 150) <= 10
    assert only[1] == 299


def test_one_slow_worker_of_a_node_is_not_the_node():
    times = fleet(300, 16, seed=6)
    times[150:, 5] *= 1.5
    assert rows(history.find_slow_stretches(times, [f"n{worker // 2}" for worker in range(16)])) == {5: [(150, 299)]}


def test_screening_by_blocks_misses_no_worker(monkeypatch):
    times = fleet(3000, 12, seed=7)
    times[1000:1100, 3] *= 1.3
    times[2000:, 7] *= 1.08
    times[:, 9] *= 1.06
    screened = rows(history.find_slow_stretches(times))
    monkeypatch.setattr(history, "_suspicious", lambda series, noise: np.ones(series.shape[1], bool))
    assert screened == rows(history.find_slow_stretches(times))
    assert sorted(screened) == [3, 7, 9]


def test_joined_keeps_what_lies_outside_of_the_node():
    series = np.full(100, np.log(1.3))
    own = [Episode(10, 59, 1.2)]
    joined = history._joined(own, [Episode(30, 79, 1.4)], series)
    assert [(e.first, e.last) for e in joined] == [(10, 29), (30, 79)]
    assert [e.factor for e in joined] == pytest.approx([1.2, 1.3])


@pytest.mark.parametrize(("beyond", "episodes"), [(1.001, 1), (0.999, 0)])
def test_an_episode_must_pass_the_deviation_of_a_median(beyond, episodes):
    """A median of T normal values deviates by sqrt(pi / 2 T) standard deviations, a mean by sqrt(1 / T)."""
    series = np.full((100, 1), 0.5)
    critical = 0.5 * math.sqrt(100) / math.sqrt(math.pi / 2) / beyond
    ((worker, found),) = history._episodes(series, Noise(np.ones(1), critical), np.ones(1, bool))
    assert (worker, len(found)) == (0, episodes)


def test_reference_is_the_median_of_the_workers_that_are_not_slow():
    generator = np.random.default_rng(0)
    for workers in (2, 3, 4, 7):
        times = generator.gamma(4.0, size=(50, workers))
        slow = generator.random(times.shape) < 0.4
        expected = [
            np.median(row[~out]) if not out.all() else np.median(row) for row, out in zip(times, slow, strict=True)
        ]
        np.testing.assert_allclose(reference(times, slow), expected)
