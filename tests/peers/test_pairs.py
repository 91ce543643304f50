"""AD-PSGD and A2CiD2, in which pairs of nodes average, are the papers' processes; and each other's special cases.

The second implementations keep one array of every node's variables, and change it in place, event after event; they
know no versions. A2CiD2's mixing is SciPy's exponential of its matrix.
"""

import heapq

import numpy as np
import pytest
from quadratics import MOMENTUM, RATE, START, gradient, numbers_of, replayed
from scipy.linalg import expm

from sgdlab import graphs, protocols
from sgdlab.registry import PROTOCOLS

NODES, GRADIENTS = 5, 30
RUNTIMES = np.random.default_rng(0).uniform(0.5, 3, (24, NODES))
both_modes = pytest.mark.parametrize("mode", ["event", "wave"])


def make(name, runtimes=RUNTIMES, *, number=GRADIENTS, seed=2, **entries):
    return PROTOCOLS.make(name, entries, runtimes=runtimes, num_gradients=number, seed=seed)


class Nodes:
    """Parameters, momentum and the point of the gradient of every node."""

    def __init__(self, numbers, count=NODES):
        self.x, self.moved = np.tile(START, (count, 1)), np.zeros((count, 3))
        self.at = self.x.copy()  # what each had when it began its gradient
        self.done, self.numbers = [0] * count, numbers

    def step(self, node, at):
        grads = gradient(at, self.numbers[node, self.done[node]])
        self.done[node] += 1
        self.moved[node] = MOMENTUM * self.moved[node] + grads
        return -RATE * self.moved[node]


def ad_psgd(neighbours, numbers, *, number=GRADIENTS, seed=2):
    """(parameters, [(node, end)] of all gradients): the process, in order of ends."""
    nodes, draws, begun = Nodes(numbers), np.random.default_rng(seed).random((24, NODES)), 0
    queue, order = [], []
    for node in range(NODES):
        heapq.heappush(queue, (RUNTIMES[0, node], node))
        begun += 1
    while queue:
        now, node = heapq.heappop(queue)
        near = neighbours[node]
        other = near[int(draws[nodes.done[node], node] * len(near))]
        nodes.x[[node, other]] = (nodes.x[node] + nodes.x[other]) / 2
        nodes.x[node] += nodes.step(node, nodes.at[node])
        nodes.at[node] = nodes.x[node]
        order.append((node, now))
        if begun < number:
            begun += 1
            heapq.heappush(queue, (now + RUNTIMES[nodes.done[node], node], node))
    return nodes.x, order


@both_modes
@pytest.mark.parametrize("graph", ["ring", "complete"])
def test_ad_psgd_is_the_papers_loop(graph, mode):
    schedule = make("ad_psgd", graph=graph)
    neighbours = [np.flatnonzero(row).tolist() for row in graphs.make(graph, NODES)[0]]
    expected, order = ad_psgd(neighbours, numbers_of(schedule))
    np.testing.assert_allclose(replayed(schedule, mode=mode).nodes, expected, rtol=1e-12)
    rows = schedule.takes_gradient()
    assert schedule.node[rows].tolist() == [node for node, _ in order]
    np.testing.assert_allclose(schedule.finished[rows], [end for _, end in order], rtol=1e-14)
    assert (schedule.read[rows] < 2 * schedule.number()[rows]).any()  # others have averaged with it meanwhile


class Accelerated(Nodes):
    """A2CiD2: what each node's variables do between two events, at an averaging, and at a gradient."""

    def __init__(self, numbers, eta, weight):
        super().__init__(numbers)
        self.tilde, self.mixed, self.eta, self.weight = self.x.copy(), np.zeros(NODES), eta, weight

    def mix(self, node, now):
        matrix = expm(self.eta * (now - self.mixed[node]) * np.array([[-1.0, 1.0], [1.0, -1.0]]))
        self.x[node], self.tilde[node] = matrix @ np.stack([self.x[node], self.tilde[node]])
        self.mixed[node] = now

    def meet(self, now, one, other):
        for node in (one, other):
            self.mix(node, now)
        apart = self.x[one] - self.x[other]
        for node, sign in ((one, 1.0), (other, -1.0)):
            self.x[node] -= sign * 0.5 * apart
            self.tilde[node] -= sign * self.weight * apart

    def take(self, now, node, *, fresh):
        self.mix(node, now)
        step = self.step(node, self.x[node].copy() if fresh else self.at[node])
        self.x[node] += step
        self.tilde[node] += step
        self.at[node] = self.x[node]


def meetings_of(schedule):
    """[(time, pair)] of what only averages among the nodes."""
    rows = np.flatnonzero(~schedule.takes_gradient() & (schedule.node < schedule.num_nodes))
    pairs = schedule.node[rows].reshape(-1, 2).tolist()
    return [(time, *pair) for time, pair in zip(schedule.started[rows][::2].tolist(), pairs, strict=True)]


@both_modes
@pytest.mark.parametrize("clock", ["own", "poisson"])
@pytest.mark.parametrize("entries", [{}, {"eta": 0.3, "weight": 1.1, "rate": 2.0}, {"eta": 0.0}], ids=str)
def test_a2cid2_is_the_papers_process(entries, clock, mode):
    schedule = make("a2cid2", clock=clock, **entries)
    # In a unit of time as many gradients are computed as there are nodes.
    unit = NODES / (1 / RUNTIMES[:16].mean(axis=0)).sum()
    rates = graphs.pair_rates(graphs.ring(NODES)[0], entries.get("rate", 1.0))
    eta, weight = graphs.acceleration(rates)
    nodes = Accelerated(numbers_of(schedule), entries.get("eta", eta) / unit, entries.get("weight", weight))
    ends = sorted((time, node) for node, column in enumerate(np.cumsum(RUNTIMES, axis=0).T) for time in column)
    events = [(*end, None) for end in ends[:GRADIENTS]] + meetings_of(schedule)
    assert len(events) > GRADIENTS + 5
    for now, one, other in sorted(events):
        nodes.take(now, one, fresh=clock == "poisson") if other is None else nodes.meet(now, one, other)
    # Without momentum the mixing does nothing, whatever the second variables are.
    assert schedule.companions == (entries.get("eta") != 0.0)
    result = replayed(schedule, mode=mode)
    np.testing.assert_allclose(result.nodes, nodes.x, rtol=1e-11)
    np.testing.assert_allclose(schedule.finished[schedule.takes_gradient()], [end for end, _ in ends[:GRADIENTS]])


def test_averagings_are_a_poisson_process_on_the_edges():
    runtimes = np.full((401, 6), 2.0)
    schedule = PROTOCOLS.make("a2cid2", {"rate": 3.0, "eta": 0.0}, runtimes=runtimes, num_gradients=2400, seed=0)
    times, one, other = map(np.array, zip(*meetings_of(schedule), strict=True))
    expected = 3.0 * 400 * 6 / 2  # 3 of every node in the time of a gradient
    assert abs(times.size - expected) < 4 * np.sqrt(expected)
    gaps = np.diff(times)
    assert abs(gaps.std() / gaps.mean() - 1) < 0.1
    found = np.bincount(one * 6 + other, minlength=36).reshape(6, 6)
    edges = np.triu(graphs.ring(6)[0])
    assert (found[~edges] == 0).all()
    assert abs(found[edges] - expected / 6).max() < 5 * np.sqrt(expected / 6)


def test_neither_one_slow_node_nor_more_rows_change_how_often_others_average():
    runtimes = np.ones((40, 6))
    runtimes[:, 5] = 1e4
    counts = [len(meetings_of(make("a2cid2", times, number=60, eta=0.0))) for times in (runtimes[:20], runtimes)]
    assert counts[0] == counts[1] > 15  # 12 units of time; were the unit the mean of all, it would be none


@pytest.mark.parametrize("name", ["ad_psgd", "a2cid2"])
def test_ends_with_as_many_gradients_as_asked_for(name):
    assert [make(name, number=number).num_gradients for number in (1, 7, 30)] == [1, 7, 30]
    everything = make(name, number=None)
    assert everything.num_gradients >= 24
    with pytest.raises(protocols.NotEnoughRuntimes):
        make(name, number=5 * 24 + 1)


def test_a_poisson_clock_has_no_policy():
    with pytest.raises(ValueError, match=r"kind=a2cid2 must be another.*: its pairs average by a Poisson clock"):
        PROTOCOLS.policy("a2cid2", {})
