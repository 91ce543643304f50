"""Rules whose workers compute at points of their own: in all modes as in event mode, and refused where it cannot be."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgdlab import protocols, rules
from sgdlab.replay import Capacity, Steps, Watch, lower, run, run_many
from sgdlab.replay.run import check_rule
from sgdlab.rules.server_rule import ServerRule
from sgdlab.tasks import Task

WORKERS, SIZE = 4, 96  # 96 * 96 parameters are worth splitting
_random = np.random.default_rng(3)
TARGETS = _random.normal(size=(64, SIZE))
CAPACITY = Capacity(rows=64, slots=4, width=4, workers=4)
RULE = rules.dc_s3gd(learning_rate=0.1, momentum=0.5, weight_decay=0.01, num_workers=WORKERS)
WATCH = Watch(average_decay=0.9)


@jax.tree_util.Partial
def grad_fn(params, target):
    found = {"w": jnp.tanh(params["w"] - target) + 0.1 * params["w"], "b": params["b"] - target[:3]}
    return found, {"loss": jnp.sum((params["w"] - target) ** 2) + jnp.sum(params["b"])}


@jax.tree_util.Partial
def batch_fn(g):
    return jnp.asarray(TARGETS)[g]


def start(sign=1.0):
    wave = jnp.sin(jnp.arange(SIZE * SIZE, dtype=float)).reshape(SIZE, SIZE)
    return {"w": sign * wave, "b": sign * jnp.ones(3)}


def overlapping(seed=0):
    runtimes = np.random.default_rng(seed).uniform(1, 3, (12, WORKERS))
    return protocols.delayed_rounds(runtimes, num_gradients=40)


def lowered(seed=0):
    return lower(overlapping(seed), capacity=CAPACITY, by_worker=True)


def assert_same(one, other):
    compare = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-13)
    for name in ("params", "state", "average"):
        jax.tree.map(compare, getattr(one, name), getattr(other, name))
    compare(one.history.aux["loss"], other.history.aux["loss"])


@functools.cache
def by_event(seed=0, sign=1.0):
    return run(lowered(seed), RULE, Task(grad_fn, start(sign)), batch_fn, mode="event", watch=WATCH)


def test_waves_are_event_mode():
    wave = run(lowered(), RULE, Task(grad_fn, start()), batch_fn, mode="wave", lanes="map", watch=WATCH)
    assert_same(wave, by_event())
    assert lowered().mean_wave_length() > 3


@pytest.mark.parametrize("layout", ["replicated", "sharded"])
def test_meshes_are_event_mode(layout):
    mesh = jax.make_mesh((4,), ("device",), axis_types=(jax.sharding.AxisType.Auto,))
    assert_same(
        run(lowered(), RULE, Task(grad_fn, start()), batch_fn, mesh=mesh, layout=layout, watch=WATCH), by_event()
    )


def test_many_runs_at_once_are_each_by_itself():
    tasks = [Task(grad_fn, start(sign)) for sign in (1.0, -1.0)]
    together = run_many([lowered(0), lowered(1)], RULE, tasks, batch_fn, watch=WATCH)
    for result, alone in zip(together, (by_event(0, 1.0), by_event(1, -1.0)), strict=True):
        assert_same(result, alone)


def test_the_point_is_what_the_gradient_the_rule_and_the_records_see():
    """Points that say whose they are, and the number of the worker's messages; the parameters stay where they are."""
    functions = (_init, _receive, _update, rules.asgd(learning_rate=1.0).send)
    rule = ServerRule(*functions, WORKERS, absorb=_absorb, point=_point)
    result = run(
        lowered(), rule, Task(lambda x, g: (0 * x, {"at": x}), jnp.zeros([])), lambda g: g, watch=Watch(norms=True)
    )
    history = result.history
    expected = np.where(history.update > 0, 100.0 * history.worker + history.update, 0.0)
    for found in (history.aux["at"], history.distance, result.state["seen"]):
        np.testing.assert_array_equal(found[: expected.size], expected)


def _init(params):
    return {"messages": jnp.zeros(WORKERS), "seen": jnp.zeros(64), "count": jnp.zeros([], jnp.int32)}


def _point(sent, state, *, worker):
    messages = state["messages"][worker]
    return sent + jnp.where(messages > 0, 100.0 * worker + messages, 0.0)


def _absorb(grads, state, params, *, worker, delay, read_params):
    seen = state["seen"].at[state["count"]].set(jnp.sum(read_params))
    return {"messages": state["messages"].at[worker].add(1.0), "seen": seen, "count": state["count"] + 1}


def _receive(grads, state, params, **extra):
    return grads


def _update(message, state, params, **extra):
    return message, state


class TestRefused:
    """Nothing is computed at a wrong point."""

    @pytest.mark.parametrize("protocol", ["synchronous", "asynchronous", "bounded_staleness"])
    def test_schedules_in_which_workers_have_read_their_own_message(self, protocol):
        schedule = getattr(protocols, protocol)(np.random.default_rng(0).uniform(1, 2, (9, WORKERS)))
        for given in (schedule, lower(schedule)):
            with pytest.raises(ValueError, match=r"^rule adds a worker's own last message to what it reads, so that "):
                check_rule(given, RULE)

    def test_one_gradient_on_another_version(self):
        schedule = overlapping()
        read = schedule.read.copy()
        row = int(np.flatnonzero((schedule.worker == 2) & (schedule.update[:, 0] == 5))[0])
        read[row] -= 1
        with pytest.raises(ValueError, match=r"read=3 of worker 2 must be 4, the version before the update with"):
            check_rule(dataclasses.replace(schedule, read=read), RULE)

    def test_without_a_server(self):
        with pytest.raises(ValueError, match="rule has points of the workers of a server; each node has"):
            check_rule(protocols.gossip(np.ones((3, WORKERS)), seed=0), RULE)

    def test_several_servers(self):
        schedule = protocols.layerwise(np.random.default_rng(0).uniform(1, 2, (9, WORKERS)), num_blocks=2)
        for given in (schedule, lower(schedule)):
            with pytest.raises(ValueError, match="rule has points of the workers of one server; schedule has 2 blocks"):
                check_rule(given, RULE)

    def test_waves_with_two_gradients_of_a_worker(self):
        with pytest.raises(ValueError, match=r"rule needs a program of waves .*: lower\(by_worker=True\)"):
            run(lower(overlapping()), RULE, Task(grad_fn, start()), batch_fn, mode="wave")

    def test_fewer_rows_than_workers(self):
        with pytest.raises(ValueError, match="num_workers=3, but schedule has 4 workers"):
            check_rule(overlapping(), rules.dc_s3gd(learning_rate=0.1, num_workers=3))

    def test_live_workers(self):
        with pytest.raises(ValueError, match="rule must be one whose workers compute on what they are sent"):
            Steps(RULE, jnp.zeros(2), single=False)


def test_injected_hyperparameters_keep_the_points():
    rule = rules.inject_hyperparams(functools.partial(rules.dc_s3gd, num_workers=2))(learning_rate=0.5, momentum=0.0)

    @jax.jit
    def points(params):
        use = {"worker": 1, "delay": 2, "read_params": params}
        state = rule.absorb(jnp.ones(2), rule.init(params), params, **use)
        return [rule.point(params, state, worker=worker) for worker in (0, 1)]

    np.testing.assert_array_equal(points(jnp.zeros(2)), [[0.0, 0.0], [-0.5, -0.5]])


def test_other_rules_have_no_points():
    others = (rules.asgd(learning_rate=0.1), rules.ace(learning_rate=0.1, num_workers=2))
    assert all(rule.point is None for rule in others)
