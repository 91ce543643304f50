"""Rounds on a graph (D-PSGD, SGP, overlap SGP) are the papers' algorithms, and each other's special cases.

The second implementation is the algorithm as a message-passing loop in NumPy: numerators and weights of push-sum, and
when everybody is done by who waits for whom; it knows no versions and no schedule.
"""

import numpy as np
import pytest
from quadratics import MOMENTUM, RATE, START, gradient, numbers_of, replayed

from sgdlab import graphs, policies, protocols
from sgdlab.policies import Begin, Keep, Mix, Step
from sgdlab.registry import PROTOCOLS

NODES, ROUNDS = 6, 7
RUNTIMES = np.random.default_rng(0).uniform(1, 3, (ROUNDS, NODES))
both_modes = pytest.mark.parametrize("mode", ["event", "wave"])


def make(name, runtimes=RUNTIMES, *, number=ROUNDS * NODES, seed=1, **entries):
    return PROTOCOLS.make(name, entries, runtimes=runtimes, num_gradients=number, seed=seed)


class Push:
    """Stochastic gradient push, told as messages; D-PSGD is the same with weights that stay 1."""

    def __init__(self, weights, numbers, *, overlap, momentum=MOMENTUM):
        self.x, self.w = np.tile(START, (NODES, 1)), np.ones(NODES)
        self.moved = np.zeros_like(self.x)
        self.z = self.x.copy()
        for number in range(ROUNDS):
            shares = weights[number % len(weights)]
            steps = np.zeros_like(self.x)
            for node in range(NODES):
                grads = gradient(self.x[node] / self.w[node], numbers[node, number])
                self.moved[node] = momentum * self.moved[node] + grads
                steps[node] = -RATE * self.moved[node]
            sent = self.x if overlap else self.x + steps
            # What ends a run is a step: the last round's messages are under way, unless they went before it.
            self.z = (self.x + steps) / self.w[:, None]
            inbox, weight = np.zeros_like(self.x), np.zeros(NODES)
            for sender in range(NODES):
                for receiver in np.flatnonzero(shares[:, sender]):
                    inbox[receiver] += shares[receiver, sender] * sent[sender]
                    weight[receiver] += shares[receiver, sender] * self.w[sender]
            self.x, self.w = inbox + (steps if overlap else 0.0), weight
        if overlap:
            self.z = self.x / self.w[:, None]


def done_at(edges, *, overlap):
    """When each node ends each of its gradients: it waits for those that send to it, once all began alike."""
    ended, stepped = np.zeros((ROUNDS, NODES)), np.zeros(NODES)
    for number in range(ROUNDS):
        late = edges[(number if overlap else number - 1) % len(edges)]
        known = np.array([max([stepped[node], *stepped[late[node]]]) for node in range(NODES)])
        begun = stepped if overlap or number == 0 else known
        ended[number] = begun + RUNTIMES[number]
        stepped = np.maximum(ended[number], known) if overlap and number else ended[number]
    return ended


CASES = {
    "d_psgd, ring": ("d_psgd", {"graph": "ring"}, True),
    "d_psgd, random": ("d_psgd", {"graph": "random"}, True),
    "d_psgd, one peer": ("d_psgd", {"graph": "one_peer_exponential"}, True),
    "d_psgd, fresh": ("d_psgd", {"graph": "torus", "fresh": True}, False),
    "sgp": ("sgp", {}, False),
    "sgp, directed": ("sgp", {"graph": "directed", "density": 0.4}, False),
    "osgp": ("sgp", {"overlap": True}, True),
    "osgp, directed": ("sgp", {"graph": "directed", "density": 0.4, "overlap": True}, True),
}


@both_modes
@pytest.mark.parametrize("case", CASES)
def test_is_the_papers_loop(case, mode):
    name, entries, overlap = CASES[case]
    schedule = make(name, **entries)
    edges = graphs.make(
        entries.get("graph", "one_peer_exponential"), NODES, density=entries.get("density", 0.5), seed=1
    )
    weights = graphs.sent_in_equal_shares(edges) if name == "sgp" else graphs.doubly_stochastic(edges)
    expected = Push(weights, numbers_of(schedule), overlap=overlap)
    assert expected.w.std() > 0.1 or "directed" not in case
    np.testing.assert_allclose(replayed(schedule, mode=mode).nodes, expected.z, rtol=1e-12)
    ended = done_at(edges, overlap=overlap)
    for (node, number), row in numbers_of(schedule).items():
        assert schedule.finished[row] == pytest.approx(ended[number, node], rel=1e-14)
        begun = schedule.finished[row] - RUNTIMES[number, node]
        assert schedule.started[row] == pytest.approx(begun, rel=1e-13, abs=1e-13)


def test_messages_under_way_hide_who_is_slow():
    """On the same compute times overlap SGP is never behind SGP, and sooner at the end."""
    slow = RUNTIMES * np.where(np.random.default_rng(1).random(RUNTIMES.shape) < 0.2, 4.0, 1.0)
    plain, overlap = (make("sgp", slow, overlap=overlap) for overlap in (False, True))
    assert overlap.wall_clock() < plain.wall_clock()
    assert overlap.idle_share().mean() < plain.idle_share().mean()


def test_without_momentum_on_a_complete_graph_it_is_synchronous_sgd():
    schedule, server = make("d_psgd", graph="complete", fresh=True), protocols.synchronous(RUNTIMES)
    assert schedule.wall_clock() == pytest.approx(server.wall_clock(), rel=1e-14)
    params = START.copy()
    for number in range(ROUNDS):  # the gradients of a round stand together
        rows = [numbers_of(schedule)[node, number] for node in range(NODES)]
        params = params - RATE * np.mean([gradient(params, row) for row in rows], axis=0)
    np.testing.assert_allclose(replayed(schedule, momentum=0.0).params, params, rtol=1e-13)


@pytest.mark.parametrize("name", ["d_psgd", "ad_psgd"])
def test_the_mean_moves_by_the_mean_of_the_steps(name):
    schedule = make(name, number=5 * NODES, graph="ring")
    at = replayed(schedule, momentum=0.0)
    reads, numbers = at.history.aux["at"], numbers_of(schedule)
    steps = [RATE * gradient(np.full(3, reads[row]), row)[0] for row in numbers.values()]
    np.testing.assert_allclose(at.params[0], START[0] - np.sum(steps) / NODES, rtol=1e-12)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("graph", ["ring", "one_peer_exponential", "complete"])
def test_where_all_send_to_as_many_push_sum_is_d_psgd(graph, overlap):
    push, plain = make("sgp", graph=graph, overlap=overlap), make("d_psgd", graph=graph, fresh=not overlap)
    for name in ("node", "started", "finished", "event", "source", "source_version"):
        np.testing.assert_array_equal(getattr(push, name), getattr(plain, name))
    np.testing.assert_allclose(push.weight, plain.weight, rtol=1e-14)
    assert push.fresh == plain.fresh
    assert push.scale is None or np.allclose(push.scale, 1.0, rtol=1e-14)


@pytest.mark.parametrize(
    ("name", "entries"),
    [("d_psgd", {}), ("sgp", {}), ("sgp", {"overlap": True}), ("ad_psgd", {}), ("a2cid2", {}), ("a2cid2", {"eta": 0})],
)
def test_one_node_is_plain_sgd(name, entries):
    schedule = make(name, np.ones((9, 1)), number=9, **entries)
    params, moved = START.copy(), np.zeros(3)
    for number in range(9):
        moved = MOMENTUM * moved + gradient(params, number)
        params = params - RATE * moved
    np.testing.assert_allclose(replayed(schedule).params, params, rtol=1e-13)


@pytest.mark.parametrize("number", [1, 6, 20, None])
@pytest.mark.parametrize(("name", "entries"), [("d_psgd", {}), ("sgp", {"overlap": True, "graph": "directed"})])
def test_ends_with_as_many_gradients_as_asked_for(name, entries, number):
    schedule = make(name, number=number, **entries)
    if number is None:
        assert schedule.num_gradients > (ROUNDS - 2) * NODES
    else:
        assert schedule.num_gradients == number
        counts = np.bincount(schedule.node, minlength=NODES)
        assert counts.max() - counts.min() <= 1


def test_a_node_waits_for_its_neighbours_only():
    """Node 3 of 6 is slow on a ring: 2 and 4 wait at their second gradient, 1 and 5 at their third, 0 at its fourth."""
    runtimes = np.ones((4, NODES))
    runtimes[0, 3] = 10.0
    schedule = make("d_psgd", runtimes, number=4 * NODES, graph="ring", fresh=True)
    started = {(int(n), int(k)): s for n, k, s in zip(schedule.node, schedule.number(), schedule.started, strict=True)}
    assert [started[2, 1], started[1, 1], started[1, 2], started[0, 2], started[0, 3]] == [10, 1, 11, 2, 12]


def test_a_gradient_is_kept_until_its_node_has_what_it_averages():
    policy = policies.d_psgd(num_workers=2, graph="ring", num_gradients=6)
    policy.start([0, 1])
    alone = Mix(0, ((0, 0, 1.0),))
    assert policy.arrived(1.0, 0) == [alone, Step(0), Begin(0, 2)]
    assert policy.arrived(2.0, 0) == [Keep(0)]
    actions = policy.arrived(3.0, 1)
    assert actions[:3] == [Mix(1, ((1, 0, 1.0),)), Step(1), Begin(1, 2)]
    assert actions[3:] == [Mix(0, ((0, 2, 0.5), (1, 2, 0.5))), Step(0), Begin(0, 4)]
