"""DANA-DC against plain NumPy, on three quadratics; and what it is without its correction, or its momentum."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from sgdlab import protocols, replay, rules
from sgdlab.tasks import Task

GRADIENTS, WORKERS = 40, 4
RATE, GAMMA, DECAY = 0.05, 0.7, 0.01
CAPACITY = replay.Capacity(rows=64, slots=4, width=4)

_random = np.random.default_rng(8)
START = _random.normal(size=3)
CURVATURE, NOISE = np.array([0.3, 0.7, 1.0]), _random.normal(size=(GRADIENTS, 3)) / 2


def grad_fn(params, noise):
    return CURVATURE * params + noise, {}


def batch_fn(row):
    return jnp.asarray(NOISE)[row]


@functools.cache
def schedule():
    runtimes = np.random.default_rng(0).gamma(3.0, size=(200, WORKERS)) * np.array([1.0, 1.2, 2.0, 5.0])
    return protocols.asynchronous(runtimes, num_gradients=GRADIENTS)


def replayed(rule):
    program = replay.lower(schedule(), capacity=CAPACITY)
    return replay.run(program, rule, Task(grad_fn, jnp.asarray(START)), batch_fn, mode="event").params


def naive(strength, gamma):
    """The master's velocities and their sum from scratch at each step, and what each worker was sent."""
    theta, k = START.copy(), 0
    velocity, sent = [np.zeros(3)] * WORKERS, [START] * WORKERS
    used = np.flatnonzero(schedule().used()[:, 0])
    for place, i in enumerate(schedule().worker[used]):
        g = CURVATURE * sent[i] + NOISE[place] + DECAY * theta
        g = g + strength * g**2 * (theta - sent[i])
        velocity[i] = gamma * velocity[i] + g
        theta = theta - RATE * velocity[i]
        sent[i] = theta - RATE * gamma * np.sum(velocity, axis=0)
        k += 1
    assert k == GRADIENTS
    return theta


def test_is_the_naive_one():
    for strength, gamma in ((2.0, GAMMA), (0.5, 0.0), (1.0, -0.3)):
        rule = rules.dana_delay_compensated(
            learning_rate=RATE, variance_control=strength, momentum=gamma, weight_decay=DECAY, num_workers=WORKERS
        )
        np.testing.assert_allclose(replayed(rule), naive(strength, gamma), rtol=1e-12)


def test_without_correction_it_is_dana():
    common = {"learning_rate": RATE, "momentum": GAMMA, "weight_decay": DECAY, "num_workers": WORKERS}
    plain = replayed(rules.dana(**common))
    np.testing.assert_allclose(
        replayed(rules.dana_delay_compensated(variance_control=0.0, **common)), plain, rtol=1e-14
    )
    assert np.abs(replayed(rules.dana_delay_compensated(**common)) - plain).max() > 1e-3


def test_without_momentum_it_is_dc_asgd():
    common = {"learning_rate": RATE, "variance_control": 0.7, "weight_decay": DECAY}
    dana = rules.dana_delay_compensated(momentum=0.0, num_workers=WORKERS, **common)
    np.testing.assert_allclose(replayed(dana), replayed(rules.delay_compensated(**common)), rtol=1e-13)


def test_it_is_narrow_where_the_parameters_are():
    rule = rules.dana_delay_compensated(learning_rate=RATE, num_workers=1)
    params = jnp.ones(2, jnp.bfloat16)
    message = rule.receive(params, rule.init(params), params, worker=0, delay=1, read_params=0 * params)
    assert jax.tree.leaves(message)[0].dtype == jnp.bfloat16
    np.testing.assert_array_equal(message.astype(float), [3.0, 3.0])
