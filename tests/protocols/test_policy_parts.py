"""A protocol is its policy: both have one maker; and a user's own policy is a protocol."""

import dataclasses
import functools
import pathlib
import re

import numpy as np
import pytest

from sgdlab import policies, predictors
from sgdlab.errors import UsageError
from sgdlab.registry import PROTOCOLS
from sgdlab.runs import digests
from sgdlab.runs.configuration import FAMILIES
from sgdlab.runs.plan import make_plan
from sgdlab.runtimes import with_enough_rows

ROOT = pathlib.Path(__file__).parents[2]
GIVEN = {"num_workers": 3, "predictor": predictors.RunningMean(), "seed": 0}
OWN = [name for name, part in PROTOCOLS.items() if not part.is_foreign]
WITH_POLICY = [name for name in OWN if PROTOCOLS[name].facts.policy is not None]


@pytest.mark.parametrize("name", WITH_POLICY)
class TestContract:
    def test_its_maker_is_public_and_takes_the_entries(self, name):
        facts = PROTOCOLS[name].facts
        assert facts.policy is getattr(policies, name)
        made = PROTOCOLS.policy(name, PROTOCOLS[name].entries(), **GIVEN)
        if facts.peers:
            averages = [policies.Mix(0, ((0, 0, 1.0),))] if made.fresh else []
            expected = [*averages, policies.Begin(0, int(made.fresh))]
            assert made.start([2, 0, 1])[: len(expected)] == expected
        else:
            assert made.start([2, 0, 1])[0] == policies.Begin(0, 0)

    def test_describes_its_arguments(self, name):
        assert set(PROTOCOLS[name].defaults) <= set(PROTOCOLS[name].help())


@pytest.mark.parametrize("name", sorted(set(OWN) - set(WITH_POLICY)))
def test_what_has_no_policy_is_refused_and_the_reason_given(name):
    why = PROTOCOLS[name].facts.no_policy
    assert why
    with pytest.raises(UsageError, match=rf"^--config\.protocol\.kind={name} must be another, .*: {re.escape(why)}$"):
        PROTOCOLS.policy(name, {}, **GIVEN)


def test_a_protocol_of_run_times_alone_is_refused_too(monkeypatch):
    monkeypatch.setattr(PROTOCOLS, "_parts", dict(PROTOCOLS))
    PROTOCOLS.register("mine", title="Mine")(lambda runtimes, *, num_gradients=None: None)
    with pytest.raises(UsageError, match=r"kind=mine must be another.*: it is a function of run-times, and no policy"):
        PROTOCOLS.policy("mine", {}, **GIVEN)


@pytest.mark.parametrize(
    ("name", "own", "single"),
    [
        ("asynchronous", {}, True),
        ("softsync", {}, False),
        ("softsync", {"gradients_per_update": 1}, True),
        ("rennala", {}, False),
        ("ringmaster", {}, True),
        ("bounded_staleness", {}, True),
        ("synchronous", {}, False),
        ("backup_workers", {"backups": 2}, True),
        ("backup_workers", {"backups": 1}, False),
        ("timeout", {"at_least": 1, "seconds": 0.0}, True),
        ("timeout", {"at_least": 1, "seconds": 0.1}, False),
        ("cutoff", {}, False),
    ],
)
def test_single_is_one_gradient_an_update(name, own, single):
    policy = PROTOCOLS.policy(name, own, **GIVEN)
    assert policy.single is single
    runtimes = np.random.default_rng(0).uniform(1, 1.05, (100, 3))
    schedule = policies.simulate(lambda num_workers: policy, runtimes, num_gradients=60)
    assert (np.bincount(schedule.update[schedule.used()]) == 1).all() == single


@pytest.fixture(name="pairs")
def policy_of_ones_own(monkeypatch):
    for registry in FAMILIES:
        monkeypatch.setattr(registry, "_parts", dict(registry))

    @policies.register(title="Pairs of workers", rule="nag_asgd")
    @dataclasses.dataclass
    class pairs(policies.Base):  # noqa: N801
        """An update waits for gradients of so many different workers, of any age.

        Attributes:
          size: so many.
        """

        size: int = 2
        came: set[int] = dataclasses.field(default_factory=set, init=False)

        def __post_init__(self):
            if self.size < 1:
                raise ValueError(f"size={self.size} must be at least 1")

        def arrival(self, now, worker, version, seconds):
            if worker in self.came:
                return [policies.Drop(worker), *self.begin([worker])]
            self.came.add(worker)
            actions = [policies.Take(worker, self.version)]
            if len(self.came) == self.size:
                self.came = set()
                actions.append(self.close())
            return actions + self.begin([worker])

    return pairs


class TestRegister:
    def test_serves_both(self, pairs):
        runtimes = np.random.default_rng(0).uniform(1, 3, (40, 4))
        schedule = PROTOCOLS.make("pairs", {"size": 3}, runtimes=runtimes, num_gradients=30, seed=0)
        own = policies.simulate(lambda num_workers: pairs(size=3), runtimes, num_gradients=30)
        np.testing.assert_array_equal(schedule.update, own.update)
        for update in range(schedule.num_updates):
            assert len(set(schedule.worker[schedule.update[:, 0] == update])) == 3
        assert isinstance(PROTOCOLS.policy("pairs", {"size": 3}, num_workers=4, seed=0), pairs)
        assert PROTOCOLS["pairs"].entries().to_dict() == {"size": 2}
        assert PROTOCOLS["pairs"].help() == {"size": "so many."}
        assert PROTOCOLS["pairs"].is_foreign

    def test_draws_as_many_run_times_as_it_needs(self, pairs):
        draw = lambda rows: np.random.default_rng(0).uniform(1, 3, (100, 4))[:rows]
        make = lambda runtimes: PROTOCOLS.make("pairs", {}, runtimes=runtimes, num_gradients=50)
        assert with_enough_rows(make, draw, rows=2).used().sum() == 50

    def test_refuses_by_flag(self, pairs):
        for make in (PROTOCOLS.make, PROTOCOLS.policy):
            with pytest.raises(UsageError, match=r"^--config\.protocol\.pairs\.size=0 must be at least 1"):
                make("pairs", {"size": 0}, num_workers=2, runtimes=np.ones((3, 2)))

    def test_gives_a_maker_what_it_names(self, pairs):
        seen = []

        @policies.register("named", title="Named")
        def maker(*, num_workers: int, predictor, seed: int, size: int | None = None):
            """Writes down what it is given."""
            seen.append((num_workers, predictor, seed, size))
            return policies.Softsync()

        given = {
            "runtimes": np.ones((4, 3)),
            "predictor": functools.partial(predictors.Oracle, whole=True),
            "seed": 4,
            "num_gradients": 5,
        }
        PROTOCOLS.make("named", {"size": None}, **given)
        PROTOCOLS.make("named", {"size": 8}, **given | {"predictor": GIVEN["predictor"]})
        assert [(workers, seed, size) for workers, _, seed, size in seen] == [(3, 4, None), (3, 4, 8)]
        assert isinstance(seen[0][1], predictors.Oracle)
        assert seen[1][1] is GIVEN["predictor"]

    def test_leaves_nothing_behind_where_the_name_is_taken(self, pairs):
        with pytest.raises(ValueError, match=r"^name='partial' must be another"):
            policies.register("partial", title="Mine")(pairs)
        assert PROTOCOLS["partial"].facts.policy is None
        policies.forget("pairs")
        assert "pairs" not in PROTOCOLS

    def test_its_code_is_what_its_digest_is_of(self, pairs):
        assert digests.of_code(PROTOCOLS["pairs"].make) == digests.of_code(pairs)

    def test_is_a_method_of_the_command_line(self, pairs, monkeypatch):
        monkeypatch.syspath_prepend(ROOT)
        from configs import digits  # noqa: PLC0415 (configurations hold the entries of the parts that there are)

        config = digits.get_config()
        config.method, config.protocol.pairs.size, config.cluster.num_workers, config.epochs = "pairs", 3, 4, 0.5
        plan = make_plan(config)
        assert (plan.experiment.protocol.name, plan.experiment.rule.name) == ("pairs", "nag_asgd")
        assert (np.bincount(plan.schedule.update[plan.schedule.used()]) == 3).all()
        assert plan.schedule.used().sum() >= plan.num_gradients > plan.schedule.used().sum() - 3


def test_ringmaster_drops_a_gradient_whose_delay_is_above_its_limit():
    policy = policies.ringmaster(num_workers=3, max_delay=2)
    policy.start([0, 1, 2])
    assert policies.Take(0, 0) in policy.arrived(1.0, 0, version=0, seconds=1.0)
    assert policies.Take(1, 1) in policy.arrived(2.0, 1, version=0, seconds=2.0)  # a delay of 2, the limit
    assert policy.arrived(3.0, 2, version=0, seconds=3.0) == [policies.Drop(2), policies.Begin(2, 2)]
