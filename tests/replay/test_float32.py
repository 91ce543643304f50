"""Test what users run: single precision. Other tests compare algorithms in float64; here modes agree up to float32.

Further: narrower parameters are summed up in float32, and the programs hold what NumPy's wider arrays said.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from lib.replay_cases import any_blocks, heterogeneous, partly, seeded, softsync, with_backups

from sgdlab import Schedule, protocols, rules
from sgdlab.replay import Capacity, Watch, lower, run, server_engine
from sgdlab.replay.sharding import MeshLayout
from sgdlab.tasks import Task

TOLERANCE = 2e-5  # a hundred steps of float32
both_modes = pytest.mark.parametrize("mode", ["event", "wave"])


@pytest.fixture(autouse=True)
def single_precision(x64):
    """After the fixture that sets double precision for all tests."""
    del x64
    with jax.enable_x64(False):
        yield


def start(dtype=jnp.float32):
    generator = np.random.default_rng(0)
    return {
        "bias": jnp.asarray(generator.normal(size=4), dtype),
        "kernel": jnp.asarray(generator.normal(size=(5, 4)), dtype),
    }


def grad_fn(params, number):
    """Of a small network on inputs of the gradient's own."""
    inputs = jnp.sin(jnp.arange(10.0, dtype=params["bias"].dtype).reshape(2, 5) + number)

    def loss(params):
        return jnp.mean(jnp.square(jnp.tanh(inputs @ params["kernel"] + params["bias"]) - 0.5))

    value, grads = jax.value_and_grad(loss)(params)
    return grads, {"loss": value, "number": number}


def batch_fn(number):
    return number


def evaluate(params, stats):
    return {"size": sum(jnp.sum(jnp.abs(leaf)) for leaf in jax.tree.leaves(params)), "stats": stats}


def fold(stats, aux):
    return 0.9 * stats + aux["loss"].astype(stats.dtype)


RUNTIMES = np.random.default_rng(0).uniform(1, 3, (12, 4))
SCHEDULES = {
    "asynchronous": lambda: heterogeneous(80),
    "softsync": lambda: softsync(80),
    "backup_workers": lambda: with_backups(20),
    "synchronous": lambda: protocols.synchronous(RUNTIMES),
    "blocks": lambda: any_blocks(seeded(0), 40, 5, 3),
    "partial": lambda: partly(15, push_at_least=3, pull_timeout=0.5),
}


ROOM = Capacity(rows=128, slots=16, width=4, workers=8, kept=4)  # schedules of one kind share a compilation


def replayed(schedule, mode, *, rule=None, params=None, **watch):
    rule = rule or rules.staleness_aware(learning_rate=0.05)
    if isinstance(schedule, Schedule):
        schedule = lower(schedule, every=16, capacity=ROOM, width=ROOM.width)
        assert schedule.capacity == ROOM
    stats = jnp.zeros([])
    watch = Watch(every=16, evaluate=evaluate, **watch)
    return run(
        schedule,
        rule,
        Task(grad_fn, start() if params is None else params, stats=stats, fold=fold),
        batch_fn,
        mode=mode,
        watch=watch,
    )


def close(left, right):
    """Equal dtypes, and values as near as float32 lets them be."""
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for one, other in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert np.asarray(one).dtype == np.asarray(other).dtype
        scale = np.nanmax(np.abs(other), initial=1e-3)
        np.testing.assert_allclose(one, other, rtol=0, atol=TOLERANCE * float(scale))


def dtypes(tree):
    return {np.asarray(leaf).dtype.name for leaf in jax.tree.leaves(tree)}


@pytest.mark.representatives("asynchronous", "backup_workers")
@pytest.mark.parametrize("name", SCHEDULES)
def test_wave_mode_is_event_mode(name):
    schedule = SCHEDULES[name]()
    event, wave = (replayed(schedule, mode, average_decay=0.9, norms=True) for mode in ("event", "wave"))
    for field in ("params", "state", "stats", "average", "average_stats"):
        close(getattr(wave, field), getattr(event, field))
    for field in ("aux", "distance", "step", "norm", "evaluations"):
        close(getattr(wave.history, field), getattr(event.history, field))
    found = event.params, event.average, event.stats, event.average_stats, event.history.norm, event.history.distance
    assert dtypes(found) == {"float32"}
    np.testing.assert_array_equal(event.history.aux["number"], np.arange(event.history.gradient.size))
    assert event.history.aux["number"].dtype == np.int32


@pytest.mark.representatives("push")
@pytest.mark.parametrize(
    "schedule",
    [protocols.gossip(RUNTIMES, seed=0), protocols.gossip(RUNTIMES, kind="push", seed=0),
     protocols.elastic_averaging(RUNTIMES)],
    ids=["pull", "push", "elastic"],
)  # fmt: skip
def test_wave_mode_is_event_mode_of_peers(schedule):
    event, wave = (replayed(schedule, mode, rule=optax.sgd(0.05, momentum=0.9)) for mode in ("event", "wave"))
    for field in ("params", "nodes", "center", "state", "stats"):
        close(getattr(wave, field), getattr(event, field))
    close(wave.history.evaluations, event.history.evaluations)
    assert dtypes((event.nodes, event.stats)) == {"float32"}
    np.testing.assert_array_equal(event.history.aux["number"], np.arange(event.history.worker.size))


@pytest.mark.sample(1)
@both_modes
def test_float32_is_float64_rounded(mode):
    """The schedule's numbers, delays and counts among them, arrive in the narrower program."""
    schedule, watch = softsync(60), {"average_decay": 0.9, "norms": True}
    narrow = replayed(schedule, mode, **watch)
    with jax.enable_x64(True):
        wide = replayed(schedule, mode, params=jax.tree.map(lambda leaf: leaf.astype(jnp.float64), start()), **watch)
        assert dtypes(wide.params) == {"float64"}
    for left, right in zip(jax.tree.leaves(narrow.params), jax.tree.leaves(wide.params), strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(narrow.history.norm, wide.history.norm, rtol=1e-3, atol=TOLERANCE)


@pytest.mark.parametrize("name", ["asynchronous", "blocks"])
def test_padded_arrays_hold_what_the_program_says(name):
    program = lower(SCHEDULES[name]())
    rows = server_engine.on_device(program, np.arange(program.num_rows, dtype=np.int32), MeshLayout())
    for field in ("worker", "load", "kept", "waves", "ends", "row", "reload", "store", "first", "last", "count"):
        array, wanted = np.asarray(getattr(rows, field)), getattr(program, field)
        np.testing.assert_array_equal(array[: len(wanted)], wanted, err_msg=field)
        assert (array[len(wanted) :] == 0).all()
        assert array.dtype == wanted.dtype
    assert rows.delay.dtype == rows.mean_delay.dtype == jnp.float32
    np.testing.assert_array_equal(rows.delay[: len(program.delay)], program.delay)


@pytest.mark.sample(1)
@both_modes
def test_another_rate_and_seed_compile_nothing(mode, compilations):
    first, second = (lower(heterogeneous(60, seed=seed), every=16, width=4) for seed in (0, 1))
    assert first.capacity == second.capacity
    replayed(first, mode, rule=rules.asgd(learning_rate=0.1))
    assert compilations
    compilations.clear()
    replayed(second, mode, rule=rules.asgd(learning_rate=0.2))
    assert compilations == []


@pytest.mark.sample(1)
class TestNarrowParameters:
    """bfloat16 has eight bits: a sum of many small parts stalls in it."""

    UPDATES = 3000

    @both_modes
    def test_polyak_average_of_a_constant_is_the_constant(self, mode):
        """One step from 0 to 1, then none: 1 - 0.98^3000 of the average is 1."""
        schedule = protocols.synchronous(np.ones((self.UPDATES, 1)))
        rule = optax.sgd(rules.tabulated([1.0, 0.0]))
        minus_one = lambda params, batch: (jax.tree.map(lambda leaf: -jnp.ones_like(leaf), params), {})
        result = run(
            schedule,
            rule,
            Task(
                minus_one,
                jnp.zeros(3, jnp.bfloat16),
                stats=jnp.zeros([], jnp.bfloat16),
                fold=lambda stats, aux: jnp.ones_like(stats),
            ),
            batch_fn,
            mode=mode,
            watch=Watch(average_decay=0.98, evaluate=lambda params, stats: {"first": params[0], "stats": stats}),
        )
        np.testing.assert_array_equal(result.params.astype(jnp.float32), np.ones(3))
        assert result.params.dtype == jnp.bfloat16
        assert result.average.dtype == result.average_stats.dtype == jnp.float32
        np.testing.assert_allclose(result.average, 1, atol=1e-3)
        np.testing.assert_allclose(result.average_stats, 1, atol=1e-3)
        assert result.history.evaluations[-1]["average_first"] == 1  # as near as bfloat16 can say
        assert result.history.evaluations[-1]["average_stats"] == 1

    @both_modes
    def test_average_is_evaluated_in_the_dtype_of_the_parameters(self, mode):
        seen = []

        def evaluate(params, stats):
            seen.append((params.dtype, stats.dtype))
            return {"sum": params.sum()}

        run(
            protocols.synchronous(np.ones((4, 2))),
            optax.sgd(0.1),
            Task(
                lambda p, b: (p, {}),
                jnp.ones(3, jnp.bfloat16),
                stats=jnp.zeros([], jnp.bfloat16),
                fold=lambda stats, aux: stats,
            ),
            batch_fn,
            mode=mode,
            watch=Watch(average_decay=0.5, evaluate=evaluate),
        )
        assert set(seen) == {(jnp.dtype(jnp.bfloat16),) * 2}
        assert len(seen) == 4  # parameters and average, at the start and at the end

    @both_modes
    def test_mean_of_many_messages(self, mode):
        """500 gradients of 1 have the mean 1, of which the step is one."""
        schedule = protocols.synchronous(np.ones((1, 500)))
        ones = lambda params, batch: (jnp.ones_like(params), {})
        result = run(schedule, optax.sgd(1.0), Task(ones, jnp.zeros(2, jnp.bfloat16)), batch_fn, mode=mode)
        np.testing.assert_array_equal(result.params.astype(jnp.float32), -np.ones(2))
        assert result.params.dtype == jnp.bfloat16

    @both_modes
    def test_norms(self, mode):
        """Of 1000 ones, in bfloat16 whose squares would not add up."""
        ones = lambda params, batch: (jnp.ones_like(params), {})
        history = run(
            protocols.synchronous(np.ones((2, 1))), optax.sgd(1.0), Task(ones, jnp.zeros(1000, jnp.bfloat16)), batch_fn,
            mode=mode, watch=Watch(norms=True),
        ).history  # fmt: skip
        np.testing.assert_allclose(history.norm, np.sqrt(1000), rtol=1e-6)
        np.testing.assert_allclose(history.step, np.sqrt(1000), rtol=1e-6)

    @both_modes
    def test_peers_that_average_thirds_keep_what_they_have(self, mode):
        """Three thirds of bfloat16 are more than 1: nodes that agree would grow again and again."""
        schedule = protocols.gossip(np.ones((200, 5)), kind="push", clock="rounds", seed=0)
        assert np.isclose(schedule.weight, 1 / 3).any()
        zero = lambda params, batch: (jnp.zeros_like(params), {})
        result = run(schedule, optax.sgd(0.1), Task(zero, jnp.ones(2, jnp.bfloat16)), batch_fn, mode=mode)
        np.testing.assert_array_equal(result.nodes.astype(jnp.float32), np.ones((5, 2)))
        assert result.nodes.dtype == jnp.bfloat16
