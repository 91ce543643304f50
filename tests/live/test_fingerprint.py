"""Fingerprints of rules and policies: another number is another run, and the same ones are the same in any process."""

import functools
import json
import os
import subprocess
import sys

import jax
import numpy as np
import optax

from sgdlab import policies, rules
from sgdlab.live.fingerprint import fingerprint
from sgdlab.live.own_run import _described, _numbers
from sgdlab.predictors import RunningMean

RULES = {
    "another rate": lambda: optax.sgd(0.2),
    "momentum": lambda: optax.sgd(0.1, momentum=0.5),
    "another transform": lambda: optax.adam(0.1),
    "another constant of it": lambda: optax.adam(0.1, b2=0.99),
    "a schedule": lambda: optax.sgd(optax.cosine_decay_schedule(0.1, 100)),
    "another schedule": lambda: optax.sgd(optax.cosine_decay_schedule(0.1, 200)),
    "a chain": lambda: optax.chain(optax.clip(1.0), optax.sgd(0.1)),
    "another chain": lambda: optax.chain(optax.clip(2.0), optax.sgd(0.1)),
    "a number in the code": lambda: optax.stateless(lambda updates, params: jax.tree.map(lambda u: -0.1 * u, updates)),
    "another in it": lambda: optax.stateless(lambda updates, params: jax.tree.map(lambda u: -0.2 * u, updates)),
    "masked": lambda: optax.masked(optax.sgd(0.1), {"w": True, "b": False}),
    "a set": lambda: rules.server_rule(optax.sgd(0.1), receive=optax.clip(1.0)),
    "of a server": lambda: rules.asgd(learning_rate=0.1),
    "of a server, another rate": lambda: rules.asgd(learning_rate=0.2),
}


def test_rules_with_other_numbers_have_other_names_in_a_log():
    found = {name: _numbers(make()) for name, make in RULES.items()} | {"usual": _numbers(optax.sgd(0.1))}
    assert len({json.dumps(one) for one in found.values()}) == len(found)
    assert found == {name: _numbers(make()) for name, make in RULES.items()} | {"usual": _numbers(optax.sgd(0.1))}


def test_fingerprints_are_of_what_is_held_and_the_same_in_any_process():
    script = (
        "from sgdlab.live.fingerprint import fingerprint; import optax; "
        "print(fingerprint([optax.adamw(0.1), {'a', 'b', 'c'}, {'d': frozenset('xyz')}]))"
    )
    environments = [{**os.environ, "PYTHONHASHSEED": seed} for seed in "12"]
    printed = {subprocess.check_output([sys.executable, "-c", script], env=env) for env in environments}
    assert len(printed) == 1

    def itself():
        return itself

    assert fingerprint(itself) == fingerprint(itself)
    assert fingerprint(np.zeros(2)) != fingerprint(np.zeros((2, 1)))
    assert fingerprint(functools.partial(itself, 1)) != fingerprint(functools.partial(itself, 2))
    assert fingerprint(jax.jit(lambda x: 0.5 * x)) != fingerprint(jax.jit(lambda x: 0.25 * x))
    assert fingerprint([[1], 2]) != fingerprint([[1, 2]])
    many = [fingerprint([[0.5, number], {"a": number}]) for number in range(20)]  # of objects that are soon gone
    assert len(set(many)) == 20


def test_numbers_that_python_keeps_in_tuples_and_those_of_a_wrapper_count():
    def decayed(updates):
        first, second = 0.9, 0.99
        return first * updates + second

    def otherwise(updates):
        first, second = 0.5, 0.1
        return first * updates + second

    otherwise.__name__, otherwise.__qualname__ = decayed.__name__, decayed.__qualname__
    assert (0.9, 0.99) in decayed.__code__.co_consts
    assert fingerprint(decayed) != fingerprint(otherwise)

    def scaled(factor):
        @functools.wraps(decayed)
        def wrapper(updates):
            return factor * decayed(updates)

        return wrapper

    assert fingerprint(scaled(0.1)) == fingerprint(scaled(0.1)) != fingerprint(scaled(10.0))
    assert fingerprint(jax.jit(scaled(0.1))) == fingerprint(jax.jit(scaled(0.1))) != fingerprint(jax.jit(scaled(10.0)))


def test_a_policy_with_another_predictor_is_another():
    described = {
        json.dumps(_described(policies.cutoff(num_workers=2, predictor=RunningMean(window=window), window=5)))
        for window in (3, 4, 4)
    }
    assert len(described) == 2
