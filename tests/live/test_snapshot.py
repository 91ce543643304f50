"""State that is written down and put back: of every policy with a server, and of what else may be in a checkpoint."""

import collections
import dataclasses
import functools
import io
import json
import random
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.events import Driver
from rehearsing import POLICIES

from sgdlab import policies, predictors
from sgdlab.deep_markov.predictor import Forecast
from sgdlab.live import snapshot
from sgdlab.live.snapshot import Snapshot, Unwritable
from sgdlab.registry import PROTOCOLS

WORKERS, EVENTS = 11, 200
GIVEN = {"num_workers": WORKERS, "seed": 3}
PREDICTORS = {
    "running mean": lambda: predictors.RunningMean(window=3),
    "elfving": lambda: predictors.Elfving(window=3),
    "kalman": lambda: predictors.Kalman(samples=8),
    "guarded": lambda: predictors.Guarded(predictors.Kalman(samples=8)),
}
MADE = {
    name: functools.partial(PROTOCOLS.policy, name, part.entries())
    for name, part in PROTOCOLS.items()
    if not part.is_foreign and part.facts.policy is not None and not part.facts.peers and name != "cutoff"
}
MADE |= {f"{name}, as rehearsed": lambda seed, make=make, **given: make(**given) for name, make in POLICIES.items()}
MADE |= {
    f"cutoff, {name}": lambda seed, make=make, **given: policies.cutoff(predictor=make(), window=4, **given)
    for name, make in PREDICTORS.items()
}


def put_back(found, policy):
    """As by a file."""
    file = io.BytesIO()
    np.savez(file, **found.arrays)
    file.seek(0)
    with np.load(file, allow_pickle=False) as stored:
        return snapshot.put(Snapshot(json.loads(json.dumps(found.tree)), dict(stored)), policy)


def again(value):
    return put_back(snapshot.taken(policies.asynchronous(num_workers=1), value), policies.asynchronous(num_workers=1))


class Both:
    """Two policies that are told the same, and must answer the same."""

    def __init__(self, first, second):
        self.pair = (first, second)

    def __getattr__(self, name):
        def asked(*told):
            first, second = (getattr(policy, name)(*told) for policy in self.pair)
            assert first == second
            return first

        if not callable(getattr(self.pair[0], name)):
            raise AttributeError(name)
        return asked


def happen(driver, generator, events):
    """Gradients that come, workers that are lost and join, timers."""
    for _ in range(events):
        gone, drawn = sorted(set(range(WORKERS)) - driver.alive), generator.random()
        driver.wakes = [at for at in driver.wakes if at > driver.now]
        if driver.wakes and (drawn < 0.25 or not driver.busy):
            driver.ring(min(driver.wakes))
        elif gone and (drawn < 0.35 or not driver.busy):
            driver.join(int(generator.choice(gone)))
        elif drawn < 0.37 and len(driver.alive) > 1:
            driver.lose(int(generator.choice(sorted(driver.alive))))
        elif driver.busy:
            now = driver.now + generator.exponential() / WORKERS
            now = min([now, *(at for at in driver.wakes if generator.random() < 0.5)])
            driver.come(int(generator.choice(sorted(driver.busy))), now, seconds=generator.gamma(4.0) / 4)
        driver.policy.prepare()


@settings(max_examples=3, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000))
@pytest.mark.parametrize("name", MADE)
def test_a_policy_that_is_put_back_is_equal_and_answers_the_same(name, seed):
    generator = np.random.default_rng(seed)
    policy = MADE[name](**GIVEN)
    driver = Driver(policy, range(WORKERS))
    happen(driver, generator, int(generator.integers(EVENTS)))
    other = MADE[name](**GIVEN)
    assert put_back(snapshot.taken(policy, None), other) is None
    assert other == policy
    driver.policy = Both(policy, other)
    happen(driver, generator, EVENTS)
    assert len(driver.updates) > 1
    assert other == policy


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass(frozen=True)
class Holder:
    held: Any
    more: tuple = ()


def same(first, second):
    assert type(first) is type(second)
    if isinstance(first, np.ndarray | np.generic | jax.Array):
        assert first.dtype == second.dtype
        np.testing.assert_array_equal(np.asarray(first, first.dtype), np.asarray(second, second.dtype))
        if isinstance(first, jax.Array):
            assert first.weak_type == second.weak_type
    elif dataclasses.is_dataclass(first):
        same(vars(first), vars(second))
    elif isinstance(first, dict):
        same(list(first.items()), list(second.items()))
    elif isinstance(first, list | tuple | collections.deque):
        assert len(first) == len(second)
        for pair in zip(first, second, strict=True):
            same(*pair)
    else:
        assert first == second or np.isnan([first, second]).all()


def test_what_is_plain_comes_back_as_it_was():
    values = {
        "numbers": [True, 1, 2**80, 0.1, float("inf"), float("nan"), -0.0, None, "word\ud800"],
        (1, "key"): {3: {4, 5}, 2: frozenset({6})},
        "counted": collections.Counter({2: 3, 1: 0}),
        "few": collections.deque([1, (2, 3)], maxlen=4),
        "arrays": [np.zeros((2, 0)), np.array(["a", "bc"]), np.array([1.5], ">f8"), np.float32(0.1), np.True_],
        "jax": [jnp.arange(3), jnp.array([0.1], jnp.bfloat16), jnp.asarray(0.1)],
        "made": Pair(Holder([1, Pair(2, np.ones(1))]), Forecast(*jnp.ones((5, 2)))),
    }
    back = again(values)
    same(values, back)
    assert back["few"].maxlen == 4
    assert np.signbit(back["numbers"][6])


OTHER = lambda seed: np.random.Generator(np.random.MT19937(seed))


@pytest.mark.parametrize("make", [random.Random, np.random.default_rng, OTHER])
def test_random_numbers_go_on(make):
    generator = make(7)
    generator.random()
    other = again([generator])[0]
    assert [generator.random() for _ in range(9)] == [other.random() for _ in range(9)]


def test_what_is_made_while_it_is_written_is_not_taken_for_what_was_there():
    generators = [np.random.default_rng(seed) for seed in range(20)]  # each says its state in a new dict
    others = again(generators)
    assert [one.random() for one in generators] == [other.random() for other in others]


class Hidden:
    pass


TWICE = [1]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"a": [max]}, r"a\.0 is a builtin_function_or_method"),
        ([Hidden()], "0 is a Hidden"),
        ({"a": TWICE, "b": TWICE}, "b is in another place too"),
        ([jnp.asarray([1.0, 2.0]) * 1, jax.random.key(0)], "1 is a ArrayImpl|1 is a PRNGKeyArray"),
        ([dataclasses.make_dataclass("Local", ["a"])(1)], r"0 .*:Local must be a class of dataclasses"),
        ([np.array([None])], "0 is a ndarray"),
    ],
)
def test_what_is_not_plain_is_refused_and_named(value, why):
    with pytest.raises(Unwritable, match=why):
        snapshot.taken(policies.asynchronous(num_workers=1), value)


class Mine(policies.Base):
    """As a user may write it: its state is in attributes that no field declares."""

    count = 0

    def arrival(self, now, worker, version, seconds):
        self.count += 1
        return [policies.Take(worker, self.version), self.close(), *self.begin([worker])]


def test_a_policy_of_a_users_own_and_what_it_may_not_be():
    policy, other = Mine(), Mine()
    driver = Driver(policy, range(3))
    driver.come(1)
    put_back(snapshot.taken(policy, None), other)
    assert (other == policy, other.count) == (True, 1)
    with pytest.raises(ValueError, match=r"policy must be \S+:Mine, as the checkpoint says; it is \S+:Softsync$"):
        snapshot.put(snapshot.taken(policy, None), policies.softsync(num_workers=3))
    later = Mine()
    later.added = 1
    with pytest.raises(ValueError, match=r"policy must be \S+:Mine as it was; it has added now"):
        snapshot.put(snapshot.taken(policy, None), later)
    policy.choose = max
    with pytest.raises(Unwritable, match=r"policy\.choose is a builtin_function_or_method"):
        snapshot.taken(policy, None)


def test_nothing_is_imported_or_called_that_a_file_names():
    tree = snapshot.taken(policies.asynchronous(num_workers=1), Holder(1)).tree
    for name in ("this:d", "subprocess:Popen", "os:system", f"{__name__}:Hidden"):
        tree[1][1][0] = name
        with pytest.raises(ValueError, match=f"{name} must be a class of dataclasses"):
            snapshot.put(Snapshot(tree, {}), policies.asynchronous(num_workers=1))
    assert "this" not in sys.modules
