"""Streaming DiLoCo, whole: against an algorithm in NumPy that counts inner steps, and what it must be.

Douillard et al. 2025: every fragment is sent every H inner steps, at an offset of its own; what the outer optimizer
makes of it arrives tau inner steps later, and is mixed with what the worker has by then.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sgdlab import protocols, replay, rules
from sgdlab.rules.fragments import fragments_of
from sgdlab.tasks import Task

WORKERS, MESSAGES = 3, 9
GENERATOR = np.random.default_rng(11)
CURVATURE, TARGET = GENERATOR.uniform(0.3, 1.0, (200, 6)), GENERATOR.normal(size=(200, 6))
START = np.array([1.0, -2.0, 0.5, 0.3, -0.7, 1.5])
RATE, DECAY = 0.1, 0.02
FRAGMENTS = {
    1: [[0, 1, 2, 3, 4, 5]],
    2: [[0, 1, 2], [3, 4, 5]],
    3: [[0, 1], [2, 3], [4, 5]],
}
close = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-14)


@jax.tree_util.Partial
def grad_fn(params, batch):
    curvature, target = batch
    return curvature * (params - target), {}


@jax.tree_util.Partial
def batch_fn(number):
    return jnp.asarray(CURVATURE)[number], jnp.asarray(TARGET)[number]


class Worker:
    """AdamW by the book."""

    def __init__(self):
        self.theta, self.m, self.v, self.k = START.copy(), np.zeros(6), np.zeros(6), 0

    def step(self, number):
        gradient, self.k = CURVATURE[number] * (self.theta - TARGET[number]), self.k + 1
        self.m, self.v = 0.9 * self.m + 0.1 * gradient, 0.999 * self.v + 0.001 * gradient**2
        step = self.m / (1 - 0.9**self.k) / (np.sqrt(self.v / (1 - 0.999**self.k)) + 1e-8)
        self.theta = self.theta - RATE * (step + DECAY * self.theta)


def naive(*, fragments, steps, overlap, mix, rate, momentum):
    """By inner steps t = 1, 2, ...: no messages, rounds or updates, but offsets and arrivals."""
    entries, period = FRAGMENTS[fragments], fragments * steps
    workers = [Worker() for _ in range(WORKERS)]
    shared, velocity, arriving = START.copy(), np.zeros(6), {}

    def outer(p, delta):
        velocity[p] = momentum * velocity[p] + delta
        shared[p] -= rate * (delta + momentum * velocity[p])

    for t in range(1, MESSAGES * steps + 1):
        for index, worker in enumerate(workers):
            message, within = divmod(t - 1, steps)
            worker.step((message * WORKERS + index) * steps + within)
        for number, p in enumerate(entries):
            offset = steps * (number + 1)
            if t >= offset and (t - offset) % period == 0:
                arriving[t + overlap] = p, np.mean([shared[p] - worker.theta[p] for worker in workers], axis=0)
        if t in arriving:
            p, delta = arriving.pop(t)
            outer(p, delta)
            for worker in workers:
                worker.theta[p] = mix * worker.theta[p] + (1 - mix) * shared[p]
    for p, delta in arriving.values():  # those under way at the end
        outer(p, delta)
    return shared


OPTIMIZER = jax.tree_util.Partial(optax.adamw, learning_rate=RATE, weight_decay=DECAY)


def span_of(steps, row):
    return replay.Span(row * steps, steps)


def spans(steps):
    """Of all lengths one compiled program."""
    return jax.tree_util.Partial(span_of, jnp.asarray(steps, jnp.int32))


def replayed(*, fragments=1, steps=4, overlap=0, mix=0.0, rate=0.7, momentum=0.9, workers=WORKERS, mode="event"):
    program = replay.lower(protocols.synchronous(np.ones((MESSAGES, workers))), by_worker=True)
    walk = replay.in_fragments(grad_fn, OPTIMIZER, batch_fn, fragments=fragments, overlap=overlap, mix=mix)
    rule = rules.streaming_nesterov(learning_rate=rate, momentum=momentum, fragments=fragments)
    local = replay.state_of_fragments(OPTIMIZER, jnp.asarray(START))
    return replay.run(program, rule, Task(walk, jnp.asarray(START), local=local), spans(steps), mode=mode)


CASES = {
    "diloco": {"fragments": 1, "steps": 4, "overlap": 0, "mix": 0.0},
    "overlapped": {"fragments": 1, "steps": 4, "overlap": 3, "mix": 0.5},
    "streamed": {"fragments": 2, "steps": 3, "overlap": 0, "mix": 0.25},
    "both": {"fragments": 3, "steps": 3, "overlap": 2, "mix": 0.5},
    "late, and all of the server's": {"fragments": 3, "steps": 2, "overlap": 1, "mix": 0.0},
    "a message a step": {"fragments": 3, "steps": 1, "overlap": 0, "mix": 0.0},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_as_in_numpy(case, momentum):
    entries = CASES[case] | {"rate": 0.7, "momentum": momentum}
    close(replayed(**entries).params, naive(**entries))


def test_waves_are_events():
    event, wave = (replayed(**CASES["both"], mode=mode) for mode in ("event", "wave"))
    jax.tree.map(close, (event.params, event.local), (wave.params, wave.local))


class TestIdentities:
    """Test what it is where its parts are switched off."""

    def test_one_fragment_is_diloco(self):
        walk = replay.in_local_steps(grad_fn, OPTIMIZER, batch_fn, keep_state=True)
        program = replay.lower(protocols.synchronous(np.ones((MESSAGES, WORKERS))), by_worker=True)
        rule, local = rules.nag_asgd(learning_rate=0.7), replay.state_of_worker(OPTIMIZER, jnp.asarray(START))
        diloco = replay.run(program, rule, Task(walk, jnp.asarray(START), local=local), spans(4), mode="event")
        close(replayed(**CASES["diloco"]).params, diloco.params)
        assert not np.allclose(replayed(**CASES["overlapped"]).params, diloco.params, rtol=1e-3)

    def test_the_rule_with_one_fragment_is_nesterov(self):
        schedule = protocols.asynchronous(GENERATOR.uniform(1, 2, (12, 3)), num_gradients=24)
        run = lambda rule: replay.run(schedule, rule, Task(grad_fn, jnp.asarray(START)), batch_fn, mode="event").params
        own = {"learning_rate": 0.1, "momentum": 0.8, "weight_decay": 0.01}
        close(run(rules.streaming_nesterov(**own)), run(rules.nag_asgd(**own)))


def test_fragments_are_shares_of_equal_size():
    for fragments, entries in FRAGMENTS.items():
        found = fragments_of(START, fragments)
        assert [np.flatnonzero(found == p).tolist() for p in range(fragments)] == entries
    tree = {"a": np.zeros(()), "b": np.zeros((3, 5)), "c": np.zeros((2, 2, 2))}
    found = fragments_of(tree, 3)
    assert jax.tree.map(np.shape, found) == {"a": (), "b": (3, 1), "c": (2, 1, 1)}
    np.testing.assert_array_equal(np.concatenate([np.ravel(leaf) for leaf in found.values()]), [0, 0, 1, 1, 2, 2])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: fragments_of(START, 7), "fragments=7 must be smaller"),
        (lambda: fragments_of(START, 0), "fragments=0 must be"),
        (lambda: rules.streaming_nesterov(learning_rate=0.1, fragments=0), "fragments=0 must be"),
        (lambda: rules.streaming_nesterov(learning_rate=0.1, fragments=2).init(jnp.zeros([])), "fragments=2 must be"),
        (lambda: replay.in_fragments(grad_fn, optax.sgd(0.1), batch_fn, fragments=1, overlap=-1), "overlap=-1 must be"),
        (lambda: replay.in_fragments(grad_fn, optax.sgd(0.1), batch_fn, fragments=1, mix=1.5), "mix=1.5 must be"),
    ],
)
def test_bad_arguments(make, words):
    with pytest.raises(ValueError, match=words):
        make()
