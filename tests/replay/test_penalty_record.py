"""The recorded penalty is what the rule divides gradients by: by hand, for each granularity, in both modes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgdlab import protocols, rules
from sgdlab.replay import Watch, run
from sgdlab.rules.gap import COEFFICIENTS
from sgdlab.tasks import Task

RUNTIMES = np.random.default_rng(0).uniform(1, 3, (6, 4))
SCHEDULE = protocols.asynchronous(RUNTIMES)
RATE, MOMENTUM, B = 0.1, 0.9, 0.999


def params():
    return {"w": jnp.arange(3.0), "b": jnp.ones(1)}


def batch_fn(g):
    return jnp.cos(g + jnp.arange(4.0))


def grad_fn(params, batch):
    return {"w": params["w"] - batch[:3], "b": params["b"] ** 3 - batch[3:]}, {"loss": batch.sum()}


def replayed(rule, mode="event", schedule=SCHEDULE):
    return run(schedule, rule, Task(grad_fn, params()), batch_fn, mode=mode, watch=Watch(norms=True)).history


def by_hand(granularity):
    """Algorithm 4 with Nesterov momentum and the settled coefficient, versions in a list."""
    versions, velocity = [np.concatenate([np.asarray(params()[k]) for k in "wb"])], np.zeros(4)
    moment, count, found, used = np.zeros(4), 0, [], np.flatnonzero(SCHEDULE.update[:, 0] >= 0)
    leaf = np.array([0, 0, 0, 1])
    squared = {
        "parameter": np.square,
        "layer": lambda v: np.bincount(leaf, v**2)[leaf],
        "global": lambda v: np.full(4, (v**2).sum()),
    }[granularity]
    for g, row in enumerate(used):
        read, now = versions[SCHEDULE.read[row, 0]], versions[-1]
        grads, _ = grad_fn({"w": read[:3], "b": read[3:]}, np.asarray(batch_fn(g)))
        gradient = np.concatenate([grads["w"], grads["b"]])
        reach = RATE * (np.sqrt(moment / (1 - B ** max(count, 1))) + 1e-8)
        gap = np.sqrt(squared(now - read)) / reach + 1
        found.append(gap.mean())
        velocity = MOMENTUM * velocity + gradient / gap
        versions.append(now - RATE * (gradient / gap + MOMENTUM * velocity))
        moment, count = B * moment + (1 - B) * squared(velocity), count + 1
    return found


@pytest.mark.parametrize("granularity", ["parameter", "layer", "global"])
@pytest.mark.parametrize("mode", ["event", "wave"])
def test_gap_aware(granularity, mode):
    rule = rules.gap_aware(learning_rate=RATE, momentum=MOMENTUM, granularity=granularity)
    np.testing.assert_allclose(replayed(rule, mode).penalty, by_hand(granularity), rtol=1e-10)


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        (rules.adam_gap_aware, {}),
        *((rules.gap_aware, {"coefficient": name}) for name in COEFFICIENTS),
        *((rules.dana_gap_aware, {"coefficient": name, "num_workers": 4}) for name in COEFFICIENTS),
    ],
)
def test_it_is_what_gradients_are_divided_by(rule, options):
    """A gradient of ones comes back as 1 / G, whatever the rule's state."""
    made = rule(learning_rate=RATE, granularity="global", **options)
    state, start = made.init(params()), params()
    for step in range(3):
        message = made.receive(grad_fn(start, batch_fn(step))[0], state, start, worker=0, delay=1, read_params=start)
        updates, state = made.update(message, state, start, worker=0, num_gradients=1, delay=1)
        start = jax.tree.map(jnp.add, start, updates)
    ones = jax.tree.map(jnp.ones_like, start)
    extra = {"worker": 1, "delay": 3, "read_params": params()}
    message = made.receive(ones, state, start, **extra)
    divided = getattr(message, "penalised", message)["b"]
    np.testing.assert_allclose(made.penalty(ones, state, start, **extra), 1 / divided[0], rtol=1e-12)


@pytest.mark.parametrize("adaptive", [False, True])
def test_of_delay_compensation_it_is_the_length_of_the_correction(adaptive):
    """As the difference of the gradient that enters and the one that came, over the length of the latter."""
    made = rules.delay_compensated(learning_rate=RATE, variance_control=0.5, adaptive=adaptive, weight_decay=0.1)
    state, start = made.init(params()), jax.tree.map(lambda leaf: leaf + 0.3, params())
    for _ in range(2):
        extra = {"worker": 1, "delay": 3, "read_params": params()}
        grads = grad_fn(params(), batch_fn(1))[0]
        raw = jax.tree.map(lambda g, p: g + 0.1 * p, grads, start)
        message = made.receive(grads, state, start, **extra)
        flat = lambda tree: np.concatenate([np.asarray(tree[k]) for k in "wb"])
        size = np.linalg.norm(flat(message.gradient) - flat(raw)) / np.linalg.norm(flat(raw))
        assert size > 0.01
        np.testing.assert_allclose(made.penalty(grads, state, start, **extra), size, rtol=1e-10)
        _, state = made.update(message, state, start, num_gradients=1, delay=3, worker=1)
    nothing = jax.tree.map(jnp.zeros_like, start)
    assert made.penalty(nothing, made.init(nothing), nothing, worker=0, delay=1, read_params=nothing) == 0


def test_the_delay_and_rules_without_a_penalty():
    history = replayed(rules.dana_staleness_aware(learning_rate=RATE, num_workers=4))
    np.testing.assert_array_equal(history.penalty, history.delay)
    assert replayed(rules.asgd(learning_rate=RATE)).penalty is None
    assert replayed(rules.dana(learning_rate=RATE, num_workers=4)).penalty is None
    injected = rules.inject_hyperparams(rules.gap_aware)(learning_rate=RATE, momentum=MOMENTUM)
    np.testing.assert_allclose(replayed(injected).penalty, by_hand("parameter"), rtol=1e-10)
