"""Graphs of peers: their shapes, weights that keep the mean or divide what is sent, and how fast they mix."""

import numpy as np
import pytest
from scipy.linalg import expm

from sgdlab import graphs

SIZES = (1, 2, 3, 4, 6, 7, 8, 16)
ALL = [(name, size) for name in graphs.GRAPHS for size in SIZES]


@pytest.mark.parametrize(("name", "size"), ALL)
def test_every_graph_connects_all_nodes_and_none_with_itself(name, size):
    edges = graphs.make(name, size, density=0.6)
    assert edges.dtype == bool
    assert edges.shape[1:] == (size, size)
    assert not edges[:, np.arange(size), np.arange(size)].any()
    reached = np.linalg.matrix_power((edges.any(axis=0) | np.eye(size, dtype=bool)).astype(int), size)
    assert (reached > 0).all()


@pytest.mark.parametrize(
    ("name", "size", "degrees"),
    [
        ("ring", 7, {2}),
        ("ring", 2, {1}),
        ("torus", 12, {4}),
        ("torus", 4, {2}),
        ("torus", 7, {2}),  # of a prime number it is a ring
        ("complete", 7, {6}),
        ("exponential", 8, {3}),
        ("exponential", 6, {3}),
        ("one_peer_exponential", 8, {1}),
    ],
)
def test_everybody_has_as_many_neighbours(name, size, degrees):
    edges = graphs.make(name, size)
    assert set(edges.sum(axis=1).ravel().tolist()) == set(edges.sum(axis=2).ravel().tolist()) == degrees


def test_a_node_sends_to_those_ahead_of_it():
    edges = graphs.exponential(8)[0]
    assert np.flatnonzero(edges[:, 3]).tolist() == [4, 5, 7]
    for power, edges in enumerate(graphs.one_peer_exponential(8)):
        assert np.flatnonzero(edges[:, 3]).tolist() == [3 + 2**power]


def test_random_graphs_follow_the_seed_and_the_density():
    for name, both_ways in (("random", True), ("directed", False)):
        draw = lambda seed, density, name=name: graphs.make(name, 30, density=density, seed=seed)
        np.testing.assert_array_equal(draw(0, 0.4), draw(0, 0.4))
        assert (draw(0, 0.4) != draw(1, 0.4)).any()
        assert abs(np.mean([draw(seed, 0.4).sum() for seed in range(20)]) / (30 * 29) - 0.4) < 0.03
        edges = draw(0, 0.4)
        assert (edges == edges.transpose(0, 2, 1)).all() == both_ways


@pytest.mark.parametrize("name", ["random", "directed"])
def test_sparse_random_graphs_connect_all_nodes(name):
    for seed in range(20):
        edges = graphs.make(name, 6, density=0.25, seed=seed)[0]
        assert (np.linalg.matrix_power((edges | np.eye(6, dtype=bool)).astype(int), 6) > 0).all()


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"name": "star"}, "graph='star' must be one of ring, torus, complete, exp"),
        ({"num_nodes": 0}, "num_nodes=0 must be"),
        ({"density": 0.0}, "density=0.0 must be"),
        ({"density": 1.5}, "density=1.5 must be"),
        ({"seed": -1}, "seed=-1 must be"),
        ({"name": "random", "num_nodes": 40, "density": 0.01}, "density=0.01 must be higher: .* 0.18 would be enough"),
    ],
)
def test_impossible_arguments_are_named(entries, message):
    with pytest.raises(ValueError, match=message):
        graphs.make(**{"name": "ring", "num_nodes": 4} | entries)


@pytest.mark.parametrize(("name", "size"), [case for case in ALL if case[0] != "directed"])
def test_weights_that_keep_the_mean(name, size):
    edges = graphs.make(name, size, density=0.6)
    weights = graphs.doubly_stochastic(edges)
    for axis in (1, 2):
        np.testing.assert_allclose(weights.sum(axis=axis), 1.0, rtol=1e-14)
    assert (weights >= 0).all()
    assert ((weights > 0) == (edges | np.eye(size, dtype=bool))).all()


def test_weights_by_hand():
    path = np.array([[[0, 1, 0], [1, 0, 1], [0, 1, 0]]], bool)
    third = 1 / 3
    by_hand = [[2 * third, third, 0], [third, third, third], [0, third, 2 * third]]
    np.testing.assert_allclose(graphs.metropolis(path)[0], by_hand, rtol=1e-15)
    by_hand = [[1 / 2, third, 0], [1 / 2, third, 1 / 2], [0, third, 1 / 2]]
    np.testing.assert_allclose(graphs.sent_in_equal_shares(path)[0], by_hand, rtol=1e-15)


def test_a_graph_without_weights_that_keep_the_mean_is_refused():
    with pytest.raises(ValueError, match=r"graph must have edges that run both ways.*push-sum \(sgp\) does"):
        graphs.doubly_stochastic(graphs.directed(6, seed=0))


def test_push_sum_divides_out_who_sends_to_whom():
    """Ratios of sums go to the mean of all on a graph on which plain averages go elsewhere."""
    weights = graphs.sent_in_equal_shares(graphs.directed(6, density=0.4, seed=3))
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-14)
    w = graphs.push_sum_weights(weights, 60)
    np.testing.assert_allclose(w.sum(axis=1), 6.0, rtol=1e-13)
    assert w[-1].max() / w[-1].min() > 1.5
    values = np.random.default_rng(0).normal(size=6)
    mixed = np.linalg.matrix_power(weights[0], 60) @ values
    np.testing.assert_allclose(mixed / w[-1], values.mean(), rtol=1e-9)


def test_gaps_are_what_powers_of_the_weights_say():
    assert graphs.spectral_gap(graphs.doubly_stochastic(graphs.complete(9))) == 1.0
    assert graphs.spectral_gap(graphs.doubly_stochastic(graphs.one_peer_exponential(16))) == 1.0
    assert graphs.spectral_gap(np.eye(4)[None]) == 0.0
    assert graphs.spectral_gap(np.ones((1, 1, 1))) == 1.0
    ring = 1 - (1 + 2 * np.cos(2 * np.pi / 16)) / 3  # eigenvalues of a circulant matrix
    np.testing.assert_allclose(graphs.spectral_gap(graphs.doubly_stochastic(graphs.ring(16))), ring, rtol=1e-12)
    weights = graphs.doubly_stochastic(graphs.one_peer_exponential(6))
    product = np.linalg.multi_dot(weights[::-1])
    away = np.linalg.matrix_power(product, 12) - 1 / 6
    rho = np.linalg.norm(away, 2) ** (1 / (12 * len(weights)))
    np.testing.assert_allclose(1 - graphs.spectral_gap(weights), rho, rtol=0.02)


def test_resistances_of_a_complete_graph_and_of_a_ring():
    """Of a complete graph all eigenvalues but 0 are N lambda; of a ring they are known, and so is its resistance."""
    nodes = 8
    rates = graphs.pair_rates(graphs.complete(nodes)[0])
    eigenvalue = nodes / (nodes - 1)
    np.testing.assert_allclose(graphs.resistances(rates), (1 / eigenvalue, 1 / eigenvalue), rtol=1e-12)
    rates = graphs.pair_rates(graphs.ring(nodes)[0], rate=2.0)
    np.testing.assert_allclose(rates.sum(axis=1), 2.0, rtol=1e-15)
    chi_1 = 1 / (2 * (1 - np.cos(2 * np.pi / nodes)))
    chi_2 = 0.5 * (1 - 1 / nodes)  # of two neighbours: 1 in parallel with N - 1, each of resistance 1, halved
    np.testing.assert_allclose(graphs.resistances(rates), (chi_1, chi_2), rtol=1e-12)
    eta, weight = graphs.acceleration(rates)
    np.testing.assert_allclose((eta, weight), (0.5 / np.sqrt(chi_1 * chi_2), 0.5 * np.sqrt(chi_1 / chi_2)), rtol=1e-12)


def test_the_momentum_speeds_up_averaging_on_a_ring():
    """Second moments apart: the expected distance from the mean falls as its linear operator says, and faster."""
    nodes = 16
    rates = graphs.pair_rates(graphs.ring(nodes)[0])
    laplacian = np.diag(rates.sum(axis=1)) - rates
    eta, weight = graphs.acceleration(rates)
    eye = np.eye(nodes)
    plain = -0.5 * laplacian
    joint = np.block([[-eta * eye - 0.5 * laplacian, eta * eye], [eta * eye - weight * laplacian, -eta * eye]])
    slowest = lambda matrix: np.sort(np.linalg.eigvals(matrix).real)[-2]
    assert slowest(joint) < 2 * slowest(plain) < 0
    np.testing.assert_allclose(expm(joint) @ np.ones(2 * nodes), np.ones(2 * nodes), rtol=1e-12)


@pytest.mark.parametrize("rates", [np.zeros((1, 1)), np.zeros((3, 3))])
def test_resistances_need_a_connected_graph(rates):
    with pytest.raises(ValueError, match="graph must connect at least two nodes, and all of them"):
        graphs.resistances(rates)
