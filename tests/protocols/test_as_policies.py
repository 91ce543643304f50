"""Every protocol is its policy on a virtual clock, field by field, whatever ties there are; both are right by hand."""

import functools

import numpy as np
import pytest
from comparison import BLURRED, RUNTIMES, assert_equal, assert_schedule_is, check
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.tiers import examples

from sgdlab import DROPPED, PENDING, Schedule, policies, predictors, protocols
from sgdlab.protocols.collector import collected
from sgdlab.registry import PROTOCOLS


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
IN_ROUNDS = ("synchronous", "backup_workers", "timeout", "cutoff")


def simulated(name: str, own: dict, runtimes: np.ndarray, num_gradients: int | None) -> Schedule:
    """The policy's schedule, which ends as the protocol says that it does without a number of gradients."""
    ends = {}
    if name in IN_ROUNDS:
        ends = {"num_updates": len(runtimes)}
    elif name == "bounded_staleness":
        ends = {"idle_at_end": num_gradients is None}
    make_policy = functools.partial(getattr(policies, name), **own)
    return policies.simulate(make_policy, runtimes, num_gradients=num_gradients, **ends)


def test_every_policy_is_compared():
    of_servers = {name for name, part in policies.POLICIES.items() if not part.facts.get("peers")}
    # What `policies.register` makes is its policy by construction; foreign parts are of other tests.
    apart = {name for name in of_servers if hasattr(PROTOCOLS[name].make, "__wrapped__")}
    assert {name for name in of_servers - apart if not policies.POLICIES[name].is_foreign} == set(OWN)


@pytest.mark.parametrize("name", OWN)
class TestEveryPolicy:
    @pytest.mark.representatives("synchronous", "asynchronous", "backup_workers")
    @settings(check, max_examples=examples(350))
    @given(data=st.data(), runtimes=st.one_of(RUNTIMES, RUNTIMES, BLURRED))
    def test_equals_its_protocol(self, name, data, runtimes):
        own = data.draw(st.fixed_dictionaries(OWN[name](runtimes.shape[1])))
        num_gradients = data.draw(st.one_of(st.none(), st.integers(1, runtimes.size + 2)))
        protocol = functools.partial(getattr(protocols, name), runtimes, num_gradients=num_gradients, **own)
        try:
            expected = simulated(name, own, runtimes, num_gradients)
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
    interrupt=st.booleans(),
    number=st.one_of(st.none(), st.integers(1, 20)),
)
def test_collecting_of_any_size_and_age(runtimes, size, max_delay, interrupt, number):
    """With several gradients an update, one can be interrupted at the instant at which it began."""
    own = {"size": size, "max_delay": max_delay, "interrupt": interrupt}
    protocol = functools.partial(collected, runtimes, num_gradients=number, **own)
    try:
        expected = policies.simulate(lambda num_workers: policies.Collect(**own), runtimes, num_gradients=number)
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
    assert_schedule_is(simulated(name, own, runtimes, **limit), expected, runtimes.shape[1])


class Waiting(policies.Base):
    """Lets nobody begin again."""

    def arrival(self, now, worker, version, seconds):
        return [policies.Take(worker, self.version), self.close()]


class TestSimulate:
    def test_a_policy_is_told_run_times_that_the_clock_would_round(self):
        told = []

        class Listening(policies.Softsync):
            def arrival(self, now, worker, version, seconds):
                told.append((now, worker, version, seconds))
                return super().arrival(now, worker, version, seconds)

        runtimes = np.array([[0.1], [0.2], [0.3]])
        policies.simulate(lambda num_workers: Listening(), runtimes, num_gradients=3)
        assert told == [(0.1, 0, 0, 0.1), (0.1 + 0.2, 0, 1, 0.2), (0.1 + 0.2 + 0.3, 0, 2, 0.3)]

    def test_a_policy_that_lets_all_wait_is_named(self):
        with pytest.raises(ValueError, match=r"^policy=Waiting lets all workers wait after 2 gradients in 2 updates"):
            policies.simulate(lambda num_workers: Waiting(), np.ones((5, 2)), num_gradients=3)

    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            ([], "neither takes nor drops the gradient of worker 0 at 1 s"),
            ([policies.Take(1, 0)], r"answers Take\(worker=1, update=0\) at 1 s, when workers \[0, 1\] are computing"),
            ([policies.Take(0, 1)], r"answers Take\(worker=0, update=1\)"),
            ([policies.Drop(0), policies.Close(0)], r"answers Close\(update=0\)"),
            ([policies.Take(0, 0), policies.Close(1)], r"answers Close\(update=1\)"),
            ([policies.Drop(0), policies.Begin(1, 0)], r"answers Begin\(worker=1, version=0\)"),
            ([policies.Drop(0), policies.Begin(0, 1)], r"answers Begin\(worker=0, version=1\)"),
            ([policies.Drop(0), policies.Interrupt(0)], r"answers Interrupt\(worker=0\)"),
            (["begin"], "answers 'begin'; it must be one of the actions"),
        ],
    )
    def test_an_impossible_answer_is_named(self, answer, words):
        class Wrong(policies.Base):
            def arrival(self, now, worker, version, seconds):
                return answer

        with pytest.raises(ValueError, match=f"^policy=Wrong {words}"):
            policies.simulate(lambda num_workers: Wrong(), np.ones((5, 2)), num_gradients=3)

    @pytest.mark.parametrize(("name", "value"), [("num_gradients", 0), ("num_updates", 1.0)])
    def test_a_number_that_is_none_is_refused(self, name, value):
        with pytest.raises(ValueError, match=f"^{name}={value!r} must be a whole number of at least 1"):
            policies.simulate(policies.asynchronous, np.ones((2, 2)), **{name: value})

    def test_too_few_run_times_say_how_many_would_do(self):
        draw = lambda rows: np.random.default_rng(0).uniform(1, 3, (100, 4))[:rows]
        protocol = functools.partial(policies.simulate, policies.asynchronous, num_gradients=60)
        with pytest.raises(protocols.NotEnoughRuntimes, match=r"^num_gradients=60 needs more than the 2 rows"):
            protocol(draw(2))
        assert_equal(
            protocols.with_enough_rows(protocol, draw, rows=2), protocols.asynchronous(draw(100), num_gradients=60)
        )
