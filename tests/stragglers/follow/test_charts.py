"""The charts of all workers at once agree with a worker's own, computed number by number; and false alarms are rare."""

import math

import numpy as np
import pytest

from sgdlab.stragglers.follow import charts
from sgdlab.stragglers.follow.charts import BACK, CLIP, THRESHOLD, Charts


def run_length(threshold, allowance=0.5):
    """Blocks between two false alarms: Siegmund 1985, equation 2.57, as the module states it."""
    exponent = 2 * allowance * (threshold + 1.166)
    return (math.exp(exponent) - exponent - 1) / (2 * allowance**2)


def naive(values, sigma):
    """Blocks in which a worker of a known standard deviation is found slow against the fleet, and back."""
    slower, back, slow, found = 0.0, 0.0, False, []
    allowance = max(math.log(1.1), sigma / 2)
    for block, x in enumerate(values):
        gain = max(-CLIP, min(CLIP, (x - allowance) / sigma))
        slower = max(0.0, slower + gain)
        back = max(0.0, back + max(-CLIP, min(CLIP, (allowance - x) / sigma))) if slow else 0.0
        if not slow and slower >= THRESHOLD:
            slow = True
            found.append(("slow", block))
        elif slow and back >= BACK:
            slow, slower = False, 0.0
            found.append(("back", block))
        slower = min(slower, THRESHOLD)
    return found


@pytest.mark.parametrize("sigma", [0.05, 0.3])
def test_against_the_fleet_it_is_the_test_of_one_worker(sigma, monkeypatch):
    generator = np.random.default_rng(0)
    values = generator.normal(0.0, sigma, (400, 6)).astype(np.float32)
    values[50:120, 0] += 0.5
    values[50:300, 1] += 0.2
    values[200:260, 2] += 1.0
    own = Charts(6)
    own.learn(np.zeros((2, 6)))
    # What is normal for a worker itself, and how much all vary, are taken as known.
    monkeypatch.setattr(Charts, "_learn", lambda *_: None)
    own._pooled = sigma
    own._rescale()
    found = {worker: [] for worker in range(6)}
    for block, x in enumerate(values):
        raised, cleared = own.observe(x)
        for worker in range(6):
            found[worker] += [("slow", block)] * bool(raised[worker]) + [("back", block)] * bool(cleared[worker])
    assert found == {worker: naive(values[:, worker].astype(float), sigma) for worker in range(6)}
    assert found[0]


def test_how_much_run_times_vary_is_learned():
    generator = np.random.default_rng(1)
    for sigma in (0.02, 0.1):
        own = Charts(50)
        values = generator.normal(0.0, sigma, (300, 50)).astype(np.float32)
        own.learn(values[:5])
        for x in values:
            own.observe(x)
        assert np.median(1 / own._precision) == pytest.approx(sigma, rel=0.2)


def test_successive_blocks_that_are_alike_count_less():
    generator = np.random.default_rng(2)
    values = np.zeros((600, 50))
    for block in range(1, 600):
        values[block] = 0.6 * values[block - 1] + generator.normal(0.0, 0.05, 50)
    own = Charts(50)
    own.learn(values[:5])
    for x in values.astype(np.float32):
        own.observe(x)
    # The standard deviation of a long mean of a first-order autoregression: that of its noise over 1 - 0.6.
    assert np.median(1 / own._precision) == pytest.approx(0.05 / (1 - 0.6), rel=0.25)


def test_the_mean_time_to_a_false_alarm_is_that_of_the_formula():
    threshold, allowance, alarms = 3.0, 0.5, 0
    generator = np.random.default_rng(3)
    sums = np.zeros(2000)
    for _ in range(1500):
        sums = np.maximum(0.0, sums + generator.standard_normal(2000) - allowance)
        alarms += int((sums >= threshold).sum())
        sums[sums >= threshold] = 0.0
    assert 2000 * 1500 / alarms == pytest.approx(run_length(threshold, allowance), rel=0.05)
    # 64 workers, 1,000 blocks and two charts: fewer than one of a hundred runs has a false alarm.
    assert 64 * 1000 * 2 / run_length(THRESHOLD) < 0.01
    assert run_length(THRESHOLD) == pytest.approx(5.7e7, rel=0.01)


def test_a_worker_without_run_times_stays_as_it_is():
    own = Charts(3)
    own.learn(np.zeros((5, 3)))
    for _ in range(3):
        own.observe(np.array([0.2, 0.0, 0.0], np.float32))
    before = own.sums.copy()
    assert before[0, 0] > 0
    own.observe(np.array([np.nan, 0.0, 0.0], np.float32))
    assert np.array_equal(own.sums[:, 0], before[:, 0])


def test_no_single_block_is_an_alarm():
    own = Charts(3)
    own.learn(np.zeros((5, 3)))
    raised, _ = own.observe(np.array([100.0, 0.0, 0.0], np.float32))
    assert not raised.any()
    assert charts.CLIP < charts.THRESHOLD


def test_who_has_become_faster_for_good_is_compared_with_what_it_is_since_then():
    chart, noise = Charts(1, fleet=False), np.random.default_rng(0).normal(0.0, 0.01, 140)
    levels = np.repeat([1.0, 0.5, 1.0], [60, 60, 20]) + noise
    slow = [bool(chart.observe(np.array([level], np.float32))[0][0]) for level in levels]
    assert chart.own[0] == pytest.approx(0.5, abs=0.02)
    assert np.flatnonzero(slow).tolist() in ([121], [122])  # no block is enough by itself
