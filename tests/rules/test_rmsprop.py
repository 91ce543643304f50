"""RMSProp gives the parameters of a second, naive server in NumPy, and refuses impossible hyperparameters by name."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lib import naive

from sgdlab import protocols, replay, rules
from sgdlab.errors import UsageError
from sgdlab.registry import RULES
from sgdlab.tasks import Task

GRADIENTS, WORKERS = 24, 4
CAPACITY = replay.Capacity(rows=32, slots=WORKERS, width=WORKERS)  # all runs share one program
RATE = 0.07
PAPER = {"momentum": 0.9, "weight_decay": 0.0, "decay": 0.9, "eps": 1.0, "initial_scale": 1.0}

_random = np.random.default_rng(0)
INPUTS, TARGETS = _random.normal(size=(GRADIENTS, 3, 4)), _random.normal(size=(GRADIENTS, 3))
START = {"weights": _random.normal(size=4), "bias": np.float64(_random.normal())}
RUNTIMES = _random.integers(1, 9, (GRADIENTS, WORKERS)).astype(float)

SCHEDULES = {
    "asynchronous": protocols.asynchronous(RUNTIMES, num_gradients=GRADIENTS),
    "synchronous": protocols.synchronous(RUNTIMES[: GRADIENTS // WORKERS]),
    "backup workers": protocols.backup_workers(RUNTIMES[: GRADIENTS // 3], backups=1),
}


class Rmsprop(naive.Asgd):
    """s <- d s + (1 - d) g^2; v <- m v + rate g / sqrt(s + eps); theta <- theta - v."""

    def __init__(self, theta, *, rates, momentum, weight_decay, decay, eps, initial_scale):
        super().__init__(theta, eta=lambda k: rates[min(k, len(rates) - 1)], weight_decay=weight_decay)
        self.momentum, self.decay, self.eps = momentum, decay, eps
        self.s = {name: np.full_like(value, initial_scale) for name, value in self.theta.items()}

    def apply(self, g, *, delay, worker):
        for name, value in g.items():
            self.s[name] = self.decay * self.s[name] + (1 - self.decay) * value**2
            step = self.eta(self.k) * value / np.sqrt(self.s[name] + self.eps)
            self.v[name] = self.momentum * self.v[name] + step
        self.theta = {name: value - self.v[name] for name, value in self.theta.items()}
        self.k += 1


def gradient_by_hand(theta, row):
    residual = np.tanh(INPUTS[row] @ theta["weights"] + theta["bias"]) - TARGETS[row]
    inner = residual * (1 - (residual + TARGETS[row]) ** 2)
    return {"weights": INPUTS[row].T @ inner, "bias": inner.sum()}


def grad_fn(params, batch):
    inputs, targets = batch
    loss = lambda p: jnp.sum((jnp.tanh(inputs @ p["weights"] + p["bias"]) - targets) ** 2) / 2
    return jax.grad(loss)(params), {}


def batch_fn(row):
    return jnp.asarray(INPUTS)[row], jnp.asarray(TARGETS)[row]


def replayed(schedule, rule):
    program = replay.lower(schedule, capacity=CAPACITY)
    return replay.run(program, rule, Task(grad_fn, jax.tree.map(jnp.asarray, START)), batch_fn, mode="event").params


def assert_as_by_hand(schedule, rates, **hyperparameters):
    given = replayed(schedule, rules.rmsprop(learning_rate=rules.tabulated(rates), **hyperparameters))
    expected = naive.replay(schedule, Rmsprop(START, rates=rates, **hyperparameters), gradient_by_hand)
    assert max(abs(value - START[name]).max() for name, value in expected.items()) > 0.03
    for name, value in expected.items():
        np.testing.assert_allclose(given[name], value, rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"decay": 0.95},
        {"eps": 0.1, "initial_scale": 0.0},
        {"momentum": 0.0, "eps": 1e-10},
        {"momentum": -0.5, "weight_decay": 0.3, "decay": 0.0},
    ],
    ids=["Inception", "PixelCNN", "no initial mean square", "no momentum", "the last gradient alone"],
)
def test_against_a_naive_server(schedule, changed):
    assert_as_by_hand(schedule, [RATE] * GRADIENTS, **PAPER | changed)


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
def test_the_rate_is_inside_the_momentum(schedule):
    """After the rate has fallen to 0 the velocity alone moves the parameters: v, m v, m^2 v, ..."""
    assert_as_by_hand(schedule, (RATE * 0.8 ** np.arange(GRADIENTS)).tolist(), **PAPER)
    rule, params = rules.rmsprop(learning_rate=rules.tabulated([RATE, 0.0]), momentum=0.5, eps=3.0), jnp.zeros(1)
    state, moved = rule.init(params), []
    for _ in range(4):
        updates, state = rule.update(jnp.ones(1), state, params)
        moved.append(updates.item())
    np.testing.assert_allclose(moved, -RATE / math.sqrt(1 + 3) * 0.5 ** np.arange(4))


def test_a_small_epsilon_makes_steps_of_the_rate_whatever_the_gradients_are():
    """With s at the square of a constant gradient, and without momentum, every step is the rate."""
    rule = rules.rmsprop(learning_rate=RATE, momentum=0.0, eps=1e-30, decay=0.0)
    params = jnp.array([1e-6, 1.0, -1e6])
    updates, _ = rule.update(params, rule.init(params), params)
    np.testing.assert_allclose(updates, -RATE * np.sign(params), rtol=1e-12)


def test_hyperparameters_are_data(compilations):
    schedule = SCHEDULES["asynchronous"]
    first = replayed(schedule, rules.rmsprop(learning_rate=0.1, **PAPER))
    del compilations[:]
    other = {"momentum": 0.8, "weight_decay": 0.1, "decay": 0.5, "eps": 0.2, "initial_scale": 0.3}
    second = replayed(schedule, rules.rmsprop(learning_rate=0.2, **other))
    assert not compilations
    assert not np.allclose(first["weights"], second["weights"])


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("learning_rate", -0.1),
        ("momentum", 1.0),
        ("weight_decay", -1e-6),
        ("decay", 1.0),
        ("decay", -0.1),
        ("eps", 0.0),
        ("eps", math.nan),
        ("initial_scale", -1.0),
        ("initial_scale", math.inf),
    ],
)
def test_impossible_hyperparameters_are_named(argument, value):
    with pytest.raises(ValueError, match=rf"^{argument}={value} must be "):
        rules.rmsprop(**{"learning_rate": 0.1} | {argument: value})


def test_entries_are_named_as_their_flags():
    with pytest.raises(UsageError, match=r"^--config\.rule\.rmsprop\.eps=0\.0 must be"):
        RULES.make("rmsprop", {"eps": 0.0}, learning_rate=0.1)
