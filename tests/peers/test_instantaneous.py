"""Instantaneous gossip is the process of the theory: at each tick one node averages, takes a gradient and steps."""

import hypothesis.extra.numpy as hnp
import jax.numpy as jnp
import numpy as np
import optax
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.tiers import examples

from sgdlab import cluster, protocols, replay
from sgdlab.tasks import Task

check = settings(derandomize=True, deadline=None, max_examples=examples(100), database=None)
SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 5))
# Whole numbers: many nodes tick at one instant.
RUNTIMES = SHAPES.flatmap(lambda s: hnp.arrays(np.float64, s, elements=st.integers(1, 3).map(float), fill=st.nothing()))


@check
@given(runtimes=RUNTIMES, kind=st.sampled_from(["pull", "push"]), period=st.integers(1, 3), include_self=st.booleans())
def test_every_tick_finds_what_the_ticks_before_have_made(runtimes, kind, period, include_self):
    schedule = protocols.gossip(runtimes, kind=kind, period=period, include_self=include_self, clock="poisson", seed=1)
    ticks = sorted((time, node) for node, column in enumerate(np.cumsum(runtimes, axis=0).T) for time in column)
    rows = {node: np.cumsum(runtimes[:, node])[-1] for node in range(runtimes.shape[1])}
    first = min(rows, key=lambda node: (rows[node], node))
    ticks = ticks[: ticks.index((rows[first], first)) + 1]
    assert list(zip(schedule.finished.tolist(), schedule.node.tolist(), strict=True)) == ticks
    made = [0] * runtimes.shape[1]  # steps of each node so far
    sent: list[list[tuple[int, int]]] = [[] for _ in made]  # what was pushed to each node since it last averaged
    for event, node in enumerate(schedule.node.tolist()):
        mine = np.flatnonzero(schedule.event == event)
        read = list(zip(schedule.source[mine].tolist(), schedule.source_version[mine].tolist(), strict=True))
        assert read[0] == (node, 2 * made[node])
        np.testing.assert_allclose(schedule.weight[mine], 1 / mine.size)
        if made[node] % period:
            assert len(read) == 1
        elif kind == "pull":
            assert len(read) <= 2
            assert all(version == 2 * made[source] for source, version in read)
        else:
            # Everything that a push brings was made before, and is brought once.
            assert all(version <= 2 * made[source] for source, version in read)
            assert not set(read[1:]) & set(sent[node])
            sent[node] += read[1:]
        made[node] += 1


def test_replay_is_a_loop_of_ticks():
    runtimes = cluster.exponential(num_workers=4, num_gradients=12, seed=0)
    schedule = protocols.gossip(runtimes, include_self=True, clock="poisson", seed=3)
    grad_fn = lambda params, batch: (params - batch, {})
    nodes = np.zeros((4, 2))
    for event, node in enumerate(schedule.node.tolist()):
        mine = schedule.event == event
        averaged = schedule.weight[mine] @ nodes[schedule.source[mine]]
        nodes[node] = averaged - 0.3 * (averaged - event)
    for mode in ("event", "wave"):
        result = replay.run(schedule, optax.sgd(0.3), Task(grad_fn, jnp.zeros(2)), lambda g: g.astype(float), mode=mode)
        np.testing.assert_allclose(result.nodes, nodes, rtol=1e-13)
