"""Rules whose steps have length one, and Ringmaster with them, against Algorithm 1 of Ringmaster LMO in plain NumPy."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgdlab import policies, protocols, replay, rules
from sgdlab.registry import PROTOCOLS
from sgdlab.tasks import Task

GRADIENTS, WORKERS = 40, 4
CAPACITY = replay.Capacity(rows=128, slots=8, width=4)

_random = np.random.default_rng(3)
SHAPES = {"kernel": (3, 4), "tall": (5, 2), "convolution": (2, 2, 1, 3), "bias": (4,), "number": ()}
START = {name: _random.normal(size=shape) for name, shape in SHAPES.items()}
CURVATURE = {name: _random.uniform(0.3, 1.0, shape) for name, shape in SHAPES.items()}
NOISE = {name: _random.normal(size=(GRADIENTS, *shape)) / 4 for name, shape in SHAPES.items()}


def grad_fn(params, noise):
    return jax.tree.map(lambda p, h, e: h * p + e, params, CURVATURE, noise), {}


def batch_fn(row):
    return {name: jnp.asarray(noise)[row] for name, noise in NOISE.items()}


def divided_by_length(m):
    length = math.sqrt(sum(float(np.sum(value**2)) for value in m.values()))
    return {name: value / length for name, value in m.items()}


def newton_schulz(matrix, steps=5):
    """Quintic iterations, written with the singular values: each is mapped by 3.4445 s - 4.775 s^3 + 2.0315 s^5."""
    left, s, right = np.linalg.svd(matrix, full_matrices=False)
    s = s / np.sqrt(np.sum(s**2))
    for _ in range(steps):
        s = 3.4445 * s - 4.775 * s**3 + 2.0315 * s**5
    return left @ np.diag(s) @ right


def muon_step(m):
    found = {name: value / np.sqrt(np.sum(value**2)) for name, value in m.items() if value.ndim < 2}
    for name, value in m.items():
        if value.ndim >= 2:
            found[name] = newton_schulz(value.reshape(-1, value.shape[-1])).reshape(value.shape)
    return found


POLAR = (
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
)


def authors_step(m):
    """As in the code of Ringmaster-Muon's authors, whose matrices have a row for each output, by singular values."""
    found = dict(m)
    for name, value in m.items():
        if value.ndim >= 2:
            matrix = np.moveaxis(value, -1, 0).reshape(value.shape[-1], -1)
            left, s, right = np.linalg.svd(matrix, full_matrices=False)
            s = s / np.sqrt(np.sum(s**2))
            for a, b, c in POLAR:
                s = a * s + b * s**3 + c * s**5
            step = math.sqrt(max(1, matrix.shape[0] / matrix.shape[1])) * left @ np.diag(s) @ right
            found[name] = np.moveaxis(step.reshape(value.shape[-1], *value.shape[:-1]), 0, -1)
    return found


def algorithm_1(runtimes, *, limit, alpha, eta, lmo, decay=0.0, nesterov=False):
    """Ringmaster LMO: its clock, its delays, its momentum. Returns x, and (worker, delay) of the gradients used."""
    x, m = dict(START), {name: np.zeros(shape) for name, shape in SHAPES.items()}
    workers = runtimes.shape[1]
    point, version = [x] * workers, [0] * workers
    ready, done = runtimes[0].copy(), np.zeros(workers, int)
    k, record = 0, []
    while k < GRADIENTS:
        i = int(np.argmin(ready))
        delay = k - version[i]
        if delay < limit(k):
            g = {n: CURVATURE[n] * point[i][n] + NOISE[n][k] + decay * x[n] for n in SHAPES}
            m = {n: alpha(k) * g[n] + (1 - alpha(k)) * m[n] for n in SHAPES}
            step = lmo({n: alpha(k) * g[n] + (1 - alpha(k)) * m[n] for n in SHAPES} if nesterov else m)
            x = {n: x[n] - eta(k) * step[n] for n in SHAPES}
            record.append((i, delay))
            k += 1
        point[i], version[i] = x, k
        done[i] += 1
        ready[i] += runtimes[done[i], i]
    return x, record


def times(seed=0):
    return np.random.default_rng(seed).gamma(3.0, size=(300, WORKERS)) * np.array([1.0, 1.3, 2.0, 6.0])


def constant(value):
    return lambda k: value


def agnostic_limit(k):
    return max(math.floor(math.sqrt(k)), 1)


def agnostic_alpha(k):
    return 1 / math.sqrt(max(k, 1))


CASES = {
    "asynchronous, normalised": (
        protocols.asynchronous,
        rules.normalised_momentum(learning_rate=0.05, momentum=0.8, weight_decay=0.01),
        {"limit": constant(10**9), "alpha": constant(0.2), "eta": constant(0.05), "lmo": divided_by_length},
    ),
    "ringmaster, normalised": (
        functools.partial(protocols.ringmaster, max_delay=3),
        rules.normalised_momentum(learning_rate=0.1, momentum=0.5, weight_decay=0.01),
        {"limit": constant(3), "alpha": constant(0.5), "eta": constant(0.1), "lmo": divided_by_length},
    ),
    "ringmaster, muon": (
        functools.partial(protocols.ringmaster, max_delay=2),
        rules.muon(learning_rate=0.04, momentum=0.9, weight_decay=0.01),
        {"limit": constant(2), "alpha": constant(0.1), "eta": constant(0.04), "lmo": muon_step},
    ),
    "ringmaster, muon as in the authors' code": (
        functools.partial(protocols.ringmaster, max_delay=5),
        rules.muon(learning_rate=0.02, momentum=0.95, weight_decay=0.01, form="authors"),
        {
            "limit": constant(5),
            "alpha": constant(1 - 0.95),
            "eta": constant(0.02),
            "lmo": authors_step,
            "nesterov": True,
        },
    ),
    "parameter-agnostic": (
        lambda runtimes, num_gradients: policies.simulate(
            policies.growing_ringmaster, runtimes, num_gradients=num_gradients
        ),
        rules.parameter_agnostic_muon(learning_rate=0.4, weight_decay=0.01),
        {"limit": agnostic_limit, "alpha": agnostic_alpha, "eta": lambda k: 0.4 / (k + 1) ** 0.75, "lmo": muon_step},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_is_algorithm_1(case):
    protocol, rule, own = CASES[case]
    schedule = protocol(times(), num_gradients=GRADIENTS)
    expected, record = algorithm_1(times(), decay=0.01, **own)
    used = schedule.used()[:, 0]
    delays = schedule.staleness()[used, 0].data
    assert list(zip(schedule.worker[used].tolist(), delays.tolist(), strict=True)) == record
    assert delays.max() > 0
    assert schedule.dropped().any() == (case != "asynchronous, normalised")
    program = replay.lower(schedule, capacity=CAPACITY)
    params = replay.run(program, rule, Task(grad_fn, jax.tree.map(jnp.asarray, START)), batch_fn, mode="event").params
    for name, value in params.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-11, atol=1e-12, err_msg=name)


@jax.jit
def stepped(rule, grads):
    """The rule's first step, over its learning rate of 1, with the other sign."""
    params = jax.tree.map(jnp.zeros_like, grads)
    return jax.tree.map(jnp.negative, rule.update(grads, rule.init(params), params)[0])


@pytest.mark.parametrize("make", [rules.muon, rules.normalised_momentum, rules.parameter_agnostic_muon])
def test_the_size_of_gradients_does_not_matter_and_zeros_stay(make):
    rule, grads = make(learning_rate=1.0), {name: jnp.asarray(value) for name, value in START.items()}
    one, other = (stepped(rule, jax.tree.map(lambda leaf, size=size: size * leaf, grads)) for size in (1.0, 1e6))
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-10), one, other)
    zeros = jax.tree.map(jnp.zeros_like, grads)
    jax.tree.map(np.testing.assert_array_equal, stepped(rule, zeros), zeros)


class TestGrowingLimit:
    def test_delays_are_limited_by_the_root_of_the_updates(self):
        for interrupt in (False, True):
            runtimes = np.random.default_rng(1).gamma(2.0, size=(900, 20)) * np.linspace(1, 9, 20)
            schedule = PROTOCOLS.make(
                "growing_ringmaster", {"interrupt": interrupt}, runtimes=runtimes, num_gradients=600
            )
            used = schedule.used()[:, 0]
            update, staleness = schedule.update[used, 0], schedule.staleness()[used, 0].data
            limits = np.array([agnostic_limit(k) for k in range(600)])
            assert (staleness < limits[update]).all()
            assert (staleness == limits[update] - 1).any()
            dropped = schedule.dropped()[:, 0]
            made = np.searchsorted(schedule.applied[:, 0], schedule.arrived[dropped, 0], side="right")
            late = made - schedule.read[dropped, 0] >= limits[np.minimum(made, 599)]
            assert dropped.any()
            assert late.all()

    def test_one_worker_is_plain(self):
        runtimes = np.random.default_rng(2).uniform(1, 2, (30, 1))
        schedule = policies.simulate(policies.growing_ringmaster, runtimes, num_gradients=30)
        plain = protocols.asynchronous(runtimes, num_gradients=30)
        for name in ("worker", "read", "update", "started", "arrived", "applied"):
            np.testing.assert_array_equal(getattr(schedule, name), getattr(plain, name))

    def test_begins_as_ringmaster_with_fresh_gradients_only(self):
        schedules = [
            policies.simulate(make, times(), num_gradients=4)  # of update 4, counted from 0, the limit is 2
            for make in (policies.growing_ringmaster, functools.partial(policies.ringmaster, max_delay=1))
        ]
        np.testing.assert_array_equal(schedules[0].read, schedules[1].read)
        np.testing.assert_array_equal(schedules[0].update, schedules[1].update)
