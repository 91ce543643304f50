"""Every fast path makes the schedule that its policy makes event by event, field by field, whatever ties there are."""

import functools

import numpy as np
import pytest
from comparison import BLURRED, RUNTIMES, assert_equal, assert_schedule_is, check
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.tiers import examples

from sgdlab import DROPPED, PENDING, Schedule, policies, predictors, protocols
from sgdlab.protocols import PROTOCOLS
from sgdlab.protocols.register import as_protocol


class Watching:
    """A predictor whose next cutoff depends on who was in time."""

    title = "watching"

    def start(self, window, *, seed):
        return 0, window.shape[1]

    def predict(self, state, *, rate=None):
        number, workers = state
        return predictors.Prediction(1 + number % workers, np.full(workers, np.nan), np.full(workers, np.nan))

    def observe(self, state, runtimes, cut_at):
        came = sum(2**worker for worker in np.flatnonzero(~np.isnan(runtimes)))
        return state[0] * 7 + int(came), state[1]


SIZE = st.integers(1, 6)
SECONDS = st.one_of(st.sampled_from([0.0, 1.0, 2.0, 0.5, 3.0]), st.floats(0, 9))  # deadlines at arrivals
THRESHOLDS = st.one_of(st.none(), st.sampled_from([0.5, 1.0, 2.0, 3.0, 4.0, np.inf]))
PREDICTORS = st.sampled_from(
    [
        Watching(),
        predictors.RunningMean(window=2),
        predictors.Elfving(window=3),
        predictors.Deadline(deviations=1.0, window=2),
    ]
)
OWN = {
    "synchronous": lambda workers: {},
    "backup_workers": lambda workers: {"backups": st.integers(0, workers - 1)},
    "timeout": lambda workers: {"at_least": st.integers(1, workers), "seconds": SECONDS, "interrupt": st.booleans()},
    "cutoff": lambda workers: {
        "predictor": PREDICTORS,
        "window": st.integers(1, 3),
        "objective": st.sampled_from(["throughput", "rate"]),
        "seed": st.just(3),
    },
    "rennala": lambda workers: {"gradients_per_update": SIZE},
    "softsync": lambda workers: {"gradients_per_update": SIZE},
    "bounded_staleness": lambda workers: {"bound": st.integers(0, 5)},
    "ringmaster": lambda workers: {"max_delay": st.integers(1, 5), "interrupt": st.booleans()},
    "asynchronous": lambda workers: {},
    "dropcompute": lambda workers: {
        "micro_batches": st.integers(1, 4),
        "seconds": THRESHOLDS,
        "window": st.integers(1, 2),
        "interrupt": st.booleans(),
        "communication": st.sampled_from([0.0, 0.5, 1.0]),
    },
    "anytime": lambda workers: {
        "seconds": st.one_of(st.none(), st.sampled_from([0.5, 2.0, 3.0, 9.0])),
        "gradients": st.integers(1, 3),
        "window": st.integers(1, 2),
        "interrupt": st.booleans(),
        "communication": st.sampled_from([0.0, 0.5, 1.0]),
    },
}


def event_by_event(name: str, runtimes: np.ndarray, **given) -> Schedule:
    """The protocol without its fast path."""
    facts = PROTOCOLS[name].facts
    return as_protocol(facts.policy, peers=facts.peers, ends=facts.ends)(runtimes, **given)


def test_every_fast_path_of_servers_is_compared():
    fast = {name for name, part in PROTOCOLS.items() if part.facts.fast is not None and not part.facts.peers}
    assert fast == set(OWN)


@pytest.mark.parametrize("name", OWN)
@pytest.mark.representatives("synchronous", "asynchronous", "rennala", "dropcompute", "bounded_staleness")
@settings(check, max_examples=examples(350))
@given(data=st.data(), runtimes=st.one_of(RUNTIMES, RUNTIMES, BLURRED))
def test_a_fast_path_makes_the_schedule_of_its_policy(name, data, runtimes):
    own = data.draw(st.fixed_dictionaries(OWN[name](runtimes.shape[1])))
    num_gradients = data.draw(st.one_of(st.none(), st.integers(1, runtimes.size + 2)))
    protocol = functools.partial(getattr(protocols, name), runtimes, num_gradients=num_gradients, **own)
    try:
        expected = event_by_event(name, runtimes, num_gradients=num_gradients, **own)
    except protocols.NotEnoughRuntimes:
        with pytest.raises(protocols.NotEnoughRuntimes):
            protocol()
    else:
        assert_equal(protocol(), expected)


@settings(check, max_examples=examples(300))
@given(
    runtimes=RUNTIMES,
    size=st.integers(1, 4),
    max_delay=st.integers(1, 3),
    number=st.one_of(st.none(), st.integers(1, 20)),
)
def test_collecting_of_any_size_and_age(runtimes, size, max_delay, number):
    fast = PROTOCOLS["rennala"].facts.fast
    protocol = functools.partial(fast, policies.Collect(size=size, max_delay=max_delay), runtimes, number)
    make_policy = lambda num_workers: policies.Collect(size=size, max_delay=max_delay)
    try:
        expected = policies.simulate(make_policy, runtimes, num_gradients=number)
    except protocols.NotEnoughRuntimes:
        with pytest.raises(protocols.NotEnoughRuntimes):
            protocol()
    else:
        assert_equal(protocol(), expected)


BY_HAND = {
    # Worker 0 comes at 2, 4, 6, worker 1 at 3, 6: at 6 worker 0 comes first.
    "asynchronous": (
        {},
        {"num_gradients": 3},
        [[2.0, 3.0]] * 3,
        {
            "worker": [0, 1, 0, 1],
            "read": [[0], [0], [1], [2]],
            "update": [[0], [1], [2], [PENDING]],
            "started": [0, 0, 2, 3],
            "arrived": [[2], [3], [4], [6]],
            "applied": [[2], [3], [4]],
        },
    ),
    # The gradients of 2 and 3, and those of 4 and 6, are updates; worker 0 reads version 0 at 2, worker 1 version 1.
    "softsync": (
        {"gradients_per_update": 2},
        {"num_gradients": 3},
        [[2.0, 3.0]] * 3,
        {
            "worker": [0, 1, 0, 0, 1],
            "read": [[0], [0], [0], [1], [1]],
            "update": [[0], [0], [1], [1], [PENDING]],
            "started": [0, 0, 2, 4, 3],
            "arrived": [[2], [3], [4], [6], [6]],
            "applied": [[3], [6]],
        },
    ),
    # Worker 0 fills version 0 by itself, at 1 and 2; worker 1 comes at 2.5, is dropped, and fills half of version 1.
    "rennala": (
        {"gradients_per_update": 2},
        {"num_gradients": 4},
        [[1.0, 2.5], [1.0, 1.0], [1.0, 9.0], [9.0, 9.0]],
        {
            "worker": [0, 0, 1, 0, 1, 0],
            "read": [[0], [0], [0], [1], [1], [1]],
            "update": [[0], [0], [DROPPED], [1], [1], [PENDING]],
            "started": [0, 1, 0, 2, 2.5, 3],
            "arrived": [[1], [2], [2.5], [3], [3.5], [12]],
            "applied": [[2], [3.5]],
        },
    ),
    # With a bound of 1 worker 0 begins its second gradient at 1, its third not before worker 1's first has come at 3.
    "bounded_staleness": (
        {"bound": 1},
        {"num_gradients": 4},
        [[1.0, 3.0]] * 4,
        {
            "worker": [0, 0, 1, 0, 1],
            "read": [[0], [1], [0], [3], [3]],
            "update": [[0], [1], [2], [3], [PENDING]],
            "started": [0, 1, 0, 3, 3],
            "arrived": [[1], [2], [3], [4], [6]],
            "applied": [[1], [2], [3], [4]],
        },
    ),
    # The last update makes worker 1's second gradient, on version 2, two updates old: it ends there, interrupted.
    "ringmaster": (
        {"max_delay": 2, "interrupt": True},
        {"num_gradients": 4},
        [[1.0, 9.0]] * 4,
        {
            "worker": [0, 0, 1, 0, 0, 1],
            "read": [[0], [1], [0], [2], [3], [2]],
            "update": [[0], [1], [DROPPED], [2], [3], [DROPPED]],
            "started": [0, 1, 0, 2, 3, 2],
            "arrived": [[1], [2], [2], [3], [4], [4]],
            "applied": [[1], [2], [3], [4]],
        },
    ),
    # Two of three make an update. Worker 2 ends its first gradient at 2.5, too late, and is in the third update.
    "backup_workers": (
        {"backups": 1},
        {"num_gradients": 6},
        [[1.0, 1.0, 2.5], [1.0, 1.0, 0.7], [2.0, 1.0, 9.0]],
        {
            "worker": [0, 1, 0, 1, 2, 1, 2, 0],
            "read": [[0], [0], [1], [1], [0], [2], [2], [2]],
            "update": [[0], [0], [1], [1], [DROPPED], [2], [2], [PENDING]],
            "started": [0, 0, 1, 1, 0, 2, 2.5, 2],
            "arrived": [[1], [1], [2], [2], [2.5], [3], [3.2], [4]],
            "applied": [[1], [2], [3.2]],
        },
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_by_hand(name):
    own, limit, rows, expected = BY_HAND[name]
    runtimes = np.array(rows)
    assert_schedule_is(getattr(protocols, name)(runtimes, **own, **limit), expected, runtimes.shape[1])
    assert_schedule_is(event_by_event(name, runtimes, **own, **limit), expected, runtimes.shape[1])
