"""What the rules must be where nothing is stale: serial optax, step by step; and how they are made of each other."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sgdlab import protocols, replay, rules

STEPS = 25
RATE, GAMMA, DECAY = 0.07, 0.8, 0.02
CAPACITY = replay.Capacity(rows=4 * STEPS, slots=4, width=4)  # all runs of a method share a program

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
    result = replay.run(program, rule, grad_fn, start(), batch_fn, mode="event")
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
    """That two runs agree shows nothing unless they could differ."""
    assert not np.allclose(given[1], other[1], rtol=1e-6, atol=0)


def granularities(factory):
    return [functools.partial(factory, granularity=name) for name in ("parameter", "layer", "global")]


SGD = optax.sgd(RATE)
MOMENTUM = optax.sgd(RATE, GAMMA)
NAG = optax.sgd(RATE, GAMMA, nesterov=True)
ADAM = optax.adam(RATE, 0.8, 0.9)
WITH_MOMENTUM = {"momentum": GAMMA}
MOMENTS = {"b1": 0.8, "b2": 0.9}
ON_NAG = [rules.staleness_aware, rules.staleness_aware_gradient, *granularities(rules.gap_aware)]
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
]


@pytest.mark.parametrize("weight_decay", [0.0, DECAY])
@pytest.mark.parametrize(("factory", "options", "tx"), SERIAL)
def test_one_worker_is_serial_optax(factory, options, tx, weight_decay):
    """The delay is 1 and the gap 0, so no penalty is left."""
    rule = factory(learning_rate=RATE, weight_decay=weight_decay, **options)
    assert_same_path(replayed(rule, alone()), serial(tx, weight_decay))


@pytest.mark.parametrize("factory", ON_NAG)
def test_penalties_on_nag_are_nag_in_synchronous_runs(factory):
    schedule = protocols.synchronous(np.ones((STEPS, 4)))
    rule = factory(learning_rate=RATE, momentum=GAMMA)
    assert_same_path(replayed(rule, schedule), replayed(rules.nag_asgd(learning_rate=RATE, momentum=GAMMA), schedule))


@pytest.mark.parametrize("factory", [rules.adam_staleness_aware, *granularities(rules.adam_gap_aware)])
def test_penalties_on_adam_are_adam_in_synchronous_runs(factory):
    schedule = protocols.synchronous(np.ones((STEPS, 4)))
    rule = factory(learning_rate=RATE)
    assert_same_path(replayed(rule, schedule), replayed(rules.adam(learning_rate=RATE), schedule))


def test_all_methods_differ_where_gradients_are_stale():
    on_nag = [factory(learning_rate=RATE, momentum=GAMMA) for factory in (rules.nag_asgd, *ON_NAG)]
    adams = [rules.adam, rules.adam_staleness_aware, *granularities(rules.adam_gap_aware)]
    danas = [rules.dana, rules.dana_staleness_aware, *granularities(rules.dana_gap_aware)]
    paths = [
        replayed(rule, stale())
        for rule in [
            *on_nag,
            *(factory(learning_rate=RATE, **MOMENTS) for factory in adams),
            *(factory(learning_rate=RATE, num_workers=4) for factory in danas),
        ]
    ]
    for place, path in enumerate(paths):
        for other in paths[:place]:
            assert_different_path(path, other)


def test_synchronous_is_serial_on_the_mean_gradient():
    """Four gradients per update, all on the newest version: a batch four times as large."""
    tx = optax.adam(RATE)
    result, path = replayed(rules.adam(learning_rate=RATE), protocols.synchronous(np.ones((STEPS, 4))))
    params, reads = start(), []
    state = tx.init(params)
    for update in range(STEPS):
        batch = (CURVATURE[4 * update : 4 * update + 4], TARGET[4 * update : 4 * update + 4])
        grads = jax.grad(lambda p, batch=batch: jnp.mean(jax.vmap(loss, (None, 0))(p, batch)))(params)
        reads += 4 * [float(optax.tree.vdot(params, DIRECTION))]
        updates, state = tx.update(grads, state, params)
        params = optax.apply_updates(params, updates)
    assert_same_path((result, path), (params, np.array(reads)))


def look_ahead_sgd(weight_decay, rate=lambda step: RATE):
    """v <- gamma v + g(theta - eta gamma v); theta <- theta - eta v, with eta of the step before in the look-ahead."""
    gradient = jax.jit(lambda params, row: grad_fn(params, batch_fn(row))[0])
    theta, velocity, path = dict(START), {"a": np.zeros(5), "b": 0.0}, []
    for step in range(STEPS):
        read = {name: theta[name] - rate(max(step - 1, 0)) * GAMMA * velocity[name] for name in theta}
        path.append(sum(np.sum(DIRECTION[name] * read[name]) for name in read))
        grads = gradient(read, step)
        velocity = {name: GAMMA * velocity[name] + grads[name] + weight_decay * theta[name] for name in theta}
        theta = {name: theta[name] - rate(step) * velocity[name] for name in theta}
    return theta, np.array(path)


@pytest.mark.parametrize("weight_decay", [0.0, DECAY])
@pytest.mark.parametrize("factory", [rules.dana, rules.dana_staleness_aware])
def test_dana_with_one_worker_is_momentum_sgd_that_looks_ahead(factory, weight_decay):
    rule = factory(learning_rate=RATE, momentum=GAMMA, weight_decay=weight_decay, num_workers=1)
    given = replayed(rule, alone())
    assert_same_path(given, look_ahead_sgd(weight_decay))
    assert_different_path(given, serial(MOMENTUM))


def test_dana_looks_ahead_with_the_rate_of_the_update_just_made():
    rate = optax.piecewise_constant_schedule(RATE, {10: 0.1})
    rule = rules.dana(learning_rate=rate, momentum=GAMMA, num_workers=1)
    assert_same_path(replayed(rule, alone()), look_ahead_sgd(0.0, lambda step: RATE if step < 10 else 0.1 * RATE))


@pytest.mark.parametrize("factory", [rules.dana, rules.dana_staleness_aware, *granularities(rules.dana_gap_aware)])
def test_dana_with_more_workers_than_the_schedule_has_is_the_same(factory):
    four, nine = (replayed(factory(learning_rate=RATE, num_workers=n), stale()) for n in (4, 9))
    assert_same_path(four, nine, rtol=0)


def test_dana_without_momentum_is_asgd():
    dana = rules.dana(learning_rate=RATE, momentum=0.0, num_workers=4)
    assert_same_path(replayed(dana, stale()), replayed(rules.asgd(learning_rate=RATE), stale()))


@pytest.mark.parametrize(
    "factory",
    [
        rules.asgd,
        rules.nag_asgd,
        rules.staleness_aware,
        rules.staleness_aware_gradient,
        *granularities(rules.gap_aware),
        functools.partial(rules.dana, num_workers=2),
        functools.partial(rules.dana_staleness_aware, num_workers=2),
        *granularities(functools.partial(rules.dana_gap_aware, num_workers=2)),
        rules.adam,
        rules.adam_staleness_aware,
        *granularities(rules.adam_gap_aware),
    ],
)
def test_weight_decay_meets_the_gradient_before_any_penalty(factory):
    """receive(g) with decay is receive(g + decay theta) without; theta is the server's, not what was read."""
    theta = start()
    read = optax.tree.add(theta, jax.tree.map(lambda leaf: 0.1 + leaf**2, theta))
    grads = optax.tree.scale(0.5, read)
    plain, decayed = (factory(learning_rate=RATE, weight_decay=decay) for decay in (0.0, DECAY))
    state = plain.init(theta)
    _, state = plain.update(
        plain.receive(grads, state, theta, worker=0, delay=1, read_params=theta), state, theta, worker=0
    )
    receive = functools.partial(plain.receive, worker=1, delay=4, read_params=read)
    expected = receive(optax.tree.add_scale(grads, DECAY, theta), state, theta)
    given = decayed.receive(grads, state, theta, worker=1, delay=4, read_params=read)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-14), given, expected)
    assert not np.allclose(jax.tree.leaves(given)[0], jax.tree.leaves(receive(grads, state, theta))[0])


def first_message(factory, *, delay=1, moved=None, **options):
    """The message of a zero gradient, one update after the start; `moved` is how far from there it was computed."""
    rule, theta = factory(learning_rate=RATE, weight_decay=DECAY, **options), start()
    state = rule.init(theta)
    ones = jax.tree.map(jnp.ones_like, theta)
    step = rules.as_transform(factory(learning_rate=RATE, **options))  # without decay, so that v = 1
    updates, state = step.update(ones, state, theta)
    theta = optax.apply_updates(theta, updates)
    read = theta if moved is None else optax.tree.add(theta, optax.tree.full_like(theta, moved))
    zeros = optax.tree.zeros_like(theta)
    return rule.receive(zeros, state, theta, worker=0, delay=delay, read_params=read), theta


@pytest.mark.parametrize(
    ("factory", "options"),
    [
        (rules.staleness_aware_gradient, {}),
        (rules.dana_staleness_aware, {"num_workers": 2}),
        (rules.adam_staleness_aware, {}),
    ],
)
def test_weight_decay_is_divided_by_the_delay(factory, options):
    message, theta = first_message(factory, delay=4, **options)
    penalised = getattr(message, "penalised", message)
    jax.tree.map(lambda m, p: np.testing.assert_allclose(m, DECAY * p / 4, rtol=1e-14), penalised, theta)
    if penalised is not message:
        jax.tree.map(lambda m, p: np.testing.assert_allclose(m, DECAY * p, rtol=1e-14), message.raw, theta)


@pytest.mark.parametrize(
    ("factory", "options"),
    [(rules.gap_aware, {}), (rules.dana_gap_aware, {"num_workers": 2}), (rules.adam_gap_aware, {})],
)
@pytest.mark.parametrize("granularity", ["parameter", "layer", "global"])
def test_weight_decay_is_divided_by_the_gap(factory, options, granularity):
    """After one update with v = 1, C is eta: 3 eta away the gap is 4, whatever counts as one thing."""
    message, theta = first_message(factory, moved=3 * RATE, granularity=granularity, **options)
    penalised = getattr(message, "penalised", message)
    # The gap's epsilon makes C larger by a part in 1e8.
    jax.tree.map(lambda m, p: np.testing.assert_allclose(m, DECAY * p / 4, rtol=1e-7), penalised, theta)
    if penalised is not message:
        jax.tree.map(lambda m, p: np.testing.assert_allclose(m, DECAY * p, rtol=1e-14), message.raw, theta)


def test_staleness_aware_divides_the_decay_with_the_step():
    rule, theta = rules.staleness_aware(learning_rate=RATE, momentum=0.0, weight_decay=DECAY), start()
    state = rule.init(theta)
    message = rule.receive(optax.tree.zeros_like(theta), state, theta, worker=0, delay=4, read_params=theta)
    updates, _ = rule.update(message, state, theta, delay=4)
    jax.tree.map(lambda u, p: np.testing.assert_allclose(u, -RATE * DECAY * p / 4, rtol=1e-14), updates, theta)


AS_TRANSFORMS = [
    (rules.asgd, {"momentum": GAMMA}),
    (rules.staleness_aware, {}),
    (rules.staleness_aware_gradient, {}),
    (rules.gap_aware, {}),
    (rules.dana, {"num_workers": 3}),
    (rules.dana_staleness_aware, {"num_workers": 3}),
    (rules.dana_gap_aware, {"num_workers": 3}),
    (rules.adam, {}),
    (rules.adam_staleness_aware, {}),
    (rules.adam_gap_aware, {}),
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
def test_as_transform_takes_everything_as_fresh_by_default(factory, options):
    transform, theta = rules.as_transform(factory(learning_rate=RATE, **options)), start()
    state = transform.init(theta)
    _, state = transform.update(theta, state, theta)
    plain, _ = transform.update(theta, state, theta)
    told, _ = transform.update(theta, state, theta, worker=0, delay=1, read_params=theta)
    jax.tree.map(np.testing.assert_array_equal, plain, told)


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


def test_scale_by_delay_divides():
    transform, tree = rules.scale_by_delay(), start()
    state = transform.init(tree)
    for delay in (1, 2, 7):
        scaled, _ = transform.update(tree, state, delay=delay, worker=0)
        jax.tree.map(lambda s, leaf, delay=delay: np.testing.assert_array_equal(s, leaf / delay), scaled, tree)
    jax.tree.map(np.testing.assert_array_equal, transform.update(tree, state)[0], tree)


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
