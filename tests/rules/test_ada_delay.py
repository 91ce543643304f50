"""AdaDelay against plain NumPy; and what it is without its fall, and with one worker."""

import functools

import jax.numpy as jnp
import numpy as np
import optax

from sgdlab import protocols, replay, rules
from sgdlab.tasks import Task

GRADIENTS, WORKERS = 40, 4
RATE, NOISE, GAMMA, DECAY = 0.3, 0.4, 0.5, 0.01
CAPACITY = replay.Capacity(rows=64, slots=4, width=4)

_random = np.random.default_rng(9)
START = _random.normal(size=3)
CURVATURE, TARGET = np.array([0.3, 0.7, 1.0]), _random.normal(size=(GRADIENTS, 3))


def grad_fn(params, target):
    return CURVATURE * (params - target), {}


def batch_fn(row):
    return jnp.asarray(TARGET)[row]


@functools.cache
def schedule(workers=WORKERS):
    runtimes = np.random.default_rng(0).gamma(3.0, size=(200, workers)) * np.linspace(1.0, 5.0, workers)
    return protocols.asynchronous(runtimes, num_gradients=GRADIENTS)


def replayed(rule, workers=WORKERS):
    program = replay.lower(schedule(workers), capacity=CAPACITY)
    return replay.run(program, rule, Task(grad_fn, jnp.asarray(START)), batch_fn, mode="event").params


def test_is_the_naive_one():
    x, v, points = START.copy(), np.zeros(3), [START.copy()]
    used = np.flatnonzero(schedule().used()[:, 0])
    for t, row in enumerate(used, start=1):
        read = int(schedule().read[row, 0])
        v = GAMMA * v + CURVATURE * (points[read] - TARGET[t - 1]) + DECAY * x
        stale = (t - 1) - read
        x = x - v / (1 / RATE + NOISE / RATE * np.sqrt(t + stale))
        points.append(x)
    rule = rules.ada_delay(learning_rate=RATE, noise=NOISE, momentum=GAMMA, weight_decay=DECAY)
    np.testing.assert_allclose(replayed(rule), x, rtol=1e-12)
    assert schedule().staleness().max() > 3


def test_without_noise_it_is_asgd():
    plain = replayed(rules.asgd(learning_rate=RATE, momentum=GAMMA))
    np.testing.assert_allclose(
        replayed(rules.ada_delay(learning_rate=RATE, noise=0.0, momentum=GAMMA)), plain, rtol=1e-14
    )


def test_one_worker_is_sgd_with_a_falling_rate():
    falling = optax.sgd(lambda count: RATE / (1 + NOISE * jnp.sqrt(count.astype(float) + 1)))
    np.testing.assert_allclose(
        replayed(rules.ada_delay(learning_rate=RATE, noise=NOISE), workers=1),
        replayed(rules.server_rule(falling), workers=1),
        rtol=1e-13,
    )
