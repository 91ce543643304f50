"""Nodes with regimes: compute times by a naive loop over states, shares and moments by formula, and what nodes share.

Further: the law one step ahead equals a simulation written apart.
"""

import dataclasses
import itertools
import math
import random

import numpy as np
import pytest
from scipy import stats

from sgdlab.cluster import Contention, Drift, RegimeCluster, regimes

STANDARD_ERRORS = 5
EVERYTHING = {
    "num_workers": 11,
    "num_nodes": 4,
    "mean": 2.0,
    "std": 1.2,
    "slow_factor": 2.5,
    "slow_share": 0.15,
    "slow_steps": 6.0,
    "warning_steps": 3,
    "warning_rise": 0.6,
    "node_share": 0.4,
    "node_memory": 0.7,
    "contention": Contention(period=12, steps=3, factor=1.5, nodes=2),
    "drift": Drift(period=8, factor=1.4, workers=3),
    "minimum": 1e-3,
}


def law_of(**changed) -> RegimeCluster:
    return RegimeCluster(**EVERYTHING | changed)


def naive_level(law: RegimeCluster, states: np.ndarray, step: int, worker: int, offsets: tuple[int, int]) -> float:
    """Return what a worker's compute time is multiplied by, given its node's states of one step."""
    node = worker * law.num_nodes // law.num_workers
    state, level = states[node], 1.0
    if state == law.warning_steps + 1:
        level = law.slow_factor
    elif state > 0:
        level = 1 + (law.slow_factor - 1) * law.warning_rise * state / law.warning_steps
    contention, drift = law.contention, law.drift
    last_nodes = range(law.num_nodes - contention.nodes, law.num_nodes)
    if contention.period and node in last_nodes and (step + offsets[0]) % contention.period < contention.steps:
        level *= contention.factor
    is_first = worker == 0 or (worker - 1) * law.num_nodes // law.num_workers < node
    if drift.period and node < drift.workers and is_first:
        level *= 1 + (drift.factor - 1) * ((step + offsets[1]) % drift.period) / drift.period
    return level


def shares(law: RegimeCluster) -> np.ndarray:
    """Of a long run, for each state: a node is warned once for every `slow_steps` slow steps, and W steps long."""
    warned = law.slow_share / law.slow_steps
    ordinary = 1 - law.slow_share - law.warning_steps * warned
    return np.array([ordinary, *[warned] * law.warning_steps, law.slow_share])


def moments(law: RegimeCluster) -> tuple[float, float]:
    """Mean and mean square of the level: every state of every moment, times its share."""
    first = second = 0.0
    contended, drifted = range(max(law.contention.period, 1)), range(max(law.drift.period, 1))
    for worker, (state, share) in itertools.product(range(law.num_workers), enumerate(shares(law))):
        for begin, phase in itertools.product(contended, drifted):
            level = naive_level(law, np.full(law.num_nodes, state), 0, worker, (begin, phase))
            weight = share / (law.num_workers * len(contended) * len(drifted))
            first, second = first + weight * level, second + weight * level**2
    return first, second


def without_noise(**changed) -> RegimeCluster:
    """A law whose `std` is what regimes, contention and drift bring about."""
    law = law_of(std=100.0, **changed)
    first, second = moments(law)
    return dataclasses.replace(law, std=law.mean * math.sqrt(second / first**2 - 1))


def within(values: np.ndarray, expected: float, *, precision: float) -> None:
    """Independent values have this expectation; their standard error is at most `precision`."""
    error = values.std(ddof=1) / math.sqrt(values.size)
    assert error <= precision
    assert abs(values.mean() - expected) <= STANDARD_ERRORS * error


class TestDraws:
    @pytest.mark.parametrize("steps", [1, 7, 40])
    def test_more_steps_do_not_change_earlier_ones(self, steps):
        few, many = (law_of(slow_until=5).run(count, seed=3) for count in (steps, 100))
        np.testing.assert_array_equal(few.runtimes, many.runtimes[:steps])
        np.testing.assert_array_equal(few.states, many.states[:steps])
        assert few.offsets == many.offsets

    @pytest.mark.parametrize(("workers", "nodes"), [(158, 4), (2175, 32), (7, 7), (5, 1), (11, 4)])
    def test_nodes_have_nearly_equally_many_workers(self, workers, nodes):
        node = RegimeCluster(num_workers=workers, num_nodes=nodes, mean=1.0, std=0.5).node
        counts = np.bincount(node)
        assert counts.size == nodes
        assert (np.diff(node) >= 0).all()
        assert counts.max() - counts.min() <= 1

    def test_nothing_is_faster_than_the_minimum(self):
        runtimes = law_of(std=4.0, minimum=0.5).draw(200, seed=0)
        assert runtimes.min() == 0.5
        assert np.median(runtimes) > 0.5


class TestLevels:
    """Without noise, a compute time is the ordinary mean times the level that a naive loop finds."""

    @pytest.mark.parametrize(
        "changed",
        [
            {},
            {"contention": Contention(), "drift": Drift()},
            {"warning_steps": 0, "drift": Drift()},
            {"warning_steps": 1, "contention": Contention(period=4, steps=4, factor=0.5, nodes=4)},
            {"num_workers": 4, "drift": Drift(period=3, factor=3.0, workers=4)},
            {"slow_share": 0.0},
        ],
    )
    def test_equal_a_naive_loop(self, changed):
        law = without_noise(**changed)
        assert law.noise == pytest.approx(0, abs=1e-6)
        run = law.run(60, seed=1)
        levels = [[naive_level(law, run.states[t], t, i, run.offsets) for i in range(law.num_workers)]
                  for t in range(60)]  # fmt: skip
        np.testing.assert_allclose(run.runtimes, law.ordinary_mean * np.array(levels), rtol=1e-5)
        assert (run.states > 0).any() == (law.slow_share > 0)

    def test_runs_begin_anywhere_in_the_periods(self):
        offsets = np.array([law_of().run(1, seed=seed).offsets for seed in range(150)])
        assert set(offsets[:, 0]) == set(range(12))
        assert set(offsets[:, 1]) == set(range(8))


class TestRegimes:
    LAW = law_of(num_workers=3000, num_nodes=3000, contention=Contention(), drift=Drift())

    def test_shares_of_states_are_stationary_from_the_first_step(self):
        states = self.LAW.run(12, seed=0).states
        expected = 3000 * shares(self.LAW)
        for step in (0, 1, 11):  # nodes are independent of each other, steps are not
            assert stats.chisquare(np.bincount(states[step], minlength=5), expected).pvalue > 1e-3

    def test_how_long_nodes_stay(self):
        states = self.LAW.run(60, seed=1).states
        before, after = states[:-1], states[1:]
        np.testing.assert_array_equal(
            after[(before > 0) & (before < 4)], before[(before > 0) & (before < 4)] + 1, "warnings go on to slow"
        )
        assert set(after[before == 0]) == {0, 1}
        assert set(after[before == 4]) == {0, 4}
        mean_ordinary = 6.0 * shares(self.LAW)[0] / shares(self.LAW)[-1]  # as many stays of either kind
        for state, mean_stay in ((4, 6.0), (0, mean_ordinary)):
            left = after[before == state] != state
            rate = 1 / mean_stay
            assert abs(left.mean() - rate) < STANDARD_ERRORS * math.sqrt(rate * (1 - rate) / left.size)

    @pytest.mark.parametrize("until", [1, 17])
    def test_the_first_node_is_slow_before_a_step_and_not_there(self, until):
        law = law_of(slow_until=until)
        run, free = law.run(60, seed=2), law_of().run(60, seed=2)
        assert (run.states[:until, 0] == law.warning_steps + 1).all()
        assert run.states[until, 0] == 0
        np.testing.assert_array_equal(run.states[:, 1:], free.states[:, 1:])
        np.testing.assert_array_equal(run.runtimes[:, law.node > 0], free.runtimes[:, law.node > 0])
        later = np.concatenate([law.run(90, seed=seed).states[until + 1 :, 0] for seed in range(4)])
        assert set(later) == set(range(law.warning_steps + 2))  # from there on it goes like the others

    @pytest.mark.parametrize("changed", [{}, {"slow_share": 0.0}, {"contention": Contention(), "warning_steps": 0}])
    def test_mean_and_deviation_of_the_law(self, changed):
        law = law_of(**changed)
        first, second = moments(law)
        assert law.ordinary_mean * first == pytest.approx(2.0, rel=1e-12)
        square = law.ordinary_mean**2 * second * (1 + law.noise**2)
        assert math.sqrt(square - 2.0**2) == pytest.approx(1.2, rel=1e-12)


class TestNoise:
    LAW = law_of(num_workers=48, num_nodes=24, slow_share=0.0, contention=Contention(), drift=Drift(), std=0.3)

    def noise(self) -> np.ndarray:
        """float64[T, 24, 2]: of the two workers of every node."""
        runtimes = self.LAW.draw(3000, seed=0)
        return ((runtimes / self.LAW.mean - 1) / (0.3 / 2.0)).reshape(-1, 24, 2)

    def test_moments_of_a_node(self):
        # Nodes are independent: 24 values of each moment, whatever their memory.
        noise, share, memory = self.noise(), 0.4, 0.7
        first, second = noise[..., 0], noise[..., 1]
        within((first**2).mean(axis=0), 1.0, precision=0.02)
        within((first * second).mean(axis=0), share, precision=0.02)
        for lag in (1, 3):
            within((first[lag:] * first[:-lag]).mean(axis=0), share * memory**lag, precision=0.02)
            within((first[lag:] * second[:-lag]).mean(axis=0), share * memory**lag, precision=0.02)
        within((first * np.roll(first, 1, axis=1)).mean(axis=0), 0.0, precision=0.02)

    def test_is_normal(self):
        assert stats.kstest(self.noise()[::20, :, 0].ravel(), "norm").pvalue > 1e-3

    def test_is_of_a_long_run_from_the_first_step(self):
        law = law_of(num_workers=2000, num_nodes=2000, slow_share=0.0, contention=Contention(), drift=Drift(), std=0.3)
        first = (law.draw(1, seed=0)[0] / 2.0 - 1) / (0.3 / 2.0)
        assert stats.kstest(first, "norm").pvalue > 1e-3


class TestNext:
    # Short stays and sure falls: the next state is not nearly always the last one.
    LAW = law_of(num_workers=5, num_nodes=3, slow_share=0.5, slow_steps=3.0, warning_steps=1)
    ORDINARY_STEPS = 3.0 * 1 / 0.5 - 3.0 - 1  # of a cycle of slow_steps / slow_share

    def naive(self, states: list[int], step: int, offsets: tuple[int, int], generator: random.Random) -> list[float]:
        """One draw of a step, given the states of the one before: nodes, then their workers, one by one."""
        law, new = self.LAW, list(states)
        slow, shared = law.warning_steps + 1, [generator.gauss(0, 1) for _ in states]
        for node, state in enumerate(states):
            if state == 0:
                new[node] = int(generator.random() < 1 / self.ORDINARY_STEPS)
            elif state == slow:
                new[node] = 0 if generator.random() < 1 / law.slow_steps else slow
            else:
                new[node] = state + 1
        times, mean, deviation = [], law.ordinary_mean, law.noise
        for worker in range(law.num_workers):
            own = generator.gauss(0, 1) * math.sqrt(1 - law.node_share)
            noise = own + math.sqrt(law.node_share) * shared[worker * law.num_nodes // law.num_workers]
            level = naive_level(law, new, step, worker, offsets)
            times.append(max(law.minimum, mean * level * (1 + deviation * noise)))
        return times

    def test_equals_a_simulation(self):
        run = self.LAW.run(200, seed=0)
        for wanted in ([0, 1, 2], [2, 0, 0]):
            step = 1 + int(np.flatnonzero((run.states[:-1] == wanted).all(axis=1))[0])
            drawn = self.LAW.draw_next(run, step, num_samples=6000, generator=np.random.default_rng(step))
            generator = random.Random(0)
            told = np.array([self.naive(wanted, step, run.offsets, generator) for _ in range(2000)])
            assert drawn.shape == (6000, 5)
            views = [lambda x, i=i: x[:, i] for i in range(5)]
            views += [lambda x: np.sort(x, axis=1)[:, 3], lambda x: x[:, 0] * x[:, 1]]  # what workers have in common
            for view in views:
                assert stats.ks_2samp(view(drawn), view(told)).pvalue > 1e-3

    def test_contention_and_drift_are_those_of_the_step(self):
        law = without_noise(slow_share=0.0)
        run = law.run(30, seed=0)
        for step in range(1, 30):  # without noise and regimes, the step itself is all that there is to know
            drawn = law.draw_next(run, step, num_samples=2, generator=np.random.default_rng(step))
            np.testing.assert_allclose(drawn, run.runtimes[[step, step]], rtol=1e-5)

    def test_knows_the_step_after_the_last(self):
        run = self.LAW.run(4, seed=0)
        drawn = self.LAW.draw_next(run, 4, num_samples=2, generator=np.random.default_rng(0))
        again = self.LAW.draw_next(run, 4, num_samples=2, generator=np.random.default_rng(0))
        assert drawn.shape == (2, 5)
        np.testing.assert_array_equal(drawn, again)

    @pytest.mark.parametrize("step", [0, -1, 5, 1.5])
    def test_no_other_step_is_known(self, step):
        with pytest.raises(ValueError, match=rf"^step={step} must be a whole number from 1 to 4"):
            self.LAW.draw_next(self.LAW.run(4, seed=0), step, num_samples=2, generator=np.random.default_rng(0))


def test_order_statistics_of_independent_workers():
    # Without regimes and shared noise times are independent, normal and clipped at the minimum: the k-th of a step
    # comes by a time where at least k of the 158 do.
    law, times = RegimeCluster(num_workers=158, slow_share=0.0, node_share=0.0), [0.05, 0.5, 1.0, 1.3, 1.8, 2.1]
    ordered = np.sort(law.draw(3000, seed=0), axis=1)
    for k, limit in itertools.product((1, 20, 79, 140, 158), times):
        exact = stats.binom.sf(k - 1, 158, stats.norm.cdf(limit, 1.057, 0.393))
        error = math.sqrt(exact * (1 - exact) / 3000)
        assert abs((ordered[:, k - 1] <= limit).mean() - exact) <= STANDARD_ERRORS * error


@pytest.mark.parametrize(
    ("argument", "value", "right"),
    [
        *[(name, value, "a whole number of at least 1") for name in ("num_workers", "num_steps")
          for value in (0, -1, 2.5, None)],
        *[("num_nodes", value, "a whole number from 1 to 11: every node has a worker") for value in (0, 12, 1.5)],
        *[(name, value, "a finite number above 0") for name in ("mean", "std", "minimum", "slow_factor")
          for value in (0, -1.0, math.nan, math.inf, None)],
        *[("slow_steps", value, "a finite number at least 1") for value in (0, 0.9, math.nan, math.inf)],
        *[(name, value, "a finite number at least 0 and at most 1")
          for name in ("slow_share", "warning_rise", "node_share") for value in (-0.1, 1.1, math.nan, "0")],
        *[("node_memory", value, "a finite number at least 0 and below 1") for value in (-0.1, 1.0, math.nan)],
        *[(name, value, "a whole number of at least 0") for name in ("warning_steps", "slow_until", "seed")
          for value in (-1, 0.5, None)],
        # A node slow for 6 steps, warned for 3, and ordinary for one at least: 6 of 10.
        ("slow_share", 0.61, r"at most 0\.6 with slow_steps=6\.0 and warning_steps=3"),
        ("slow_share", 1.0, r"at most 0\.6 with slow_steps=6\.0 and warning_steps=3"),
    ],
)  # fmt: skip
def test_errors_name_the_argument_and_its_value(argument, value, right):
    with pytest.raises(ValueError, match=rf"^{argument}={value!r} must be {right}"):
        regimes(**{**EVERYTHING, "num_steps": 3, "seed": 0} | {argument: value})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Contention(period=-1), "^contention.period=-1 must be a whole number of at least 0"),
        (lambda: Contention(period=4, steps=5), "^contention.steps=5 must be a whole number from 0 to 4"),
        (lambda: Contention(steps=1), "^contention.steps=1 must be a whole number from 0 to 0"),
        (lambda: Contention(factor=0), "^contention.factor=0 must be a finite number above 0"),
        (lambda: Contention(nodes=-1), "^contention.nodes=-1 must be a whole number of at least 0"),
        (lambda: Drift(period=1.5), r"^drift.period=1\.5 must be a whole number of at least 0"),
        (lambda: Drift(factor=-1), "^drift.factor=-1 must be a finite number above 0"),
        (lambda: Drift(workers=-1), "^drift.workers=-1 must be a whole number of at least 0"),
        (lambda: law_of().run(0, seed=0), "^num_steps=0 must be a whole number of at least 1"),
    ],
)
def test_errors_of_the_parts(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_an_unknown_part_of_the_law_is_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match=r"^wheels=4 must be one of contention, drift, .*slow_until"):
        regimes(**EVERYTHING, num_steps=3, seed=0, wheels=4)


def test_the_largest_share_and_the_least_deviation_are_possible():
    assert law_of(slow_share=0.6).draw(3, seed=0).shape == (3, 11)
    least = without_noise()
    with pytest.raises(ValueError, match=rf"^std={0.99 * least.std} must be at least {least.std:.4g}, which regimes"):
        dataclasses.replace(least, std=0.99 * least.std)
