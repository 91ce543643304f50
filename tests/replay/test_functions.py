"""First mistakes in the arguments of `run`: each is a ValueError that names the argument, before anything is compiled.

What the functions of the caller raise passes through unchanged.
"""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sgdlab import protocols, rules
from sgdlab.replay import Watch, lower, run
from sgdlab.tasks import Task

RUNTIMES = np.array([[2.0, 3.0], [2.0, 3.0], [2.0, 3.0]])
SCHEDULES = {"server": protocols.asynchronous(RUNTIMES), "peers": protocols.gossip(RUNTIMES, clock="rounds", seed=0)}
PARAMS = {"kernel": jnp.zeros([3], jnp.float32), "bias": jnp.zeros([], jnp.float32)}
SGD = optax.sgd(0.1)


def loss(params, batch):
    return jnp.sum(jnp.square(params["kernel"] - batch)) + params["bias"] ** 2


def batch_fn(g):
    return jnp.full([3], g, jnp.float32)


with_aux = jax.grad(lambda params, batch: (loss(params, batch), {"loss": loss(params, batch)}), has_aux=True)


def instead(**leaves):
    """A gradient function with other leaves; None leaves one out."""

    def grad_fn(params, batch):
        grads, aux = with_aux(params, batch)
        return {name: leaf for name, leaf in (grads | leaves).items() if leaf is not None}, aux

    return grad_fn


@pytest.fixture(params=["server", "peers"], name="schedule")
def each_schedule(request):
    return SCHEDULES[request.param]


@contextlib.contextmanager
def refused(compilations, match):
    """A ValueError, and no program compiled for it."""
    before = len(compilations)
    with pytest.raises(ValueError, match=match):
        yield
    assert len(compilations) == before


def test_what_is_right_is_accepted(schedule):
    result = run(schedule, SGD, Task(with_aux, PARAMS), batch_fn)
    assert result.history.aux["loss"].shape == (lower(schedule).num_rows,)


@pytest.mark.parametrize(
    ("grad_fn", "match"),
    [
        (jax.grad(loss), r"grad_fn must return \(grads, aux\).*has_aux=True.*returns a value of type dict"),
        (lambda params, batch: with_aux(params, batch)[0]["kernel"], r"grad_fn must .* one array of shape \(3,\)"),
        (lambda params, batch: (*with_aux(params, batch), 0), "grad_fn must .* a tuple of 3"),
        (lambda params, batch: None, "grad_fn must .* returns None"),
        (jax.value_and_grad(loss), r"grad_fn must .* it returns \(value, grads\)"),
        (jax.value_and_grad(lambda *given: (loss(*given), {}), has_aux=True), r"grad_fn must .* \(value, grads\)"),
        (instead(bias=None), r"grad_fn must .*\['bias'\] is missing"),
        (instead(scale=jnp.zeros(2)), r"grad_fn must .*\['scale'\] must be left out"),
        (instead(kernel=jnp.zeros([3, 1], jnp.float32)), r"grad_fn .*\['kernel'\] is float32\[3, 1\], .* float32\[3\]"),
        (instead(bias=jnp.zeros([], jnp.bfloat16)), r"grad_fn .*\['bias'\] is bfloat16\[\], .* float32\[\]"),
    ],
)
def test_gradients_unlike_the_parameters(schedule, grad_fn, match, compilations):
    with refused(compilations, match):
        run(schedule, SGD, Task(grad_fn, PARAMS), batch_fn)


def test_gradients_in_another_kind_of_tree(schedule):
    grad_fn = lambda params, batch: ([params[0]], {})
    with pytest.raises(ValueError, match="grad_fn must return"):
        run(schedule, SGD, Task(grad_fn, (jnp.zeros(2),)), batch_fn)


@pytest.mark.parametrize("batches", [np.zeros([6, 3], np.float32), jnp.zeros([6, 3])])
def test_an_array_for_batch_fn(schedule, batches, compilations):
    with refused(compilations, r"batch_fn must be a function .*lambda g: batches\[g\].* an array of shape \(6, 3\)"):
        run(schedule, SGD, Task(with_aux, PARAMS), batches)
    if isinstance(batches, jax.Array):  # what the message proposes
        run(schedule, SGD, Task(with_aux, PARAMS), lambda g: batches[g])


def test_what_is_no_function(schedule, compilations):
    with refused(compilations, "grad_fn must be a function.* it is None"):
        run(schedule, SGD, Task(None, PARAMS), batch_fn)
    with refused(compilations, "batch_fn must be a function.* a value of type list"):
        run(schedule, SGD, Task(with_aux, PARAMS), [1, 2])
    with refused(compilations, "fold must be a function.* a value of type float"):
        run(schedule, SGD, Task(with_aux, PARAMS, stats=np.zeros(2), fold=0.9), batch_fn)
    with refused(compilations, "evaluate must be a function"):
        run(schedule, SGD, Task(with_aux, PARAMS), batch_fn, watch=Watch(evaluate=0.5))


@pytest.mark.parametrize(
    ("fold", "match"),
    [
        (lambda stats, aux: stats[:1], r"fold must return statistics like stats: .* float32\[1\], .* float32\[2\]"),
        (lambda stats, aux: None, "fold must return statistics like stats"),
        (lambda stats, aux: aux, r"fold must .*\['loss'\] must be left out"),
    ],
)
def test_statistics_that_change_their_shape(schedule, fold, match, compilations):
    with refused(compilations, match):
        run(schedule, SGD, Task(with_aux, PARAMS, stats=np.zeros(2, np.float32), fold=fold), batch_fn)


@pytest.mark.parametrize(
    ("rule", "match"),
    [
        (optax.sgd, "rule must be .* optax transform.* sgd itself: call it"),
        (rules.dana, "rule must be .* dana itself: call it"),
        (0.1, "rule must be .* a value of type float"),
        (None, "rule must be .* it is None"),
    ],
)
def test_what_is_no_rule(schedule, rule, match, compilations):
    with refused(compilations, match):
        run(schedule, rule, Task(with_aux, PARAMS), batch_fn)


def test_what_is_no_task(schedule, compilations):
    with refused(compilations, r"task must be a task, sgdlab.tasks.Task\(grad_fn, params\).* itself"):
        run(schedule, SGD, with_aux, batch_fn)


def test_run_times_for_a_schedule(compilations):
    with refused(compilations, r"schedule must be a Schedule or a PeerSchedule.* an array of shape \(3, 2\)"):
        run(RUNTIMES, SGD, Task(with_aux, PARAMS), batch_fn)


class Mine(Exception):
    """Raised by the caller's own functions."""


@pytest.mark.parametrize("error", [Mine("mine"), ValueError("mine"), TypeError("mine")])
@pytest.mark.parametrize("broken", ["grad_fn", "batch_fn", "fold"])
def test_what_the_functions_raise_passes(schedule, broken, error):
    def raises(*arguments):
        raise error

    functions = {"grad_fn": with_aux, "batch_fn": batch_fn, "fold": lambda stats, aux: stats} | {broken: raises}
    batches = functions.pop("batch_fn")
    with pytest.raises(type(error), match="mine") as caught:
        run(schedule, SGD, Task(params=PARAMS, stats=np.zeros(2), **functions), batches)
    assert caught.value is error
    assert "raises" in [entry.name for entry in caught.traceback]


def test_functions_are_traced_no_more_often_than_their_shapes_change(schedule):
    traced = []

    def grad_fn(params, batch):
        traced.append(batch.shape)
        return with_aux(params, batch)

    rule = rules.asgd(learning_rate=0.1)
    run(schedule, rule, Task(grad_fn, PARAMS), batch_fn)
    once = len(traced)
    run(schedule, rule, Task(grad_fn, PARAMS), batch_fn)
    assert len(traced) == once
