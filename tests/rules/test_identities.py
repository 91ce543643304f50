"""Test what the rules must be where nothing is stale: serial optax, step by step; how they consist of each other."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sgdlab import protocols, replay, rules
from sgdlab.tasks import Task

STEPS = 25
RATE, GAMMA, DECAY = 0.07, 0.8, 0.02
CAPACITY = replay.Capacity(rows=4 * STEPS, slots=4, width=4, workers=4)  # all runs of a method share a program

_random = np.random.default_rng(1)
CURVATURE = _random.uniform(0.2, 1.0, (STEPS * 4, 5))
TARGET = _random.normal(size=(STEPS * 4, 5))
DIRECTION = {"a": _random.normal(size=5), "b": _random.normal()}
START = {"a": _random.normal(size=5), "b": np.float64(_random.normal())}


def start():
    return jax.tree.map(jnp.asarray, START)


def loss(params, batch):
    curvature, target = batch
    return jnp.sum(curvature * (params["a"] - target) ** 2) / 2 + jnp.cos(params["b"] + jnp.sum(params["a"]))


def grad_fn(params, batch):
    """Its aux is the projection of the parameters that were read: the path, step by step."""
    return jax.grad(loss)(params, batch), {"read": optax.tree.vdot(params, DIRECTION)}


def batch_fn(row):
    return jnp.asarray(CURVATURE)[row], jnp.asarray(TARGET)[row]


def alone(steps=STEPS):
    """One worker, nothing stale."""
    return protocols.asynchronous(np.ones((steps, 1)))


def stale():
    return protocols.asynchronous(np.random.default_rng(0).gamma(4.0, size=(STEPS, 4)), num_gradients=STEPS)


def replayed(rule, schedule):
    program = replay.lower(schedule, capacity=CAPACITY)
    result = replay.run(program, rule, Task(grad_fn, start()), batch_fn, mode="event")
    return result.params, result.history.aux["read"]


@functools.cache
def serial(tx, weight_decay=0.0):
    """An ordinary optax loop."""
    tx = optax.chain(optax.add_decayed_weights(weight_decay), tx)

    @jax.jit
    def step(params, state, row):
        grads, aux = grad_fn(params, batch_fn(row))
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, aux["read"]

    params, path = start(), []
    state = tx.init(params)
    for row in range(STEPS):
        params, state, read = step(params, state, row)
        path.append(float(read))
    return params, np.array(path)


def assert_same_path(given, expected, rtol=1e-12):
    np.testing.assert_allclose(given[1], expected[1], rtol=rtol, atol=1e-13)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=rtol, atol=1e-13), given[0], expected[0])


def assert_different_path(given, other):
    """Check that paths differ: that two runs agree shows nothing unless they could differ."""
    assert not np.allclose(given[1], other[1], rtol=1e-6, atol=0)


def granularities(factory):
    return [functools.partial(factory, granularity=name) for name in ("parameter", "layer", "global")]


SGD = optax.sgd(RATE)
MOMENTUM = optax.sgd(RATE, GAMMA)
NAG = optax.sgd(RATE, GAMMA, nesterov=True)
ADAM = optax.adam(RATE, 0.8, 0.9)
WITH_MOMENTUM = {"momentum": GAMMA}
MOMENTS = {"b1": 0.8, "b2": 0.9}
PRINTED = functools.partial(rules.gap_aware, coefficient="printed")
PRINTED_DANA = functools.partial(rules.dana_gap_aware, coefficient="printed")
ON_NAG = [
    rules.staleness_aware,
    rules.staleness_aware_gradient,
    *granularities(rules.gap_aware),
    *granularities(PRINTED),
]
SERIAL = [
    (rules.asgd, {}, SGD),
    (rules.asgd, WITH_MOMENTUM, MOMENTUM),
    (rules.asgd, WITH_MOMENTUM | {"nesterov": True}, NAG),
    (rules.nag_asgd, WITH_MOMENTUM, NAG),
    *((factory, WITH_MOMENTUM, NAG) for factory in ON_NAG),
    *((factory, WITH_MOMENTUM | {"nesterov": False}, MOMENTUM) for factory in ON_NAG),
    (rules.adam, MOMENTS, ADAM),
    (rules.adam_staleness_aware, MOMENTS, ADAM),
    *((factory, MOMENTS, ADAM) for factory in granularities(rules.adam_gap_aware)),
    (rules.linear_scaling, WITH_MOMENTUM, NAG),
    (rules.linear_scaling, WITH_MOMENTUM | {"nesterov": False}, MOMENTUM),
    (rules.exponential_penalty, WITH_MOMENTUM, NAG),
    (rules.exponential_penalty, WITH_MOMENTUM | {"nesterov": False}, MOMENTUM),
    *(
        (functools.partial(factory, **options), more, tx)
        for factory, options in (
            (rules.delay_adaptive, {"num_workers": 1}),
            (rules.delay_compensated, {"variance_control": 0.7}),
            (rules.delay_compensated, {"variance_control": 0.7, "adaptive": True}),
        )
        for more, tx in (({}, SGD), (WITH_MOMENTUM, MOMENTUM), (WITH_MOMENTUM | {"nesterov": True}, NAG))
    ),
]


@pytest.mark.covering
@pytest.mark.parametrize("weight_decay", [0.0, DECAY])
@pytest.mark.parametrize(("factory", "options", "tx"), SERIAL)
def test_one_worker_is_serial_optax(factory, options, tx, weight_decay):
    """The delay is 1 and the gap 0, so no penalty is left."""
    rule = factory(learning_rate=RATE, weight_decay=weight_decay, **options)
    assert_same_path(replayed(rule, alone()), serial(tx, weight_decay))


@pytest.mark.parametrize(
    "factory", [rules.dana, rules.dana_staleness_aware, *granularities(rules.dana_gap_aware), PRINTED_DANA]
)
def test_dana_with_more_workers_than_the_schedule_has_is_the_same(factory):
    four, nine = (replayed(factory(learning_rate=RATE, num_workers=n), stale()) for n in (4, 9))
    assert_same_path(four, nine, rtol=0)


AS_TRANSFORMS = [
    (rules.asgd, {"momentum": GAMMA}),
    (rules.staleness_aware, {}),
    (rules.staleness_aware_gradient, {}),
    (rules.gap_aware, {}),
    (PRINTED, {}),
    (PRINTED_DANA, {"num_workers": 3}),
    (rules.dana, {"num_workers": 3}),
    (rules.dana_staleness_aware, {"num_workers": 3}),
    (rules.dana_gap_aware, {"num_workers": 3}),
    (rules.adam, {}),
    (rules.adam_staleness_aware, {}),
    (rules.adam_gap_aware, {}),
    (rules.linear_scaling, {}),
    (rules.delay_adaptive, {"num_workers": 2}),
    (rules.delay_compensated, {"variance_control": 0.5}),
    (rules.delay_compensated, {"variance_control": 0.5, "adaptive": True}),
    (rules.exponential_penalty, {"penalty": 0.4}),
]


@pytest.mark.parametrize(("factory", "options"), AS_TRANSFORMS)
def test_as_transform_in_a_chain_is_the_rule(factory, options):
    """Clipped gradients, the rule, then a halved step; delays, senders and parameters read all matter."""
    rule, theta = factory(learning_rate=RATE, weight_decay=DECAY, **options), start()
    tx = optax.chain(optax.clip(0.3), rules.as_transform(rule), optax.scale(0.5))
    state, chain_state, read = rule.init(theta), tx.init(theta), theta
    for step in range(6):
        worker, delay = step % 3, 1 + step % 4
        grads = grad_fn(read, batch_fn(step))[0]
        clipped = jax.tree.map(lambda g: jnp.clip(g, -0.3, 0.3), grads)
        chained, chain_state = tx.update(
            grads, chain_state, theta, worker=worker, delay=delay, read_params=read, unknown="ignored"
        )
        message = rule.receive(clipped, state, theta, worker=worker, delay=delay, read_params=read)
        updates, state = rule.update(message, state, theta, num_gradients=1, delay=delay, worker=worker)
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, 0.5 * b), chained, updates)
        read, theta = rule.send(theta, state), optax.apply_updates(theta, updates)  # one update behind


@pytest.mark.parametrize(("factory", "options"), AS_TRANSFORMS)
def test_as_transform_needs_just_what_the_rule_uses(factory, options):
    """An argument is refused to be missing if, and only if, another value of it changes what comes out."""
    transform, theta = rules.as_transform(factory(learning_rate=RATE, **options)), start()
    facts = {"worker": 0, "delay": 1, "read_params": theta}
    others = {"worker": 1, "delay": 4, "read_params": jax.tree.map(lambda leaf: 3 * leaf + 1, theta)}
    state = transform.init(theta)
    for _ in range(2):  # the gap is 1 before the first update
        _, state = transform.update(theta, state, theta, **facts)
    told = jax.tree.leaves(transform.update(theta, state, theta, **facts))
    for name in facts:
        changed = jax.tree.leaves(transform.update(theta, state, theta, **facts | {name: others[name]}))
        rest = {other: value for other, value in facts.items() if other != name}
        if any(not np.array_equal(a, b) for a, b in zip(told, changed, strict=True)):
            with pytest.raises(ValueError, match=f"^{name}=None must be .*: this rule uses it$"):
                transform.update(theta, state, theta, **rest)
        else:
            plain = jax.tree.leaves(transform.update(theta, state, theta, **rest))
            jax.tree.map(np.testing.assert_array_equal, plain, told)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dellay": 4}, r"^dellay=\.\.\. must be one of worker, delay, read_params \(did you mean delay\?\)"),
        ({"staleness": 3}, r"^delay=None must be 1 \+ the number of updates .*: this rule uses it"),
        ({}, r"^delay=None must be"),
    ],
)
def test_as_transform_refuses_a_misspelt_argument(given, message):
    """It would count as fresh, and the penalty be off, in silence; in a compiled loop too."""
    transform, theta = rules.as_transform(rules.staleness_aware(learning_rate=RATE)), start()
    for one in (transform, optax.chain(optax.identity(), transform)):
        for update in (one.update, jax.jit(one.update)):
            with pytest.raises(ValueError, match=message):
                update(theta, one.init(theta), theta, **given)


def test_a_rule_that_decides_in_python_is_not_asked_what_it_uses():
    def scale(updates, state, params=None, *, delay=1, **extra_args):
        return (updates if delay > 3 else jax.tree.map(lambda u: 0 * u, updates)), state

    tx = optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), scale)
    transform, theta = rules.as_transform(rules.server_rule(tx)), start()
    updates, _ = transform.update(theta, transform.init(theta), theta)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(updates))
    with pytest.raises(ValueError, match="did you mean delay"):
        transform.update(theta, transform.init(theta), theta, delays=4)


def test_as_transform_needs_the_parameters():
    transform = rules.as_transform(rules.asgd(learning_rate=RATE))
    with pytest.raises(ValueError, match="params=None"):
        transform.update(start(), transform.init(start()))


@pytest.mark.parametrize(
    ("tx", "rule"),
    [
        (SGD, rules.asgd(learning_rate=RATE)),
        (MOMENTUM, rules.asgd(learning_rate=RATE, momentum=GAMMA)),
        (NAG, rules.nag_asgd(learning_rate=RATE, momentum=GAMMA)),
        (optax.adam(RATE), rules.adam(learning_rate=RATE)),
    ],
)
def test_a_lifted_optimizer_is_the_rule_of_that_name(tx, rule):
    assert_same_path(replayed(rules.server_rule(tx), stale()), replayed(rule, stale()))
    schedule = protocols.synchronous(np.ones((STEPS, 4)))
    assert_same_path(replayed(rules.server_rule(tx), schedule), replayed(rule, schedule))


@pytest.mark.parametrize("nesterov", [True, False])
def test_the_place_of_scale_by_delay_in_a_chain_is_the_method(nesterov):
    trace, delay, rate = optax.trace(GAMMA, nesterov), rules.scale_by_delay(), optax.scale_by_learning_rate(RATE)
    options = {"learning_rate": RATE, "momentum": GAMMA, "nesterov": nesterov}
    step = replayed(rules.staleness_aware(**options), stale())
    gradient = replayed(rules.staleness_aware_gradient(**options), stale())
    assert_same_path(replayed(rules.server_rule(optax.chain(trace, delay, rate)), stale()), step)
    assert_same_path(replayed(rules.server_rule(optax.chain(delay, trace, rate)), stale()), gradient)
    received = rules.server_rule(optax.chain(trace, rate), receive=delay)
    assert_same_path(replayed(received, stale()), gradient)
    assert_different_path(step, gradient)


def test_receive_is_applied_to_each_gradient_and_tx_to_their_mean():
    rule, theta = rules.server_rule(optax.sgd(RATE), receive=optax.clip(1.0)), jnp.zeros(1)
    state = rule.init(theta)
    gradients = [jnp.array([4.0]), jnp.array([-0.5])]
    messages = [rule.receive(g, state, theta, worker=0, delay=1, read_params=theta) for g in gradients]
    updates, _ = rule.update(sum(messages) / 2, state, theta, num_gradients=2, delay=1, worker=None)
    np.testing.assert_allclose(updates, [-RATE * (1.0 - 0.5) / 2], rtol=1e-15)


@pytest.mark.parametrize(
    "receive", [optax.trace(0.9), optax.scale_by_adam(), optax.chain(optax.clip(1.0), optax.ema(0.9))]
)
def test_a_receive_with_a_state_is_refused(receive):
    with pytest.raises(ValueError, match="receive must be a stateless optax transform"):
        rules.server_rule(optax.sgd(RATE), receive=receive).init(start())


def test_update_learns_how_many_gradients_came_and_how_late():
    seen = []

    def update(updates, state, params=None, *, num_gradients, delay, worker, **extra):
        seen.append((num_gradients, delay, worker, extra))
        return updates, state

    tx = optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)
    rule = rules.server_rule(tx)
    rule.update(start(), rule.init(start()), start(), num_gradients=3, delay=2.5, worker=None, colour="blue")
    assert seen == [(3, 2.5, None, {"colour": "blue"})]


def several():
    """Updates of four gradients, whose delays differ."""
    runtimes = np.random.default_rng(2).gamma(4.0, size=(STEPS, 4))
    return protocols.softsync(runtimes, gradients_per_update=4, num_gradients=STEPS // 4 * 4)


class TestDelayCompensated:
    def test_corrects_to_first_order_where_the_square_is_the_curvature(self):
        """f(x) = -log x has f'' = (f')^2: with variance control 1 the gradient errs by the square of the distance."""
        rule, then = rules.delay_compensated(learning_rate=RATE, variance_control=1.0), jnp.asarray([0.7, 1.9])
        errors = []
        for moved in (1e-3, 5e-4):
            now = then + moved
            message = rule.receive(-1 / then, rule.init(now), now, worker=0, delay=2, read_params=then)
            errors.append(np.abs(message.gradient + 1 / now))
        np.testing.assert_allclose(errors[0] / errors[1], 4.0, rtol=2e-3)

    def test_keeps_a_mean_square_only_where_it_adapts(self):
        plain, adaptive = (rules.delay_compensated(learning_rate=RATE, adaptive=a).init(start()) for a in (False, True))
        assert len(jax.tree.leaves(adaptive)) - len(jax.tree.leaves(plain)) == len(jax.tree.leaves(start()))


DELAYED = rules.scale_by_excess_delay(1)
PENALISED = rules.scale_by_exponential_delay(0.4)
SCALED = rules.scale_by_num_gradients()
DESCEND = optax.scale_by_learning_rate(RATE)


@pytest.mark.covering
@pytest.mark.parametrize("schedule", [stale, several])
@pytest.mark.parametrize("nesterov", [True, False])
def test_the_rules_are_chains(nesterov, schedule):
    """The parts in custom chains, lifted by `server_rule`, are the rules; their place in the chain matters."""
    made, trace, options = schedule(), optax.trace(GAMMA, nesterov), {"momentum": GAMMA, "nesterov": nesterov}
    options["learning_rate"] = RATE
    chained = lambda *parts, **more: replayed(rules.server_rule(optax.chain(*parts), **more), made)
    adaptive = replayed(rules.delay_adaptive(num_workers=1, **options), made)
    assert_same_path(chained(trace, DELAYED, DESCEND), adaptive, rtol=1e-14)
    assert_different_path(chained(DELAYED, trace, DESCEND), adaptive)
    scaled = replayed(rules.linear_scaling(**options), made)
    assert_same_path(chained(trace, SCALED, DESCEND), scaled, rtol=1e-14)
    penalised = replayed(rules.exponential_penalty(penalty=0.4, **options), made)
    assert_same_path(chained(trace, DESCEND, receive=PENALISED), penalised, rtol=1e-14)
    assert_different_path(chained(trace, PENALISED, DESCEND), penalised)
    if schedule is stale:  # the penalty of the mean delay is not the mean of the penalised gradients
        assert_same_path(chained(PENALISED, trace, DESCEND), penalised, rtol=1e-14)
    else:
        assert_different_path(chained(PENALISED, trace, DESCEND), penalised)


@pytest.mark.parametrize(
    ("transform", "name", "factor"),
    [
        (SCALED, "num_gradients", lambda d: d),
        (DELAYED, "delay", lambda tau: 1 / tau),
        (rules.scale_by_delay(), "delay", lambda tau: 1 / tau),
        (rules.scale_by_excess_delay(3), "delay", lambda tau: 3 / tau if tau > 3 else 1.0),
        (PENALISED, "delay", lambda tau: np.exp(-0.4) ** (tau - 1)),
    ],
)
def test_the_parts_scale(transform, name, factor):
    tree = start()
    state = transform.init(tree)
    assert jax.tree.leaves(state) == []
    for value in (1, 2, 2.5, 7, 28):
        scaled, _ = transform.update(tree, state, **{name: value}, worker=0, colour="blue")
        jax.tree.map(lambda s, t, v=value: np.testing.assert_allclose(s, factor(v) * t, rtol=1e-14), scaled, tree)
    jax.tree.map(np.testing.assert_array_equal, transform.update(tree, state)[0], tree)


@pytest.mark.parametrize("granularity", ["parameter", "layer", "global"])
def test_gap_aware_is_a_chain_of_the_gap_a_momentum_and_the_rate(granularity):
    rate = RATE / 4
    given = {"learning_rate": rate, "momentum": GAMMA, "nesterov": False, "granularity": granularity}
    chained = optax.chain(
        rules.scale_by_gap(optax.trace(GAMMA), max_learning_rate=rate, granularity=granularity),
        optax.scale_by_learning_rate(rate),
    )

    def path(tx):
        versions, state = [start()], tx.init(start())
        for row in range(STEPS):
            read = versions[row - row % 4]  # of every staleness from 0 to 3
            updates, state = tx.update(grad_fn(read, batch_fn(row))[0], state, versions[-1], read_params=read)
            versions.append(optax.apply_updates(versions[-1], updates))
        return versions

    found, expected = path(chained), path(rules.as_transform(rules.gap_aware(**given)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), found, expected)
