"""Test if the two parts of a recording differ: found where they do, by name and ratio, and rarely where they do not."""

import numpy as np
import pytest
from toy_traces import split_of

from sgdlab.stragglers.comparison import halves
from sgdlab.stragglers.diagnosis.causes import SLOW_WORKER, Cause
from sgdlab.stragglers.diagnosis.history import Episode

STEPS, WORKERS = 120, 8


def parts_of(runtimes):
    return split_of(runtimes, 10 * np.arange(len(runtimes)))


def clean(seed, steps=STEPS, law="gamma"):
    generator = np.random.default_rng(seed)
    if law == "gamma":
        return generator.gamma(50.0, 0.02, (steps, WORKERS))
    if law == "lasting":  # half of a step's noise is left in the next
        noise = generator.normal(size=(steps, WORKERS))
        for step in range(1, steps):
            noise[step] = 0.5 * noise[step - 1] + 0.75**0.5 * noise[step]
        return np.exp(0.2 * noise)
    return generator.lognormal(sigma=0.7, size=(steps, WORKERS))


def test_a_worker_that_changed_is_named_with_its_ratios():
    runtimes = clean(0)
    runtimes[60:, 5] *= 1.6
    found = halves.find_difference(parts_of(runtimes))
    assert list(found.workers) == ["w5"]
    assert found.workers["w5"] == pytest.approx((1.0, 1.6), rel=0.08)
    assert found.level is None
    assert (found.first, found.steps) == (600, 60)
    assert "--refit=15" in found.sentence()
    assert "--refit" not in found.sentence(refit=15)
    assert "--refit=40" in found.sentence(least=40)
    assert "--refit" not in found.sentence(least=60)


def test_workers_are_named_by_the_size_of_their_change():
    runtimes = clean(1)
    runtimes[60:, 2] *= 1.5
    runtimes[:60, 6] *= 3.0
    assert list(halves.find_difference(parts_of(runtimes)).workers) == ["w6", "w2"]


def test_a_change_of_the_whole_cluster_is_no_change_of_its_workers():
    runtimes = clean(2)
    runtimes[60:] *= 1.5
    found = halves.find_difference(parts_of(runtimes))
    assert not found.workers
    assert found.level[1] / found.level[0] == pytest.approx(1.5, rel=0.03)


def test_more_stragglers_are_a_change_of_the_spread():
    runtimes = clean(3)
    late = np.random.default_rng(0).integers(WORKERS, size=60)
    runtimes[60 + np.arange(60), late] *= 3.0
    found = halves.find_difference(parts_of(runtimes))
    assert not found.workers
    assert found.spread[1] > 2 * found.spread[0]


def test_pauses_are_no_change():
    runtimes = clean(4)
    runtimes[[70, 80, 90, 100, 110]] += 9.0
    assert halves.find_difference(parts_of(runtimes)) is None


@pytest.mark.sample(1)
@pytest.mark.parametrize("law", ["gamma", "lognormal", "lasting"])
def test_clean_recordings_raise_few_alarms(law):
    """At most 1 % of 120 draws, which is one."""
    alarms = sum(halves.find_difference(parts_of(clean(seed, law=law))) is not None for seed in range(100, 220))
    assert alarms <= 1


@pytest.mark.parametrize("steps", [8, 9, 12])
def test_short_parts_are_compared(steps):
    runtimes = np.tile(np.arange(WORKERS) / 100 + 1, (steps, 1))
    assert halves.find_difference(parts_of(runtimes)) is None
    runtimes[steps // 2 :, 0] *= 2.0
    assert list(halves.find_difference(parts_of(runtimes)).workers) == ["w0"]


@pytest.mark.parametrize(
    ("first", "end", "shares"), [(12, 120, (0.8, 1.0)), (100, 120, (0.0, 1 / 3)), (0, 24, (0.4, 0))]
)
def test_a_change_inside_a_part_is_known_from_the_diagnosis(first, end, shares):
    runtimes = clean(5)
    runtimes[first:end, 5] *= 1.6
    parts = parts_of(runtimes)
    assert halves.find_difference(parts) is None
    until = None if end == STEPS else end - 1
    cause = Cause(SLOW_WORKER, (5,), None, first, until, 1.6, 0.1, "")
    ((who, found),) = halves.find_difference(parts, [cause]).causes
    assert "w5" in who
    assert found == pytest.approx(shares)
    assert "--refit=15" in halves.find_difference(parts, [cause]).sentence()


def test_a_cause_that_shows_as_often_in_both_parts_is_no_change():
    parts = parts_of(clean(5))
    assert halves.find_difference(parts, [Cause(SLOW_WORKER, (5,), None, 0, None, 1.6, 0.1, "")]) is None
    assert halves.find_difference(parts, [Cause(SLOW_WORKER, (5,), None, 3, None, 1.6, 0.1, "")]) is None
    stretches = (Episode(30, 40, 1.6), Episode(70, 110, 1.6))
    assert halves.find_difference(parts, [Cause(SLOW_WORKER, (5,), None, 30, 110, 1.6, 0.1, "", stretches)]) is None
