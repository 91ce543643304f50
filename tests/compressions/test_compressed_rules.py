"""Rules of compressed messages: the identity to the bit, memories against NumPy, random ones alike in both modes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sgdlab import compressions, protocols, rules
from sgdlab.replay import lower, run
from sgdlab.rules.feedback import Channel
from sgdlab.rules.server_rule import ServerRule, absorbed, received
from sgdlab.tasks import Task

WORKERS = 3
_random = np.random.default_rng(0)
ROWS = 90
BATCHES = jnp.asarray(_random.normal(size=(ROWS, 4)), jnp.float32)
START = {"w": jnp.asarray(_random.normal(size=(4, 3)), jnp.float32), "b": jnp.zeros(3, jnp.float32)}
SCHEDULES = {
    "asynchronous": lambda times: protocols.asynchronous(times, num_gradients=80),
    "synchronous": lambda times: protocols.synchronous(times[:25]),
    "dropping": lambda times: protocols.backup_workers(times, backups=1),
}


def schedule(name):
    return SCHEDULES[name](np.random.default_rng(1).uniform(1, 3, (40, WORKERS)))


def loss(params, batch):
    out = jnp.tanh(batch @ params["w"] + params["b"])
    return jnp.sum((out - jnp.arange(3.0)) ** 2), {"loss": jnp.sum(out)}


TASK = Task(jax.grad(loss, has_aux=True), START)


def batch_fn(g):
    return BATCHES[g]


def replayed(name, rule, **settings):
    return run(schedule(name), rule, TASK, batch_fn, **settings)


def in_float64(schedule, rule, **settings):
    """Both modes round in ways of their own: compared to 1e-9, which no draw and no choice of entries survives."""
    double = lambda tree: jax.tree.map(lambda leaf: leaf.astype(jnp.float64), tree)
    return run(schedule, rule, Task(TASK.grad_fn, double(START)), lambda g: double(BATCHES)[g], **settings)


def assert_close(one, other):
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-12), one, other)


def assert_equal(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


BARE = {
    "asgd": functools.partial(rules.asgd, learning_rate=0.05, momentum=0.9, weight_decay=0.01),
    "gap_aware": functools.partial(rules.gap_aware, learning_rate=0.05, momentum=0.9),
    "ace": functools.partial(rules.ace, learning_rate=0.05, num_workers=WORKERS),
    "dana": functools.partial(rules.dana, learning_rate=0.05, num_workers=WORKERS),
}


@pytest.mark.covering(strength=1)
@pytest.mark.parametrize("mode", ["event", "wave"])
@pytest.mark.parametrize(
    ("name", "rule"),
    [*((name, "asgd") for name in SCHEDULES), *(("asynchronous", rule) for rule in BARE if rule != "asgd")],
)
def test_the_identity_changes_no_bit(name, rule, mode):
    """As users compile, in float32."""
    jax.config.update("jax_enable_x64", False)
    bare = BARE[rule]()
    plain = replayed(name, bare, mode=mode)
    wrapped = rules.compressed(bare, compressions.Uncompressed(), num_workers=WORKERS)
    found = replayed(name, wrapped, mode=mode)
    assert_equal(found.params, plain.params)
    assert_equal(found.history.aux["loss"], plain.history.aux["loss"])


@pytest.mark.covering(strength=1)
@pytest.mark.parametrize("feedback", ["none", "error", "ef21"])
@pytest.mark.parametrize("name", [part for part in compressions.COMPRESSIONS if part != "none"])
def test_waves_are_event_mode(name, feedback):
    made = compressions.COMPRESSIONS[name].make
    compressor = made(share=0.25) if name in ("top_k", "random_k") else made()
    rule = rules.compressed(BARE["asgd"](), compressor, num_workers=WORKERS, feedback=feedback, seed=3)
    event, wave = (in_float64(schedule("asynchronous"), rule, mode=mode) for mode in ("event", "wave"))
    assert_close(wave.params, event.params)
    assert_close(wave.state, event.state)
    assert not np.array_equal(event.params["w"], replayed("asynchronous", BARE["asgd"](), mode="event").params["w"])


@pytest.mark.parametrize("name", ["random_k", "qsgd"])
def test_seeds_and_numbers_decide_what_is_drawn(name):
    made = compressions.COMPRESSIONS[name].make()
    of = lambda seed: rules.compressed(BARE["asgd"](), made, num_workers=WORKERS, seed=seed)
    first, again, other = (replayed("asynchronous", of(seed)).params for seed in (3, 3, 4))
    assert_equal(first, again)
    assert not np.array_equal(first["w"], other["w"])
    program = lower(schedule("asynchronous"))
    program.number[:] += 1000
    renumbered = run(program, of(3), TASK, batch_fn)
    assert not np.array_equal(first["w"], renumbered.params["w"])


def top_2(vector):
    kept = np.zeros_like(vector)
    places = np.argsort(-np.abs(vector), kind="stable")[:2]
    kept[places] = vector[places]
    return kept


def naive(feedback, gradient, schedule, rate):
    """A server and its workers in NumPy, one gradient after the other, each with what it remembers."""
    theta, versions = np.zeros(6), [np.zeros(6)]
    memory = [np.zeros(6) for _ in range(WORKERS)]
    open_update, number = [], 0
    for row in range(schedule.num_gradients):
        update, worker = int(schedule.update[row, 0]), int(schedule.worker[row])
        if update < 0:
            continue
        g = gradient(versions[schedule.read[row, 0]], number)
        number += 1
        if feedback == "error":
            message = top_2(memory[worker] + g)
            memory[worker] = memory[worker] + g - message
        elif feedback == "ef21":
            memory[worker] = memory[worker] + top_2(g - memory[worker])
            message = memory[worker]
        else:
            message = top_2(g)
        open_update.append(message)
        rows = np.flatnonzero(schedule.update[:, 0] == update)
        if row == rows[-1]:
            theta = theta - rate * sum(open_update) / len(open_update)
            versions.append(theta)
            open_update = []
    return theta, memory


@pytest.mark.covering(strength=1)
@pytest.mark.parametrize("feedback", ["none", "error", "ef21"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_memories_are_those_of_numpy(name, feedback):
    """Of the dropping protocol too: what enters no update changes no memory."""
    times = np.random.default_rng(2).uniform(1, 3, (100, WORKERS))
    made = {
        "asynchronous": lambda: protocols.asynchronous(times, num_gradients=100),
        "synchronous": lambda: protocols.synchronous(times),
        "dropping": lambda: protocols.backup_workers(times, backups=1),
    }[name]()
    assert made.num_updates >= 100
    targets = np.random.default_rng(3).normal(size=(400, 6))
    matrix = np.diag(np.linspace(0.5, 2, 6))
    compressor = compressions.TopK(share=1 / 3)
    rule = rules.compressed(rules.asgd(learning_rate=0.05), compressor, num_workers=WORKERS, feedback=feedback)
    grad_fn = lambda params, batch: (jnp.asarray(matrix) @ params - batch, {})
    result = run(made, rule, Task(grad_fn, jnp.zeros(6)), lambda g: jnp.asarray(targets)[g])
    theta, memory = naive(feedback, lambda params, number: matrix @ params - targets[number], made, 0.05)
    np.testing.assert_allclose(result.params, theta, rtol=1e-12, atol=1e-12)
    if feedback != "none":
        np.testing.assert_allclose(result.state.memory.kept, memory, rtol=1e-12, atol=1e-12)


def test_random_ones_are_contractions_where_there_is_a_memory():
    """Random-k keeps its entries as they are; QSGD is divided by 1 + omega: else the memory would grow without end."""
    for compressor, factor in ((compressions.RandomK(share=0.1), 0.1), (compressions.Qsgd(levels=2), 1 / 6)):
        vector, key = jnp.ones(100), jax.random.key(0)
        plain, scaled = Channel(compressor), Channel(compressor, "error")
        packet, _ = plain.pack(vector, plain.begin(vector), key)
        whole, part = (channel.unpack(packet, vector, key) for channel in (plain, scaled))
        np.testing.assert_allclose(part, factor * whole, rtol=1e-12)


@pytest.mark.parametrize("feedback", ["error", "ef21"])
def test_a_worker_that_begins_anew_has_nothing(feedback):
    rule = rules.compressed(
        rules.asgd(learning_rate=1.0), compressions.TopK(share=0.5), num_workers=2, feedback=feedback
    )
    params, state = jnp.zeros(2), None
    for anew in (False, False, True):
        state = rule.init(params) if state is None else state
        use = {"worker": 1, "delay": 1, "read_params": params, "number": 0}
        state = rule.absorb(jnp.array([3.0, 2.0]), state, params, anew=jnp.asarray(anew), **use)
    first = rule.absorb(jnp.array([3.0, 2.0]), rule.init(params), params, **use)
    assert_equal(state.memory, first.memory)
    assert_equal(state.message, first.message)


def test_beginnings_of_a_program_reach_the_rule():
    rule = rules.compressed(BARE["asgd"](), compressions.TopK(share=0.25), num_workers=WORKERS, feedback="error")
    program = lower(schedule("asynchronous"))
    before = in_float64(program, rule)
    program.anew[40] = True
    event, wave = (in_float64(program, rule, mode=mode) for mode in ("event", "wave"))
    assert_close(event.params, wave.params)
    assert not np.array_equal(event.params["w"], before.params["w"])


def test_a_rule_of_compressed_messages_is_data_of_its_program(compilations):
    made = lambda rate, seed: rules.compressed(
        rules.asgd(learning_rate=rate), compressions.RandomK(share=0.5), num_workers=WORKERS, seed=seed
    )
    first = replayed("asynchronous", made(0.1, 0)).params
    compilations.clear()
    second = replayed("asynchronous", made(0.2, 2**32 - 1)).params
    assert not compilations
    assert not np.array_equal(first["w"], second["w"])


def test_rules_of_many_kinds_can_be_wrapped():
    """Also one of one's own whose functions take `worker`, `delay` and `read_params` alone."""

    def receive(grads, state, params, *, worker, delay, read_params):
        return grads

    def absorb(grads, state, params, *, worker, delay, read_params):
        return state + 1

    own = ServerRule(
        init=lambda params, **extra: jnp.zeros([], jnp.int32),
        receive=receive,
        update=lambda message, state, params, **use: (jax.tree.map(lambda leaf: -0.1 * leaf, message), state),
        send=lambda params, state, **extra: params,
        absorb=absorb,
    )
    for rule in (own, rules.compressed(own, compressions.Sign(), num_workers=WORKERS)):
        result = replayed("asynchronous", rule)
        assert int(getattr(result.state, "inner", result.state)) == 80
    nested = rules.inject_hyperparams(
        lambda learning_rate: rules.compressed(
            rules.asgd(learning_rate=learning_rate), compressions.RandomK(share=0.5), num_workers=WORKERS
        )
    )(learning_rate=0.1)
    assert np.isfinite(replayed("asynchronous", nested).params["w"]).all()


def test_numbers_are_told_to_those_that_name_them():
    """Of a rule's own functions, of transforms, and of nodes without a server."""

    def update(updates, state, params=None, *, number, **extra_args):
        return jax.tree.map(lambda u: u * 0 + number, updates), state

    told = optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
    rule = rules.server_rule(optax.sgd(1.0), receive=optax.chain(optax.identity(), told))
    for mode in ("event", "wave"):
        result = replayed("asynchronous", rule, mode=mode)
        np.testing.assert_allclose(result.params["b"], -np.full(3, sum(range(80))))
    gossip = protocols.gossip(np.ones((4, 3)), clock="rounds", seed=0)
    alone = Task(lambda params, batch: (params, {}), jnp.zeros([]))
    nodes = run(gossip, rule, alone, lambda g: g).nodes
    assert np.isfinite(nodes).all()
    assert not np.array_equal(nodes, np.zeros(3))


@pytest.mark.parametrize("chained", [False, True])
def test_transforms_that_take_only_the_others_go_on_working(chained):
    def update(updates, state, params=None, *, worker, delay, read_params):
        return updates, state

    tx = optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
    rule = rules.server_rule(optax.sgd(0.1), receive=optax.chain(tx, optax.clip(1.0)) if chained else tx)
    assert np.isfinite(replayed("asynchronous", rule).params["w"]).all()


def test_a_transform_in_an_optax_loop_is_told_numbers():
    transform = rules.as_transform(
        rules.compressed(rules.asgd(learning_rate=1.0), compressions.RandomK(share=0.25), num_workers=1)
    )
    params = jnp.zeros(8)
    state = transform.init(params)
    places = set()
    for number in range(30):
        updates, state = transform.update(jnp.ones(8), state, params, number=number)
        assert sorted(updates.tolist()) == [-4.0, -4.0] + [0.0] * 6
        places |= set(np.flatnonzero(updates))
    assert places == set(range(8))
    with pytest.raises(ValueError, match=r"^number=None must be the gradient's number"):
        transform.update(jnp.ones(8), state, params)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"feedback": "ef22"}, r"feedback='ef22' must be one of none, error, ef21"),
        ({"num_workers": 0}, r"num_workers=0 must be a whole number of at least 1"),
        ({"seed": -1}, r"seed=-1"),
        ({"seed": 2**32}, r"seed=4294967296"),
    ],
)
def test_bad_arguments_are_named(changed, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        rules.compressed(BARE["asgd"](), compressions.Sign(), **({"num_workers": 1} | changed))


def test_memories_of_too_few_workers_and_nodes_without_a_server_are_refused():
    few = rules.compressed(BARE["asgd"](), compressions.Sign(), num_workers=2, feedback="error")
    with pytest.raises(ValueError, match=r"^rule keeps state for num_workers=2, but schedule has 3 workers"):
        replayed("asynchronous", few)
    gossip = protocols.gossip(np.ones((4, 3)), clock="rounds", seed=0)
    plain = rules.compressed(BARE["asgd"](), compressions.Sign(), num_workers=2)
    with pytest.raises(ValueError, match=r"^rule absorbs the gradients of a server's workers"):
        run(gossip, plain, TASK, batch_fn)


def test_penalties_and_points_are_the_rules_own():
    """The gap of a compressed message is that of the message."""
    bare = BARE["gap_aware"]()
    wrapped = rules.compressed(bare, compressions.TopK(share=0.5), num_workers=WORKERS)
    assert rules.compressed(BARE["asgd"](), compressions.Sign(), num_workers=1).penalty is None
    params, grads = START, jax.tree.map(jnp.ones_like, START)
    use = {"worker": 0, "delay": 2, "read_params": jax.tree.map(lambda leaf: leaf + 0.1, START), "number": 0}
    state = absorbed(wrapped, grads, wrapped.init(params), params, **use)
    expected = bare.penalty(state.message, bare.init(params), params, **use)
    np.testing.assert_allclose(wrapped.penalty(grads, state, params, **use), expected)
    message = received(bare, state.message, bare.init(params), params, **use)
    jax.tree.map(np.testing.assert_allclose, received(wrapped, grads, state, params, **use), message)


@pytest.mark.covering(strength=1)
@pytest.mark.parametrize("compressor", [compressions.RandomK(share=0.5), compressions.PowerSgd(rank=1)])
@pytest.mark.parametrize(("name", "layout"), [("asynchronous", "sharded"), ("synchronous", "replicated")])
def test_devices_compress_as_one_does(name, layout, compressor):
    """Also where all gradients of a wave are of one update: their messages are exchanged, not the mean of gradients."""
    rule = rules.compressed(BARE["asgd"](), compressor, num_workers=WORKERS, feedback="error", seed=1)
    mesh = jax.make_mesh((4,), ("device",), axis_types=(jax.sharding.AxisType.Auto,))
    event, sharded = (in_float64(schedule(name), rule, **how) for how in ({}, {"mesh": mesh, "layout": layout}))
    assert_close(sharded.params, event.params)
    assert_close(sharded.state.memory.kept, event.state.memory.kept)
