"""Stragglers are found, told apart and named."""

import re

import numpy as np
import pytest

from sgdlab import cluster
from sgdlab.advice import culprits, stragglers

NAMES = tuple(f"w{letter}" for letter in "abcdef")


def run():
    """Worker we is slow in all steps, wb in a quarter of them."""
    runtimes = np.ones((40, 6)) * (1 + 0.001 * np.arange(6))
    runtimes[:, 4] = 2.0
    runtimes[20:30, 1] = 3.0
    return runtimes


def test_persistent_and_passing_stragglers_are_told_apart():
    runtimes = run()
    found = stragglers.find(cluster.Recording(runtimes, np.arange(40), NAMES))
    assert found.persistent.tolist() == [4]
    assert found.passing.tolist() == [1]
    assert found.memory > 0.8
    assert found.pairs == 39
    assert (stragglers.repaired(runtimes, np.array([4]))[:, 4] < 1.01).all()


def test_without_consecutive_steps_there_is_no_correlation():
    found = stragglers.find(cluster.Recording(run(), 2 * np.arange(40), NAMES))
    assert found.memory is None
    assert found.pairs == 0


def test_the_correlation_is_that_of_an_autoregression():
    """x_t = 0.6 x_(t-1) + e_t has a lag-1 correlation of 0.6."""
    generator, deviation = np.random.default_rng(0), np.zeros((4000, 8))
    for t in range(1, len(deviation)):
        deviation[t] = 0.6 * deviation[t - 1] + generator.normal(scale=0.001, size=8)
    names = tuple(f"w{i}" for i in range(8))
    found = stragglers.find(cluster.Recording(1 + deviation, np.arange(len(deviation)), names))
    assert found.memory == pytest.approx(0.6, abs=0.02)


@pytest.mark.parametrize(("slow", "named"), [((4,), {"wb", "we"}), ((), {"wb"}), ((2, 4), {"wb", "wc", "we"})])
def test_the_sentences_name_the_slow_workers_and_no_others(slow, named):
    runtimes = run()
    runtimes[:, 4] = 1.0
    runtimes[:, list(slow)] = 2.0
    recording = cluster.Recording(runtimes, np.arange(40), NAMES)
    text = culprits.describe(stragglers.find(recording), recording)
    often = set() if slow else {f"w{'abcdef'[int(np.bincount(runtimes.argmax(axis=1), minlength=6).argmax())]}"}
    assert set(re.findall(r"\bw[a-f]\b", text)) == named | often
