"""Least times: brute force over the workers that take part, equal workers, and one that never ends."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.tiers import examples

from sgdlab import protocols, theory

SECONDS = st.lists(st.one_of(st.floats(0.01, 100.0), st.just(math.inf)), min_size=1, max_size=8)
PROBLEMS = st.builds(
    theory.Problem,
    smoothness=st.floats(0.1, 9.0),
    descent=st.floats(0.1, 9.0),
    variance=st.one_of(st.just(0.0), st.floats(0.1, 99.0)),
    accuracy=st.floats(0.01, 2.0),
)


def one_number(seconds, problem, count):
    """The formula for the `count` fastest workers, term by term."""
    fastest = sorted(seconds)[:count]
    mean = sum(1 / time for time in fastest) / count
    per_epsilon = problem.smoothness * problem.descent / problem.accuracy
    steps = per_epsilon + problem.variance * per_epsilon / (count * problem.accuracy)
    return steps / mean if mean else math.inf


@settings(derandomize=True, deadline=None, max_examples=examples(150), database=None)
@given(seconds=SECONDS, problem=PROBLEMS)
def test_the_least_over_every_number_of_workers(seconds, problem):
    found = theory.homogeneous(seconds, problem)
    candidates = [one_number(seconds, problem, count) for count in range(1, len(seconds) + 1)]
    assert found.seconds == pytest.approx(min(candidates), rel=1e-12)
    assert candidates[found.workers - 1] == pytest.approx(min(candidates), rel=1e-12)


@settings(derandomize=True, deadline=None, max_examples=examples(100), database=None)
@given(time=st.floats(0.01, 100.0), count=st.integers(1, 9), problem=PROBLEMS)
def test_equal_workers(time, count, problem):
    """All of them take part where noise matters, and data of their own cost nothing."""
    seconds = [time] * count
    expected = time * (problem.exact_steps + problem.noise_steps / count)
    assert theory.homogeneous(seconds, problem).seconds == pytest.approx(expected, rel=1e-12)
    assert theory.heterogeneous(seconds, problem).seconds == pytest.approx(expected, rel=1e-12)


def test_a_worker_that_never_ends_takes_no_part_unless_it_must_be_heard():
    problem = theory.Problem(variance=10.0)
    assert theory.homogeneous([1.0, math.inf, 2.0], problem) == theory.homogeneous([1.0, 2.0], problem)
    assert theory.heterogeneous([1.0, math.inf], problem).seconds == math.inf
    assert theory.heterogeneous([1.0, math.inf], theory.Problem(variance=0.0)).seconds == math.inf
    assert theory.homogeneous([math.inf], problem).seconds == math.inf


def test_without_noise_the_fastest_worker_is_enough():
    assert theory.homogeneous([3.0, 2.0, 5.0], theory.Problem(variance=0.0)) == theory.Floor(2.0, 1)


def test_data_of_their_own_term_by_term():
    problem = theory.Problem(smoothness=2.0, descent=3.0, variance=0.5, accuracy=0.1)
    expected = 4.0 * 60.0 + (1.0 + 4.0 + 2.5) / 3 * 0.5 * 600.0 / 3
    assert theory.heterogeneous([1.0, 4.0, 2.5], problem).seconds == pytest.approx(expected, rel=1e-12)


def test_where_noise_dominates_it_is_the_single_workers_gradients_shared_out():
    seconds, problem = [1.0, 2.0, 5.0, 9.0], theory.Problem(variance=1e9)
    expected = theory.without_waiting(seconds, problem.noise_steps)
    assert theory.homogeneous(seconds, problem).seconds == pytest.approx(expected, rel=1e-6)
    assert theory.homogeneous(seconds, problem).seconds >= expected


def test_asynchrony_shares_them_out():
    """No schedule computes gradients faster than workers who never wait."""
    times = np.tile([1.0, 2.0, 4.0], (60, 1))
    asynchronous = protocols.asynchronous(times, num_gradients=70)
    floor = theory.without_waiting(times[0], 70)
    assert asynchronous.wall_clock() == pytest.approx(floor, rel=0.03)
    assert protocols.synchronous(times).wall_clock() / 180 * 70 > 2 * floor


def test_mean_seconds_of_each_worker():
    times = np.random.default_rng(0).gamma(2.0, 1.0, (30, 4))
    np.testing.assert_allclose(theory.seconds_per_gradient(protocols.synchronous(times)), times.mean(axis=0))
    nodes = theory.seconds_per_gradient(protocols.gossip(times, num_gradients=60, seed=0))
    assert nodes.shape == (4,)
    assert (np.abs(nodes / times.mean(axis=0) - 1) < 0.5).all()


class TestBadArguments:
    @pytest.mark.parametrize("function", [theory.homogeneous, theory.heterogeneous])
    @pytest.mark.parametrize(
        ("seconds", "message"),
        [
            ([], r"seconds of shape \(0,\) must have shape \[N\]"),
            ([[1.0]], r"seconds of shape \(1, 1\) must have"),
            ([1.0, 0.0], r"seconds\[1\]=0.0 must be above 0"),
            ([math.nan], r"seconds\[0\]=nan must be above 0"),
        ],
    )
    def test_of_seconds(self, function, seconds, message):
        with pytest.raises(ValueError, match=message):
            function(seconds, theory.Problem())

    def test_of_gradients(self):
        with pytest.raises(ValueError, match="gradients=-1 must be a finite number at least 0"):
            theory.without_waiting([1.0], -1)

    def test_nothing_to_do_takes_no_time(self):
        assert theory.without_waiting([math.inf], 0) == 0.0
        assert theory.without_waiting([math.inf], 1) == math.inf
