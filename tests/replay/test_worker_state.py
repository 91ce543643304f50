"""A worker's own state moves on with its own gradients, one after the other, and with nothing else."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lib.replay_cases import any_blocks, anything, assert_close, partly, seeded, with_backups

from sgdlab import protocols, rules
from sgdlab.replay import Watch, lower, run
from sgdlab.tasks import Task

WORKERS, SIZE = 5, 3
RUNTIMES = np.random.default_rng(0).uniform(1, 3, (8, WORKERS)) * np.array([0.3, 1.0, 1.0, 2.0, 1.0])
SERVERS = {
    "asynchronous": lambda: protocols.asynchronous(RUNTIMES),
    "synchronous": lambda: protocols.synchronous(RUNTIMES),
    "backup workers": lambda: with_backups(8),
    "softsync": lambda: protocols.softsync(RUNTIMES, gradients_per_update=3),
    "simulated staleness": lambda: protocols.simulated_staleness(RUNTIMES, average=3.0, ramp_epochs=0.0),
    "bounded staleness": lambda: protocols.bounded_staleness(RUNTIMES, bound=1),
    "anything": lambda: anything(seeded(1), 30, WORKERS),
    "partial": lambda: partly(8, num_workers=WORKERS),
    "any blocks": lambda: any_blocks(seeded(2), 20, WORKERS, 3),
}
PEERS = {
    "pull": lambda: protocols.gossip(RUNTIMES, seed=1),
    "elastic": lambda: protocols.elastic_averaging(RUNTIMES),
}


@functools.cache
def begun():
    """The state of one worker at the start. Call it inside tests, where float64 is on."""
    return {"memory": jnp.zeros(SIZE), "count": jnp.zeros([], jnp.int32)}


def batch_fn(g):
    return jnp.sin(g + jnp.arange(SIZE))


def grad_fn(params, batch, local):
    """The memory is a moving average of batches, and of parameters a little; the gradient depends on it."""
    memory = 0.5 * local["memory"] + batch + 0.01 * params["w"]
    grads = {"w": params["w"] - local["memory"] + batch, "b": params["b"] + local["memory"][:2], "c": params["c"] + 1}
    aux = {"count": local["count"], "loss": memory.sum()}
    return grads, aux, {"memory": memory, "count": local["count"] + 1}


@functools.cache
def params():
    return {"w": jnp.arange(3.0), "b": jnp.ones(2), "c": jnp.zeros([])}


def replayed(schedule, mode):
    program = lower(schedule, every=7, by_worker=True)
    rule = rules.asgd(learning_rate=0.1, momentum=0.5)
    return program, run(
        program, rule, Task(grad_fn, params(), local=begun()), batch_fn, mode=mode, watch=Watch(every=7)
    )


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", SERVERS | PEERS)
def test_it_moves_on_with_the_gradients_of_its_worker_alone(name):
    program, result = replayed((SERVERS | PEERS)[name](), "event")
    counts = np.bincount(program.worker, minlength=program.num_workers)
    np.testing.assert_array_equal(result.local["count"], counts)
    seen = [int((program.worker[:g] == worker).sum()) for g, worker in enumerate(program.worker)]
    np.testing.assert_array_equal(result.history.aux["count"], seen)


@pytest.mark.representatives("asynchronous", "partial", "pull")
@pytest.mark.parametrize("name", SERVERS | PEERS)
def test_wave_mode_is_event_mode(name):
    (_, event), (program, wave) = (replayed((SERVERS | PEERS)[name](), mode) for mode in ("event", "wave"))
    for begin, end in zip(program.waves[:-1], program.waves[1:], strict=True):
        assert len(set(program.worker[begin:end])) == end - begin
    for field in ("params", "local"):
        assert_close(getattr(event, field), getattr(wave, field), 1e-14)
    assert_close(event.history.aux, wave.history.aux, 1e-14)


def test_the_memory_is_the_one_of_a_naive_loop():
    """Versions in a list, a memory for each worker in a list."""
    schedule = protocols.softsync(RUNTIMES, gradients_per_update=3)
    program, result = replayed(schedule, "event")
    versions, memories = [jax.tree.map(np.asarray, params())], [np.zeros(SIZE) for _ in range(WORKERS)]
    velocity = jax.tree.map(np.zeros_like, versions[0])
    for update in range(schedule.update.max() + 1):
        total = jax.tree.map(np.zeros_like, versions[0])
        rows = np.flatnonzero(schedule.update[:, 0] == update)
        for row in rows:
            worker, read = schedule.worker[row], versions[schedule.read[row, 0]]
            g = int(np.flatnonzero(program.gradient == row)[0])
            grads, _, after = grad_fn(read, np.asarray(batch_fn(g)), {"memory": memories[worker], "count": 0})
            memories[worker] = np.asarray(after["memory"])
            total = jax.tree.map(lambda sum_, leaf, n=rows.size: sum_ + np.asarray(leaf) / n, total, grads)
        velocity = jax.tree.map(lambda v, g: 0.5 * v + g, velocity, total)
        versions.append(jax.tree.map(lambda p, v: p - 0.1 * v, versions[-1], velocity))
    assert_close(jax.tree.map(np.asarray, result.params), versions[-1], 1e-12)
    np.testing.assert_allclose(result.local["memory"], memories, rtol=1e-12)


def test_dropped_gradients_leave_it_as_it_was():
    schedule = with_backups(8)
    assert schedule.dropped().any()
    _, result = replayed(schedule, "event")
    used = schedule.worker[schedule.used().any(axis=1)]
    np.testing.assert_array_equal(result.local["count"], np.bincount(used, minlength=WORKERS))


def test_waves_with_two_gradients_of_one_worker_are_refused():
    program = lower(protocols.simulated_staleness(RUNTIMES, average=3.0, ramp_epochs=0.0))
    with pytest.raises(ValueError, match="by_worker=True"):
        run(program, rules.asgd(learning_rate=0.1), Task(grad_fn, params(), local=begun()), batch_fn, mode="wave")


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (lambda p, b, local: (p, {}), r"grad_fn must return .*\(grads, aux, local\)"),
        (
            lambda p, b, local: (p, {}, {"memory": local["memory"]}),
            r"a worker's state like local: .*count.* is missing",
        ),
    ],
)
def test_a_gradient_function_without_a_state_is_refused(wrong, match):
    with pytest.raises(ValueError, match=match):
        run(
            protocols.synchronous(RUNTIMES),
            rules.asgd(learning_rate=0.1),
            Task(wrong, params(), local=begun()),
            batch_fn,
        )
