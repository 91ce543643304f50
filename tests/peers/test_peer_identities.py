"""What peers must be in special cases: serial SGD, independent nodes, large batches; what averaging keeps."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from lib.replay_cases import assert_close, batches, network

from sgdlab import PeerSchedule, cluster, protocols, rules
from sgdlab.replay import Capacity, Watch, lower, run
from sgdlab.tasks import Task

both_modes = pytest.mark.parametrize("mode", ["event", "wave"])
in_rounds = pytest.mark.parametrize("clock", ["own", "rounds"])
TX = optax.sgd(0.05, momentum=0.9, nesterov=True)
NODES = 4
RUNTIMES = np.random.default_rng(0).uniform(1, 3, (6, NODES))

_random = np.random.default_rng(1)
CURVATURE, TARGETS = _random.uniform(0.2, 1.0, (64, 5)), _random.normal(size=(64, 5))


def grad_fn(params, batch):
    curvature, target = batch
    return curvature * (params - target) + jnp.sin(params), {"first": params[0]}


def batch_fn(number):
    return jnp.asarray(CURVATURE)[number], jnp.asarray(TARGETS)[number]


def serial(numbers, *, tx=TX, start=None):
    """SGD on these batches."""
    params = jnp.linspace(-1.0, 1.0, 5) if start is None else start
    state = tx.init(params)

    @jax.jit
    def step(params, state, number):
        grads, _ = grad_fn(params, batch_fn(number))
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    for number in numbers:
        params, state = step(params, state, number)
    return params


def replayed(schedule, *, mode=None, tx=TX, batch_fn=batch_fn, **options):
    return run(schedule, tx, Task(grad_fn, jnp.linspace(-1.0, 1.0, 5)), batch_fn, mode=mode, **options)


@pytest.mark.covering
@both_modes
@in_rounds
@pytest.mark.parametrize("kind", ["pull", "push"])
@pytest.mark.parametrize("include_self", [False, True])
def test_gossip_of_one_node_is_serial(kind, include_self, clock, mode):
    schedule = protocols.gossip(np.ones((20, 1)), kind=kind, include_self=include_self, clock=clock, period=2, seed=0)
    assert schedule.event.size == 20
    assert_close(replayed(schedule, mode=mode).params, serial(range(20)), 1e-15)


@both_modes
@in_rounds
def test_elastic_averaging_without_moves_is_independent_nodes(clock, mode):
    schedule = protocols.elastic_averaging(RUNTIMES, beta=0.0, clock=clock, period=2)
    result = replayed(schedule, mode=mode)
    for node in range(NODES):
        assert_close(result.nodes[node], serial(np.flatnonzero(result.history.worker == node)), 1e-15)
    assert_close(result.center, jnp.linspace(-1.0, 1.0, 5), 0.0)


def test_longer_periods_than_the_run_are_independent_nodes():
    for schedule in (
        protocols.gossip(RUNTIMES, period=6, seed=0),
        protocols.gossip(RUNTIMES, kind="push", period=6, clock="rounds", seed=0),
    ):
        result = replayed(schedule)
        for node in range(NODES):
            assert_close(result.nodes[node], serial(np.flatnonzero(result.history.worker == node)), 1e-15)


def test_all_reduce_is_minibatch_sgd():
    net = network("mlp")
    result = run(protocols.all_reduce(RUNTIMES), rules.server_rule(TX), net, batches())
    params, state = net.params, TX.init(net.params)
    for update in range(len(RUNTIMES)):
        parts = [batches()(row) for row in range(update * NODES, (update + 1) * NODES)]
        grads, _ = net.grad_fn(params, jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts))
        updates, state = TX.update(grads, state, params)
        params = optax.apply_updates(params, updates)
    assert_close(result.params, params, 1e-12)


@both_modes
@in_rounds
def test_elastic_averaging_with_the_center_of_two_nodes_by_hand(clock, mode):
    """One gradient each, then one meeting; x = -eta g after the first step, and no gradient after that."""
    schedule = protocols.elastic_averaging(np.array([[1.0, 2.0]] * 2), beta=0.25, clock=clock)
    rates = rules.tabulated([1.0, 0.0])
    gradient = lambda params, batch: (-batch, {})
    result = run(
        schedule,
        optax.sgd(rates),
        Task(gradient, jnp.zeros([])),
        lambda g: jnp.asarray([8.0, 16.0, 0.0, 0.0])[g],
        mode=mode,
    )
    if clock == "rounds":
        center = 0.25 * 8 + 0.25 * 16
        nodes = [0.75 * 8, 0.75 * 16]
    else:  # node 0 meets the center at 1; node 1 at 2 meets it moved, if it has rows to begin anew
        center = 0.25 * 8
        nodes = [0.75 * 8, 16.0]
        if (schedule.node == 1).sum() == 2:
            nodes[1] = 0.75 * 16 + 0.25 * center
            center = 0.75 * center + 0.25 * 16
    np.testing.assert_allclose(result.nodes, nodes, rtol=1e-15)
    np.testing.assert_allclose(result.center, center, rtol=1e-15)


@pytest.mark.covering
@both_modes
@in_rounds
@pytest.mark.parametrize("period", [1, 3])
def test_elastic_averaging_keeps_the_sum_where_there_are_no_gradients(clock, period, mode):
    """Every node takes one step away from the others; from then on the sum of nodes and center stays."""
    runtimes = np.random.default_rng(0).uniform(1, 2, (10, NODES))
    schedule = protocols.elastic_averaging(runtimes, clock=clock, period=period)
    rate = rules.tabulated([0.3, 0.0])
    watch = Watch(every=1, evaluate=lambda params, stats: {str(i): params[i] for i in range(5)})
    looks = replayed(schedule, tx=optax.sgd(rate), mode=mode, watch=watch).history.evaluations
    ours = schedule.node[schedule.node < NODES]
    all_began = max(int(np.flatnonzero(ours == node)[0]) for node in range(NODES)) + 1
    assert len(looks) > all_began + 10
    column = lambda look: np.array([NODES * look[f"{i}"] + look[f"center_{i}"] for i in range(5)])
    # In rounds the center moves when all have met it.
    sums = np.array([column(look) for look in looks[all_began :: NODES if clock == "rounds" else 1]])
    assert len(sums) > 5
    np.testing.assert_allclose(sums[1:], np.tile(sums[0], (len(sums) - 1, 1)), rtol=0, atol=1e-14 * np.abs(sums).max())
    before = NODES * looks[0]["0"] + looks[0]["center_0"]
    assert abs(sums[0][0] - before) > 0.01
    assert looks[-1]["consensus"] < 0.6 * looks[all_began]["consensus"]


HEIGHTS = np.array([3.0, -1.0, 0.5, 10.0])


def _pushed_apart(node, number):
    return -jnp.asarray(HEIGHTS)[node[number]]


def _given(params, batch):
    return batch + 0 * params, {"read": params}


@pytest.mark.sample(1)
@pytest.mark.parametrize(("kind", "clock"), [("pull", "rounds"), ("push", "rounds"), ("pull", "own")])
def test_gossip_without_gradients_keeps_the_mean_in_expectation(kind, clock):
    """Every node takes one step, to a height of its own; from then on they only average.

    Over seeds, what they have in memory (what gradients are taken at) keeps its mean.
    """
    seeds, rows, rule = 150, 48, rules.asgd(learning_rate=rules.tabulated([1.0, 0.0]))
    room = Capacity(rows=64, slots=16, width=4, events=64, edges=128)
    moved, spreads = [], []
    for seed in range(seeds):
        runtimes = cluster.exponential(num_workers=NODES, num_gradients=rows, seed=1000 + seed)
        schedule = protocols.gossip(runtimes, kind=kind, clock=clock, num_gradients=rows, seed=seed)
        pushed = jax.tree_util.Partial(_pushed_apart, jnp.asarray(schedule.node))
        program = lower(schedule, capacity=room)
        reads = run(program, rule, Task(_given, jnp.zeros([])), pushed, mode="event").history.aux["read"]
        memory, number, rows_of_memory = np.zeros(NODES), schedule.number(), []
        for event, node in enumerate(schedule.node):
            memory[node] = reads[event]
            rows_of_memory.append(memory.copy())
        ready = max(int(np.flatnonzero((schedule.node == node) & (number == 1))[0]) for node in range(NODES))
        # In rounds the first averaging of all is counted too: it begins with the heights themselves.
        first = HEIGHTS if clock == "rounds" else rows_of_memory[ready]
        then = rows_of_memory[ready + 8]
        moved.append(then.mean() - first.mean())
        spreads.append((then.std(), first.std()))
    error = np.std(moved, ddof=1) / np.sqrt(seeds)
    assert error > 0  # each run does move it
    assert abs(np.mean(moved)) <= 3 * error
    then, first = np.mean(spreads, axis=0)
    assert then < 0.6 * first


def test_weights_of_a_push_add_up_over_senders_not_over_receivers():
    schedule = protocols.gossip(np.ones((30, 5)), kind="push", clock="rounds", seed=0)
    rows = np.bincount(schedule.event, weights=schedule.weight)
    np.testing.assert_allclose(rows, 1.0, rtol=1e-15)
    round_of = schedule.number()[schedule.event]
    columns = np.array([
        np.bincount(schedule.source[round_of == n], weights=schedule.weight[round_of == n], minlength=5)
        for n in range(1, 30)
    ])  # fmt: skip
    assert np.abs(columns - 1).max() > 0.2
    np.testing.assert_allclose(columns.sum(axis=1), 5.0, rtol=1e-14)


def renumbered(schedule: PeerSchedule, new: np.ndarray) -> tuple[PeerSchedule, np.ndarray]:
    """(the schedule in which node n is called new[n], the old place of each of its gradients)."""
    names = np.append(new, schedule.num_nodes)
    node, source = names[schedule.node], names[schedule.source]
    center = schedule.node == schedule.num_nodes
    order = np.lexsort((node, center, schedule.number() + center))  # by round, then node, the center last
    place = np.empty(order.size, int)
    place[order] = np.arange(order.size)
    edges = np.argsort(place[schedule.event], kind="stable")  # those of an event keep their order
    gradients = np.cumsum(~center) - 1
    changed = dataclasses.replace(
        schedule,
        node=node[order],
        started=schedule.started[order],
        finished=schedule.finished[order],
        event=place[schedule.event][edges],
        source=source[edges],
        source_version=schedule.source_version[edges],
        weight=schedule.weight[edges],
    )
    return changed, gradients[order][~center[order]]


@pytest.mark.covering
@both_modes
@pytest.mark.parametrize(
    "make",
    [
        functools.partial(protocols.gossip, kind="pull", seed=0),
        functools.partial(protocols.gossip, kind="push", seed=0),
        functools.partial(protocols.gossip, kind="push", fresh=False, include_self=True, seed=0),
        protocols.elastic_averaging,
    ],
)
def test_rounds_do_not_depend_on_the_numbers_of_nodes(make, mode):
    schedule = make(RUNTIMES, clock="rounds")
    new = np.array([2, 0, 3, 1])
    other, old = renumbered(schedule, new)
    assert sorted(old) == list(range(RUNTIMES.size))
    assert (old != np.arange(old.size)).any()
    padded = jnp.asarray(np.pad(old, (0, 64 - old.size)))
    given = replayed(other, mode=mode, batch_fn=lambda g: batch_fn(padded[g]))
    expected = replayed(schedule, mode=mode)
    np.testing.assert_array_equal(given.nodes[new], expected.nodes)
    if schedule.has_center:
        np.testing.assert_array_equal(given.center, expected.center)
