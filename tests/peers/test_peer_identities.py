"""Peers in special cases: serial SGD, independent nodes; and rounds, which do not depend on the numbers of nodes."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from lib.replay_cases import assert_close

from sgdlab import PeerSchedule, protocols, rules
from sgdlab.replay import run
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
