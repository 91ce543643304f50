"""Several local steps: against a second implementation in NumPy, what they are with one step, and both modes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sgdlab import protocols, replay, rules
from sgdlab.replay.local_steps import Span
from sgdlab.tasks import Task

STEPS = np.array([3, 1, 2])  # of each worker
GENERATOR = np.random.default_rng(0)
CURVATURE, TARGET = GENERATOR.uniform(0.2, 1.0, (80, 4)), GENERATOR.normal(size=(80, 4))
RATE, MOMENTUM, DECAY, PROXIMAL = 0.3, 0.8, 0.01, 0.2


@jax.tree_util.Partial
def grad_fn(params, batch):
    curvature, target = batch
    loss = jnp.sum(curvature * (params["a"] - target) ** 2) / 2 + params["b"] ** 4
    grads = {"a": curvature * (params["a"] - target), "b": 4 * params["b"] ** 3}
    return grads, {"loss": loss, "count": jnp.int32(1)}


@jax.tree_util.Partial
def batch_fn(number):
    return jnp.asarray(CURVATURE)[number], jnp.asarray(TARGET)[number]


def start():
    return {"a": jnp.linspace(-1.0, 1.0, 4), "b": jnp.asarray(0.5)}


def nesterov(learning_rate, momentum, weight_decay):
    return optax.chain(
        optax.add_decayed_weights(weight_decay), optax.sgd(learning_rate, momentum=momentum, nesterov=True)
    )


OPTIMIZERS = {
    "nesterov": jax.tree_util.Partial(nesterov, learning_rate=RATE, momentum=MOMENTUM, weight_decay=DECAY),
    "adamw": jax.tree_util.Partial(optax.adamw, learning_rate=RATE, weight_decay=DECAY),
}


class NaiveWorker:
    """NAG with weight decay (Sutskever), or AdamW (Loshchilov and Hutter), on flat arrays."""

    def __init__(self, kind):
        self.kind, self.first, self.second, self.made = kind, np.zeros(5), np.zeros(5), 0

    def step(self, theta, gradient):
        self.made += 1
        if self.kind == "nesterov":
            gradient = gradient + DECAY * theta
            self.first = MOMENTUM * self.first + gradient
            return theta - RATE * (gradient + MOMENTUM * self.first)
        self.first = 0.9 * self.first + 0.1 * gradient
        self.second = 0.999 * self.second + 0.001 * gradient**2
        mean, square = self.first / (1 - 0.9**self.made), self.second / (1 - 0.999**self.made)
        return theta - RATE * (mean / (np.sqrt(square) + 1e-8) + DECAY * theta)


def naive_gradient(theta, number):
    inner = CURVATURE[number] * (theta[:4] - TARGET[number])
    loss = np.sum(CURVATURE[number] * (theta[:4] - TARGET[number]) ** 2) / 2 + theta[4] ** 4
    return np.append(inner, 4 * theta[4] ** 3), loss


def naive_walk(worker, read, first, steps, proximal):
    theta, losses = read.copy(), []
    for number in range(first, first + steps):
        gradient, loss = naive_gradient(theta, number)
        theta = worker.step(theta, gradient + proximal * (theta - read))
        losses.append(loss)
    return read - theta, np.mean(losses)


def schedule():
    return protocols.asynchronous(np.random.default_rng(3).gamma(4.0, size=(12, 3)), num_gradients=20)


def rows():
    """The program of the schedule, and the first batch and number of steps of each of its rows."""
    program = replay.lower(schedule(), by_worker=True)
    steps = STEPS[program.worker]
    return program, np.cumsum(steps) - steps, steps


def replayed(optimizer, *, keep_state, proximal=None, mode="event"):
    program, first, steps = rows()
    spans = lambda row: Span(jnp.asarray(first)[row], jnp.asarray(steps)[row])
    return replay.run(
        program,
        rules.asgd(learning_rate=0.7),
        Task(
            replay.in_local_steps(grad_fn, optimizer, batch_fn, proximal=proximal, keep_state=keep_state),
            start(),
            local=replay.state_of_worker(optimizer, start()) if keep_state else None,
        ),
        spans,
        mode=mode,
    )


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("keep_state", [False, True])
def test_as_in_numpy(kind, keep_state):
    proximal = PROXIMAL if keep_state else None
    result = replayed(OPTIMIZERS[kind], keep_state=keep_state, proximal=proximal)
    program, first, steps = rows()
    theta = np.append(np.linspace(-1.0, 1.0, 4), 0.5)
    versions, workers, losses = [theta], [NaiveWorker(kind) for _ in STEPS], []
    for row in range(program.num_rows):
        worker = int(program.worker[row])
        if not keep_state:
            workers[worker] = NaiveWorker(kind)
        read = versions[program.read[row, 0]]
        message, loss = naive_walk(workers[worker], read, first[row], steps[row], proximal or 0.0)
        theta = theta - 0.7 * message
        versions.append(theta)
        losses.append(loss)
    np.testing.assert_allclose(result.params["a"], theta[:4], rtol=1e-12)
    np.testing.assert_allclose(result.params["b"], theta[4], rtol=1e-12)
    np.testing.assert_allclose(result.history.aux["loss"], losses, rtol=1e-12)
    assert (result.history.aux["count"] == steps).all()  # whole numbers add up


def test_waves_are_events():
    event, wave = (replayed(OPTIMIZERS["adamw"], keep_state=True, mode=mode) for mode in ("event", "wave"))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), event.params, wave.params)
    np.testing.assert_allclose(event.history.aux["loss"], wave.history.aux["loss"], rtol=1e-12)


def test_one_step_of_rate_one_is_the_gradient():
    walk = replay.in_local_steps(grad_fn, lambda: optax.sgd(1.0), batch_fn, proximal=PROXIMAL)
    grads, aux = walk(start(), Span(7, 1))
    plain, its_aux = grad_fn(start(), batch_fn(7))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-14), grads, plain)
    assert aux["loss"] == its_aux["loss"]


def test_how_many_steps_and_how_large_is_data(compilations):
    walk = lambda rate: replay.in_local_steps(grad_fn, jax.tree_util.Partial(optax.adamw, learning_rate=rate), batch_fn)
    run = jax.jit(lambda walk, span: walk(start(), span)[0]["b"])
    found = [run(walk(0.1), Span(np.int32(0), np.int32(1)))]
    before = len(compilations)
    found += [run(walk(rate), Span(np.int32(4), np.int32(steps))) for rate, steps in ((0.1, 4), (0.2, 2))]
    assert len(compilations) == before
    assert len({float(value) for value in found}) == 3
