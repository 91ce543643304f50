"""Every rule, replayed in event mode, gives the parameters of the naive NumPy server (`naive.py`) to 1e-12.

The network is differentiated by JAX here and by hand there. The parameter-wise gap amplifies rounding, so runs are
kept at 20 gradients. All runs of one method share one program: the capacity is fixed, all else is data.
"""

import functools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from lib import naive, tiers

from sgdlab import protocols, replay, rules
from sgdlab.tasks import Task

GRADIENTS = 20
WORKERS = 8
ANY_NUMBER = st.integers(1, WORKERS)
CAPACITY = replay.Capacity(rows=32, slots=WORKERS, width=WORKERS, workers=WORKERS)

_random = np.random.default_rng(0)
INPUTS, TARGETS = _random.normal(size=(256, 2, 3)), _random.normal(size=(256, 2, 4))
START = {
    "layer/kernel": _random.normal(size=(3, 4)),
    "layer/bias": _random.normal(size=4),
    "scale": np.float64(_random.normal()),
}


def nested(flat):
    return {
        "layer": {"kernel": jnp.asarray(flat["layer/kernel"]), "bias": jnp.asarray(flat["layer/bias"])},
        "scale": jnp.asarray(flat["scale"]),
    }


def flattened(params):
    return {
        "layer/kernel": params["layer"]["kernel"],
        "layer/bias": params["layer"]["bias"],
        "scale": params["scale"],
    }


def loss(params, batch):
    inputs, targets = batch
    hidden = jnp.tanh(inputs @ params["layer"]["kernel"] + params["layer"]["bias"])
    return jnp.sum((params["scale"] * hidden - targets) ** 2) / 2


def grad_fn(params, batch):
    return jax.grad(loss)(params, batch), {}


def batch_fn(row):
    return jnp.asarray(INPUTS)[row], jnp.asarray(TARGETS)[row]


def gradient_by_hand(theta, row):
    hidden = np.tanh(INPUTS[row] @ theta["layer/kernel"] + theta["layer/bias"])
    residual = theta["scale"] * hidden - TARGETS[row]
    inner = residual * theta["scale"] * (1 - hidden**2)
    return {
        "layer/kernel": INPUTS[row].T @ inner,
        "layer/bias": inner.sum(axis=0),
        "scale": (residual * hidden).sum(),
    }


class AdaDelay(naive.Asgd):
    """Sra et al. 2016: the step falls with the root of the update's number, from 1 on, plus the staleness."""

    def __init__(self, theta, *, noise, **rest):
        super().__init__(theta, **rest)
        self.noise = noise

    def step_size(self, delay):
        stale = delay - 1
        return self.eta(self.k) / (1 + self.noise * np.sqrt(self.k + 1 + stale))


class DanaDelayCompensated(naive.Dana):
    """DANA-DC, Hakimi et al. 2019: Zheng's correction, from the estimate that was sent."""

    def __init__(self, theta, *, variance_control, **rest):
        super().__init__(theta, **rest)
        self.control = variance_control

    def penalised(self, g, read, delay):
        return naive.tree(lambda g, now, then: g + self.control * g**2 * (now - then), g, self.theta, read)


class Rmsprop(naive.Asgd):
    """s <- d s + (1 - d) g^2; v <- m v + rate g / sqrt(s + eps); theta <- theta - v."""

    def __init__(self, theta, *, decay=0.9, eps=1.0, initial_scale=1.0, **rest):
        super().__init__(theta, **rest)
        self.decay, self.eps = decay, eps
        self.s = naive.tree(lambda value: np.full_like(value, initial_scale), self.theta)

    def apply(self, g, *, delay, worker):
        self.s = naive.tree(lambda s, g: self.decay * s + (1 - self.decay) * g**2, self.s, g)
        step = naive.tree(lambda g, s: self.eta(self.k) * g / np.sqrt(s + self.eps), g, self.s)
        self.v = naive.tree(lambda v, step: self.gamma * v + step, self.v, step)
        self.theta = naive.tree(lambda theta, v: theta - v, self.theta, self.v)
        self.k += 1


def case(factory, server, *, momentum=True, theirs=None, **options):
    """The rule, the naive server, whether it has a momentum, and what is given to each; `theirs`: to the server too."""
    shared = {name: value for name, value in options.items() if name != "coefficient"}
    return factory, server, momentum, options, shared | (theirs or {})


DANA, NAG = {"num_workers": WORKERS}, {"nesterov": True}
METHODS = {
    "asgd": case(rules.asgd, naive.Asgd),
    "asgd, nesterov": case(rules.asgd, naive.Asgd, nesterov=True),
    "nag_asgd": case(rules.nag_asgd, naive.Asgd, theirs=NAG),
    "adam": case(rules.adam, naive.Adam, momentum=False),
    "adam_staleness_aware": case(rules.adam_staleness_aware, naive.AdamStalenessAware, momentum=False),
    "dana": case(rules.dana, naive.Dana, **DANA),
    "dana_staleness_aware": case(rules.dana_staleness_aware, naive.DanaStalenessAware, **DANA),
    "dana_delay_compensated": case(rules.dana_delay_compensated, DanaDelayCompensated, variance_control=0.1, **DANA),
    "ada_delay": case(rules.ada_delay, AdaDelay, noise=0.4),
    "rmsprop": case(rules.rmsprop, Rmsprop),
    "rmsprop, no initial mean square": case(rules.rmsprop, Rmsprop, decay=0.95, eps=0.1, initial_scale=0.0),
    "gap_aware, no nesterov": case(rules.gap_aware, naive.GapAware, nesterov=False),
    # Few enough workers for half of the delays to be above their number.
    "delay_adaptive": case(rules.delay_adaptive, naive.DelayAdaptive, num_workers=2),
    "delay_adaptive, nesterov": case(rules.delay_adaptive, naive.DelayAdaptive, num_workers=2, nesterov=True),
}
for _suffix, _option, _theirs in (("", {}, NAG), (", no nesterov", {"nesterov": False}, {})):
    METHODS |= {
        f"{name}{_suffix}": case(factory, server, theirs=_theirs, **own, **_option)
        for name, factory, server, own in (
            ("staleness_aware", rules.staleness_aware, naive.StalenessAware, {}),
            ("staleness_aware_gradient", rules.staleness_aware_gradient, naive.StalenessAwareGradient, {}),
            ("linear_scaling", rules.linear_scaling, naive.LinearScaling, {}),
            ("exponential_penalty", rules.exponential_penalty, naive.ExponentialPenalty, {"penalty": 0.3}),
        )
    }
for _size in ("parameter", "layer", "global"):
    _own, _printed = {"granularity": _size}, {"granularity": _size, "coefficient": "printed"}
    METHODS |= {
        f"gap_aware, {_size}": case(rules.gap_aware, naive.GapAware, theirs=NAG, **_own),
        f"gap_aware, printed, {_size}": case(rules.gap_aware, naive.PrintedGapAware, theirs=NAG, **_printed),
        f"dana_gap_aware, {_size}": case(rules.dana_gap_aware, naive.DanaGapAware, **_own, **DANA),
        f"dana_gap_aware, printed, {_size}": case(rules.dana_gap_aware, naive.PrintedDanaGapAware, **_printed, **DANA),
        f"adam_gap_aware, {_size}": case(rules.adam_gap_aware, naive.AdamGapAware, momentum=False, **_own),
    }
for _suffix, _own in {
    "": {"variance_control": 0.1},
    ", nesterov": {"variance_control": 0.04, "nesterov": True},
    ", adaptive": {"variance_control": 1.0, "adaptive": True},
    ", adaptive, fast": {"variance_control": 0.5, "adaptive": True, "mean_square_decay": 0.3},
}.items():
    METHODS[f"delay_compensated{_suffix}"] = case(rules.delay_compensated, naive.DelayCompensated, **_own)

each_method = pytest.mark.parametrize("method", METHODS)
each_averaging_method = pytest.mark.parametrize("method", [name for name in METHODS if "dana" not in name])
few_examples = functools.partial(hypothesis.settings, deadline=None, derandomize=True, database=None)


@st.composite
def hyperparameters(draw):
    return {
        "learning_rate": draw(st.floats(0.001, 0.1)),
        "momentum": draw(st.floats(-0.9, 0.95)),
        "b1": draw(st.floats(0.0, 0.95)),
        "b2": draw(st.floats(0.5, 0.9999)),
        "weight_decay": draw(st.sampled_from([0.0, 0.001, 0.3])),
    }


@st.composite
def run_times(draw, rows, workers=ANY_NUMBER):
    """Small whole numbers: many workers arrive at the same moment."""
    seed, number = draw(st.integers(0, 2**32 - 1)), draw(workers)
    return np.random.default_rng(seed).integers(1, draw(st.sampled_from([1, 3, 20])) + 1, (rows, number)).astype(float)


def assert_same(schedule, method, h, *, rate=None, eta_max=None):
    """Replays a schedule twice; `rate` is a learning rate schedule, once for optax and once for NumPy."""
    factory, server, has_momentum, rule_options, server_options = METHODS[method]
    rate, eta = rate or (h["learning_rate"], h["learning_rate"])
    common = {"weight_decay": h["weight_decay"]}
    if not has_momentum:
        common |= {"b1": h["b1"], "b2": h["b2"]}
    rule_options = rule_options | ({"momentum": h["momentum"]} if has_momentum else {})
    server_options = server_options | ({"gamma": h["momentum"]} if has_momentum else {})
    if eta_max is not None and "gap_aware" in method:
        rule_options, server_options = (
            rule_options | {"max_learning_rate": eta_max},
            server_options | {"eta_max": eta_max},
        )
    rule = factory(learning_rate=rate, **common, **rule_options)

    expected = naive.replay(schedule, server(START, eta=eta, **common, **server_options), gradient_by_hand)
    program = replay.lower(schedule, capacity=CAPACITY)
    result = replay.run(program, rule, Task(grad_fn, nested(START)), batch_fn, mode="event")
    for name, value in flattened(result.params).items():
        assert value.dtype == np.float64
        assert not np.array_equal(expected[name], START[name])
        # A value that has decayed is the difference of larger ones.
        scale = max(np.abs(expected[name]).max(), np.abs(START[name]).max())
        np.testing.assert_allclose(value, expected[name], rtol=1e-12, atol=1e-13 * scale, err_msg=name)


@pytest.mark.long("every rule against its second implementation")
@each_method
@few_examples(max_examples=tiers.examples(20))
@hypothesis.given(runtimes=run_times(GRADIENTS), h=hyperparameters())
def test_asynchronous(method, runtimes, h):
    assert_same(protocols.asynchronous(runtimes, num_gradients=GRADIENTS), method, h)


@pytest.mark.sample(10)
@each_averaging_method
@few_examples(max_examples=8)
@hypothesis.given(
    runtimes=run_times(GRADIENTS, st.integers(2, WORKERS)), size=st.sampled_from([2, 4, 5]), h=hyperparameters()
)
def test_several_gradients_of_several_delays(method, runtimes, size, h):
    assert_same(protocols.softsync(runtimes, gradients_per_update=size, num_gradients=GRADIENTS), method, h)


@pytest.mark.sample(10)
@each_averaging_method
@few_examples(max_examples=5)
@hypothesis.given(data=st.data(), workers=st.integers(2, 5), h=hyperparameters())
def test_synchronous_and_backup_workers(method, data, workers, h):
    backups = data.draw(st.integers(0, 3))
    runtimes = data.draw(run_times(GRADIENTS // workers, st.just(workers + backups)))
    schedule = protocols.backup_workers(runtimes, backups=backups) if backups else protocols.synchronous(runtimes)
    assert_same(schedule, method, h)


def test_one_worker_waited_for():
    """The first of five: updates of one gradient each, most of the work dropped."""
    runtimes = np.random.default_rng(0).integers(1, 5, (GRADIENTS, 5)).astype(float)
    schedule = protocols.backup_workers(runtimes, backups=4)
    assert schedule.dropped().any()
    h = {"learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0.01}
    assert_same(schedule, "dana", h)
    assert_same(schedule, "nag_asgd", h)


# Not optax.linear_schedule, which divides a count in float32 whatever the parameters are.
RATE = optax.cosine_decay_schedule(init_value=0.1, decay_steps=15, alpha=0.2)


def rate_by_hand(updates):
    return 0.1 * (0.8 * (1 + np.cos(np.pi * min(updates, 15) / 15)) / 2 + 0.2)


@pytest.mark.sample(10)
@pytest.mark.parametrize("method", [name for name in METHODS if "no nesterov" not in name and name != "asgd"])
@few_examples(max_examples=3)
@hypothesis.given(runtimes=run_times(GRADIENTS), h=hyperparameters(), eta_max=st.sampled_from([0.1, 0.3]))
def test_learning_rate_schedule(method, runtimes, h, eta_max):
    schedule = protocols.asynchronous(runtimes, num_gradients=GRADIENTS)
    assert_same(schedule, method, h, rate=(RATE, rate_by_hand), eta_max=eta_max)


@pytest.mark.parametrize("method", ["staleness_aware", "gap_aware, layer", "adam_gap_aware, global", "rmsprop"])
def test_learning_rate_schedule_counts_updates_not_gradients(method):
    runtimes = np.random.default_rng(1).integers(1, 9, (GRADIENTS, 4)).astype(float)
    h = {"momentum": 0.9, "b1": 0.9, "b2": 0.99, "weight_decay": 0.1, "learning_rate": None}
    assert_same(
        protocols.softsync(runtimes, gradients_per_update=2, num_gradients=GRADIENTS),
        method,
        h,
        rate=(RATE, rate_by_hand),
        eta_max=0.1,
    )


@pytest.mark.parametrize(("method", "backups"), [("dana", 0), ("dana_gap_aware, printed, layer", 1)])
def test_dana_refuses_updates_of_several_gradients(method, backups):
    schedule = protocols.backup_workers(np.ones((3, 4)), backups=backups)
    rule = METHODS[method][0](learning_rate=0.1, **METHODS[method][3])
    with pytest.raises(ValueError, match="worker=None: the DANA rules keep a velocity per worker"):
        replay.run(schedule, rule, Task(grad_fn, nested(START)), batch_fn)


def test_schedules_have_stale_fresh_and_tied_gradients():
    """The schedules drawn above would show nothing, were all their delays the same."""
    runtimes = np.random.default_rng(0).integers(1, 4, (GRADIENTS, WORKERS)).astype(float)
    schedule = protocols.asynchronous(runtimes, num_gradients=GRADIENTS)
    assert np.unique(schedule.arrived[:GRADIENTS]).size < GRADIENTS
    assert np.unique(schedule.delay().compressed()).size > 3
    several = protocols.softsync(runtimes, gradients_per_update=4, num_gradients=GRADIENTS)
    assert any(np.unique(several.delay()[several.update == u]).size > 1 for u in range(several.num_updates))
