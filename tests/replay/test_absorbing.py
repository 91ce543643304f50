"""Rules that absorb gradients into their state: in waves, on a mesh and in many runs at once as in event mode."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgdlab import policies, protocols, rules
from sgdlab.replay import Capacity, Watch, lower, run, run_many
from sgdlab.rules.server_rule import ServerRule
from sgdlab.tasks import Task

WORKERS = 4
_random = np.random.default_rng(3)
TARGETS, START = _random.normal(size=(64, 6)), _random.normal(size=6)
CAPACITY = Capacity(rows=64, slots=4, width=4, workers=4)


def grad_fn(x, target):
    return jnp.tanh(x - target) + 0.1 * x, {"loss": jnp.sum((x - target) ** 2)}


def batch_fn(g):
    return jnp.asarray(TARGETS)[g]


def runtimes(seed=0, rows=30):
    return np.random.default_rng(seed).uniform(1, 3, (rows, WORKERS))


def schedule(name, seed=0):
    made = {
        "ringleader": functools.partial(policies.simulate, policies.ringleader),
        "asynchronous": protocols.asynchronous,
        "synchronous": protocols.synchronous,
    }
    return lower(made[name](runtimes(seed), num_gradients=40), capacity=CAPACITY)


RULES = {
    "ringleader": lambda: rules.ringleader(learning_rate=0.1, momentum=0.5, num_workers=WORKERS),
    "asynchronous": lambda: rules.aced(learning_rate=0.1, max_staleness=3, num_workers=WORKERS),
    "synchronous": lambda: rules.malenia(learning_rate=0.1, num_workers=WORKERS),
}


def assert_same(one, other):
    for name in ("params", "state", "average"):
        found, wanted = getattr(one, name), getattr(other, name)
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-14), found, wanted)
    np.testing.assert_allclose(one.history.aux["loss"], other.history.aux["loss"], rtol=1e-12)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", RULES)
def test_waves_and_meshes_are_event_mode(name):
    """The mesh exchanges no mean alone, even where all gradients of a wave are of one update."""
    replayed = functools.partial(
        run, schedule(name), RULES[name](), Task(grad_fn, jnp.asarray(START)), batch_fn, watch=Watch(average_decay=0.9)
    )
    expected = replayed(mode="event")
    assert_same(replayed(mode="wave"), expected)
    mesh = jax.make_mesh((4,), ("device",), axis_types=(jax.sharding.AxisType.Auto,))
    for layout in ("replicated", "sharded")[name == "ringleader" :]:
        assert_same(replayed(mesh=mesh, layout=layout), expected)


def test_many_runs_at_once_are_each_by_itself():
    programs = [schedule("asynchronous", seed) for seed in (0, 1)]
    given = [jnp.asarray(START), jnp.asarray(-START)]
    tasks = [Task(grad_fn, params) for params in given]
    together = run_many(programs, RULES["asynchronous"](), tasks, batch_fn, watch=Watch(average_decay=0.9))
    for program, task, result in zip(programs, tasks, together, strict=True):
        alone = run(program, RULES["asynchronous"](), task, batch_fn, watch=Watch(average_decay=0.9))
        assert_same(result, alone)


def _init(params):
    return {"newest": jnp.zeros_like(params), "seen": jnp.zeros([])}


def _absorb(grads, state, params, *, worker, delay, read_params):
    return {"newest": grads + 0 * read_params + 0 * params, "seen": state["seen"] + delay + 10.0 * worker}


def _receive(grads, state, params, **extra):
    return {"difference": grads - state["newest"], "seen": state["seen"]}


def _update(message, state, params, **extra):
    return message["difference"] - message["seen"], state


@pytest.mark.parametrize("single", [True, False])
def test_what_is_absorbed_is_there_when_the_gradient_is_received(single):
    """A rule of plain functions, whose steps are the sums of what its state has seen so far."""
    rule = ServerRule(_init, _receive, _update, rules.asgd(learning_rate=1.0).send, WORKERS, absorb=_absorb)
    program = schedule("asynchronous" if single else "synchronous")
    result = run(program, rule, Task(grad_fn, jnp.asarray(START)), batch_fn, mode="event")
    history = result.history
    seen = np.cumsum(history.delay + 10.0 * history.worker)
    np.testing.assert_allclose(result.state["seen"], seen[-1])
    steps = seen if single else seen.reshape(-1, WORKERS).mean(axis=1)
    np.testing.assert_allclose(result.params, START - steps.sum())


def test_other_rules_have_nothing_to_absorb():
    """Nor has the program of their runs a leaf or an argument more."""
    assert all(rule.absorb is None for rule in (rules.asgd(learning_rate=0.1), rules.gap_aware(learning_rate=0.1)))
    assert len(jax.tree.leaves(rules.asgd(learning_rate=0.1))) == len(
        jax.tree.leaves(rules.asgd(learning_rate=0.1)[:4])
    )
