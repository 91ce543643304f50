"""Every protocol refuses impossible compute times and arguments by name and value, and says how many rows it needs."""

import functools
import inspect
import math
import re

import numpy as np
import pytest
from comparison import check
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.tiers import examples

from sgdlab import cluster, policies, predictors, protocols
from sgdlab.errors import UsageError
from sgdlab.registry import PROTOCOLS

OWN = [name for name, part in PROTOCOLS.items() if not part.is_foreign]
GIVEN = {"gradients_per_epoch": 10.0, "predictor": predictors.RunningMean(window=3), "seed": 0}
VARIANTS = {name: (name, {}) for name in OWN} | {
    "softsync, 3": ("softsync", {"gradients_per_update": 3}),
    "ringmaster, interrupting": ("ringmaster", {"max_delay": 2, "interrupt": True}),
    "timeout, interrupting": ("timeout", {"at_least": 0.5, "seconds": 1.0, "interrupt": True}),
    "partial, one of four": ("partial", {"push_at_least": 1, "pull_at_least": 1, "pull_delays": 1.0}),
    "layers, read one by one": ("layerwise", {"reads": "forward"}),
    "cutoff, of the rate": ("cutoff", {"window": 3, "objective": "rate"}),
    "gossip, push": ("gossip", {"kind": "push", "period": 2}),
    "gossip, rounds": ("gossip", {"clock": "rounds", "period": 2}),
    "gossip, poisson": ("gossip", {"clock": "poisson"}),
    "elastic_averaging, rounds": ("elastic_averaging", {"clock": "rounds"}),
}
FOUND_BY_THE_SCHEDULE = (
    protocols.asynchronous, protocols.softsync, protocols.bounded_staleness, protocols.layerwise
)  # fmt: skip


def made(name, **own):
    """The protocol, as one calls it, with what it needs of a run."""
    function = getattr(protocols, name)
    known = inspect.signature(function).parameters
    return functools.partial(function, **{key: value for key, value in GIVEN.items() if key in known}, **own)


def assert_same(left, right):
    assert type(left) is type(right)
    for field, value in vars(left).items():
        np.testing.assert_array_equal(value, getattr(right, field), err_msg=field)


every_protocol = pytest.mark.parametrize("protocol", [made(n, **own) for n, own in VARIANTS.values()], ids=VARIANTS)


@every_protocol
class TestRuntimes:
    def test_a_bad_value_is_named_by_its_place(self, protocol):
        for value in (0.0, -1.0, np.nan, np.inf, -np.inf):
            runtimes = np.ones((4, 3))
            runtimes[2, 1] = runtimes[3, 0] = value
            with pytest.raises(ValueError, match=rf"runtimes\[2, 1\]={value} must be positive and finite"):
                protocol(runtimes)

    def test_a_bad_shape_is_named(self, protocol):
        for shape in ((3,), (0, 3), (3, 0), (2, 3, 4), ()):
            with pytest.raises(ValueError, match=r"runtimes of shape \(.*\) must have shape \[T, N\]"):
                protocol(np.ones(shape))
        with pytest.raises(ValueError, match="more seconds than a float64 can hold"):
            protocol(np.full((2, 2), np.finfo(np.float64).max))

    def test_those_that_do_not_move_the_clock_are_named(self, protocol):
        if protocol.func is protocols.simulated_staleness:
            pytest.skip("its clock is nobody's")
        where = r"runtimes\[1, 0\]=1e-20 does not advance the clock at \d s; "
        if protocol.func in FOUND_BY_THE_SCHEDULE:
            where = ""
        with pytest.raises(ValueError, match=f"{where}compute times must be long enough to move the clock"):
            protocol(np.concatenate([np.ones((1, 2)), np.full((1, 2), 1e-20), np.ones((20, 2))]), num_gradients=5)

    def test_they_are_left_alone_and_decide_the_schedule(self, protocol):
        runtimes = np.random.default_rng(0).uniform(1, 3, (40, 4))
        before = runtimes.copy()
        first = protocol(runtimes, num_gradients=20)
        np.testing.assert_array_equal(runtimes, before)
        assert runtimes.flags.writeable
        assert_same(first, protocol(before, num_gradients=20))
        assert first.wall_clock() != protocol(1.1 * runtimes, num_gradients=20).wall_clock()


@every_protocol
class TestNumGradients:
    def test_a_number_that_is_none_is_refused(self, protocol):
        for value in (0, -1, 2.0, "3", False):
            with pytest.raises(ValueError, match=rf"^num_gradients={value!r} must be a whole number of at least 1"):
                protocol(np.ones((40, 2)), num_gradients=value)

    def test_too_few_rows_say_how_many_would_do(self, protocol):
        with pytest.raises(ValueError, match=r"^num_gradients=96 needs more than the 9 rows of") as caught:
            protocol(np.random.default_rng(0).uniform(1, 3, (9, 4)), num_gradients=96)
        assert isinstance(caught.value, protocols.NotEnoughRuntimes)
        assert caught.value.rows > 9
        assert f"about {caught.value.rows} rows" in str(caught.value)

    @settings(check, max_examples=examples(40))
    @given(workers=st.integers(2, 5), seed=st.integers(0, 99), number=st.integers(1, 40), whole=st.booleans())
    def test_a_longer_table_changes_nothing(self, protocol, workers, seed, number, whole):
        def draw(rows):
            asked.append(rows)
            times = cluster.gamma(num_workers=workers, num_gradients=rows, heterogeneous=True, batch_size=3, seed=seed)
            return np.ceil(times) if whole else times

        asked = []
        limited = functools.partial(protocol, num_gradients=number)
        rows = 16 if protocol.func is protocols.a2cid2 else 1  # fewer do not tell its unit of time
        schedule = protocols.with_enough_rows(limited, draw, rows=rows)
        assert asked[0] == rows
        assert (np.diff(asked) > 0).all()
        assert_same(schedule, limited(draw(20 * number + 20)))


WHOLE, COUNT = "must be a whole number of at least 0", "must be a whole number of at least 1"
ABOVE, LEAST = "must be a finite number above 0", "must be a finite number at least 0"
SHARE = "must be a whole number from 1 to 3, the number of workers, or a share above 0.0 and at most 1.0"
OF_SERVERS = SHARE.replace("3, the number of workers", "4, the number of servers")
BAD = {
    "a2cid2": [("graph", "star", "must be one of"), ("rate", 0.0, ABOVE), ("eta", -1.0, LEAST), ("weight", -0.5, LEAST),
               ("clock", "rounds", "must be one of own, poisson")],
    "ad_psgd": [("graph", "star", "must be one of")],
    "anytime": [("seconds", math.inf, ABOVE), ("gradients", 0, COUNT), ("window", 0, COUNT)],
    "assignment": [("kind", "fair", "must be one of pure, random"), ("gradients_per_update", 4, "must be a whole number"
                   " from 1 to 3: of 3 workers"), ("gradients_per_update", 0, "must be a whole number from 1 to 3")],
    "ata": [("gradients_per_update", 0, COUNT), ("alpha", -1.0, LEAST), ("relative_alpha", -1.0, LEAST)],
    "backup_workers": [("backups", value, "must be a whole number from 0 to 2: there are 3 workers")
                       for value in (-1, 3, 1.0, "1", None)],
    "bounded_staleness": [("bound", value, WHOLE) for value in (-1, 0.5, 0.0, math.nan, "1", None, True)],
    "cutoff": [("window", 0, COUNT), ("objective", "speed", "must be one of throughput, rate")],
    "d_psgd": [("graph", "star", "must be one of"), ("graph", "directed", "must have edges"), ("density", 0.0, ABOVE)],
    "delayed_rounds": [("communication", value, LEAST) for value in (-1.0, math.nan, "1", None)],
    "dropcompute": [("micro_batches", 0, COUNT), ("seconds", 0.0, ABOVE), ("window", 0, COUNT),
                    ("communication", -1.0, LEAST)],
    "elastic_averaging": [("clock", "poisson", "must be one of own, rounds"), ("period", 1.0, COUNT)]
    + [("beta", value, LEAST + " and at most 1") for value in (-0.1, 1.5, math.nan, math.inf, "0.5", True)],
    "gossip": [("kind", "both", "must be one of pull, push"), ("clock", "fair", "must be one of own, rounds, poisson"),
               ("period", 0, COUNT)],
    "layerwise": [("num_blocks", 0, COUNT), ("reads", "end", "must be one of start, forward"),
                  ("pushes", "start", "must be one of end, backward")]
    + [("backward_share", value, ABOVE + " and at most 1") for value in (0.0, -0.5, 1.01, math.nan, "1", None, True)],
    "lb_bsp": [("gradients", 0, COUNT), ("decay", 1.0, LEAST + " and below 1"), ("communication", -1.0, LEAST)],
    "malenia": [("collected", -1.0, LEAST)],
    "mindflayer": [("trials", 0, COUNT), ("trials", (1, 2), "must be one number, or 3, one for each worker"),
                   ("seconds", math.nan, ABOVE), ("share", 0.0, ABOVE), ("window", 0, COUNT),
                   ("noise", 0.5, "must be a finite number at least 1"), ("communication", -1.0, LEAST)],
    "partial": [("num_servers", 0, COUNT), ("push_timeout", -1e-9, LEAST),
                ("pull_timeout", math.inf, LEAST), ("pull_at_least", 5, OF_SERVERS)]
    + [("push_at_least", value, SHARE) for value in (0, 4, 4.0, 0.0, -0.5, 1.01, math.nan, "1", None, True)],
    "rennala": [("gradients_per_update", 1.5, COUNT)],
    "ringleader": [("points", "old", "must be one of own, newest")],
    "ringmaster": [("max_delay", 0, COUNT)],
    "sgp": [("graph", "tree", "must be one of")],
    "simulated_staleness": [("average", -0.5, LEAST), ("ramp_epochs", -1, LEAST), ("ramp_epochs", None, LEAST)],
    "softsync": [("gradients_per_update", 0, COUNT)],
    "timeout": [("at_least", 1.5, SHARE), ("at_least", 4, SHARE), ("seconds", -1.0, LEAST)],
    "vecna": [("trials", 0, COUNT), ("seconds", 0.0, ABOVE), ("window", 0, COUNT), ("communication", -1.0, LEAST)],
}  # fmt: skip


@pytest.mark.parametrize(("name", "entry", "value", "right"), [(name, *row) for name in BAD for row in BAD[name]])
def test_an_impossible_entry_is_refused_by_its_flag_wherever_it_is_given(name, entry, value, right):
    given = GIVEN | {"num_workers": 3}
    makers = [lambda: PROTOCOLS.make(name, {entry: value}, **given, runtimes=np.ones((40, 3)))]
    if PROTOCOLS[name].facts.policy is not None:
        makers.append(lambda: PROTOCOLS.policy(name, {entry: value}, **given))
    own = f"--config.protocol.{name}.{entry}"
    for make in makers:
        with pytest.raises(UsageError, match=f"^{re.escape(own)}={re.escape(repr(value))} {re.escape(right)}"):
            make()


@pytest.mark.parametrize(
    ("name", "own", "words"),
    [
        ("partial", {"pull_delays": {"late_share": 2.0}}, "--config.protocol.partial.pull_delays.late_share=2.0 must"),
        ("mindflayer", {"seconds": (1.0, 0.0, 1.0)}, "--config.protocol.mindflayer.seconds[1]=0.0 must be a finite"),
        ("mindflayer", {"trials": (0,)}, "--config.protocol.mindflayer.trials=0 must be a whole number of at least 1"),
        (
            "elastic_averaging",
            {"clock": "rounds", "beta": 0.5},
            "--config.protocol.elastic_averaging.beta=0.5 must be a finite number at least 0 and at most 0.3",
        ),
    ],
)
def test_a_part_of_an_entry_is_named(name, own, words):
    with pytest.raises(UsageError, match=f"^{re.escape(words)}"):
        PROTOCOLS.make(name, own, **GIVEN, runtimes=np.ones((40, 3)))


@pytest.mark.parametrize("name", ["a2cid2", "assignment", "cutoff", "gossip", "partial"])
def test_an_impossible_seed_is_refused(name):
    for seed in (-1, 1.0, None, "0"):
        with pytest.raises(ValueError, match=rf"^seed={seed!r} must be a whole number of at least 0"):
            made(name)(np.ones((20, 3)), seed=seed)


@pytest.mark.parametrize("name", ["gossip", "elastic_averaging", "ad_psgd", "d_psgd", "sgp"])
def test_a_policy_of_peers_refuses_a_number_of_gradients_that_is_none(name):
    for number in (0, 1.5):
        with pytest.raises(ValueError, match=rf"^num_gradients={number} must be a whole number of at least 1"):
            getattr(policies, name)(num_workers=3, num_gradients=number)


def test_a_ramp_needs_to_know_how_long_an_epoch_is():
    for value, words in ((None, "must be given where ramp_epochs=2.5"), (0, ABOVE), (math.nan, ABOVE), ("4", ABOVE)):
        with pytest.raises(ValueError, match=f"^gradients_per_epoch={value!r} {re.escape(words)}"):
            protocols.simulated_staleness(np.ones((8, 1)), ramp_epochs=2.5, gradients_per_epoch=value)


@pytest.mark.parametrize("name", ["pull_delays", "push_delays"])
class TestDelays:
    def test_a_bad_shape_is_named(self, name):
        right = "must have shape [T, N, S] = (4, 3, 2), that of runtimes and num_servers, or be one number"
        for shape in ((4, 3), (4, 3, 1), (3, 3, 2), (4, 2, 2), (1,), (4, 3, 2, 1)):
            with pytest.raises(ValueError, match=re.escape(f"{name} of shape {shape} {right}")):
                protocols.partial(np.ones((4, 3)), num_servers=2, **{name: np.zeros(shape)})

    @pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf])
    def test_a_bad_value_is_named_by_its_place(self, name, value):
        delays = np.zeros((4, 3, 2))
        delays[2, 0, 1] = delays[3, 0, 0] = value
        for bad, place in ((delays, "[2, 0, 1]"), (value, "")):
            words = re.escape(f"{name}{place}={value} must be finite and at least 0")
            with pytest.raises(ValueError, match=f"^{words}"):
                protocols.partial(np.ones((4, 3)), num_servers=2, **{name: bad})
