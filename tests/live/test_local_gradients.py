"""Local steps on a worker's process: those of a replay, and given up between two of them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sgdlab import protocols, replay, rules
from sgdlab.live.gradients import Gradients
from sgdlab.live.work import LocalSteps, Work
from sgdlab.runs.local_steps import span_fn
from sgdlab.runs.rates import InnerRate
from sgdlab.tasks import Task

STEPS, STRIDE = np.array([4, 1, 3]), 4
TABLE = np.random.default_rng(1).normal(size=(160, 6, 5)).astype(np.float64)


def params():
    return {"w": jnp.linspace(-1.0, 1.0, 15, dtype=jnp.float64).reshape(5, 3), "b": jnp.zeros(3, jnp.float64)}


@jax.tree_util.Partial
def grad_fn(params, batch):
    def loss(params):
        return jnp.mean(jnp.square(jnp.tanh(batch @ params["w"] + params["b"]) - batch[:, :3]))

    value, grads = jax.value_and_grad(loss)(params)
    return grads, {"loss": value, "mean": batch.mean()}


@jax.tree_util.Partial
def batch_fn(number):
    return jnp.asarray(TABLE)[number]


@jax.tree_util.Partial
def fold(stats, aux):
    return jnp.float64(0.9) * stats + jnp.float64(0.1) * aux["mean"]


OPTIMIZERS = {
    "nesterov": jax.tree_util.Partial(
        lambda learning_rate: optax.sgd(learning_rate, momentum=0.9, nesterov=True), learning_rate=0.05
    ),
    "adamw": jax.tree_util.Partial(optax.adamw, learning_rate=0.01, weight_decay=0.1),
}


INNER = InnerRate(np.geomspace(1.0, 0.1, 16), steps_per_update=0.7)


def gradients_of(optimizer, worker, *, micro_batches=1, proximal=None, inner=None):
    local = LocalSteps(optimizer, lambda worker: int(STEPS[worker]), STRIDE, proximal, inner=inner)
    return Gradients(Work(params(), grad_fn, batch_fn, micro_batches=micro_batches, local=local), worker=worker)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("kind", "micro_batches", "proximal", "inner"), [("nesterov", 1, 0.1, INNER), ("adamw", 2, None, None)]
)
def test_as_in_a_replay(kind, micro_batches, proximal, inner):
    runtimes = np.random.default_rng(2).gamma(4.0, size=(12, 3))
    program = replay.lower(protocols.asynchronous(runtimes, num_gradients=18))
    tickets = np.random.default_rng(3).permutation(program.num_rows)
    steps = STEPS[program.worker]
    spans = span_fn(tickets * STRIDE, steps, place=None if inner is None else inner.place(program.read[:, 0]))
    whole = replay.in_micro_batches(grad_fn, micro_batches)
    factors = None if inner is None else inner.factors
    walk = replay.in_local_steps(whole, OPTIMIZERS[kind], batch_fn, proximal=proximal, factors=factors)
    rule = rules.delayed_nesterov(learning_rate=0.7, num_workers=3)
    stats = jnp.ones([], jnp.float64)
    result = replay.run(program, rule, Task(walk, params(), stats=stats, fold=fold), spans, mode="event")

    of_workers = [
        gradients_of(OPTIMIZERS[kind], worker, micro_batches=micro_batches, proximal=proximal, inner=inner)
        for worker in range(3)
    ]
    server = replay.Steps(rule, params(), single=True, stats=stats, fold=fold)
    server.compile(of_workers[0].aux)
    sent, losses = [server.sent()], []
    for row in range(program.num_rows):
        worker, version = int(program.worker[row]), int(program.read[row, 0])
        read, ticket = sent[version], int(tickets[row])
        found = of_workers[worker].compute(ticket, jax.tree.map(np.array, read), lambda: False, version=version)
        losses.append(found[1]["loss"])
        server.receive(*found, read=read, worker=worker, delay=float(program.delay[row, 0]))
        server.close()
        sent.append(server.sent())
    close = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-13)
    jax.tree.map(close, (result.params, result.stats), (server.params, server.stats))
    close(result.history.aux["loss"], losses)


def test_it_is_given_up_before_the_next_step():
    gradients, answers = gradients_of(OPTIMIZERS["nesterov"], 0), []

    def stop():
        answers.append(len(answers) == 2)
        return answers[-1]

    assert gradients.compute(0, params(), stop) is None
    assert answers == [False, False, True]
    assert gradients.compute(0, params(), lambda: False) is not None


def test_all_is_compiled_before_the_first(compilations):
    gradients = gradients_of(OPTIMIZERS["adamw"], 2)
    gradients.compile()
    before = len(compilations)
    first, second = (gradients.compute(ticket, params(), lambda: False)[0]["b"] for ticket in (5, 6))
    assert len(compilations) == before
    assert not np.array_equal(first, second)
