"""Hyperparameters out of their range are refused at once, by a ValueError that names the argument and its value."""

import functools
import inspect
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sgdlab import protocols, replay, rules
from sgdlab.errors import UsageError
from sgdlab.registry import RULES
from sgdlab.tasks import Task

ALL = {
    name: functools.partial(part.make, **({"num_workers": 2} if "num_workers" in part.given else {}))
    for name, part in RULES.items()
}


def rules_with(argument, *but):
    has = lambda name: argument in inspect.signature(RULES[name].make).parameters
    return {name: factory for name, factory in ALL.items() if has(name) and name not in but}


UNIT_STEPS = {name: ALL[name] for name in ("normalised_momentum", "muon")}
ON_MOMENTUM = rules_with("momentum", *UNIT_STEPS)
ADAMS = rules_with("b1", "fadas")
GAPS = rules_with("granularity")
DANAS = {name: factory for name, factory in ALL.items() if name.startswith("dana")}
COUNTS_WORKERS = {name: RULES[name].make for name in (*DANAS, "delay_adaptive", "dc_s3gd")}

NAN, INFINITE = math.nan, math.inf
CASES = [
    *((ALL, "learning_rate", value) for value in (NAN, INFINITE, -INFINITE, -0.1, -1)),
    *((ALL, "weight_decay", value) for value in (NAN, INFINITE, -1e-6)),
    *((ON_MOMENTUM, "momentum", value) for value in (NAN, INFINITE, 1.0, 1, -1.0, 1.5, -2.0)),
    *((UNIT_STEPS, "momentum", value) for value in (NAN, 1.0, -0.1)),
    *((ADAMS, name, value) for name in ("b1", "b2") for value in (NAN, INFINITE, 1.0, 1, 1.5, -0.1)),
    *((ADAMS, "eps", value) for value in (NAN, INFINITE, -1e-8)),
    *(
        ({name: ALL[name]}, argument, value)
        for name, argument, values in (
            ("delay_compensated", "variance_control", (NAN, INFINITE, -INFINITE, -0.04, -1)),
            ("delay_compensated", "mean_square_decay", (NAN, INFINITE, 1.0, 1, 1.5, -0.1)),
            ("dana_delay_compensated", "variance_control", (NAN, -1)),
            ("dc_s3gd", "variance_control", (NAN, -1)),
            ("ada_delay", "noise", (NAN, INFINITE, -0.1)),
            ("rmsprop", "decay", (1.0, -0.1)),
            ("rmsprop", "eps", (NAN, 0.0)),
            ("rmsprop", "initial_scale", (INFINITE, -1.0)),
            ("exponential_penalty", "penalty", (NAN, INFINITE, -0.1, -1)),
            ("fadas", "b1", (NAN, 1.0, -0.1)),
            ("fadas", "b2", (NAN, 1.0, -0.1)),
            ("fadas", "threshold", (-1.0,)),
            ("fadas", "adaptation", ("halved",)),
            ("fedasync", "a", (NAN, -0.1)),
            ("fedasync", "b", (NAN, -0.1)),
            ("fedasync", "learning_rate", (1.5,)),
            ("fedasync", "weight", ("square",)),
            ("fedbuff", "exponent", (NAN, -0.1)),
            ("delayed_nesterov", "period", (0,)),
            ("delayed_nesterov", "activation", (0.75,)),
            ("muon", "newton_schulz_steps", (0,)),
            ("token_weighted", "steps", ([1, 2, 3], [1] * 3 + [0])),
            ("token_weighted", "merge", ("median",)),
            ("malenia", "num_workers", (0,)),
            ("rescaled", "workers", (5,)),
            ("ace", "workers", (5,)),
            ("aced", "max_staleness", (-1,)),
        )
        for value in values
    ),
    *((GAPS, "max_learning_rate", value) for value in (NAN, INFINITE, 0.0, 0, -0.1)),
]


def shown(value):
    """The value as the message must echo it: whole numbers and floats alike."""
    return re.escape(repr(value))


@pytest.mark.parametrize(
    ("factory", "argument", "value"),
    [
        pytest.param(factory, argument, value, id=f"{name}-{argument}={value}")
        for table, argument, value in CASES
        for name, factory in table.items()
    ],
)
def test_bad_numbers(factory, argument, value):
    with pytest.raises(ValueError, match=rf"^{argument}={shown(value)} must be "):
        factory(**({"learning_rate": 0.1} | {argument: value}))


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.asarray, jnp.asarray])
@pytest.mark.parametrize(
    ("factory", "argument", "value"),
    [
        (rules.asgd, "learning_rate", -0.5),
        (rules.staleness_aware, "momentum", 1.0),
        (rules.gap_aware, "weight_decay", NAN),
        (rules.gap_aware, "max_learning_rate", 0.0),
        (rules.adam, "b1", 1.0),
        (rules.linear_scaling, "momentum", -1.0),
        (rules.delay_compensated, "variance_control", -0.5),
        (rules.delay_compensated, "mean_square_decay", 1.0),
        (rules.exponential_penalty, "penalty", NAN),
    ],
)
def test_bad_numbers_in_arrays(factory, argument, value, kind):
    with pytest.raises(ValueError, match=f"^{argument}="):
        factory(**({"learning_rate": 0.1} | {argument: kind(value)}))


@pytest.mark.parametrize("value", ["0.1", None, True, [0.1], 1j])
@pytest.mark.parametrize(
    ("factory", "argument"),
    [
        (rules.asgd, "learning_rate"),
        (rules.asgd, "momentum"),
        (rules.adam, "b2"),
        (rules.gap_aware, "weight_decay"),
        (rules.linear_scaling, "learning_rate"),
        (rules.delay_compensated, "variance_control"),
        (rules.delay_compensated, "mean_square_decay"),
        (rules.exponential_penalty, "penalty"),
    ],
)
def test_what_is_no_number(factory, argument, value):
    with pytest.raises(ValueError, match=rf"^{argument}={re.escape(repr(value))} must be a finite number"):
        factory(**({"learning_rate": 0.1} | {argument: value}))


@pytest.mark.parametrize("factory", COUNTS_WORKERS.values(), ids=COUNTS_WORKERS)
@pytest.mark.parametrize("value", [0, -1, 2.0, 1.5, "4", None, True])
def test_bad_numbers_of_workers(factory, value):
    with pytest.raises(ValueError, match=rf"^num_workers={re.escape(repr(value))} must be a whole number"):
        factory(learning_rate=0.1, num_workers=value)


@pytest.mark.parametrize("factory", GAPS.values(), ids=GAPS)
@pytest.mark.parametrize("value", ["x", "Layer", "", None])
def test_bad_granularity(factory, value):
    with pytest.raises(
        ValueError, match=rf"^granularity={re.escape(repr(value))} must be one of parameter, layer, global"
    ):
        factory(learning_rate=0.1, granularity=value)


@pytest.mark.parametrize("factory", [rules.gap_aware, functools.partial(rules.dana_gap_aware, num_workers=2)])
@pytest.mark.parametrize("value", ["x", "Printed", "", None])
def test_bad_coefficient(factory, value):
    with pytest.raises(ValueError, match=rf"^coefficient={re.escape(repr(value))} must be one of settled, printed"):
        factory(learning_rate=0.1, coefficient=value)


@pytest.mark.parametrize("factory", GAPS.values(), ids=GAPS)
def test_a_schedule_needs_the_largest_learning_rate(factory):
    schedule = optax.constant_schedule(0.1)
    with pytest.raises(ValueError, match=r"^max_learning_rate=None must be given where learning_rate is a schedule"):
        factory(learning_rate=schedule)
    factory(learning_rate=schedule, max_learning_rate=0.1)


@pytest.mark.parametrize("factory", GAPS.values(), ids=GAPS)
def test_a_learning_rate_of_zero_cannot_measure_the_gap(factory):
    with pytest.raises(ValueError, match=r"^max_learning_rate=0\.0 must be a finite number above 0"):
        factory(learning_rate=0.0)
    factory(learning_rate=0.0, max_learning_rate=0.1)


@pytest.mark.parametrize("factory", ALL.values(), ids=ALL)
def test_the_ends_of_the_ranges_are_allowed(factory):
    maximum = {"max_learning_rate": 1e-9} if factory in GAPS.values() else {}
    factory(learning_rate=0.0, weight_decay=0.0, **maximum)
    factory(learning_rate=0, weight_decay=0, **maximum)
    if factory in ADAMS.values():
        factory(learning_rate=0.1, b1=0.0, b2=0.0, eps=0.0)
    elif factory in ON_MOMENTUM.values():
        factory(learning_rate=0.1, momentum=-0.9)


@pytest.mark.parametrize("factory", ALL.values(), ids=ALL)
def test_injected_hyperparameters_are_refused_at_once_too(factory):
    with pytest.raises(ValueError, match=r"^learning_rate=-0\.1 must be"):
        rules.inject_hyperparams(factory)(learning_rate=-0.1)


@pytest.mark.parametrize("factory", ALL.values(), ids=ALL)
def test_traced_hyperparameters_pass_unseen(factory):
    """No value is known while a function is being compiled."""

    @jax.jit
    def end(rate):
        transform, params = rules.as_transform(factory(learning_rate=rate)), jnp.ones(2)
        facts = {"worker": 0, "delay": 1, "read_params": params}
        return transform.update(params, transform.init(params), params, **facts)[0]

    np.testing.assert_array_equal(np.isfinite(end(0.1)), [True, True])


@pytest.mark.parametrize("factory", DANAS.values(), ids=DANAS)
def test_dana_refuses_more_workers_than_it_has_velocities(factory):
    """JAX would clamp the index and share a velocity in silence."""
    rule = factory(learning_rate=0.1, num_workers=2)
    schedule = protocols.asynchronous(np.ones((2, 3)))
    with pytest.raises(ValueError, match="num_workers=2, but schedule has 3 workers"):
        replay.run(schedule, rule, Task(lambda params, batch: (params, {}), jnp.ones(2)), lambda row: row)


@pytest.mark.parametrize("name", GAPS)
def test_a_bad_entry_is_named_as_its_flag(name):
    with pytest.raises(UsageError, match=rf"^--config\.rule\.{name}\.granularity='tree' must be one of"):
        RULES.make(name, {"granularity": "tree"}, learning_rate=0.1, num_workers=2)


@pytest.mark.parametrize("name", ON_MOMENTUM)
@pytest.mark.parametrize(
    ("argument", "value", "flag"),
    [
        ("momentum", 1.0, "optimizer.momentum"),
        ("weight_decay", -0.1, "optimizer.weight_decay"),
        ("learning_rate", -0.1, "optimizer.learning_rate"),
    ],
)
def test_what_runs_give_is_named_as_its_flag(name, argument, value, flag):
    with pytest.raises(UsageError, match=rf"^--config\.{re.escape(flag)}={value} must be"):
        RULES.make(name, {}, **{"learning_rate": 0.1, "num_workers": 2, argument: value})


def test_positional_arguments_are_refused():
    """0.1 could be any of the numbers."""
    for factory in ALL.values():
        with pytest.raises(TypeError):
            factory(0.1)


def test_the_ends_of_the_other_ranges_are_allowed():
    rules.delay_compensated(learning_rate=0.1, variance_control=0.0, mean_square_decay=0.0, adaptive=True)
    rules.exponential_penalty(learning_rate=0.1, penalty=0)
    rules.delay_adaptive(learning_rate=0.1, num_workers=1)


def test_delay_adaptive_keeps_nothing_per_worker():
    """num_workers is a number of its formula, and fits any schedule."""
    rule = rules.delay_adaptive(learning_rate=0.1, num_workers=2)
    assert rule.num_workers is None
    schedule = protocols.asynchronous(np.ones((2, 3)))
    replay.run(schedule, rule, Task(lambda params, batch: (params, {}), jnp.ones(2)), lambda row: row)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda tx: optax.masked(tx, {"a": True, "b": False}),
        lambda tx: optax.partition({"x": tx, "y": optax.sgd(0.1)}, {"a": "x", "b": "y"}),
    ],
)
def test_what_was_read_must_be_masked_like_the_parameters(wrap):
    params = {"a": jnp.ones(2), "b": jnp.ones(3)}
    transform = wrap(rules.as_transform(rules.gap_aware(learning_rate=0.1)))
    with pytest.raises(ValueError, match=r"^read_params must be a tree like params; .* mask_compatible_extra_args"):
        transform.update(params, transform.init(params), params, delay=2, read_params=params)
