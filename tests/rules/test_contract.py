"""Every rule keeps one contract: extra arguments, dtypes, jit, vmap, injection, convergence, and no recompiling.

One table of rules, one test per promise (after optax's contrib/_common_test.py). A rule is in the table by being
registered.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from lib.compiling import compilations

import sgdlab
from sgdlab import replay, rules
from sgdlab.registry import RULES
from sgdlab.rules.server_rule import absorbed
from sgdlab.tasks import Task

WORKERS = 4
GIVEN = {"momentum": 0.5, "weight_decay": 0.01, "num_workers": WORKERS}


def factory(name, **changed):
    """The registered rule of that name, with all but its learning rate."""
    part = RULES[name]
    return functools.partial(part.make, **{key: GIVEN[key] for key in GIVEN if key in part.given} | changed)


FACTORIES = {name: factory(name) for name in RULES} | {
    "staleness_aware, without nesterov": factory("staleness_aware", nesterov=False, weight_decay=0.0),
    "gap_aware, layer": factory("gap_aware", granularity="layer"),
    "gap_aware, global": factory("gap_aware", granularity="global", nesterov=False, weight_decay=0.0),
    "gap_aware, printed": factory("gap_aware", coefficient="printed"),
    "dana_gap_aware, printed": factory("dana_gap_aware", coefficient="printed"),
    "adam_gap_aware, layer": factory("adam_gap_aware", granularity="layer", weight_decay=0.0),
    "delay_adaptive": factory("delay_adaptive", num_workers=2),  # delays reach 3
    "delay_compensated, nesterov": factory("delay_compensated", nesterov=True),
    "delay_compensated, adaptive": factory("delay_compensated", variance_control=0.5, adaptive=True),
}
each_rule = pytest.mark.parametrize("name", FACTORIES)

FLOAT32, BFLOAT16, FLOAT64 = (jnp.dtype(name) for name in ("float32", "bfloat16", "float64"))
DTYPES = {
    "float32": (FLOAT32, FLOAT32),
    "bfloat16": (BFLOAT16, BFLOAT16),
    "float64": (FLOAT64, FLOAT64),
    "mixed": (FLOAT32, BFLOAT16),
}
RATES = {
    "python float": lambda rate: rate,
    "numpy float64": np.float64,
    "float32 array": functools.partial(jnp.asarray, dtype=jnp.float32),
    "float64 array": functools.partial(jnp.asarray, dtype=jnp.float64),
    "schedule": lambda rate: optax.cosine_decay_schedule(rate, 1000),
}


def start(dtypes=(FLOAT64, FLOAT64)):
    return {
        "kernel": jnp.linspace(0.5, 1.5, 6).reshape(2, 3).astype(dtypes[0]),
        "nested": (jnp.asarray(-0.75, dtypes[1]),),
    }


def with_rate(name, rate):
    """The rule `name`; a schedule needs the largest rate where there is a gap."""
    maximum = {"max_learning_rate": 0.05} if callable(rate) and "gap_aware" in name else {}
    return FACTORIES[name](learning_rate=rate, **maximum)


def received(rule, grads, state, params, **use):
    """The message of a gradient, and the state that its rule has then."""
    state = absorbed(rule, grads, state, params, **use)
    return rule.receive(grads, state, params, **use), state


def walk(rule, params, state, *, steps=12):
    """Some updates of stale gradients of |params|^2 / 2: of what was sent one update ago. Returns params and state."""

    def update(carry, step):
        params, state, read = carry
        facts = {"worker": step % WORKERS, "delay": 1 + step % 3}
        message, state = received(rule, read, state, params, read_params=read, **facts)
        read = rule.send(params, state)
        updates, state = rule.update(message, state, params, num_gradients=1, **facts)
        return (optax.apply_updates(params, updates), state, read), None

    carry, _ = jax.lax.scan(update, (params, state, rule.send(params, state)), jnp.arange(steps, dtype=jnp.int32))
    return carry[:2]


TRACES = []


@jax.jit
def walked(rule, params):
    """The rule is an argument: one program for all its learning rates. What it is made for is kept."""
    TRACES.append(jax.tree.structure(rule))
    return walk(rule, params, rule.init(params))


def assert_close(given, expected, **tolerance):
    jax.tree.map(functools.partial(np.testing.assert_allclose, **({"rtol": 1e-12} | tolerance)), given, expected)


def assert_same_types(given, expected):
    assert jax.tree.structure(given) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(given), jax.tree.leaves(expected), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)


def is_named_tuple(message):
    """Return whether a message has a penalised and another part, and is not like the parameters (a dictionary)."""
    return hasattr(message, "_fields")


@each_rule
def test_ignores_unknown_arguments(name):
    """They leave no trace in the program."""
    rule, params = with_rate(name, 0.05), start()
    state, facts = rule.init(params), {"worker": 1, "delay": 2}

    def program(**unknown):
        def once(params, state):
            message, state = received(rule, params, state, params, read_params=params, **facts, **unknown)
            updates, state = rule.update(message, state, params, num_gradients=1, **facts, **unknown)
            return updates, state, rule.init(params, **unknown), rule.send(params, state, **unknown)

        return str(jax.make_jaxpr(once)(params, state))

    assert program(colour="blue", seconds=1.5) == program()
    assert program() != str(jax.make_jaxpr(lambda params: params)(params))


@pytest.mark.covering
@each_rule
@pytest.mark.parametrize("dtypes", DTYPES)
@pytest.mark.parametrize("rate", RATES)
def test_keeps_dtypes(name, dtypes, rate):
    """Gradients and parameters, whatever the type of the learning rate; the state is in float32 at least.

    Nothing is computed here.
    """
    rule, params = with_rate(name, RATES[rate](0.05)), start(DTYPES[dtypes])

    def once(params):
        state = rule.init(params)
        facts = {"worker": jnp.asarray(1, jnp.int32), "delay": jnp.asarray(2.0, jnp.float64)}
        message, kept = received(rule, params, state, params, read_params=params, **facts)
        updates, new_state = rule.update(message, kept, params, num_gradients=jnp.asarray(1), **facts)
        return message, updates, state, new_state, rule.send(params, new_state)

    message, updates, state, new_state, sent = jax.eval_shape(once, params)
    if message != ():
        assert_same_types(message[0] if is_named_tuple(message) else message, params)
    assert_same_types(updates, params)
    assert_same_types(sent, params)
    assert_same_types(new_state, state)
    wide = {jnp.promote_types(dtype, FLOAT32) for dtype in DTYPES[dtypes]}
    assert {leaf.dtype for leaf in jax.tree.leaves(state)} <= {*wide, jnp.dtype("int32")}
    # A scan refuses a carry whose types change. A NumPy float64 is as strongly typed as an array of float64, and rules
    # whose rate is a Python float walk below, where they are computed.
    if rate not in {"python float", "numpy float64"}:
        jax.eval_shape(lambda params: walk(rule, params, rule.init(params), steps=2), params)


@pytest.mark.sample(20)
@each_rule
@pytest.mark.parametrize("dtypes", ["bfloat16", "mixed"])
def test_narrow_dtypes_give_the_same_method(name, dtypes):
    """In any precision the parameters go where they go in float64: a few bits of a step of 0.05 to 1 may be lost."""
    rule, exact = with_rate(name, 0.05), start()
    given, _ = walked(rule, start(DTYPES[dtypes]))
    expected, _ = walked(rule, exact)
    # Steps of one length and one direction are rounded in one direction, by half a unit in the last place each.
    atol = 12 * 2**-8 if name == "normalised_momentum" else 0.03
    assert_close(jax.tree.map(lambda leaf: leaf.astype(jnp.float64), given), expected, rtol=0, atol=atol)
    assert (
        max(float(jnp.abs(a - b).max()) for a, b in zip(*map(jax.tree.leaves, (expected, exact)), strict=True)) > 0.06
    )


LONG = 3000


@functools.partial(jax.jit, static_argnums=1)
def last_steps(rule, dtype):
    """The last updates of 3,000 gradients that do not depend on the parameters, nor change them; and what is sent.

    The numbers are the same ones in every dtype, and each worker is as far away as the others.
    """
    params = {"kernel": jnp.arange(8, 14).reshape(2, 3).astype(dtype) / 16, "bias": jnp.asarray(-0.75, dtype)}
    read = jax.tree.map(lambda leaf: leaf * 1.5, params)

    def update(state, step):
        grads = jax.tree.map(lambda leaf: leaf * (1 + (step % 4) / 4).astype(dtype), params)
        facts = {"worker": step % WORKERS, "delay": 1 + step % 3}
        message, state = received(rule, grads, state, params, read_params=read, **facts)
        updates, state = rule.update(message, state, params, num_gradients=1, **facts)
        return state, (updates, rule.send(params, state))

    # In blocks of 12: in bfloat16 what a scan gives is converted whole at every step.
    twelve = functools.partial(jax.lax.scan, update)
    _, steps = jax.lax.scan(twelve, rule.init(params), jnp.arange(LONG, dtype=jnp.int32).reshape(-1, 12))
    return jax.tree.map(lambda leaf: leaf[-1], steps)


def momenta(name):
    """A long memory, as an argument of the rule, where it has one."""
    return [{"momentum": 0.99}] if "momentum" in RULES[name.split(",")[0]].given else [{}]


@pytest.mark.sample(9)
@pytest.mark.parametrize(("name", "momentum"), [(name, given) for name in FACTORIES for given in momenta(name)])
def test_accumulators_do_not_stall_in_narrow_dtypes(name, momentum):
    """After 3,000 updates bfloat16 errs by its own rounding of message, update and parameters, in 2^-8 of each."""
    rule = FACTORIES[name](learning_rate=0.05, weight_decay=0.0, **momentum)
    given, expected = last_steps(rule, BFLOAT16), last_steps(rule, FLOAT64)
    assert {leaf.dtype for leaf in jax.tree.leaves(given)} == {BFLOAT16}
    assert_close(jax.tree.map(lambda leaf: leaf.astype(FLOAT64), given), expected, rtol=3 * 2**-8)


@pytest.mark.sample(14)
@each_rule
def test_float16_does_not_vanish(name):
    """1e-8, squares of small gradients and a gap of 0 / 0 are nothing in float16: states must not be."""
    rule, params = with_rate(name, 0.05), start((jnp.dtype("float16"), jnp.dtype("float16")))
    end, state = walked(rule, params)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves((end, state)))
    assert_close(jax.tree.map(lambda leaf: leaf.astype(FLOAT64), end), walked(rule, start())[0], rtol=0, atol=0.005)


@pytest.mark.sample(14)
@each_rule
def test_a_compiled_function_takes_the_rule_as_an_argument_and_never_compiles_for_another_rate(name):
    params = start()
    fast = walked(with_rate(name, 0.05), params)
    made = list(TRACES)
    slow = walked(with_rate(name, 0.02), params)
    assert made == TRACES != []
    assert not np.allclose(fast[0]["kernel"], slow[0]["kernel"])
    constant = with_rate(name, 0.02)
    assert_close(slow, jax.jit(lambda p: walk(constant, p, constant.init(p)))(params))


def test_no_two_rules_have_equal_structures():
    """A compiled function is looked up by the structure of its arguments."""
    made = {name: jax.tree.structure(with_rate(name, 0.05)) for name in FACTORIES}
    assert [(one, other) for one, other in itertools.combinations(made, 2) if made[one] == made[other]] == []


@pytest.mark.sample(14)
@each_rule
def test_compiled_or_not_is_the_same(name):
    rule, params = with_rate(name, 0.05), start()
    state, facts = rule.init(params), {"worker": 1, "delay": 2}
    message, state = received(rule, params, state, params, read_params=params, **facts)
    updates, state = rule.update(message, state, params, num_gradients=1, **facts)
    facts |= {"read_params": params}
    by_transform = jax.jit(rules.as_transform(rule).update)(params, rule.init(params), params, **facts)
    assert_close((updates, state), by_transform)


@pytest.mark.sample(14)
@each_rule
def test_vmap_over_learning_rates_is_the_loop(name):
    params, rates = start(), np.array([0.01, 0.05, 0.2])

    @jax.jit
    @jax.vmap
    def mapped(rate):
        rule = with_rate(name, rate)
        return walk(rule, params, rule.init(params))

    expected = [walked(with_rate(name, rate), params) for rate in rates.tolist()]  # the loop
    assert_close(mapped(rates), jax.tree.map(lambda *leaves: np.stack(leaves), *expected))


@pytest.mark.sample(14)
@each_rule
def test_injected_hyperparameters_are_the_plain_rule_and_can_be_changed(name):
    params = start()
    plain, slow = with_rate(name, 0.05), with_rate(name, 0.01)
    rule = rules.inject_hyperparams(FACTORIES[name])(learning_rate=0.05)
    assert rule.num_workers == plain.num_workers
    run, state = jax.jit(functools.partial(walk, rule)), rule.init(params)
    assert float(state.hyperparams["learning_rate"]) == 0.05
    given, end = run(params, state)
    assert_close((given, end.inner), walked(plain, params))
    # Of the type that it has, or the program would be compiled again.
    state.hyperparams["learning_rate"] = jnp.full_like(state.hyperparams["learning_rate"], 0.01)
    changed, end = run(params, state)
    assert_close((changed, end.inner), walked(slow, params))
    assert float(end.hyperparams["learning_rate"]) == 0.01
    assert not np.allclose(changed["kernel"], given["kernel"])


@pytest.mark.covering
@each_rule
@pytest.mark.parametrize("dtypes", DTYPES)
def test_injected_hyperparameters_keep_dtypes(name, dtypes):
    rule, params = rules.inject_hyperparams(FACTORIES[name])(learning_rate=0.05), start(DTYPES[dtypes])
    state = rule.init(params)
    shapes = jax.eval_shape(functools.partial(walk, rule, steps=2), params, state)
    assert_same_types(shapes, (params, state))


@pytest.mark.sample(9)
@each_rule
def test_injected_hyperparameters_are_the_plain_rule_in_narrow_dtypes(name):
    rule, params = rules.inject_hyperparams(FACTORIES[name])(learning_rate=0.05), start(DTYPES["mixed"])
    given, _ = jax.jit(lambda p: walk(rule, p, rule.init(p)))(params)
    expected, _ = walked(with_rate(name, 0.05), params)
    as_float64 = functools.partial(jax.tree.map, lambda leaf: leaf.astype(jnp.float64))
    assert_close(as_float64(given), as_float64(expected), rtol=0, atol=0.03)


@pytest.mark.sample(14)
@each_rule
def test_lives_inside_optax_inject_hyperparams(name):
    params = start()
    injected = optax.inject_hyperparams(lambda learning_rate: rules.as_transform(with_rate(name, learning_rate)))(
        learning_rate=0.05
    )

    @jax.jit
    def walked_inside(state):
        def update(carry, step):
            params, state, read = carry
            facts = {"worker": step % WORKERS, "delay": 1 + step % 3, "read_params": read}
            sent = with_rate(name, state.hyperparams["learning_rate"]).send(params, state.inner_state)
            updates, state = injected.update(read, state, params, **facts)
            return (optax.apply_updates(params, updates), state, sent), None

        return jax.lax.scan(update, (params, state, params), jnp.arange(12, dtype=jnp.int32))[0][:2]

    state = injected.init(params)
    for rate in (0.05, 0.0125):
        state.hyperparams["learning_rate"] = jnp.asarray(rate)
        given, end = walked_inside(state)
        assert_close((given, end.inner_state), walked(with_rate(name, rate), params))


CURVATURE = {"kernel": np.linspace(0.5, 1.0, 6).reshape(2, 3), "nested": (np.array(0.8),)}
GRADIENTS = 256


def quadratic(params, batch):
    del batch
    grads = jax.tree.map(lambda x, h: h * x, params, CURVATURE)
    loss = sum(jnp.vdot(x, g) / 2 for x, g in zip(*map(jax.tree.leaves, (params, grads)), strict=True))
    return grads, {"loss": loss}


def batch_fn(row):
    return row


def stale(name, seed):
    """Stale gradients: of workers for whom nobody waits, or of the rounds that the rule asks for."""
    runtimes = sgdlab.cluster.gamma(num_workers=WORKERS, num_gradients=GRADIENTS, heterogeneous=False, seed=seed)
    overlap = "delayed_rounds" in (RULES[name.split(",")[0]].facts.protocols or ())
    protocol = sgdlab.protocols.delayed_rounds if overlap else sgdlab.protocols.asynchronous
    return protocol(runtimes, num_gradients=GRADIENTS)


@pytest.mark.sample(20)
@each_rule
def test_converges_asynchronously(name):
    rate = 0.5 if name == "parameter_agnostic_muon" else 0.05  # that of the first step
    result = replay.run(stale(name, 0), with_rate(name, rate), Task(quadratic, start()), batch_fn)
    losses = result.history.aux["loss"]
    assert result.history.delay.max() > (1 if name == "dc_s3gd" else 2)
    assert float(quadratic(result.params, 0)[1]["loss"]) < 0.01 * losses[0]
    assert losses[-32:].max() < 0.05 * losses[0]


def test_compilations_are_seen():
    with compilations() as seen:
        jax.jit(lambda x: x + 1)(1.0)
    assert len(seen) == 1
    jax.jit(lambda x: x + 2)(1.0)
    assert len(seen) == 1


@pytest.mark.sample(14)
@each_rule
def test_another_seed_and_another_rate_compile_nothing(name):
    first = replay.run(stale(name, 0), with_rate(name, 0.05), Task(quadratic, start()), batch_fn)
    with compilations() as seen:
        second = replay.run(stale(name, 1), with_rate(name, 0.02), Task(quadratic, start()), batch_fn)
    assert not seen
    assert not np.allclose(first.history.aux["loss"], second.history.aux["loss"], rtol=0.01)
