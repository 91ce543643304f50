"""What the rules must be where nothing is stale: serial optax, step by step; and how they are made of each other."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sgdlab import Schedule, protocols, replay, rules
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


LATER_ON_NAG = [
    rules.exponential_penalty,
    functools.partial(rules.delay_adaptive, num_workers=2, nesterov=True),
    functools.partial(rules.delay_compensated, variance_control=0.5, nesterov=True),
    functools.partial(rules.delay_compensated, variance_control=0.5, adaptive=True, nesterov=True),
]


def test_all_methods_differ_where_gradients_are_stale():
    on_nag = [factory(learning_rate=RATE, momentum=GAMMA) for factory in (rules.nag_asgd, *ON_NAG, *LATER_ON_NAG)]
    adams = [rules.adam, rules.adam_staleness_aware, *granularities(rules.adam_gap_aware)]
    gaps = [*granularities(rules.dana_gap_aware), *granularities(PRINTED_DANA)]
    danas = [rules.dana, rules.dana_staleness_aware, *gaps]
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


@pytest.mark.parametrize(
    "factory", [rules.dana, rules.dana_staleness_aware, *granularities(rules.dana_gap_aware), PRINTED_DANA]
)
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
        PRINTED,
        functools.partial(PRINTED_DANA, num_workers=2),
        rules.adam,
        rules.adam_staleness_aware,
        *granularities(rules.adam_gap_aware),
        rules.linear_scaling,
        functools.partial(rules.delay_adaptive, num_workers=2),
        rules.delay_compensated,
        functools.partial(rules.delay_compensated, adaptive=True),
        rules.exponential_penalty,
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


@pytest.mark.parametrize(("factory", "options"), [(PRINTED, {}), (PRINTED_DANA, {"num_workers": 2})])
def test_the_printed_coefficient_holds_the_step_of_the_gradient_that_it_measures(factory, options):
    """Algorithm 14 by hand: steps of 1 and gamma 1 + 3 are averaged before the second gradient is measured."""
    rule, theta = factory(learning_rate=RATE, momentum=GAMMA, **options), jnp.zeros(1)
    state, one, facts = rule.init(theta), jnp.ones(1), {"worker": 1, "delay": 2}
    message = rule.receive(one, state, theta, read_params=theta, **facts)
    np.testing.assert_array_equal(message.penalised, one)  # all have the initial parameters
    _, state = rule.update(message, state, theta, worker=1)
    message = rule.receive(3 * one, state, theta, read_params=theta + 0.5, **facts)
    first, second = 1.0, GAMMA * 1.0 + 3.0
    b = 0.999
    mean_square = (b * (1 - b) * first**2 + (1 - b) * second**2) / (1 - b**2)
    gap = 0.5 / (RATE * (np.sqrt(mean_square) + 1e-8)) + 1
    np.testing.assert_allclose(message.penalised, 3 / gap, rtol=1e-12)
    np.testing.assert_array_equal(message.raw, 3 * one)


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


def several(size=4):
    """Updates of several gradients, whose delays differ."""
    runtimes = np.random.default_rng(2).gamma(4.0, size=(STEPS, 4))
    base = protocols.asynchronous(runtimes, num_gradients=(STEPS // size) * size)
    count = base.num_updates
    return Schedule(
        worker=base.worker[:count],
        read=base.read[:count] // size,
        update=base.update[:count] // size,
        started=base.started[:count],
        arrived=base.arrived[:count],
        applied=base.arrived[size - 1 : count : size],
        num_workers=base.num_workers,
    )


MOMENTA = [{}, WITH_MOMENTUM, WITH_MOMENTUM | {"nesterov": True}]
PLAIN = {"momentum": 0.0, "nesterov": False}  # what `asgd` has by default


class TestDelayAdaptive:
    @pytest.mark.parametrize("options", MOMENTA)
    @pytest.mark.parametrize("schedule", [stale, several])
    def test_is_asgd_where_no_delay_is_above_the_number_of_workers(self, options, schedule):
        made = schedule()
        most = int(made.delay().max())
        assert most > 1
        enough, less = (
            replayed(rules.delay_adaptive(learning_rate=RATE, num_workers=n, **options), made) for n in (most, 1)
        )
        expected = replayed(rules.asgd(learning_rate=RATE, **options), made)
        assert_same_path(enough, expected, rtol=0)
        assert_different_path(less, expected)

    @pytest.mark.parametrize("options", MOMENTA)
    def test_of_one_worker_divides_the_step_by_the_delay(self, options):
        given = replayed(rules.delay_adaptive(learning_rate=RATE, num_workers=1, **options), stale())
        assert_same_path(given, replayed(rules.staleness_aware(learning_rate=RATE, **PLAIN | options), stale()))


class TestExponentialPenalty:
    @pytest.mark.parametrize("nesterov", [True, False])
    @pytest.mark.parametrize("schedule", [stale, several])
    def test_of_nothing_is_momentum_sgd(self, nesterov, schedule):
        options = {"learning_rate": RATE, "momentum": GAMMA, "nesterov": nesterov}
        given = replayed(rules.exponential_penalty(penalty=0.0, **options), schedule())
        assert_same_path(given, replayed(rules.asgd(**options), schedule()), rtol=1e-14)

    def test_is_nag_in_synchronous_runs(self):
        schedule = protocols.synchronous(np.ones((STEPS, 4)))
        given = replayed(rules.exponential_penalty(learning_rate=RATE, momentum=GAMMA), schedule)
        assert_same_path(given, replayed(rules.nag_asgd(learning_rate=RATE, momentum=GAMMA), schedule))

    def test_weight_decay_is_penalised_too(self):
        message, theta = first_message(rules.exponential_penalty, delay=4, penalty=0.5)
        jax.tree.map(lambda m, p: np.testing.assert_allclose(m, DECAY * p * np.exp(-1.5), rtol=1e-14), message, theta)


class TestDelayCompensated:
    @pytest.mark.parametrize("options", MOMENTA)
    @pytest.mark.parametrize("adaptive", [False, True])
    @pytest.mark.parametrize("schedule", [stale, several])
    def test_without_variance_control_is_asgd(self, options, adaptive, schedule):
        rule = rules.delay_compensated(learning_rate=RATE, variance_control=0.0, adaptive=adaptive, **options)
        expected = replayed(rules.asgd(learning_rate=RATE, **options), schedule())
        assert_same_path(replayed(rule, schedule()), expected, rtol=1e-14)

    @pytest.mark.parametrize("adaptive", [False, True])
    def test_is_asgd_in_synchronous_runs(self, adaptive):
        schedule = protocols.synchronous(np.ones((STEPS, 4)))
        rule = rules.delay_compensated(learning_rate=RATE, variance_control=0.7, adaptive=adaptive)
        assert_same_path(replayed(rule, schedule), replayed(rules.asgd(learning_rate=RATE), schedule))

    def test_corrects_to_first_order_where_the_square_is_the_curvature(self):
        """f(x) = -log x has f'' = (f')^2: with variance control 1 the gradient errs by the square of the distance."""
        rule, then = rules.delay_compensated(learning_rate=RATE, variance_control=1.0), jnp.asarray([0.7, 1.9])
        errors = []
        for moved in (1e-3, 5e-4):
            now = then + moved
            message = rule.receive(-1 / then, rule.init(now), now, worker=0, delay=2, read_params=then)
            errors.append(np.abs(message.gradient + 1 / now))
        np.testing.assert_allclose(errors[0] / errors[1], 4.0, rtol=2e-3)

    def test_adaptive_compensation_counts_squares_by_their_own_root(self):
        """Without memory s = g^2: far above epsilon the correction is variance control times abs(g) (now - then)."""
        rule = rules.delay_compensated(learning_rate=RATE, variance_control=0.3, adaptive=True, mean_square_decay=0.0)
        g, now, then = (jnp.asarray(v) for v in ([30.0, -50.0], [1.0, 2.0], [0.5, 4.0]))
        message = rule.receive(g, rule.init(now), now, worker=0, delay=2, read_params=then)
        np.testing.assert_allclose(message.gradient, g + 0.3 * np.abs(g) * (now - then), rtol=1e-9)

    def test_keeps_a_mean_square_only_where_it_adapts(self):
        plain, adaptive = (rules.delay_compensated(learning_rate=RATE, adaptive=a).init(start()) for a in (False, True))
        assert len(jax.tree.leaves(adaptive)) - len(jax.tree.leaves(plain)) == len(jax.tree.leaves(start()))


class TestLinearScaling:
    @pytest.mark.parametrize("nesterov", [True, False])
    def test_of_updates_with_one_gradient_is_asgd(self, nesterov):
        options = {"learning_rate": RATE, "momentum": GAMMA, "nesterov": nesterov}
        given = replayed(rules.linear_scaling(**options), stale())
        assert_same_path(given, replayed(rules.asgd(**options), stale()), rtol=1e-14)

    @pytest.mark.parametrize("nesterov", [True, False])
    @pytest.mark.parametrize("size", [2, 5])
    def test_is_asgd_with_the_rate_times_the_number_of_gradients(self, nesterov, size):
        schedule = several(size)
        assert set(np.bincount(schedule.update[:, 0])) == {size}
        options = {"momentum": GAMMA, "nesterov": nesterov, "weight_decay": DECAY}
        given = replayed(rules.linear_scaling(learning_rate=RATE / 5, **options), schedule)
        assert_same_path(given, replayed(rules.asgd(learning_rate=size * RATE / 5, **options), schedule))

    def test_follows_a_number_that_changes(self):
        """Four workers that do not all arrive: d differs from update to update, and the velocity holds means."""
        rule, theta = rules.linear_scaling(learning_rate=RATE, momentum=GAMMA, nesterov=False), jnp.ones(1)
        state, velocity = rule.init(theta), 0.0
        for number in (4, 1, 3):
            updates, state = rule.update(theta, state, theta, num_gradients=number, delay=1, worker=None)
            velocity = GAMMA * velocity + 1.0
            np.testing.assert_allclose(updates, [-number * RATE * velocity], rtol=1e-14)


DELAYED = rules.scale_by_excess_delay(1)
PENALISED = rules.scale_by_exponential_delay(0.4)
SCALED = rules.scale_by_num_gradients()
DESCEND = optax.scale_by_learning_rate(RATE)


@pytest.mark.covering
@pytest.mark.parametrize("schedule", [stale, several])
@pytest.mark.parametrize("nesterov", [True, False])
def test_the_rules_are_chains(nesterov, schedule):
    """The parts in chains of one's own, lifted by `server_rule`, are the rules; their place in the chain matters."""
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
