"""Gossip and elastic averaging: every field equals a message-level event simulation, in which ties abound.

Further: what the matrices of the averagings keep.
"""

import functools

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.tiers import examples
from peer_simulation import Elastic, Pull, Push, RanOut, partners_of

from sgdlab import PeerSchedule, cluster, protocols

FIELDS = {
    "node": np.int32,
    "started": np.float64,
    "finished": np.float64,
    "event": np.int32,
    "source": np.int32,
    "source_version": np.int32,
    "weight": np.float64,
}
SHAPES = st.tuples(st.integers(1, 9), st.integers(1, 6))
WHOLE = st.integers(1, 3).map(float)  # ties everywhere
ANY = st.one_of(WHOLE, st.floats(0.01, 9.0))
RUNTIMES = SHAPES.flatmap(
    lambda shape: st.sampled_from([WHOLE, st.sampled_from([1.0, 2.0, 7.0]), ANY]).flatmap(
        lambda elements: hnp.arrays(np.float64, shape, elements=elements, fill=st.nothing())
    )
)
PERIODS = st.integers(1, 4)
NUMBERS = st.one_of(st.none(), st.integers(1, 60))
SEEDS = st.integers(0, 2**32 - 1)
check = settings(derandomize=True, deadline=None, max_examples=examples(120), database=None)
in_rounds = pytest.mark.parametrize("clock", ["own", "rounds"])


def assert_schedule_is(schedule: PeerSchedule, expected: dict, num_nodes: int) -> None:
    assert schedule.num_nodes == num_nodes
    for name, dtype in FIELDS.items():
        array = getattr(schedule, name)
        assert array.dtype == dtype, name
        np.testing.assert_array_equal(array, np.array(expected[name], dtype), err_msg=name, strict=True)


def assert_equal(left: PeerSchedule, right: PeerSchedule) -> None:
    assert left.fresh == right.fresh
    assert_schedule_is(left, {name: getattr(right, name) for name in FIELDS}, right.num_nodes)


def assert_simulated(make, simulation) -> PeerSchedule | None:
    """The protocol does what the simulation does, or both run out of compute times."""
    try:
        expected = simulation.run()
    except RanOut:
        with pytest.raises(protocols.NotEnoughRuntimes):
            make()
        return None
    schedule = make()
    assert_schedule_is(schedule, expected, simulation.nodes)
    return schedule


class TestGossip:
    @in_rounds
    @pytest.mark.parametrize("kind", ["pull", "push"])
    @check
    @given(runtimes=RUNTIMES, period=PERIODS, number=NUMBERS, include_self=st.booleans(), seed=SEEDS)
    def test_equals_messages(self, kind, clock, runtimes, period, number, include_self, seed):
        make = functools.partial(
            protocols.gossip, runtimes, kind=kind, period=period, clock=clock,
            include_self=include_self, num_gradients=number, seed=seed,
        )  # fmt: skip
        partners = partners_of(*runtimes.shape, include_self, seed)
        simulation = {"pull": Pull, "push": Push}[kind](
            runtimes, partners, period=period, rounds=clock == "rounds", num_gradients=number
        )
        schedule = assert_simulated(make, simulation)
        if schedule is not None:
            assert schedule.fresh
            assert not schedule.has_center
            assert_equal(make(fresh=False), PeerSchedule(**fields_of(schedule), fresh=False))

    @pytest.mark.parametrize("kind", ["pull", "push"])
    @check
    @given(runtimes=RUNTIMES, period=PERIODS, number=NUMBERS, include_self=st.booleans(), seed=SEEDS)
    def test_poisson_clocks_equal_messages(self, kind, runtimes, period, number, include_self, seed):
        """Nodes rest until their clocks tick; others find what the last tick has made, versions 2 k."""
        make = functools.partial(
            protocols.gossip, runtimes, kind=kind, period=period, include_self=include_self,
            clock="poisson", num_gradients=number, seed=seed,
        )  # fmt: skip
        partners = partners_of(*runtimes.shape, include_self, seed)
        simulation = {"pull": Pull, "push": Push}[kind](
            runtimes, partners, period=period, instant=True, num_gradients=number
        )
        schedule = assert_simulated(make, simulation)
        if schedule is not None:
            assert (schedule.source_version % 2 == 0).all()

    def test_who_ticks_at_the_same_moment(self):
        """At 1, node 0 begins anew before node 1 does: 1 pulls what 0 has just averaged, 0 what 1 had before."""
        schedule = protocols.gossip(np.ones((3, 2)), seed=0)
        edges = schedule.source != schedule.node[schedule.event]
        np.testing.assert_array_equal(schedule.node[schedule.event[edges]], [0, 1, 0, 1])
        np.testing.assert_array_equal(schedule.source_version[edges], [1, 3, 3, 5])

    def test_a_push_at_the_same_moment_reaches_larger_numbers_at_once(self):
        """Node 0 sends version 2 at 1 to node 1, which averages then; what 1 sends then, 0 has at 2."""
        schedule = protocols.gossip(np.ones((3, 2)), kind="push", seed=0)
        edges = schedule.source != schedule.node[schedule.event]
        np.testing.assert_array_equal(schedule.node[schedule.event[edges]], [1, 0, 1])
        np.testing.assert_array_equal(schedule.started[schedule.event[edges]], [1, 2, 2])
        np.testing.assert_array_equal(schedule.source_version[edges], [2, 2, 4])

    @in_rounds
    @pytest.mark.parametrize("include_self", [False, True])
    def test_partners_are_uniform(self, clock, include_self):
        """Of 3000 pulls of each node, partners are within five standard deviations of even."""
        nodes, rounds = 4, 3001
        runtimes = cluster.exponential(num_workers=nodes, num_gradients=rounds, seed=3)
        schedule = protocols.gossip(runtimes, clock=clock, include_self=include_self, seed=5)
        node = schedule.node[schedule.event]
        others = schedule.source != node
        counts = np.zeros((nodes, nodes))
        np.add.at(counts, (node[others], schedule.source[others]), 1)
        total = np.bincount(schedule.node[schedule.number() > 0], minlength=nodes)
        counts[np.diag_indices(nodes)] = total - counts.sum(axis=1)  # averaged with nobody: itself
        share = np.full((nodes, nodes), 1 / nodes) if include_self else (1 - np.eye(nodes)) / (nodes - 1)
        spread = np.sqrt(total[:, None] * share * (1 - share))
        assert (np.abs(counts - total[:, None] * share) <= 5 * spread).all()

    def test_another_seed_other_partners_same_clock(self):
        runtimes = cluster.exponential(num_workers=5, num_gradients=20, seed=0)
        one, same, other = (protocols.gossip(runtimes, seed=seed) for seed in (1, 1, 2))
        assert_equal(one, same)
        np.testing.assert_array_equal(one.started, other.started)
        assert (one.source != other.source).any()


class TestElasticAveraging:
    @in_rounds
    @check
    @given(runtimes=RUNTIMES, period=PERIODS, number=NUMBERS, share=st.sampled_from([None, 0, 0.25, 0.5, 1]))
    def test_equals_messages(self, clock, runtimes, period, number, share):
        nodes = runtimes.shape[1]
        beta = None if share is None else share / nodes if clock == "rounds" else float(share)
        make = functools.partial(
            protocols.elastic_averaging, runtimes, period=period, beta=beta, clock=clock,
            num_gradients=number,
        )  # fmt: skip
        given_beta = 0.8 / nodes if beta is None else beta
        simulation = Elastic(runtimes, given_beta, period=period, rounds=clock == "rounds", num_gradients=number)
        schedule = assert_simulated(make, simulation)
        if schedule is not None:
            assert schedule.fresh
            assert schedule.has_center == (simulation.center > 0)


def fields_of(schedule: PeerSchedule) -> dict:
    return {name: getattr(schedule, name) for name in (*FIELDS, "num_nodes")}


def moves(schedule: PeerSchedule, number: int) -> np.ndarray:
    """float64[N or N + 1, N or N + 1]: the weights of everybody's averaging in round `number`."""
    size = schedule.num_nodes + schedule.has_center
    matrix = np.zeros((size, size))
    in_round = (schedule.number() == number) & (schedule.node < schedule.num_nodes)
    if schedule.has_center:
        in_round |= (schedule.node == schedule.num_nodes) & (schedule.number() == number - 1)
    edges = in_round[schedule.event]
    np.add.at(matrix, (schedule.node[schedule.event[edges]], schedule.source[edges]), schedule.weight[edges])
    return matrix


class TestMatrices:
    """Test what averaging alone does to the sum over the nodes: 1^T W."""

    @pytest.mark.sample(3)
    @pytest.mark.parametrize("kind", ["pull", "push"])
    @pytest.mark.parametrize("include_self", [False, True])
    @pytest.mark.parametrize("nodes", [2, 5])
    def test_gossip_keeps_the_mean_in_expectation(self, kind, include_self, nodes):
        rounds = 2000
        schedule = protocols.gossip(
            np.ones((rounds, nodes)), kind=kind, clock="rounds", include_self=include_self, seed=1
        )
        matrices = np.array([moves(schedule, number) for number in range(1, rounds)])
        np.testing.assert_allclose(matrices.sum(axis=2), 1.0, rtol=1e-15)  # rows
        columns = matrices.sum(axis=1)
        error = columns.std(axis=0, ddof=1) / np.sqrt(len(columns))
        if nodes > 2 or include_self:
            assert (error > 0).all()  # only in expectation
        assert (np.abs(columns.mean(axis=0) - 1) <= 4 * error + 1e-15).all()

    @in_rounds
    @pytest.mark.parametrize("period", [1, 3])
    def test_elastic_averaging_keeps_the_sum(self, clock, period):
        """Each meeting, by itself, has columns that add up to 1."""
        runtimes = np.random.default_rng(0).uniform(1, 3, (10, 4))
        schedule = protocols.elastic_averaging(runtimes, beta=0.2, clock=clock, period=period)
        centers = np.flatnonzero(schedule.node == 4)
        size = 4 if clock == "rounds" else 1
        assert (
            centers.size == (runtimes.size - 4 if period == 1 and clock == "rounds" else centers.size) // size
            or period > 1
        )
        for center in centers:
            events = np.arange(center - size, center + 1)
            columns = np.zeros(5)
            for event in events:
                edges = schedule.event == event
                np.add.at(columns, schedule.source[edges], schedule.weight[edges])
            members = [*schedule.node[events[:-1]], 4]
            np.testing.assert_allclose(columns[members], 1.0, rtol=1e-15)
            # All of them look at the same values.
            seen = {}
            for edge in np.flatnonzero(np.isin(schedule.event, events)):
                source, version = int(schedule.source[edge]), int(schedule.source_version[edge])
                assert seen.setdefault(source, version) == version


@pytest.mark.parametrize("runtimes", [np.ones((3, 2)), np.random.default_rng(0).uniform(1, 5, (7, 4))])
def test_all_reduce_is_synchronous(runtimes):
    given, expected = protocols.all_reduce(runtimes), protocols.synchronous(runtimes)
    for name in ("worker", "read", "update", "started", "arrived", "applied"):
        np.testing.assert_array_equal(getattr(given, name), getattr(expected, name), strict=True)
    assert given.num_workers == expected.num_workers
    assert set(np.bincount(given.update[:, 0])) == {runtimes.shape[1]}


def test_shares_and_rounds_by_hand():
    """Node 0 takes 1 s, node 1 takes 3 s; in rounds of two gradients, both average at 6, 12 ..."""
    schedule = protocols.elastic_averaging(np.array([[1.0, 3.0]] * 4), clock="rounds", period=2)
    assert schedule.wall_clock() == 12
    np.testing.assert_array_equal(schedule.busy_share(), [4 / 12, 1])
    mixes = np.bincount(schedule.event) > 1
    np.testing.assert_array_equal(schedule.started[mixes], [6, 6, 6])
    np.testing.assert_array_equal(schedule.node[mixes], [0, 1, 2])
