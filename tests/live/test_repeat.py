"""`repeat`, against `replay.run`: what it evaluates and records, that it can be interrupted, and what it refuses."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sgdlab import protocols, replay, rules
from sgdlab.checkpoints import Checkpoints
from sgdlab.errors import Stopped
from sgdlab.live.repeat import repeat
from sgdlab.tasks import Task

WORKERS = 3
RUNTIMES = np.random.default_rng(0).gamma(4.0, size=(10, WORKERS))
TARGETS = np.random.default_rng(1).normal(size=(30, 4))
STATS = {"stats": np.zeros([]), "fold": lambda stats, aux: 0.9 * stats + 0.1 * aux["loss"]}
PLAIN = rules.asgd(learning_rate=0.1, momentum=0.5)
CASES = {
    "asynchronous": (functools.partial(protocols.asynchronous, num_gradients=18), rules.gap_aware(learning_rate=0.1)),
    "timeout": (functools.partial(protocols.timeout, at_least=2, seconds=0.4), PLAIN),
}


@jax.jit
def grad_fn(params, batch):
    return params - batch, {"loss": jnp.sum((params - batch) ** 2), "whole": params}


def evaluate(params, stats):
    return {"size": jnp.sum(params**2), "stats": stats}


def computed(row, params):
    return jax.tree.map(np.asarray, grad_fn(jnp.asarray(params), TARGETS[row]))


def runs_of(case):
    """Return what `replay.run` gives, and `repeat` with all but where it is interrupted."""
    make, rule = CASES[case]
    schedule = make(RUNTIMES)
    watch = replay.Watch(every=4, evaluate=evaluate, average_decay=0.8, norms=True)
    single = replay.lower(schedule).single
    steps = functools.partial(replay.Steps, rule, jnp.zeros(4), single=single, average_decay=0.8, **STATS)
    batches = lambda g: jnp.asarray(TARGETS)[g]
    expected = replay.run(schedule, rule, Task(grad_fn, jnp.zeros(4), **STATS), batches, mode="event", watch=watch)
    aux = computed(0, jnp.zeros(4))[1]
    return expected, lambda **given: repeat(schedule, steps(), computed, aux=aux, watch=watch, **given)


def whole(result):
    names = ("params", "state", "stats", "average", "average_stats")
    recorded = ("gradient", "worker", "delay", "norm", "distance", "penalty", "step")
    history = result.history
    found = [getattr(result, name) for name in names], [getattr(history, name) for name in recorded]
    return *found, history.aux["loss"], history.evaluations


@pytest.mark.parametrize("case", CASES)
def test_finds_and_records_what_one_loop_does(case):
    expected, again = runs_of(case)
    found = again()
    assert found.history.aux["whole"] is None
    close = functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-12)
    jax.tree.map(close, whole(found), whole(expected))


def test_one_that_is_interrupted_goes_on_and_ends_with_the_same_bits(tmp_path):
    _, again = runs_of("timeout")
    asked = iter([False, False, True])
    with Checkpoints(tmp_path / "states", {}) as checkpoints, pytest.raises(Stopped):
        again(checkpoints=checkpoints, stop=lambda: next(asked))
    with Checkpoints(tmp_path / "states", {}) as checkpoints:
        assert 0 < checkpoints.newest < 30
        found = again(checkpoints=checkpoints)
    jax.tree.map(np.testing.assert_array_equal, whole(found), whole(again()))


def test_what_it_refuses():
    steps = replay.Steps(PLAIN, jnp.zeros(4), single=True)
    given = {"compute": computed, "aux": {}}
    with pytest.raises(ValueError, match="schedule must have one server, as live runs have; it has none"):
        repeat(protocols.gossip(RUNTIMES), steps, **given)
    with pytest.raises(ValueError, match="schedule must have one server, as live runs have; it has 2"):
        repeat(protocols.partial(RUNTIMES, num_servers=2), steps, **given)
