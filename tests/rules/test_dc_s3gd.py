"""DC-S3GD, whole: against workers that loop as the paper's do, in NumPy, and what it must be.

Rigazzi 2019: a worker has weights of its own, hears of the mean of all steps a round late, and knows of no server.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgdlab import protocols, replay, rules
from sgdlab.rules.dc_s3gd import compensated
from sgdlab.tasks import Task

WORKERS, ROUNDS = 3, 8
GENERATOR = np.random.default_rng(5)
TARGET = GENERATOR.normal(size=(64, 7))
START = np.array([1.0, -2.0, 0.5, 0.3, -0.7, 1.5, 0.1])
RATES = np.linspace(0.2, 0.05, ROUNDS)
RUNTIMES = GENERATOR.uniform(1, 3, (ROUNDS + 1, WORKERS)) * np.array([0.5, 1.0, 1.5])
CAPACITY = replay.Capacity(rows=32, slots=4, width=4, workers=4)
close = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-14)


def gradient(weights, number):
    return np.tanh(weights - TARGET[number]) + 0.1 * weights


@jax.tree_util.Partial
def grad_fn(params, batch):
    """On two leaves, so that norms are of both together."""
    found = jax.tree.map(lambda w, t: jnp.tanh(w - t) + 0.1 * w, params, batch)
    return found, {"sum": sum(jnp.sum(leaf) for leaf in jax.tree.leaves(params))}


def split(flat):
    return {"a": flat[..., :3], "b": flat[..., 3:].reshape(*flat.shape[:-1], 2, 2)}


@jax.tree_util.Partial
def batch_fn(number):
    return split(jnp.asarray(TARGET)[number])


def naive(*, momentum=0.9, share=0.2, nesterov=False, decay=0.0, communication=0.0):
    """The mean of the workers' weights at the end, the sum of the weights of every gradient, and when rounds ended."""
    weights, steps = [START.copy() for _ in range(WORKERS)], [None] * WORKERS
    velocities, sums, applied = [np.zeros(7) for _ in range(WORKERS)], [], []
    begin, averaged, mean = np.zeros(WORKERS), 0.0, None
    for t in range(ROUNDS):
        end = begin + RUNTIMES[t]
        order = sorted(range(WORKERS), key=end.__getitem__)
        sums += [weights[i].sum() for i in order]
        for place, i in enumerate(order):
            g = gradient(weights[i], WORKERS * t + place) + decay * weights[i]
            apart = np.zeros(7)
            if t > 0:  # wait for the mean of the last steps
                apart = mean - steps[i]
                change = g * g * apart
                g = g + share * np.linalg.norm(g) / np.linalg.norm(change) * change
            velocities[i] = momentum * velocities[i] + g
            way = momentum * velocities[i] + g if nesterov else velocities[i]
            steps[i] = -RATES[t] * way
            weights[i] = weights[i] + apart + steps[i]
        begin = np.maximum(end, averaged)
        averaged = begin.max() + communication
        applied.append(averaged)
        mean = sum(steps) / WORKERS
    return sum(weights) / WORKERS, sums, applied


def program(**entries):
    schedule = protocols.delayed_rounds(RUNTIMES, num_gradients=ROUNDS * WORKERS, **entries)
    return replay.lower(schedule, capacity=CAPACITY, by_worker=True)


def replayed(lowered, *, mode="event", **entries):
    rule = rules.dc_s3gd(learning_rate=rules.tabulated(RATES), num_workers=WORKERS, **entries)
    return replay.run(lowered, rule, Task(grad_fn, split(jnp.asarray(START))), batch_fn, mode=mode)


CASES = {
    "as by default": {},
    "without momentum": {"momentum": 0.0},
    "without a correction": {"share": 0.0},
    "with weight decay": {"decay": 0.05, "share": 0.6, "momentum": 0.5},
    "with Nesterov's momentum": {"nesterov": True},
    "with a slow all-reduce": {"communication": 2.5},
}
NAMES = {"share": "variance_control", "decay": "weight_decay"}


@pytest.mark.parametrize("case", CASES)
def test_as_in_numpy(case):
    entries = dict(CASES[case])
    params, sums, applied = naive(**entries)
    when = {"communication": entries.pop("communication")} if "communication" in entries else {}
    result = replayed(program(**when), **{NAMES.get(name, name): value for name, value in entries.items()})
    jax.tree.map(close, result.params, split(params))
    close(result.history.aux["sum"], sums)
    close(result.history.applied, np.repeat(applied, WORKERS))
    assert not np.allclose(result.params["a"], split(naive(share=0.9)[0])["a"], rtol=1e-3)


class TestIdentities:
    """Test what it is where its parts are switched off."""

    def test_one_worker_is_momentum_sgd(self):
        """Bit for bit: its own step is all that the mean has."""
        alone = RUNTIMES[:, :1]
        shared = {"learning_rate": rules.tabulated(RATES), "momentum": 0.9, "weight_decay": 0.01}
        run = lambda schedule, rule: replay.run(schedule, rule, Task(grad_fn, split(jnp.asarray(START))), batch_fn)
        found = run(protocols.delayed_rounds(alone, num_gradients=ROUNDS), rules.dc_s3gd(num_workers=1, **shared))
        serial = run(protocols.asynchronous(alone, num_gradients=ROUNDS), rules.asgd(**shared))
        jax.tree.map(np.testing.assert_array_equal, found.params, serial.params)
        np.testing.assert_array_equal(found.history.aux["sum"], serial.history.aux["sum"])
        np.testing.assert_array_equal(found.history.applied, serial.history.applied)

    def test_equal_gradients_are_synchronous_sgd(self):
        """Workers that see the same batches are all where the mean is; of two, to the last bit."""
        params, velocity = START.copy(), np.zeros(7)
        for t in range(ROUNDS):
            velocity = 0.9 * velocity + gradient(params, t)
            params = params - RATES[t] * velocity
        lowered = replay.lower(protocols.delayed_rounds(np.ones((ROUNDS, 2))), capacity=CAPACITY, by_worker=True)
        rule = rules.dc_s3gd(learning_rate=rules.tabulated(RATES), num_workers=WORKERS)
        same = jax.tree_util.Partial(lambda batches, number: batches(number // 2), batch_fn)
        found = replay.run(lowered, rule, Task(grad_fn, split(jnp.asarray(START))), same, mode="event")
        jax.tree.map(close, found.params, split(params))
        assert not np.asarray(found.state.mean["a"] - found.state.steps["a"][0]).any()


def test_correction_has_its_length_however_small_gradients_and_distances_are():
    for size, distance in ((1.0, 1.0), (1e-12, 1e-30), (1e12, 1e-20)):
        g, apart = (jnp.asarray(factor * TARGET[row], jnp.float32) for row, factor in ((0, size), (1, distance)))
        change = np.asarray(compensated({"w": g}, {"w": apart}, 0.25)["w"] - g, np.float64)
        direction = TARGET[0] ** 2 * TARGET[1]
        expected = 0.25 * np.linalg.norm(TARGET[0]) * direction / np.linalg.norm(direction)
        np.testing.assert_allclose(change / size, expected, rtol=1e-4, atol=1e-5)
